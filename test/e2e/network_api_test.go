package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// kubectlImage is kubectl alone.
const kubectlImage = "hanse.dev/test/kubectl:v1"

// kubectl in a pod at a provider talks to the API server of home, as in any pod: by the environment, with a certificate that is
// valid for the name. Until tokens are reflected, its token comes from a Secret.
func TestHomeAPIFromRemotePod(t *testing.T) {
	ctx := network(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}}
	lubeck.create(t, account)
	lubeck.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "reader"}},
	})
	token, err := lubeck.Kubectl(ctx, "create", "token", "-n", ns, "reader")
	if err != nil {
		t.Fatal(err)
	}
	lubeck.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"},
		Data:       map[string][]byte{"token": []byte(strings.TrimSpace(token)), "ca.crt": lubeck.Config.CAData, "namespace": []byte(ns)},
	})
	lubeck.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "read-from-afar"}})
	lubeck.create(t, kubectlPod(ns))
	eventually(t, "kubectl has printed what it was asked for", func(ctx context.Context) error {
		return lubeck.hasPhase(ctx, ns, "kubectl", corev1.PodSucceeded)
	})
	out, err := lubeck.Kubectl(ctx, "logs", "-n", ns, "kubectl")
	if err != nil || strings.TrimSpace(out) != "configmap/read-from-afar" {
		t.Errorf("kubectl prints %q (%v)", out, err)
	}
}

func kubectlPod(ns string) *corev1.Pod {
	const mount = "/var/run/secrets/kubernetes.io/serviceaccount"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kubectl"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{v1alpha1.LabelPeer: "hamburg"}, RestartPolicy: corev1.RestartPolicyOnFailure,
			AutomountServiceAccountToken: ptr.To(false),
			Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: "reader"},
			}}},
			Containers: []corev1.Container{{
				Name: "kubectl", Image: kubectlImage, ImagePullPolicy: corev1.PullIfNotPresent, Resources: requests("10m", "64Mi"),
				Args:         []string{"get", "configmap", "read-from-afar", "-o", "name"},
				VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: mount, ReadOnly: true}},
			}},
		},
	}
}
