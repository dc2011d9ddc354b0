// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// manyReasons are more than a record keeps, so that each is news when it comes again.
var manyReasons = []string{
	"Failed", "BackOff", "ErrImageNeverPull", "InspectFailed", "Unhealthy", "ProbeWarning", "FailedPostStartHook", "FailedPreStopHook",
	"SysctlForbidden", "FailedMount", "ExceededGracePeriod",
}

// crowd is a world with pods of two consumers that run.
type crowd struct {
	*world

	pods *shadowPodReconciler
	keys []types.NamespacedName
	said map[types.NamespacedName]int // how often something was said of the pod
}

func newCrowd(t *testing.T, budgets *eventBudgets, ofLubeck int) *crowd {
	t.Helper()
	kiel := twinOf{peer: "kiel", clusterID: "kiel-id", home: "shop"}
	w := newWorld(t, peer(), testkit.Peer("kiel", v1alpha1.RoleConsumer), lubeck.namespace(""), kiel.namespace(""))
	c := &crowd{world: w, pods: newShadowPodReconciler(w.config(), w.Home.Client, w.Home.Server, w.Home.Server), said: map[types.NamespacedName]int{}}
	c.pods.queue, c.pods.events.budgets = &woken{}, budgets
	for i := range ofLubeck {
		c.start(lubeck.name(), fmt.Sprintf("web-%d", i))
	}
	c.start(kiel.name(), "web-0")
	return c
}

// start has a pod run.
func (c *crowd) start(twin, name string) {
	c.Helper()
	shadow := shadowPod()
	shadow.Namespace, shadow.Name = twin, name
	shadow.UID, shadow.Spec.HomeUID = types.UID("shadow-"+twin+name), types.UID("home-"+twin+name)
	c.Home.Put(shadow)
	c.Reconcile(c.pods, twin, name)
	testkit.Change(c.Home, twin, name, func(pod *corev1.Pod) {
		pod.Spec.NodeName = "worker-1"
		(&stage{world: c.world}).running(&pod.Status)
	})
	c.Reconcile(c.pods, twin, name)
	c.keys = append(c.keys, types.NamespacedName{Namespace: twin, Name: name})
}

// fail has something new go wrong with each pod.
func (c *crowd) fail() {
	c.Helper()
	now := metav1.NewTime(c.Clock.Now())
	for _, key := range c.keys {
		pod := testkit.Get[corev1.Pod](c.Home, key.Namespace, key.Name)
		reason := manyReasons[c.said[key]%len(manyReasons)]
		c.said[key]++
		c.pods.events.hear(c.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: key.Name + reason, Namespace: key.Namespace},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: key.Namespace, Name: key.Name, UID: pod.UID},
			Type:           corev1.EventTypeWarning, Reason: reason, Message: fmt.Sprintf("%d", c.said[key]),
			FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "kubelet"},
		})
	}
}

// look looks at each pod, and returns how often each consumer's records were written.
func (c *crowd) look() map[string]int {
	c.Helper()
	c.Home.Writes()
	writes := map[string]int{}
	for _, key := range c.keys {
		c.Reconcile(c.pods, key.Namespace, key.Name)
		writes[key.Namespace] += len(c.Home.Writes())
	}
	return writes
}

// upToDate says whether each record has the last that was said of its pod.
func (c *crowd) upToDate() bool {
	c.Helper()
	return !slices.ContainsFunc(c.keys, func(key types.NamespacedName) bool {
		told := testkit.Get[v1alpha1.ShadowPod](c.Home, key.Namespace, key.Name).Status.Events
		return len(told) == 0 || told[len(told)-1].Message != fmt.Sprintf("%d", c.said[key])
	})
}

func TestEventsOfManyPodsAreWrittenWithinTheBudgetOfTheirConsumer(t *testing.T) {
	const perMinute, atOnce = 6, 4
	c := newCrowd(t, newEventBudgets(perMinute/60.0, atOnce), 8)
	ofLubeck, ofKiel := c.keys[0].Namespace, c.keys[len(c.keys)-1].Namespace
	for minute := range 2 {
		writes := map[string]int{}
		for range 60 {
			c.Clock.Step(time.Second)
			c.fail()
			for namespace, times := range c.look() {
				writes[namespace] += times
			}
		}
		atMost := perMinute
		if minute == 0 {
			atMost += atOnce
		}
		if got := writes[ofLubeck]; got > atMost || got < perMinute-1 {
			t.Errorf("minute %d: %d writes for lubeck, want at most %d", minute, got, atMost)
		}
		if got := writes[ofKiel]; got < 5 || got > 6 {
			t.Errorf("minute %d: %d writes for the pod of kiel, want one each %s", minute, got, warningPeriod)
		}
	}
	for range 15 {
		c.Clock.Step(30 * time.Second)
		c.look()
	}
	if !c.upToDate() {
		t.Error("a record lacks the last event of its pod")
	}
}

// A turn is not waited for by a status that is written anyway, and takes the events along.
func TestEventsThatWaitForTheBudgetComeWithTheStatus(t *testing.T) {
	c := newCrowd(t, newEventBudgets(1.0/3600, 1), 2)
	c.fail()
	c.Clock.Step(time.Minute)
	if got := c.look()[lubeck.name()]; got != 1 || c.upToDate() {
		t.Fatalf("%d writes of events alone, want 1", got)
	}
	late := c.keys[1]
	testkit.Change(c.Home, late.Namespace, late.Name, func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].RestartCount++ })
	c.look()
	if !c.upToDate() {
		t.Error("the events did not come with the status")
	}
}
