// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// agentlessPeer is the Peer by which lubeck uses a namespace of hamburg with nothing but a kubeconfig: that Hanse runs
// there too makes no difference to what is done there.
const agentlessPeer = "guest-at-hamburg"

// TestAgentlessRunsPods offloads pods to a cluster of which there is a kubeconfig and nothing else.
func TestAgentlessRunsPods(t *testing.T) {
	ctx := framework.Begin(t)
	there := hamburg.CreateNamespace(t)
	kubeconfig := guestAsDocumented(t, hamburg, there)
	t.Cleanup(func() { lubeck.ForgetPeer(t, agentlessPeer) })
	_, err := lubeck.Hanse(ctx, "join", "--agentless", "--remote-kubeconfig", kubeconfig, "--namespaces", there,
		"--as", agentlessPeer, "--wait=false")
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, agentlessPeer+" is Ready and says what does not work", func(ctx context.Context) error {
		return errors.Join(
			lubeck.CheckPeerReady(ctx, agentlessPeer), lubeck.CheckPeerCondition(ctx, agentlessPeer, v1alpha1.ConditionConnected, v1alpha1.ReasonAgentless))
	})
	ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: agentlessPeer}},
	})
	lubeck.AwaitClusterStatus(t, ns, agentlessPeer, func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" && c.Twin == there })

	home := lubeck.ExpectPodOn(t, ns, v1alpha1.VirtualNodeName(agentlessPeer))
	followsTheReplica(t, lubeck, home, there)
	runsAJobThere(t, lubeck, ns, there)
	refusesWhatCannotBeHeld(t, lubeck, ns)
	takesConfiguration(t, lubeck, ns, there)

	if err := lubeck.Delete(ctx, home, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "nothing of the deleted pod is left on either side", func(ctx context.Context) error {
		return errors.Join(lubeck.CheckGone(ctx, home), hasNone(ctx, hamburg, there, &appsv1.ReplicaSetList{}))
	})
	if _, err := lubeck.Hanse(ctx, "unpeer", agentlessPeer); err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{&appsv1.ReplicaSetList{}, &batchv1.JobList{}, &corev1.PodList{}} {
		if err := hasNone(ctx, hamburg, there, list); err != nil {
			t.Error(err)
		}
	}
}

// guestAsDocumented makes an account in the namespace that has the rights that the documentation asks for and no others, and
// a quota, which says how much there is. It returns the path of a kubeconfig with a token of the account.
func guestAsDocumented(t *testing.T, c *framework.Cluster, ns string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "guest"}}
	role := documentedRole(t)
	role.Namespace = ns
	for _, object := range []client.Object{
		account, role,
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "guest"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: account.Name}},
		},
		&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "guest"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
				corev1.ResourceRequestsCPU: resource.MustParse("500m"), corev1.ResourceRequestsMemory: resource.MustParse("512Mi"),
			}},
		},
	} {
		c.MustCreate(t, object)
	}
	token := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["hamburg"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos["guest"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["guest"] = &clientcmdapi.Context{Cluster: "hamburg", AuthInfo: "guest", Namespace: ns}
	config.CurrentContext = "guest"
	file := filepath.Join(t.TempDir(), "guest.yaml")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// documentedRole is the Role of the page about clusters without Hanse.
func documentedRole(t *testing.T) *rbacv1.Role {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(framework.Root, "docs", "how-to", "use-a-cluster-without-hanse.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	block, _, _ := strings.Cut(rest, "```")
	role := &rbacv1.Role{}
	if err := yaml.UnmarshalStrict([]byte(block), role); err != nil || role.Kind != "Role" {
		t.Fatalf("the page begins with no Role, but %.80q (%v)", block, err)
	}
	return role
}

// followsTheReplica deletes the remote pod, and expects the same home pod with the shell of the next one.
func followsTheReplica(t *testing.T, c *framework.Cluster, home *corev1.Pod, there string) {
	t.Helper()
	first := replicaOf(t, hamburg, home, there, "")
	if out, err := c.Kubectl(t.Context(), "exec", "-n", home.Namespace, home.Name, "--", "hostname"); err != nil || framework.Trim([]byte(out)) != home.Name {
		t.Errorf("its host is called %q: %v", out, err)
	}
	if err := hamburg.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second := replicaOf(t, hamburg, home, there, string(first.UID))
	if second.Name == first.Name {
		t.Errorf("the pod %s was not made again", first.Name)
	}
	framework.Eventually(t, "the home pod shows the log of the next replica", func(ctx context.Context) error {
		now, err := c.GetPod(ctx, home.Namespace, home.Name)
		if err != nil || now.UID != home.UID || !framework.IsPodReady(now) {
			return errors.Join(err, fmt.Errorf("the home pod is %s", framework.Summarize([]corev1.Pod{*now})))
		}
		out, err := c.Kubectl(ctx, "logs", "-n", home.Namespace, home.Name)
		if err == nil && !strings.Contains(out, "started") {
			err = fmt.Errorf("the log is %q", out)
		}
		return err
	})
}

// replicaOf returns the pod that runs there for the home pod, and is not the one of that UID.
func replicaOf(t *testing.T, c *framework.Cluster, home *corev1.Pod, there, not string) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	framework.Eventually(t, "a replica of "+home.Name+" is ready", func(ctx context.Context) error {
		list := &corev1.PodList{}
		err := c.List(ctx, list, client.InNamespace(there), client.MatchingLabels{v1alpha1.LabelHomeUID: string(home.UID)})
		for i := range list.Items {
			if pod := &list.Items[i]; pod.DeletionTimestamp.IsZero() && framework.IsPodReady(pod) && string(pod.UID) != not {
				found = pod
				return err
			}
		}
		return errors.Join(err, errors.New(framework.Summarize(list.Items)))
	})
	return found
}

// runsAJobThere runs a Job at home, whose pod must become a Job there and run once.
func runsAJobThere(t *testing.T, c *framework.Cluster, ns, there string) {
	t.Helper()
	spec := framework.NewShellPodSpec("exit 0")
	spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "once"},
		Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{Spec: spec}},
	}
	c.MustCreate(t, job)
	framework.Eventually(t, "the Job succeeds", func(ctx context.Context) error { return c.CheckJobSucceeded(ctx, job, 1) })
	jobs := &batchv1.JobList{}
	if err := hamburg.List(t.Context(), jobs, client.InNamespace(there)); err != nil || len(jobs.Items) != 1 {
		t.Errorf("there are %d Jobs there: %v", len(jobs.Items), err)
	}
	if err := c.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "nothing of the Job is left there", func(ctx context.Context) error {
		return hasNone(ctx, hamburg, there, &batchv1.JobList{})
	})
}

// refusesWhatCannotBeHeld expects a pod that restarts on failure to say why it does not run.
func refusesWhatCannotBeHeld(t *testing.T, c *framework.Cluster, ns string) {
	t.Helper()
	pod := framework.NewShellPod(ns, "stubborn", framework.RunForever)
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	c.MustCreate(t, pod)
	heldFor(t, c, pod, "OnFailure")
	if err := c.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// heldFor waits until the pod says that it does not run for that reason.
func heldFor(t *testing.T, c *framework.Cluster, pod *corev1.Pod, reason string) {
	t.Helper()
	framework.Eventually(t, "pod "+pod.Name+" says that it does not run for "+reason, func(ctx context.Context) error {
		now, err := c.GetPod(ctx, pod.Namespace, pod.Name)
		if err == nil && !strings.Contains(now.Status.Message, reason) {
			err = fmt.Errorf("it says %q", now.Status.Message)
		}
		return err
	})
}

// takesConfiguration has a pod there read a ConfigMap and a Secret: not before the Peer says that they may be copied, and the peer lets
// them be. A change arrives, and when the pod has gone nothing is left.
func takesConfiguration(t *testing.T, c *framework.Cluster, ns, there string) {
	t.Helper()
	ctx := t.Context()
	settings := &corev1.ConfigMap{ObjectMeta: framework.NamespacedMeta(ns, "settings"), Data: map[string]string{"greeting": "moin"}}
	c.MustCreate(t, settings)
	c.MustCreate(t, &corev1.Secret{ObjectMeta: framework.NamespacedMeta(ns, "password"), StringData: map[string]string{"word": "hush"}})
	pod := framework.NewShellPod(ns, "reader", framework.RunForever)
	pod.Spec.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "WORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "password"}, Key: "word",
	}}}}
	c.MustCreate(t, pod)
	heldFor(t, c, pod, "spec.copies")

	role := roleWithoutSecrets(t, hamburg, there)
	if out, err := c.Kubectl(ctx, "patch", "peer", agentlessPeer, "--type=merge", "-p", `{"spec":{"copies":"Configuration"}}`); err != nil {
		t.Fatal(out, err)
	}
	heldFor(t, c, pod, "to create secrets in namespace "+there)
	if err := c.CheckPeerCondition(ctx, agentlessPeer, v1alpha1.ConditionAuthenticated, v1alpha1.ReasonForbidden); err != nil {
		t.Error(err)
	}
	if err := hamburg.Update(ctx, role); err != nil {
		t.Fatal(err)
	}
	c.AwaitRunning(t, pod)
	reads(t, c, pod, "moin hush")

	settings.Data["greeting"] = "hummel"
	if err := c.Update(ctx, settings); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the change is there", func(ctx context.Context) error {
		copies := &corev1.ConfigMapList{}
		err := hamburg.List(ctx, copies, client.InNamespace(there), client.HasLabels{v1alpha1.LabelAgentless})
		if err == nil && (len(copies.Items) != 1 || copies.Items[0].Data["greeting"] != "hummel") {
			err = fmt.Errorf("there is %v", copies.Items)
		}
		return err
	})
	// A kubelet looks at the files of a pod about once a minute, and whenever the pod changes.
	if out, err := c.Kubectl(ctx, "label", "pod", "-n", ns, pod.Name, "look=again"); err != nil {
		t.Fatal(out, err)
	}
	reads(t, c, pod, "hummel hush")

	if err := c.Delete(ctx, pod, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "no copies are left", func(ctx context.Context) error {
		return errors.Join(
			hasNoneWith(ctx, hamburg, v1alpha1.LabelAgentless, there, &corev1.ConfigMapList{}),
			hasNoneWith(ctx, hamburg, v1alpha1.LabelAgentless, there, &corev1.SecretList{}))
	})
}

// roleWithoutSecrets takes the rights to Secrets out of the role of the guest, and returns the role with which they are back.
func roleWithoutSecrets(t *testing.T, c *framework.Cluster, ns string) *rbacv1.Role {
	t.Helper()
	role := documentedRole(t)
	role.Namespace = ns
	less := role.DeepCopy()
	for i := range less.Rules {
		less.Rules[i].Resources = slices.DeleteFunc(less.Rules[i].Resources, func(r string) bool { return r == "secrets" })
	}
	if err := c.Update(t.Context(), less); err != nil {
		t.Fatal(err)
	}
	return role
}

// reads waits until the pod has that greeting in its file, and that word in its environment.
func reads(t *testing.T, c *framework.Cluster, pod *corev1.Pod, want string) {
	t.Helper()
	framework.Eventually(t, "the pod reads "+want, func(ctx context.Context) error {
		out, err := c.Kubectl(ctx, "exec", "-n", pod.Namespace, pod.Name, "--", "sh", "-c", "echo $(cat /settings/greeting) $WORD")
		if err == nil && framework.Trim([]byte(out)) != want {
			err = fmt.Errorf("it reads %q", out)
		}
		return err
	})
}

// hasNone checks that there is nothing in the list that is for a home pod.
func hasNone(ctx context.Context, c *framework.Cluster, there string, list client.ObjectList) error {
	return hasNoneWith(ctx, c, v1alpha1.LabelHomeUID, there, list)
}

// hasNoneWith checks that there is nothing in the list with the label.
func hasNoneWith(ctx context.Context, c *framework.Cluster, label, there string, list client.ObjectList) error {
	if err := c.List(ctx, list, client.InNamespace(there), client.HasLabels{label}); err != nil {
		return err
	}
	if left := meta.LenList(list); left > 0 {
		return fmt.Errorf("there are %d of %T in %s", left, list, there)
	}
	return nil
}

// rostock runs no Hanse: all that lubeck has of it is a kubeconfig.
func TestAgentlessPeer(t *testing.T) {
	ctx := framework.Begin(t)
	t.Cleanup(func() { lubeck.ForgetPeer(t, "visby-agentless") })
	_, err := lubeck.Hanse(ctx, "join", "--agentless", "--remote-kubeconfig", rostock.Kubeconfig, "--namespaces", "default", "--as", "visby-agentless", "--wait=false")
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "lubeck reaches rostock and says what does not work", func(ctx context.Context) error {
		for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAuthenticated} {
			if err := lubeck.CheckPeerHas(ctx, "visby-agentless", condition); err != nil {
				return err
			}
		}
		return lubeck.CheckPeerCondition(ctx, "visby-agentless", v1alpha1.ConditionConnected, v1alpha1.ReasonAgentless)
	})
}
