package e2e

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
)

// berths gives a worker of the cluster so much of a resource of that name, which no other story asks for.
func (c *cluster) berths(t *testing.T, name string, count int) {
	t.Helper()
	node := c.Name + "-worker-1"
	patch := func(ctx context.Context, value string) error {
		key := strings.ReplaceAll(name, "/", "~1")
		list := fmt.Sprintf(`[{"op":"add","path":"/status/capacity/%s","value":%q},{"op":"add","path":"/status/allocatable/%s","value":%q}]`, key, value, key, value)
		return c.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.JSONPatchType, []byte(list)))
	}
	t.Cleanup(func() {
		if err := patch(context.Background(), "0"); err != nil {
			t.Error(err)
		}
	})
	if err := patch(t.Context(), fmt.Sprint(count)); err != nil {
		t.Fatal(err)
	}
}

// awaitOffered waits until the guest is offered so much of the resource.
func (g *guest) awaitOffered(t *testing.T, name corev1.ResourceName, want int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is offered %d of %s", g.id, want, name), func(ctx context.Context) error {
		ad := &v1alpha1.Advertisement{}
		if err := g.Get(ctx, types.NamespacedName{Namespace: g.invitation.Namespace, Name: g.provider.Name}, ad); err != nil {
			return err
		}
		if has := ad.Spec.Availability[name]; has.Value() != want {
			return fmt.Errorf("it is offered %s", has.String())
		}
		return nil
	})
}

// request is a Request of the guest for so many replicas with one of the resource each, signed.
func (g *guest) request(name string, of corev1.ResourceName, replicas int32) *v1alpha1.Request {
	return g.sign(&v1alpha1.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.invitation.Namespace, Name: name},
		Spec: v1alpha1.RequestSpec{
			Application: v1alpha1.RequestedApplication{UID: types.UID("uid-of-" + name), Name: "app-" + name},
			Components: []v1alpha1.RequestedComponent{{
				Name: "web", Replicas: replicas, Resources: corev1.ResourceList{of: resource.MustParse("1")},
			}},
			ExpirationTime: metav1.NewTime(time.Now().Add(10 * time.Minute)),
		},
	})
}

// sign has the guest sign what the Request says now.
func (g *guest) sign(request *v1alpha1.Request) *v1alpha1.Request {
	if err := g.signer.Sign(request, time.Now()); err != nil {
		panic(err) // a story asks for more than fits
	}
	return request
}

// awaitPhase waits until the Request has that phase, for that reason, for what its spec says now.
func (g *guest) awaitPhase(t *testing.T, name string, phase v1alpha1.RequestPhase, reason string) *v1alpha1.Request {
	t.Helper()
	request := &v1alpha1.Request{}
	eventually(t, fmt.Sprintf("Request %s of %s is %s (%s)", name, g.id, phase, reason), func(ctx context.Context) error {
		if err := g.Get(ctx, types.NamespacedName{Namespace: g.invitation.Namespace, Name: name}, request); err != nil {
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

// mooring is a ShadowPod whose pod asks for those units, for a Request or for none.
func mooring(t *testing.T, twin, name, units, request string) *v1alpha1.ShadowPod {
	t.Helper()
	made := shadow(t, twin, name, strings.ReplaceAll(busyPod, "resources: {requests: {cpu: 1m, memory: 8Mi}}",
		fmt.Sprintf("resources: {requests: {cpu: 1m, memory: 8Mi, %s}, limits: {%s}}", units, units)))
	made.Spec.Request = request
	return made
}

// awaitRefused waits until the provider has said that there is no room for the pod, which does not exist.
func (g *guest) awaitRefused(t *testing.T, twin, name string) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %s of %s finds no room", name, g.id), func(ctx context.Context) error {
		record := &v1alpha1.ShadowPod{}
		if err := g.Get(ctx, types.NamespacedName{Namespace: twin, Name: name}, record); err != nil {
			return err
		}
		if found := meta.FindStatusCondition(record.Status.Conditions, v1alpha1.ConditionScheduled); found == nil || found.Reason != v1alpha1.ReasonNoRoom {
			return fmt.Errorf("%s: %+v", record.Status.Phase, record.Status.Conditions)
		}
		return nil
	})
	if err := g.provider.Get(t.Context(), types.NamespacedName{Namespace: twin, Name: name}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("it has a pod: %v", err)
	}
}

func (g *guest) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := g.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// Two guests want four berths. What one has reserved, the other does not get, nor does a pod of the first that does not name it.
func TestAckReserves(t *testing.T) {
	ctx := shared(t)
	const berth = corev1.ResourceName("example.com/berths")
	hamburg.berths(t, string(berth), 4)
	holder, other := hamburg.welcome(t, "visby-holder"), hamburg.welcome(t, "visby-other")
	t.Cleanup(func() { hamburg.disperse(t, []*guest{holder, other}) })
	holders, others := holder.twin(t, "shop"), other.twin(t, "shop")
	holder.awaitOffered(t, berth, 4)
	other.awaitOffered(t, berth, 4)
	holder.asksWrongly(t, berth)

	began := time.Now()
	holder.create(t, holder.request("shop", berth, 3))
	got := holder.awaitPhase(t, "shop", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	t.Logf("acknowledged after %s, as a reader who polls sees it", time.Since(began).Round(time.Millisecond))
	if reserved := got.Status.Reserved[berth]; reserved.Value() != 3 || !got.Status.ValidUntil.Equal(&got.Spec.ExpirationTime) {
		t.Errorf("the answer is %+v", got.Status)
	}
	other.create(t, other.request("late", berth, 2), mooring(t, others, "large", units(berth, 2), ""), mooring(t, others, "small", units(berth, 1), ""),
		mooring(t, others, "cunning", units(berth, 2), "shop"))
	holder.create(t, mooring(t, holders, "without", units(berth, 2), ""), mooring(t, holders, "own", units(berth, 3), "shop"))
	other.awaitPhase(t, "late", v1alpha1.RequestRefused, v1alpha1.ReasonNoRoom)
	other.awaitRefused(t, others, "large")
	other.awaitRefused(t, others, "cunning")
	holder.awaitRefused(t, holders, "without")
	holder.awaitRunning(t, holders, "own")
	other.awaitRunning(t, others, "small")
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
	other.awaitRunning(t, others, "large")
}

// asksWrongly asks for what nobody may have, and expects answers that name the field.
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
		g.create(t, g.sign(request))
		g.awaitPhase(t, name, v1alpha1.RequestRefused, v1alpha1.ReasonInvalidExpirationTime)
	}
}

func TestReservationExpiryKillsNothing(t *testing.T) {
	ctx := shared(t)
	const berth = corev1.ResourceName("example.com/moorings")
	hamburg.berths(t, string(berth), 2)
	holder := hamburg.welcome(t, "visby-staying")
	holders := holder.twin(t, "shop")
	holder.awaitOffered(t, berth, 2)
	holder.create(t, holder.request("shop", berth, 2))
	got := holder.awaitPhase(t, "shop", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
	holder.create(t, mooring(t, holders, "own", units(berth, 1), "shop"))
	holder.awaitRunning(t, holders, "own")
	before := &corev1.Pod{}
	if err := hamburg.Get(ctx, types.NamespacedName{Namespace: holders, Name: "own"}, before); err != nil {
		t.Fatal(err)
	}
	holder.create(t, mooring(t, holders, "next", units(berth, 1), ""))
	holder.awaitRefused(t, holders, "next")

	patch := client.MergeFrom(got.DeepCopy())
	got.Spec.ExpirationTime = metav1.NewTime(time.Now().Add(3 * time.Second))
	if err := holder.Patch(ctx, holder.sign(got), patch); err != nil {
		t.Fatal(err)
	}
	holder.awaitPhase(t, "shop", v1alpha1.RequestExpired, v1alpha1.ReasonExpired)
	holder.awaitRunning(t, holders, "next")
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

// disperse forgets the guests all at once, without the namespaces having to delete what they asked for one by one.
func (c *cluster) disperse(t *testing.T, crowd []*guest) {
	t.Helper()
	var forgetting sync.WaitGroup
	for _, g := range crowd {
		forgetting.Go(func() {
			if err := c.DeleteAllOf(context.Background(), &v1alpha1.Request{}, client.InNamespace(g.invitation.Namespace)); err != nil {
				t.Error(err)
			}
			c.forget(t, g.id)
		})
	}
	forgetting.Wait()
}
