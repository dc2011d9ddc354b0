package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
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

// request is a Request of the guest for so many replicas with one of the resource each.
func (g *guest) request(name string, of corev1.ResourceName, replicas int32) *v1alpha1.Request {
	return &v1alpha1.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.invitation.Namespace, Name: name},
		Spec: v1alpha1.RequestSpec{
			Application: v1alpha1.RequestedApplication{UID: types.UID("uid-of-" + name), Name: "app-" + name},
			Components: []v1alpha1.RequestedComponent{{
				Name: "web", Replicas: replicas, Resources: corev1.ResourceList{of: resource.MustParse("1")},
			}},
			ExpirationTime: metav1.NewTime(time.Now().Add(10 * time.Minute)),
		},
	}
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
		g.create(t, request)
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
	if err := holder.Patch(ctx, got, patch); err != nil {
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

// Four guests ask for far more than there is, all at once, while the provider's manager is killed.
func TestNoDoubleSale(t *testing.T) {
	ctx := alone(t)
	const berth, total, guests, each = corev1.ResourceName("example.com/docks"), 40, 4, 60
	hamburg.berths(t, string(berth), total)
	crowd := make([]*guest, guests)
	for i := range crowd {
		crowd[i] = hamburg.welcome(t, fmt.Sprintf("visby-crowd-%d", i))
	}
	t.Cleanup(func() { hamburg.disperse(t, crowd) })
	for _, g := range crowd {
		g.awaitOffered(t, berth, total)
	}
	sales, began := hamburg.follows(t, berth), time.Now()
	askAll(t, crowd, each, berth, func() { hamburg.kill9(t, "manager") })
	eventually(t, "all Requests are answered, and all berths are sold", func(context.Context) error { return sales.complete(guests*each, total) })
	// What one gives back, others may have; nobody has it twice.
	for i := range each / 3 {
		if err := client.IgnoreNotFound(crowd[0].Delete(ctx, crowd[0].request(fmt.Sprintf("r-%d", i), berth, 1))); err != nil {
			t.Error(err)
		}
		if err := crowd[1+i%3].Create(ctx, crowd[1+i%3].request(fmt.Sprintf("again-%d", i), berth, 1)); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "all Requests of the second round are answered", func(context.Context) error { return sales.complete(guests*each, 0) })
	t.Logf("at most %d of %d were sold at a time, in %s", sales.atMost(), total, time.Since(began).Round(time.Millisecond))
	if sales.atMost() > total {
		t.Error("more was sold than there is")
	}
}

// askAll has each guest ask for one berth or two so many times, many at once, and calls halfway in between.
func askAll(t *testing.T, crowd []*guest, each int, berth corev1.ResourceName, halfway func()) {
	t.Helper()
	const workers = 4
	var asking sync.WaitGroup
	var asked atomic.Int32
	half := make(chan struct{})
	for n, g := range crowd {
		for worker := range workers {
			asking.Go(func() {
				for i := worker; i < each; i += workers {
					if err := g.Create(t.Context(), g.request(fmt.Sprintf("r-%d", i), berth, int32(1+(n+i)%2))); err != nil {
						t.Errorf("%s asks: %v", g.id, err)
					}
					if int(asked.Add(1)) == len(crowd)*each/2 {
						close(half)
					}
				}
			})
		}
	}
	<-half
	halfway()
	asking.Wait()
	if t.Failed() {
		t.FailNow()
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

// sales is what Requests say is reserved, at each moment.
type sales struct {
	mu       sync.Mutex
	reserved map[types.UID]int64
	answered map[types.UID]bool
	most     int64
}

// follows sees every change of each Request for the resource, in order.
func (c *cluster) follows(t *testing.T, of corev1.ResourceName) *sales {
	t.Helper()
	watching, err := client.NewWithWatch(c.Config, client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := watching.Watch(t.Context(), &v1alpha1.RequestList{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sales{reserved: map[types.UID]int64{}, answered: map[types.UID]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			if request, is := event.Object.(*v1alpha1.Request); is && request.Spec.Components[0].Resources[of] != (resource.Quantity{}) {
				s.see(request, event.Type == watch.Deleted, of)
			}
		}
	}()
	t.Cleanup(func() {
		events.Stop()
		<-done
	})
	return s
}

func (s *sales) see(request *v1alpha1.Request, gone bool, of corev1.ResourceName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reserved := request.Status.Reserved[of]
	s.reserved[request.UID], s.answered[request.UID] = reserved.Value(), request.Status.Phase != ""
	if gone {
		delete(s.reserved, request.UID)
		delete(s.answered, request.UID)
	}
	s.most = max(s.most, s.sum())
}

func (s *sales) atMost() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

func (s *sales) sum() int64 {
	sum := int64(0)
	for _, reserved := range s.reserved {
		sum += reserved
	}
	return sum
}

// complete says what is missing until so many Requests are answered, and at least so much is sold.
func (s *sales) complete(requests int, least int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	answered := slices.Collect(maps.Values(s.answered))
	if len(answered) != requests || slices.Contains(answered, false) || s.sum() < least {
		return fmt.Errorf("of %d Requests not all are answered, or only %d are sold", len(answered), s.sum())
	}
	return nil
}
