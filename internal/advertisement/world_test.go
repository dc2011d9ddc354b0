package advertisement

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const here = "lubeck"

// world is this cluster, lubeck, and one peer, hamburg, of which it is or has the consumer.
type world struct {
	*testing.T
	clock    *clocktesting.FakeClock
	home     client.WithWatch
	there    client.WithWatch
	peers    *peerstest.World
	hamburg  *peerstest.Peer
	events   *events.FakeRecorder
	writes   atomic.Int64                              // in both clusters
	refusing atomic.Pointer[error]                     // why advertisements are not stored
	silenced atomic.Bool                               // providers do not take our answers
	raw      atomic.Pointer[unstructured.Unstructured] // what is read at the provider instead of its advertisement

	policies  *fakePolicies
	publisher *Publisher
	receiver  *Receiver
}

func newWorld(t *testing.T, changes ...func(*Config)) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakeClock(start), events: events.NewFakeRecorder(1000)}
	w.home = w.cluster()
	w.peers = peerstest.New(t, w.home.Scheme(), peers.Config{})
	w.hamburg = w.peers.Add("hamburg", v1alpha1.TenantNamespace(here), w.cluster())
	w.there = w.hamburg.Client
	w.connect()
	config := Config{ClusterID: here, Namespace: "hanse-system"}
	config.Default()
	for _, change := range changes {
		change(&config)
	}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	w.policies = &fakePolicies{}
	w.publisher = NewPublisher(config, w.home, nil, w.policies, w.clock, w.events)
	w.receiver = NewReceiver(config, w.home, w.peers.Links, w.policies, w.clock, w.events)
	return w
}

// connect makes the link to hamburg.
func (w *world) connect() {
	w.Helper()
	w.peers.Link(&v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg"}})
}

// shows has hamburg show the object instead of its advertisement.
func (w *world) shows(object *unstructured.Unstructured) {
	w.raw.Store(object)
	w.hamburg.Heal()
}

// cluster is a fake API server that counts writes, and refuses to store advertisements when told to.
func (w *world) cluster() client.WithWatch {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			w.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.Advertisement{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if raw, object := w.raw.Load(), asRaw(o); raw != nil && object != nil {
					raw.DeepCopyInto(object)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				w.writes.Add(1)
				ad, isAd := o.(*v1alpha1.Advertisement)
				if refusal := w.refusing.Load(); refusal != nil && isAd && len(ad.Spec.Availability) > 0 {
					return *refusal
				}
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				w.writes.Add(1)
				if refusal := w.refusing.Load(); refusal != nil {
					return *refusal
				}
				return c.Update(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				w.writes.Add(1)
				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				w.writes.Add(1)
				return c.Delete(ctx, o, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				w.writes.Add(1)
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				w.writes.Add(1)
				if w.silenced.Load() {
					return apierrors.NewForbidden(schema.GroupResource{}, "hamburg", nil)
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				w.writes.Add(1)
				return c.SubResource(sub).Apply(ctx, o, opts...)
			},
		}).Build()
}

func asRaw(object client.Object) *unstructured.Unstructured {
	raw, _ := object.(*unstructured.Unstructured)
	return raw
}

func (w *world) peer(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	peer := &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "hamburg", UID: "uid"},
		Spec:       v1alpha1.PeerSpec{ClusterID: "hamburg", Roles: roles},
	}
	w.create(w.home, peer)
	return peer
}

func (w *world) create(c client.Client, object client.Object) {
	w.Helper()
	if err := c.Create(w.Context(), object); err != nil {
		w.Fatal(err)
	}
}

func (w *world) update(c client.Client, object client.Object) {
	w.Helper()
	if err := c.Update(w.Context(), object); err != nil {
		w.Fatal(err)
	}
}

func (w *world) delete(c client.Client, object client.Object) {
	w.Helper()
	if err := c.Delete(w.Context(), object); err != nil {
		w.Fatal(err)
	}
}

func (w *world) get(c client.Client, object client.Object) bool {
	w.Helper()
	err := c.Get(w.Context(), client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return err == nil
}

func (w *world) reconcile(r reconcile.Reconciler) reconcile.Result {
	w.Helper()
	result, err := r.Reconcile(w.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "hamburg"}})
	if err != nil {
		w.Fatalf("reconcile: %v", err)
	}
	return result
}

// expectWrites reconciles and counts.
func (w *world) expectWrites(want int64, r reconcile.Reconciler) reconcile.Result {
	w.Helper()
	before := w.writes.Load()
	result := w.reconcile(r)
	if got := w.writes.Load() - before; got != want {
		w.Errorf("%d writes, want %d", got, want)
	}
	return result
}

func (w *world) expect(want, got any) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("unexpected (-want +got):\n%s", diff)
	}
}

// offered puts hamburg's advertisement for us into hamburg.
func (w *world) offered(changes ...func(*v1alpha1.AdvertisementSpec)) *v1alpha1.Advertisement {
	w.Helper()
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(here), Name: "hamburg"},
		Spec:       w.offer(1, changes...),
	}
	w.create(w.there, ad)
	return ad
}

func (w *world) offer(sequence int64, changes ...func(*v1alpha1.AdvertisementSpec)) v1alpha1.AdvertisementSpec {
	now := w.clock.Now()
	spec := v1alpha1.AdvertisementSpec{
		ClusterID: "hamburg", Sequence: sequence, FullSequence: 1,
		Timestamp: metav1.NewTime(now), TimeToLive: metav1.NewTime(now.Add(30 * time.Minute)),
		Availability: resources("cpu", "4", "memory", "8Gi", "pods", "10", "ephemeral-storage", "0"),
	}
	for _, change := range changes {
		change(&spec)
	}
	return spec
}

// says changes hamburg's advertisement, a moment later.
func (w *world) says(spec v1alpha1.AdvertisementSpec) {
	w.Helper()
	w.clock.Step(w.receiver.config.ReceiveInterval)
	ad := w.theirs()
	ad.Spec = spec
	w.update(w.there, ad)
}

// theirs is hamburg's advertisement as it is there, with our answer.
func (w *world) theirs() *v1alpha1.Advertisement {
	w.Helper()
	ad := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(here), Name: "hamburg"}}
	w.get(w.there, ad)
	return ad
}

// held is our copy of it, or nil.
func (w *world) held() *v1alpha1.Advertisement {
	w.Helper()
	ad := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: "hamburg"}}
	if !w.get(w.home, ad) {
		return nil
	}
	return ad
}

// ours is our advertisement for hamburg, or nil.
func (w *world) ours() *v1alpha1.Advertisement {
	w.Helper()
	ad := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: here}}
	if !w.get(w.home, ad) {
		return nil
	}
	return ad
}

func (w *world) expectAccepted(ad *v1alpha1.Advertisement, status metav1.ConditionStatus, reason string) {
	w.Helper()
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		expectCondition(w.T, ad.Status.Conditions, kind, status, reason)
	}
}

// expectAdvertised expects what a Peer shows as its condition Advertised, and returns the message.
func (w *world) expectAdvertised(status metav1.ConditionStatus, reason string) string {
	w.Helper()
	held := w.held()
	if held == nil {
		w.Fatal("there is no copy")
	}
	return expectCondition(w.T, held.Status.Conditions, v1alpha1.ConditionAccepted, status, reason)
}

func expectCondition(t *testing.T, conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		t.Errorf("condition %s is missing", kind)
		return ""
	}
	if c.Status != status || c.Reason != reason {
		t.Errorf("condition %s is %s, %s (%s); want %s, %s", kind, c.Status, c.Reason, c.Message, status, reason)
	}
	return c.Message
}

func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}
