// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// Root is the folder of the repository.
var Root = harness.Root

// WaitTimeout is how long a story waits for an effect before it fails. It is no measure of speed.
const WaitTimeout = 3 * time.Minute

// A Cluster is one real Kubernetes cluster of the testbed, with the steps and expectations of stories.
type Cluster struct {
	*harness.Cluster // nil until a story begins that needs the cluster

	ID string // its name, also before it is connected
}

// Trim returns the text without white space around it.
func Trim(data []byte) string { return strings.TrimSpace(string(data)) }

// CreateNamespace makes a namespace for the story, in which pods can be created, and deletes it at the story's end.
func (c *Cluster) CreateNamespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.GenerateName = "story-"
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.Describe(ns.Name)
		}
		if err := c.Delete(context.Background(), ns); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	// The API server refuses pods without their service account, which a controller of Kubernetes makes.
	Eventually(t, "the service account of "+ns.Name+" is there", func(ctx context.Context) error {
		return c.Get(ctx, types.NamespacedName{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return ns.Name
}

// CreateOffloadedNamespace makes a namespace whose pods are offloaded by the strategy, and waits until they can be.
func (c *Cluster) CreateOffloadedNamespace(t *testing.T, strategy v1alpha1.OffloadingStrategy) string {
	t.Helper()
	return c.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{Strategy: strategy})
}

// CreateOffloadedNamespaceWith is offloaded with more to say about it.
func (c *Cluster) CreateOffloadedNamespaceWith(t *testing.T, spec v1alpha1.NamespaceOffloadingSpec) string {
	t.Helper()
	ns := c.CreateNamespace(t)
	offloading := &v1alpha1.NamespaceOffloading{Spec: spec}
	offloading.Name, offloading.Namespace = v1alpha1.NamespaceOffloadingName, ns
	c.MustCreate(t, offloading)
	c.AwaitAdmissionPolicy(t, ns, spec.Strategy)
	return ns
}

// DetailsVariable is the environment variable with the folder for details of a story that failed. Without it they are printed.
const DetailsVariable = "HANSE_E2E_DETAILS"

// Describe writes what a person would read after a story has failed: the objects of a namespace, or, if that is empty, what holds for the
// whole cluster.
func (c *Cluster) Describe(ns string) {
	commands := map[string][]string{
		"pods":    {"get", "pods,namespaceoffloadings,services,persistentvolumeclaims", "-n", ns, "-o", "yaml", "--show-managed-fields=false"},
		"events":  {"get", "events", "-n", ns, "--sort-by=.metadata.creationTimestamp"},
		"objects": {"get", "hanse", "-n", ns, "-o", "yaml", "--show-managed-fields=false"},
	}
	if ns == "" {
		commands = map[string][]string{
			"nodes":        {"get", "peers,nodes", "-o", "yaml", "--show-managed-fields=false"},
			"pods":         {"get", "pods", "-A", "-o", "wide"},
			"hanse":        {"get", "hanse", "-A", "-o", "yaml", "--show-managed-fields=false"},
			"events":       {"get", "events", "-A", "--sort-by=.metadata.creationTimestamp"},
			"logs":         {"logs", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=hanse", "--tail=2000", "--prefix", "--ignore-errors"},
			"logs-network": {"logs", "-n", NetworkNamespace, "-l", "app.kubernetes.io/name=hanse", "--tail=500", "--prefix", "--ignore-errors"},
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		out, err := c.Kubectl(ctx, commands[name]...)
		if err != nil {
			out += err.Error()
		}
		c.writeDetails(cmp.Or(ns, "cluster")+"-"+name, out)
	}
}

// writeDetails writes a file to the folder for details, or prints the end of the text.
func (c *Cluster) writeDetails(name, text string) {
	folder := os.Getenv(DetailsVariable)
	if folder == "" {
		fmt.Printf("--- %s: %s\n%s\n", c.ID, name, Tail(text, 12000))
		return
	}
	folder = filepath.Join(folder, c.ID)
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".txt"), []byte(text), 0o600)
	}
	if err != nil {
		fmt.Println("write details:", err)
	}
}

// Tail returns the end of a long text.
func Tail(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return "...\n" + text[len(text)-limit:]
}

// Eventually looks again and again until check finds nothing wrong, and fails the story with what it found last.
func Eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	waitFor(t.Context(), t, what, check)
}

// EventuallyInCleanup is eventually for what is done after the story, when its own context has ended.
func EventuallyInCleanup(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	waitFor(context.Background(), t, what, check)
}

func waitFor(ctx context.Context, t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	start := time.Now()
	if err := harness.Until(ctx, WaitTimeout, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if waited := time.Since(start); waited >= time.Second {
		t.Logf("waited %.1f s: %s", waited.Seconds(), what)
	}
}

// GetPods returns the pods of a namespace that carry the label app=<app>.
func (c *Cluster) GetPods(ctx context.Context, ns, app string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := c.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{"app": app})
	return list.Items, err
}

// GetPod returns the pod.
func (c *Cluster) GetPod(ctx context.Context, ns, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, c.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, pod)
}

// GetNode returns the node.
func (c *Cluster) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, c.Get(ctx, types.NamespacedName{Name: name}, node)
}

// GetPeer returns the Peer of that name.
func (c *Cluster) GetPeer(ctx context.Context, name string) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	return peer, c.Get(ctx, types.NamespacedName{Name: name}, peer)
}

// AwaitReadyPods waits for the number of pods of an app to be Ready, and returns them.
func (c *Cluster) AwaitReadyPods(t *testing.T, ns, app string, count int) []corev1.Pod {
	t.Helper()
	var ready []corev1.Pod
	Eventually(t, fmt.Sprintf("%d pods of %s/%s Ready in %s", count, ns, app, c.Name), func(ctx context.Context) error {
		pods, err := c.GetPods(ctx, ns, app)
		if err != nil {
			return err
		}
		ready = ready[:0]
		for _, pod := range pods {
			if pod.DeletionTimestamp.IsZero() && IsPodReady(&pod) {
				ready = append(ready, pod)
			}
		}
		if len(ready) != count {
			return fmt.Errorf("%d of %d pods are Ready: %s", len(ready), count, Summarize(pods))
		}
		return nil
	})
	return ready
}

// Summarize describes pods for the message of a failure: node, phase, and why containers wait.
func Summarize(pods []corev1.Pod) string {
	text := ""
	for _, pod := range pods {
		text += fmt.Sprintf("\n  %s on %q: %s %s %s", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Waiting != nil {
				text += fmt.Sprintf(" [%s: %s %s]", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message)
			}
		}
	}
	return text
}

// IsPodReady reports whether the condition Ready of the pod is True.
func IsPodReady(pod *corev1.Pod) bool {
	return PodConditionStatus(pod, corev1.PodReady) == corev1.ConditionTrue
}

// PodConditionStatus returns the status of a condition of the pod, Unknown if there is none.
func PodConditionStatus(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

// IsNodeReady reports whether the condition Ready of the node is True.
func IsNodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// GetRemotePod finds the one pod at the provider that runs for the home pod, and fails when there are several.
func (c *Cluster) GetRemotePod(ctx context.Context, home *corev1.Pod) (*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.MatchingLabels{v1alpha1.LabelHomeUID: string(home.UID)}); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%d remote pods in %s run for %s/%s, want 1: %s", len(list.Items), c.Name, home.Namespace, home.Name, Summarize(list.Items))
	}
	return &list.Items[0], nil
}

// MustGetRemotePod is remotePod for a story that has already waited.
func (c *Cluster) MustGetRemotePod(t *testing.T, home *corev1.Pod) *corev1.Pod {
	t.Helper()
	remote, err := c.GetRemotePod(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	return remote
}

// ContainerIDs returns the id of each container of the pod that runs or ran, by the container's name.
func ContainerIDs(pod *corev1.Pod) map[string]string {
	ids := map[string]string{}
	for _, s := range pod.Status.ContainerStatuses {
		ids[s.Name] = s.ContainerID
	}
	return ids
}

// CheckGone checks that the object is not there.
func (c *Cluster) CheckGone(ctx context.Context, object client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%T %s is there: %s", object, object.GetName(), ConditionsOf(object))
}

// ConditionsOf describes the condition Ready of a Peer for the message of a failure; of other objects it returns nothing.
func ConditionsOf(object client.Object) string {
	peer, ok := object.(*v1alpha1.Peer)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%+v", meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady))
}

// ObjectMeta returns the metadata of an object without a namespace.
func ObjectMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// MustTestbed runs bin/testbed on the clusters of the story, and fails the story if that fails.
func MustTestbed(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), WaitTimeout)
	defer cancel()
	if _, err := harness.Testbed(ctx, args...); err != nil {
		t.Fatal(err)
	}
}

// ApplyManifest makes objects until the story's end.
func (c *Cluster) ApplyManifest(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(t.Context(), "apply", "-f", file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "delete", "-f", file, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
}
