package e2e

import (
	"context"
	"fmt"
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

// root is the folder of the repository.
const root = harness.Root

// waitTimeout is how long a story waits for an effect before it fails. It is no measure of speed.
const waitTimeout = 3 * time.Minute

// A cluster is one real Kubernetes cluster of the testbed, with what stories ask and expect of it.
type cluster struct {
	*harness.Cluster
	collectedAt string // where it sends its traces
}

func trimmed(data []byte) string { return strings.TrimSpace(string(data)) }

// namespace makes a namespace for the story, in which pods can be created, and deletes it at the story's end.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.GenerateName = "story-"
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.describe(ns.Name)
		}
		if err := c.Delete(context.Background(), ns); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	// The API server refuses pods without their service account, which a controller of Kubernetes makes.
	eventually(t, "the service account of "+ns.Name+" is there", func(ctx context.Context) error {
		return c.Get(ctx, types.NamespacedName{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return ns.Name
}

// offloaded makes a namespace whose pods are offloaded by the strategy, and waits until they can be.
func (c *cluster) offloaded(t *testing.T, strategy v1alpha1.OffloadingStrategy) string {
	t.Helper()
	return c.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{Strategy: strategy})
}

// offloadedBy is offloaded with more to say about it.
func (c *cluster) offloadedBy(t *testing.T, spec v1alpha1.NamespaceOffloadingSpec) string {
	t.Helper()
	ns := c.namespace(t)
	offloading := &v1alpha1.NamespaceOffloading{Spec: spec}
	offloading.Name, offloading.Namespace = v1alpha1.NamespaceOffloadingName, ns
	c.create(t, offloading)
	c.awaitPolicy(t, ns, spec.Strategy)
	return ns
}

// describe prints what a person would look at when a story has failed.
func (c *cluster) describe(ns string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"get", "peers,nodes", "-o", "wide"},
		{"get", "pods,namespaceoffloadings", "-n", ns, "-o", "yaml", "--show-managed-fields=false"},
		{"get", "events", "-n", ns},
		{"get", "pods,shadowpods,namespacemappings,advertisements", "-A", "-o", "wide"},
		{"logs", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=hanse", "--tail=40", "--prefix"},
	} {
		out, err := c.Kubectl(ctx, args...)
		fmt.Printf("--- %s: kubectl %s (%v)\n%s\n", c.Name, strings.Join(args, " "), err, tail(out, 12000))
	}
}

func tail(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return "...\n" + text[len(text)-limit:]
}

// eventually looks again and again until check finds nothing wrong, and fails the story with what it found last.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	lookUntil(t.Context(), t, what, check)
}

// eventuallyAfter is eventually for what is done after the story, when its own context has ended.
func eventuallyAfter(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	lookUntil(context.Background(), t, what, check)
}

func lookUntil(ctx context.Context, t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	start := time.Now()
	if err := harness.Until(ctx, waitTimeout, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if waited := time.Since(start); waited >= time.Second {
		t.Logf("waited %.1f s: %s", waited.Seconds(), what)
	}
}

// pods returns the pods of a namespace that carry the label app=<app>.
func (c *cluster) pods(ctx context.Context, ns, app string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := c.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{"app": app})
	return list.Items, err
}

func (c *cluster) pod(ctx context.Context, ns, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, c.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, pod)
}

func (c *cluster) node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, c.Get(ctx, types.NamespacedName{Name: name}, node)
}

func (c *cluster) peer(ctx context.Context, name string) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	return peer, c.Get(ctx, types.NamespacedName{Name: name}, peer)
}

// awaitReadyPods waits for the number of pods of an app to be Ready, and returns them.
func (c *cluster) awaitReadyPods(t *testing.T, ns, app string, count int) []corev1.Pod {
	t.Helper()
	var ready []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods of %s/%s Ready in %s", count, ns, app, c.Name), func(ctx context.Context) error {
		pods, err := c.pods(ctx, ns, app)
		if err != nil {
			return err
		}
		ready = ready[:0]
		for _, pod := range pods {
			if pod.DeletionTimestamp.IsZero() && podReady(&pod) {
				ready = append(ready, pod)
			}
		}
		if len(ready) != count {
			return fmt.Errorf("%d of %d pods are Ready: %s", len(ready), count, summary(pods))
		}
		return nil
	})
	return ready
}

func summary(pods []corev1.Pod) string {
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

func podReady(pod *corev1.Pod) bool {
	return podCondition(pod, corev1.PodReady) == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// remotePod finds the one pod at the provider that runs for the home pod, and fails when there are several.
func (c *cluster) remotePod(ctx context.Context, home *corev1.Pod) (*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.MatchingLabels{v1alpha1.LabelHomeUID: string(home.UID)}); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%d remote pods in %s run for %s/%s, want 1: %s", len(list.Items), c.Name, home.Namespace, home.Name, summary(list.Items))
	}
	return &list.Items[0], nil
}

// mustRemotePod is remotePod for a story that has already waited.
func (c *cluster) mustRemotePod(t *testing.T, home *corev1.Pod) *corev1.Pod {
	t.Helper()
	remote, err := c.remotePod(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	return remote
}

// containerIDs returns the id of each container of the pod that runs or ran, by the container's name.
func containerIDs(pod *corev1.Pod) map[string]string {
	ids := map[string]string{}
	for _, s := range pod.Status.ContainerStatuses {
		ids[s.Name] = s.ContainerID
	}
	return ids
}

// isGone checks that the object is not there.
func (c *cluster) isGone(ctx context.Context, object client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%T %s is there: %s", object, object.GetName(), conditionsOf(object))
}

func conditionsOf(object client.Object) string {
	peer, ok := object.(*v1alpha1.Peer)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%+v", meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady))
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// logSays waits until the pod has written what it should, and nothing else. A container runs before it writes.
func (c *cluster) logSays(t *testing.T, ns, pod, want string) {
	t.Helper()
	eventually(t, "the log of "+pod+" says what it should", func(ctx context.Context) error {
		out, err := c.Kubectl(ctx, "logs", "-n", ns, pod)
		if err == nil && out != want {
			err = fmt.Errorf("it says %q, want %q", out, want)
		}
		return err
	})
}

func mustTestbed(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if _, err := harness.Testbed(ctx, args...); err != nil {
		t.Fatal(err)
	}
}
