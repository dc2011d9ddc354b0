// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// kubectlImage is kubectl alone.
const kubectlImage = "hanse.dev/test/kubectl:v1"

// account makes a service account of the namespace that may view what is in it.
func account(t *testing.T, c *framework.Cluster, ns, name string) {
	t.Helper()
	c.MustCreate(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	c.MustCreate(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	})
}

// kubectl in a pod at a provider talks to the API server of home, as in any pod: by the environment, the token of the pod's service
// account, and a certificate that is valid for the name. It may what its account may at home. So it is with a token in a Secret, as
// accounts had before pods got their own.
func TestHomeAPIFromRemotePod(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	account(t, lubeck, ns, "reader")
	account(t, lubeck, ns, "legacy")
	lubeck.MustCreate(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "legacy", Annotations: map[string]string{corev1.ServiceAccountNameKey: "legacy"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	})
	whoami := kubectlContainer("legacy", "auth", "whoami", "--token=$(TOKEN)", "-o", "jsonpath={.status.userInfo.username}")
	whoami.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "legacy"}, Key: corev1.ServiceAccountTokenKey,
	}}}}
	lubeck.MustCreate(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "read-from-afar"}})
	lubeck.MustCreate(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kubectl"},
		Spec: corev1.PodSpec{
			NodeSelector: framework.AtHamburg, RestartPolicy: corev1.RestartPolicyOnFailure, ServiceAccountName: "reader", // on a busy machine an API server may not answer at once
			Containers: []corev1.Container{
				kubectlContainer("allowed", "get", "configmap", "read-from-afar", "-o", "name"), kubectlContainer("forbidden", "get", "secrets"), whoami,
			},
		},
	})
	for container, want := range map[string]string{
		"allowed": "configmap/read-from-afar", "forbidden": `User "system:serviceaccount:` + ns + `:reader" cannot list resource "secrets"`,
		"legacy": "system:serviceaccount:" + ns + ":legacy",
	} {
		framework.Eventually(t, "kubectl prints what is "+container, func(ctx context.Context) error {
			out, err := lubeck.Kubectl(ctx, "logs", "-n", ns, "kubectl", "-c", container)
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("it prints %q", out)
			}
			return err
		})
	}
	pod, err := lubeck.GetPod(ctx, ns, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	framework.ExpectTokenAtProvider(t, pod)
}

func kubectlContainer(name string, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: kubectlImage, ImagePullPolicy: corev1.PullIfNotPresent, Resources: framework.ResourceRequests("10m", "64Mi"), Args: args,
	}
}

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// A token is a file as at home, is renewed, and is worth nothing when the pod at home is gone.
func TestTokenOfRemotePodLivesAsAtHome(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	pod := framework.NewShellPod(ns, "worker", framework.RunForever)
	pod.Spec.NodeSelector = framework.AtHamburg
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: ptr.To[int64](1000), RunAsGroup: ptr.To[int64](1000), FSGroup: ptr.To[int64](2000),
	}
	lubeck.MustCreate(t, pod)
	home := lubeck.AwaitReadyPods(t, ns, "worker", 1)[0]
	read := func(ctx context.Context, script string) (string, error) {
		out, err := lubeck.Kubectl(ctx, "exec", "-n", ns, "worker", "--", "/bin/sh", "-c", script)
		return strings.TrimSpace(out), err
	}
	if out, err := read(ctx, "stat -L -c '%a %g' "+tokenPath); err != nil || out != "640 2000" {
		t.Errorf("the file has %q, want 640 of group 2000 (%v)", out, err)
	}
	if out, err := read(ctx, "cat "+strings.Replace(tokenPath, "token", "namespace", 1)); err != nil || out != ns {
		t.Errorf("the namespace is %q (%v)", out, err)
	}
	token, err := read(ctx, "cat "+tokenPath)
	if err != nil {
		t.Fatal(err)
	}
	if user, err := reviewed(ctx, lubeck, token); err != nil || user != "system:serviceaccount:"+ns+":default" {
		t.Fatalf("home knows its bearer as %q (%v)", user, err)
	}

	secret := &corev1.Secret{}
	remote := hamburg.MustGetRemotePod(t, &home)
	secret.Namespace, secret.Name = remote.Namespace, "hanse-token-"+string(home.UID)
	makeDue(t, secret)
	framework.Eventually(t, "the pod reads a new token", func(ctx context.Context) error {
		renewed, err := read(ctx, "cat "+tokenPath)
		if err == nil && renewed == token {
			return errors.New("it reads the old one")
		}
		return err
	})

	if _, err := lubeck.Kubectl(ctx, "delete", "pod", "-n", ns, "worker", "--wait"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "home refuses the token", func(ctx context.Context) error {
		if user, err := reviewed(ctx, lubeck, token); err == nil {
			return fmt.Errorf("it is that of %s", user)
		}
		return nil
	})
	framework.Eventually(t, "the Secret is gone", func(ctx context.Context) error { return hamburg.CheckGone(ctx, secret) })
}

// makeDue has the tokens be renewed now: their lives are longer than a story.
func makeDue(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	if err := hamburg.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	before := secret.DeepCopy()
	secret.Annotations[v1alpha1.AnnotationOriginVersion] = "2026-01-01T00:00:00Z"
	if err := hamburg.Patch(t.Context(), secret, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// reviewed returns the user whose token it is, and an error if it is nobody's.
func reviewed(ctx context.Context, c *framework.Cluster, token string) (string, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.Create(ctx, review); err != nil {
		return "", err
	}
	if !review.Status.Authenticated {
		return "", errors.New("it is nobody's: " + review.Status.Error)
	}
	return review.Status.User.Username, nil
}

// A server at a provider is shown a token by a pod, and asks home whose it is.
func TestRemoteServerReviewsTokens(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "server"}})
	mayReview := &rbacv1.ClusterRoleBinding{
		ObjectMeta: framework.ObjectMeta(ns),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "server"}},
	}
	lubeck.MustCreate(t, mayReview)
	t.Cleanup(func() { _ = lubeck.Delete(context.WithoutCancel(ctx), mayReview) })
	mount := []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}}
	reviews := kubectlContainer("review", "create", "--raw", "/apis/authentication.k8s.io/v1/tokenreviews", "-f", "/shared/review.json")
	reviews.VolumeMounts = mount
	server := framework.NewShellPod(ns, "server", `until nc -l -p 9000 > /shared/token && test -s /shared/token; do :; done; printf '{"kind": "TokenReview", "apiVersion": `+
		`"authentication.k8s.io/v1", "spec": {"audiences": ["server"], "token": "%s"}}' "$(cat /shared/token)" > /shared/review.json`)
	server.Spec.InitContainers, server.Spec.Containers = server.Spec.Containers, []corev1.Container{reviews}
	server.Spec.InitContainers[0].VolumeMounts = mount
	server.Spec.NodeSelector, server.Spec.ServiceAccountName, server.Spec.RestartPolicy = framework.AtHamburg, "server", corev1.RestartPolicyOnFailure
	server.Spec.Volumes = []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	lubeck.MustCreate(t, server)

	address := ""
	framework.Eventually(t, "the server waits for a token", func(ctx context.Context) error {
		remote, err := hamburg.GetRemotePod(ctx, server)
		if err != nil {
			return err
		}
		if address = remote.Status.PodIP; address == "" {
			return errors.New("it has no address")
		}
		return nil
	})
	presenter := framework.NewShellPod(ns, "client", "until nc -w 3 "+address+" 9000 < /tokens/server; do sleep 1; done; "+framework.RunForever)
	presenter.Spec.NodeSelector = framework.AtHamburg
	presenter.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tokens", MountPath: "/tokens"}}
	presenter.Spec.Volumes = []corev1.Volume{{Name: "tokens", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Audience: "server", ExpirationSeconds: ptr.To[int64](600), Path: "server",
		}}},
	}}}}
	lubeck.MustCreate(t, presenter)
	framework.Eventually(t, "the server has the answer", func(ctx context.Context) error {
		return lubeck.CheckPhase(ctx, ns, "server", corev1.PodSucceeded)
	})
	out, err := lubeck.Kubectl(ctx, "logs", "-n", ns, "server", "-c", "review")
	if err != nil || !strings.Contains(out, `"authenticated":true`) || !strings.Contains(out, "system:serviceaccount:"+ns+":default") {
		t.Errorf("home says %q (%v)", out, err)
	}
}

// What the author of a pod does not want taken along stays at home.
func TestTokenCanBeLeftAtHome(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	pod := framework.NewShellPod(ns, "modest", framework.RunForever)
	pod.Annotations = map[string]string{v1alpha1.AnnotationSkipToken: "true"}
	pod.Spec.NodeSelector = framework.AtHamburg
	lubeck.MustCreate(t, pod)
	home := lubeck.AwaitReadyPods(t, ns, "modest", 1)[0]
	out, err := lubeck.Kubectl(ctx, "exec", "-n", ns, "modest", "--", "/bin/sh", "-c", "ls "+tokenPath+" 2>&1; true")
	if err != nil || !strings.Contains(out, "No such file") {
		t.Errorf("the pod has %q (%v)", out, err)
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = hamburg.MustGetRemotePod(t, &home).Namespace, "hanse-token-"+string(home.UID)
	if err := hamburg.CheckGone(ctx, secret); err != nil {
		t.Error(err)
	}
	framework.ExpectTokenAtProvider(t, &home)
}
