// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// awaitOffered waits until the offer to the guest has so much of the resource.
func (g *guest) awaitOffered(t *testing.T, name corev1.ResourceName, want int64) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%s is offered %d of %s", g.ID, want, name), func(ctx context.Context) error {
		ad := &v1alpha1.Advertisement{}
		if err := g.Get(ctx, types.NamespacedName{Namespace: g.Invitation.Namespace, Name: g.Provider.Name}, ad); err != nil {
			return err
		}
		if has := ad.Spec.Availability[name]; has.Value() != want {
			return fmt.Errorf("it is offered %s", has.String())
		}
		return nil
	})
}

// request returns a signed Request of the guest, for so many replicas with one unit of the resource each.
func (g *guest) request(name string, of corev1.ResourceName, replicas int32) *v1alpha1.Request {
	return g.sign(&v1alpha1.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Invitation.Namespace, Name: name},
		Spec: v1alpha1.RequestSpec{
			Application: v1alpha1.RequestedApplication{UID: types.UID("uid-of-" + name), Name: "app-" + name},
			Components: []v1alpha1.RequestedComponent{{
				Name: "web", Replicas: replicas, Resources: corev1.ResourceList{of: resource.MustParse("1")},
			}},
			ExpirationTime: metav1.NewTime(time.Now().Add(10 * time.Minute)),
		},
	})
}

// sign signs the Request as the guest.
func (g *guest) sign(request *v1alpha1.Request) *v1alpha1.Request {
	if err := g.Signer.Sign(request, time.Now()); err != nil {
		panic(err) // a test asks for more than fits
	}
	return request
}

// awaitPhase waits until the Request has the phase and the reason for its current generation.
func (g *guest) awaitPhase(t *testing.T, name string, phase v1alpha1.RequestPhase, reason string) *v1alpha1.Request {
	t.Helper()
	request := &v1alpha1.Request{}
	framework.Eventually(t, fmt.Sprintf("Request %s of %s is %s (%s)", name, g.ID, phase, reason), func(ctx context.Context) error {
		if err := g.Get(ctx, types.NamespacedName{Namespace: g.Invitation.Namespace, Name: name}, request); err != nil {
			return err
		}
		found := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAcknowledged)
		if request.Status.ObservedGeneration != request.Generation || request.Status.Phase != phase || found == nil || found.Reason != reason {
			return fmt.Errorf("%+v", request.Status)
		}
		return nil
	})
	return request
}

func units(of corev1.ResourceName, count int) string { return fmt.Sprintf("%s: %d", of, count) }

// mooring returns a ShadowPod whose pod requests those units, of a Request or of none.
func mooring(t *testing.T, twin, name, units, request string) *v1alpha1.ShadowPod {
	t.Helper()
	made := framework.Shadow(t, twin, name, strings.ReplaceAll(framework.BusyPod, "resources: {requests: {cpu: 1m, memory: 8Mi}}",
		fmt.Sprintf("resources: {requests: {cpu: 1m, memory: 8Mi, %s}, limits: {%s}}", units, units)))
	made.Spec.Request = request
	return made
}

// awaitRefused waits until the provider refuses the ShadowPod for lack of capacity, and checks that there is no pod.
func (g *guest) awaitRefused(t *testing.T, twin, name string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("pod %s of %s finds no room", name, g.ID), func(ctx context.Context) error {
		record := &v1alpha1.ShadowPod{}
		if err := g.Get(ctx, types.NamespacedName{Namespace: twin, Name: name}, record); err != nil {
			return err
		}
		if found := meta.FindStatusCondition(record.Status.Conditions, v1alpha1.ConditionScheduled); found == nil || found.Reason != v1alpha1.ReasonNoRoom {
			return fmt.Errorf("%s: %+v", record.Status.Phase, record.Status.Conditions)
		}
		return nil
	})
	if err := g.Provider.Get(t.Context(), types.NamespacedName{Namespace: twin, Name: name}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("it has a pod: %v", err)
	}
}

// TestAckReserves: two guests want four units. Capacity that one has reserved is neither for the other, nor for pods of the first that
// do not name the Request.
func TestAckReserves(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const berth = corev1.ResourceName("example.com/berths")
	hamburg.SetExtendedResource(t, berth, 4)
	holder, other := welcome(t, "visby-holder"), welcome(t, "visby-other")
	t.Cleanup(func() { disperse(t, hamburg, []*guest{holder, other}) })
	holders, others := holder.Twin(t, "shop"), other.Twin(t, "shop")
	holder.awaitOffered(t, berth, 4)
	other.awaitOffered(t, berth, 4)
	holder.asksWrongly(t, berth)

	began := time.Now()
	holder.MustCreate(t, holder.request("shop", berth, 3))
	got := holder.awaitPhase(t, "shop", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	t.Logf("acknowledged after %s, as a reader who polls sees it", time.Since(began).Round(time.Millisecond))
	if reserved := got.Status.Reserved[berth]; reserved.Value() != 3 || !got.Status.ValidUntil.Equal(&got.Spec.ExpirationTime) {
		t.Errorf("the answer is %+v", got.Status)
	}
	other.MustCreate(t, other.request("late", berth, 2), mooring(t, others, "large", units(berth, 2), ""), mooring(t, others, "small", units(berth, 1), ""),
		mooring(t, others, "cunning", units(berth, 2), "shop"))
	holder.MustCreate(t, mooring(t, holders, "without", units(berth, 2), ""), mooring(t, holders, "own", units(berth, 3), "shop"))
	other.awaitPhase(t, "late", v1alpha1.RequestRefused, v1alpha1.ReasonNoRoom)
	other.awaitRefused(t, others, "large")
	other.awaitRefused(t, others, "cunning")
	holder.awaitRefused(t, holders, "without")
	holder.AwaitRunning(t, holders, "own")
	other.AwaitRunning(t, others, "small")
	other.awaitOffered(t, berth, 1) // what its own pod holds
	if err := other.Get(ctx, client.ObjectKeyFromObject(got), &v1alpha1.Request{}); !apierrors.IsForbidden(err) {
		t.Errorf("the other one reads the Request: %v", err)
	}
	got.Status.Phase = v1alpha1.RequestExpired
	if err := holder.Status().Update(ctx, got); !apierrors.IsForbidden(err) {
		t.Errorf("a consumer writes the status of its Request: %v", err)
	}
	table, err := hamburg.Kubectl(ctx, "get", "requests", "-A")
	if err != nil || !strings.Contains(table, "app-shop") || !strings.Contains(table, "Acknowledged") {
		t.Errorf("%v\n%s", err, table)
	}
	t.Log(table)

	if err := errors.Join(holder.Delete(ctx, got), holder.Delete(ctx, mooring(t, holders, "without", units(berth, 2), "")),
		holder.Delete(ctx, mooring(t, holders, "own", units(berth, 3), "shop")), other.Delete(ctx, mooring(t, others, "cunning", units(berth, 2), "shop"))); err != nil {
		t.Fatal(err)
	}
	other.AwaitRunning(t, others, "large")
}

// asksWrongly makes invalid Requests, and expects refusals that name the field.
func (g *guest) asksWrongly(t *testing.T, of corev1.ResourceName) {
	t.Helper()
	for field, change := range map[string]func(*v1alpha1.Request){
		"spec.components[0].replicas": func(r *v1alpha1.Request) { r.Spec.Components[0].Replicas = -1 },
		"spec.components.resources":   func(r *v1alpha1.Request) { r.Spec.Components[0].Resources[of] = resource.MustParse("-1") },
		"spec.maxPrice": func(r *v1alpha1.Request) {
			r.Spec.MaxPrice = &v1alpha1.Price{Amount: resource.MustParse("-1"), Currency: "EUR"}
		},
		"spec.components: Too many": func(r *v1alpha1.Request) {
			for i := range 10_000 {
				r.Spec.Components = append(r.Spec.Components, v1alpha1.RequestedComponent{Name: fmt.Sprint("c-", i), Replicas: 1})
			}
		},
		"metadata.finalizers": func(r *v1alpha1.Request) { r.Finalizers = []string{"example.com/for-ever"} },
	} {
		request := g.request("wrong", of, 1)
		change(request)
		if err := g.Create(t.Context(), request); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for name, ahead := range map[string]time.Duration{"past": -time.Hour, "century": 876_000 * time.Hour} {
		request := g.request(name, of, 1)
		request.Spec.ExpirationTime = metav1.NewTime(time.Now().Add(ahead))
		g.MustCreate(t, g.sign(request))
		g.awaitPhase(t, name, v1alpha1.RequestRefused, v1alpha1.ReasonInvalidExpirationTime)
	}
}

func TestReservationExpiryKillsNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const berth = corev1.ResourceName("example.com/moorings")
	hamburg.SetExtendedResource(t, berth, 2)
	holder := welcome(t, "visby-staying")
	holders := holder.Twin(t, "shop")
	holder.awaitOffered(t, berth, 2)
	holder.MustCreate(t, holder.request("shop", berth, 2))
	got := holder.awaitPhase(t, "shop", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	holder.MustCreate(t, mooring(t, holders, "own", units(berth, 1), "shop"))
	holder.AwaitRunning(t, holders, "own")
	before := &corev1.Pod{}
	if err := hamburg.Get(ctx, types.NamespacedName{Namespace: holders, Name: "own"}, before); err != nil {
		t.Fatal(err)
	}
	holder.MustCreate(t, mooring(t, holders, "next", units(berth, 1), ""))
	holder.awaitRefused(t, holders, "next")

	patch := client.MergeFrom(got.DeepCopy())
	got.Spec.ExpirationTime = metav1.NewTime(time.Now().Add(3 * time.Second))
	if err := holder.Patch(ctx, holder.sign(got), patch); err != nil {
		t.Fatal(err)
	}
	holder.awaitPhase(t, "shop", v1alpha1.RequestExpired, v1alpha1.ReasonExpired)
	holder.AwaitRunning(t, holders, "next")
	after := &corev1.Pod{}
	if err := hamburg.Get(ctx, types.NamespacedName{Namespace: holders, Name: "own"}, after); err != nil {
		t.Fatal(err)
	}
	if before.UID != after.UID || before.Status.ContainerStatuses[0].ContainerID != after.Status.ContainerStatuses[0].ContainerID ||
		after.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod of the reservation was another: %+v", after.Status)
	}
	used := holder.awaitPhase(t, "shop", v1alpha1.RequestExpired, v1alpha1.ReasonExpired).Status.Used[berth]
	if used.Value() != 1 {
		t.Errorf("its pods use %s", used.String())
	}
}

// disperse forgets the guests at the same time, and deletes their Requests before, which is faster than the deletion of a namespace.
func disperse(t *testing.T, c *framework.Cluster, crowd []*guest) {
	t.Helper()
	var forgetting sync.WaitGroup
	for _, g := range crowd {
		forgetting.Go(func() {
			if err := c.DeleteAllOf(context.Background(), &v1alpha1.Request{}, client.InNamespace(g.Invitation.Namespace)); err != nil {
				t.Error(err)
			}
			c.Forget(t, g.ID)
		})
	}
	forgetting.Wait()
}
