package market

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Two guests want four berths. What one has reserved, the other does not get, nor does a pod of the first that does not name it.
func TestAckReserves(t *testing.T) {
	ctx := framework.Begin(t)
	const berth = corev1.ResourceName("example.com/berths")
	hamburg.AddExtendedResource(t, string(berth), 4)
	holder, other := hamburg.PeerWithGuest(t, "visby-holder"), hamburg.PeerWithGuest(t, "visby-other")
	t.Cleanup(func() { hamburg.ForgetGuests(t, []*framework.Guest{holder, other}) })
	holders, others := holder.CreateTwin(t, "shop"), other.CreateTwin(t, "shop")
	holder.AwaitOffered(t, berth, 4)
	other.AwaitOffered(t, berth, 4)
	asksWrongly(t, holder, berth)

	began := time.Now()
	holder.MustCreate(t, holder.NewRequest("shop", berth, 3))
	got := holder.AwaitRequestPhase(t, "shop", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	t.Logf("acknowledged after %s, as a reader who polls sees it", time.Since(began).Round(time.Millisecond))
	if reserved := got.Status.Reserved[berth]; reserved.Value() != 3 || !got.Status.ValidUntil.Equal(&got.Spec.ExpirationTime) {
		t.Errorf("the answer is %+v", got.Status)
	}
	other.MustCreate(t, other.NewRequest("late", berth, 2), framework.NewReservedShadowPod(t, others, "large", framework.ResourceUnits(berth, 2), ""), framework.NewReservedShadowPod(t, others, "small", framework.ResourceUnits(berth, 1), ""),
		framework.NewReservedShadowPod(t, others, "cunning", framework.ResourceUnits(berth, 2), "shop"))
	holder.MustCreate(t, framework.NewReservedShadowPod(t, holders, "without", framework.ResourceUnits(berth, 2), ""), framework.NewReservedShadowPod(t, holders, "own", framework.ResourceUnits(berth, 3), "shop"))
	other.AwaitRequestPhase(t, "late", v1alpha1.RequestRefused, v1alpha1.ReasonNoRoom)
	other.AwaitPodRefused(t, others, "large")
	other.AwaitPodRefused(t, others, "cunning")
	holder.AwaitPodRefused(t, holders, "without")
	holder.AwaitRunning(t, holders, "own")
	other.AwaitRunning(t, others, "small")
	other.AwaitOffered(t, berth, 1) // what its own pod holds
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

	if err := errors.Join(holder.Delete(ctx, got), holder.Delete(ctx, framework.NewReservedShadowPod(t, holders, "without", framework.ResourceUnits(berth, 2), "")),
		holder.Delete(ctx, framework.NewReservedShadowPod(t, holders, "own", framework.ResourceUnits(berth, 3), "shop")), other.Delete(ctx, framework.NewReservedShadowPod(t, others, "cunning", framework.ResourceUnits(berth, 2), "shop"))); err != nil {
		t.Fatal(err)
	}
	other.AwaitRunning(t, others, "large")
}

// asksWrongly asks for what nobody may have, and expects answers that name the field.
func asksWrongly(t *testing.T, g *framework.Guest, of corev1.ResourceName) {
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
		request := g.NewRequest("wrong", of, 1)
		change(request)
		if err := g.Create(t.Context(), request); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for name, ahead := range map[string]time.Duration{"past": -time.Hour, "century": 876_000 * time.Hour} {
		request := g.NewRequest(name, of, 1)
		request.Spec.ExpirationTime = metav1.NewTime(time.Now().Add(ahead))
		g.MustCreate(t, g.Sign(request))
		g.AwaitRequestPhase(t, name, v1alpha1.RequestRefused, v1alpha1.ReasonInvalidExpirationTime)
	}
}

func TestReservationExpiryKillsNothing(t *testing.T) {
	ctx := framework.Begin(t)
	const berth = corev1.ResourceName("example.com/moorings")
	hamburg.AddExtendedResource(t, string(berth), 2)
	holder := hamburg.PeerWithGuest(t, "visby-staying")
	holders := holder.CreateTwin(t, "shop")
	holder.AwaitOffered(t, berth, 2)
	holder.MustCreate(t, holder.NewRequest("shop", berth, 2))
	got := holder.AwaitRequestPhase(t, "shop", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	holder.MustCreate(t, framework.NewReservedShadowPod(t, holders, "own", framework.ResourceUnits(berth, 1), "shop"))
	holder.AwaitRunning(t, holders, "own")
	before := &corev1.Pod{}
	if err := hamburg.Get(ctx, types.NamespacedName{Namespace: holders, Name: "own"}, before); err != nil {
		t.Fatal(err)
	}
	holder.MustCreate(t, framework.NewReservedShadowPod(t, holders, "next", framework.ResourceUnits(berth, 1), ""))
	holder.AwaitPodRefused(t, holders, "next")

	patch := client.MergeFrom(got.DeepCopy())
	got.Spec.ExpirationTime = metav1.NewTime(time.Now().Add(3 * time.Second))
	if err := holder.Patch(ctx, holder.Sign(got), patch); err != nil {
		t.Fatal(err)
	}
	holder.AwaitRequestPhase(t, "shop", v1alpha1.RequestExpired, v1alpha1.ReasonExpired)
	holder.AwaitRunning(t, holders, "next")
	after := &corev1.Pod{}
	if err := hamburg.Get(ctx, types.NamespacedName{Namespace: holders, Name: "own"}, after); err != nil {
		t.Fatal(err)
	}
	if before.UID != after.UID || before.Status.ContainerStatuses[0].ContainerID != after.Status.ContainerStatuses[0].ContainerID ||
		after.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod of the reservation was another: %+v", after.Status)
	}
	used := holder.AwaitRequestPhase(t, "shop", v1alpha1.RequestExpired, v1alpha1.ReasonExpired).Status.Used[berth]
	if used.Value() != 1 {
		t.Errorf("its pods use %s", used.String())
	}
}
