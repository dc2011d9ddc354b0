package e2e

import (
	"context"
	"fmt"
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
	if err := harness.Until(ctx, patience, check); err != nil {
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
