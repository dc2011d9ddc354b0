// SPDX-License-Identifier: Apache-2.0

package market

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func weights(of ...any) (found []v1alpha1.ClusterWeight) {
	for i := 0; i < len(of); i += 2 {
		found = append(found, v1alpha1.ClusterWeight{Peer: of[i].(string), Weight: int32(of[i+1].(int))})
	}
	return found
}

func TestShares(t *testing.T) {
	for name, test := range map[string]struct {
		weights  []v1alpha1.ClusterWeight
		replicas int32
		want     []int32 // in the order of the weights, without those that get nothing
	}{
		"even":                      {weights("a", 2, "b", 1), 6, []int32{4, 2}},
		"to the largest remainder":  {weights("a", 1, "b", 2), 4, []int32{1, 3}},
		"to the first among equals": {weights("a", 1, "b", 1, "c", 1), 2, []int32{1, 1}},
		"one alone":                 {weights("a", 7), 3, []int32{3}},
		"none for some":             {weights("a", 1000, "b", 1), 1, []int32{1}},
		"many":                      {weights("a", 1000, "b", 1000, "c", 999), 10000, []int32{3335, 3334, 3331}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int32
			for _, part := range shares(test.weights, test.replicas) {
				got = append(got, part.replicas)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// shared has front run in all of these clusters, and nothing else.
func shared(of ...any) func(*v1alpha1.Application) {
	return func(app *v1alpha1.Application) {
		app.Spec.Components = app.Spec.Components[:1]
		app.Spec.Components[0].Replicas, app.Spec.Components[0].Weights = 6, weights(of...)
	}
}

func (w *world) expectWhere(app *v1alpha1.Application, want string) {
	w.Helper()
	if diff := cmp.Diff(want, app.Status.Where); diff != "" {
		w.Fatalf("-want +got:\n%s%+v", diff, app.Status)
	}
}

func TestClustersShareAComponent(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20}, shared("cheap", 3, "dear", 2, "", 1))
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	w.answer("dear", v1alpha1.RequestAcknowledged, "")
	app := w.looks()
	w.expect(app, "Placed front@cheap! front@dear! front@!")
	w.expectWhere(app, "front 3 at cheap, front 2 at dear, front 1 here")
	if got := w.requestAt("dear").Spec.Components; len(got) != 1 || got[0].Replicas != 2 {
		t.Errorf("it asks dear for %+v", got)
	}
}

func TestAClusterThatRefusesLeavesItsShareToOthers(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20}, shared("cheap", 1, "dear", 1))
	w.looks()
	w.answer("dear", v1alpha1.RequestAcknowledged, "")
	w.answer("cheap", v1alpha1.RequestRefused, "not today")
	app := w.looks()
	w.expectWhere(app, "front at dear")
	w.answer("dear", v1alpha1.RequestAcknowledged, "")
	app = w.looks()
	if said := app.Status.Conditions[0].Message; !strings.Contains(said, "cheap takes no share of front: It refuses: not today") {
		t.Errorf("it says %q", said)
	}
	w.Clock.Step(refusalTime)
	w.expectWhere(w.looks(), "front 3 at cheap, front 3 at dear")
}

func TestAClusterWithoutRoomLeavesItsShareToOthers(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10}, shared("cheap", 1, "", 1)) // here is one core
	app := w.looks()
	w.expectWhere(app, "front at cheap")
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	app = w.looks()
	w.expect(app, "Placed front@cheap!")
	if said := app.Status.Conditions[0].Message; !strings.Contains(said, "This cluster takes no share of front: ") {
		t.Errorf("it says %q", said)
	}
}

// cut has the peer be cut off, or not, since now.
func (w *world) cut(peer string, is bool) {
	w.Helper()
	of := testkit.Get[v1alpha1.Peer](w.Home, "", peer)
	status := metav1.ConditionTrue
	if is {
		status = metav1.ConditionFalse
	}
	testkit.SetCondition(&of.Status.Conditions, v1alpha1.ConditionReachable, status, "Test")
	of.Status.Conditions[len(of.Status.Conditions)-1].LastTransitionTime = metav1.NewTime(w.Clock.Now())
	w.Home.Put(of)
}

func replaceAfter(d time.Duration) func(*v1alpha1.Application) {
	return func(app *v1alpha1.Application) {
		app.Spec.Placement = &v1alpha1.ApplicationPlacement{ReplaceAfter: &metav1.Duration{Duration: d}}
	}
}

func TestALostComponentIsPlacedAgain(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20}, replaceAfter(time.Minute))
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	w.looks()
	pod := testkit.Pod(ns, "front-0", v1alpha1.VirtualNodeName("cheap"))
	pod.Labels = map[string]string{"app": "front"}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.Home.Put(pod)
	if app := w.looks(); app.Status.Components[0].ReadyReplicas != 1 || app.Status.Components[0].LostSince != nil {
		t.Errorf("it is %+v", app.Status.Components[0])
	}

	w.cut("cheap", true)
	w.Clock.Step(59 * time.Second)
	app := w.looks()
	w.expect(app, "Placed front@cheap! back@cheap!")
	if app.Status.Components[0].LostSince == nil || !strings.Contains(app.Status.Conditions[0].Message, "placed elsewhere after 1m0s") {
		t.Errorf("it is %+v", app.Status)
	}
	w.Clock.Step(time.Second)
	w.expect(w.looks(), "Requested front@dear back@dear")
	evicted := w.evictions()
	if *evicted != 0 {
		t.Error("its pod is evicted before there is room")
	}
	w.answer("dear", v1alpha1.RequestAcknowledged, "")
	w.expect(w.looks(), "Placed front@dear! back@dear!")
	if *evicted == 0 {
		t.Error("its pod is not evicted")
	}
	w.cut("cheap", false)
	w.looks()
	if w.requestAt("cheap") != nil {
		t.Error("what it had at the peer is not released when that is back")
	}
}

// evictions counts those of pods.
func (w *world) evictions() *int {
	w.Helper()
	count := 0
	w.Home.Before(func(write testkit.Write) error {
		if strings.Contains(write.Verb, "eviction") {
			count++
		}
		return nil
	})
	return &count
}

func TestAPeerThatTakesNoRequestIsPassedOver(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
	w.there["cheap"].Refuse("create Request", apierrors.NewForbidden(schema.GroupResource{Resource: "requests"}, "app-1", errors.New("exceeded quota")))
	app := w.looks()
	w.expect(app, "Requested front@dear back@dear")
	if len(app.Status.Refusals) != 1 || !strings.Contains(app.Status.Refusals[0].Message, "exceeded quota") {
		t.Errorf("it says %+v", app.Status.Refusals)
	}
}

func TestAComponentWaitsForItsClusterByDefault(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	w.looks()
	w.cut("cheap", true)
	w.Clock.Step(24 * time.Hour)
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "") // what was renewed
	app := w.looks()
	if w.requestAt("dear") != nil || !strings.Contains(app.Status.Conditions[0].Message, "set replaceAfter in spec.placement") {
		t.Errorf("it is %+v", app.Status)
	}
}

func TestAPeerThatIsGoneIsLost(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	w.looks()
	w.Home.Remove(testkit.Get[v1alpha1.Peer](w.Home, "", "cheap"))
	w.expect(w.looks(), "Requested front@dear back@dear")
}

func TestAComponentIsAsLargeAsItsWorkloads(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10}, func(app *v1alpha1.Application) {
		app.Spec.Components = app.Spec.Components[:1]
		app.Spec.Components[0].Replicas, app.Spec.Components[0].Resources = 0, nil
	})
	app := w.looks()
	w.expect(app, "Unplaced")
	if said := app.Status.Conditions[0]; said.Reason != v1alpha1.ReasonNoWorkload || !strings.Contains(said.Message, "component front") {
		t.Errorf("it says %+v", said)
	}
	set := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "front"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "front", "tier": "1"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1", Resources: corev1.ResourceRequirements{
				Requests: testkit.Quantities("cpu", "1500m"),
			}}}},
		},
	}}
	other := set.DeepCopy()
	other.Name, other.Spec.Template.Labels = "other", map[string]string{"app": "other"}
	w.Home.Put(set, other)
	w.expect(w.looks(), "Requested front@cheap")
	w.expectAsked("cheap", 2, "1500m")
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	w.expect(w.looks(), "Placed front@cheap!")

	set.Spec.Replicas, set.Generation = ptr.To[int32](4), 1
	w.Home.Put(set)
	w.looks()
	w.expectAsked("cheap", 4, "1500m")
	set.Spec.Replicas, set.Generation = ptr.To[int32](0), 2
	w.Home.Put(set)
	w.looks()
	w.expectAsked("cheap", 1, "1500m")
	if kept := testkit.Get[v1alpha1.Application](w.Home, ns, "web"); kept.Spec.Components[0].Replicas != 0 {
		t.Error("its spec was changed")
	}
}

// What a component costs follows its template, so that a ceiling that is still kept is no reason to refuse.
func TestAPriceFollowsTheTemplate(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20}, func(app *v1alpha1.Application) {
		app.Spec.Components = app.Spec.Components[:1]
		app.Spec.Components[0].Replicas, app.Spec.Components[0].Resources = 0, nil
		app.Spec.Placement = &v1alpha1.ApplicationPlacement{
			MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("1"), Currency: "EUR"}, Exclude: []string{"nobody"},
		}
	})
	w.own.Availability = nil
	set := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "front"}, Spec: appsv1.DeploymentSpec{
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "front"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
		},
	}}
	w.Home.Put(set)
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	w.expect(w.looks(), "Placed front@cheap!")
	set.Spec.Template.Spec.Containers[0].Resources.Requests, set.Generation = testkit.Quantities("cpu", "2"), 1
	w.Home.Put(set)
	w.looks()
	if most := w.requestAt("cheap").Spec.MaxPrice; most == nil || most.Amount.String() != "20m" {
		t.Errorf("it may cost %v", most)
	}
}

func (w *world) expectAsked(peer string, replicas int32, cpu string) {
	w.Helper()
	want := []v1alpha1.RequestedComponent{{Name: "front", Replicas: replicas, Resources: testkit.Quantities("cpu", cpu)}}
	if diff := cmp.Diff(want, w.requestAt(peer).Spec.Components); diff != "" {
		w.Errorf("it asks (-want +got):\n%s", diff)
	}
}

func TestAPlaceIsLookedForUntilTheTimeIsOver(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10}, func(app *v1alpha1.Application) {
		app.Spec.Components[0].Replicas = 100
		app.Spec.TimeToLive = &metav1.Duration{Duration: 10 * time.Minute}
		app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionNever}
	})
	if said := w.looks().Status.Conditions[0]; said.Reason != v1alpha1.ReasonNoClusterFits {
		t.Errorf("it says %+v", said)
	}
	w.Clock.Step(10 * time.Minute)
	app := w.looks()
	if said := app.Status.Conditions[0]; said.Reason != v1alpha1.ReasonNotPlacedInTime || len(app.Status.Unsuitable) == 0 {
		t.Errorf("it says %+v", app.Status)
	}
	app.Spec.Components[0].Replicas, app.Generation = 1, 1
	w.Home.Put(app)
	w.expect(w.looks(), "Unplaced")
	app.Spec.TimeToLive, app.Generation = &metav1.Duration{Duration: 20 * time.Minute}, 2
	w.Home.Put(app)
	w.expect(w.looks(), "Requested front@! back@cheap")
}

func TestAnApplicationThatIsDeletedSaysWhatItWaitsFor(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10})
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	app := w.looks()
	w.links.Links.Close("cheap")
	w.Clock.SetTime(time.Now()) // by which the fake client notes the deletion
	if err := w.Home.Client.Delete(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	app = w.looks()
	if said := app.Status.Conditions[0]; app.Status.Phase != v1alpha1.ApplicationReleased || !strings.Contains(said.Message, "cheap") {
		t.Errorf("it is %+v", app.Status)
	}
	w.Clock.Step(v1alpha1.ReservationTime)
	w.looks()
	if w.Home.Find(&v1alpha1.Application{}, ns, "web") {
		t.Error("it is still there when nothing can be reserved any more")
	}
}
