package placement

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A world is the home cluster: a fake API server, a clock, real policies, and the controller.
type world struct {
	t        *testing.T
	client   client.Client
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	policies *policies
	queue    workqueue.TypedRateLimitingInterface[reconcile.Request]
	writes   int
	*Controller
}

var testScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		recorder: events.NewFakeRecorder(100), policies: &policies{t: t},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
	}
	t.Cleanup(w.queue.ShutDown)
	w.client = fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.NamespaceOffloading{}, &v1alpha1.Peer{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceApply: func(
			ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
		) error {
			w.writes++
			return c.SubResource(sub).Apply(ctx, o, opts...)
		}}).Build()
	w.policies.replace()
	w.Controller = New(Config{ClusterID: "c-home"}, w.client, w.policies, w.clock, w.recorder)
	if err := w.config.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := w.bell.Start(t.Context(), w.queue); err != nil {
		t.Fatal(err)
	}
	return w
}

// settle works off the queue, as the controller's worker does. What is to be looked at later is returned.
func (w *world) settle() (later map[reconcile.Request]time.Duration) {
	w.t.Helper()
	later = map[reconcile.Request]time.Duration{}
	for w.queue.Len() > 0 {
		request, _ := w.queue.Get()
		if after := w.reconcile(request); after > 0 {
			later[request] = after
		}
		w.queue.Done(request)
	}
	return later
}

func (w *world) reconcile(request reconcile.Request) time.Duration {
	w.t.Helper()
	result, err := w.Reconcile(w.t.Context(), request)
	if err != nil {
		w.t.Fatalf("reconcile %s: %v", request, err)
	}
	return result.RequeueAfter
}

// lookAgain lets the least time between two looks pass, and looks at everything.
func (w *world) lookAgain() {
	w.t.Helper()
	w.clock.Step(w.config.Interval)
	w.bell.ring()
	w.settle()
}

func (w *world) offloading(namespace string) *v1alpha1.NamespaceOffloading {
	w.t.Helper()
	o := &v1alpha1.NamespaceOffloading{}
	if err := w.client.Get(w.t.Context(), requestFor(namespace).NamespacedName, o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *world) update(object client.Object) {
	w.t.Helper()
	if err := w.client.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		if err := w.client.Create(w.t.Context(), object); err != nil {
			w.t.Fatal(err)
		}
	}
}

// weights are those of the virtual nodes that are not excluded.
func (w *world) weights(namespace string) map[string]int32 {
	w.t.Helper()
	found := map[string]int32{}
	for _, node := range w.offloading(namespace).Status.Placement.Nodes {
		if node.Excluded == "" {
			found[node.Name] = node.Weight
		}
	}
	return found
}

func (w *world) expectPlaced(namespace string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	placed := meta.FindStatusCondition(w.offloading(namespace).Status.Conditions, v1alpha1.ConditionPlaced)
	if placed == nil || placed.Status != status || placed.Reason != reason {
		w.t.Errorf("condition Placed is %+v, want %s with reason %s", placed, status, reason)
	}
}

func (w *world) events() []string {
	var said []string
	for len(w.recorder.Events) > 0 {
		said = append(said, <-w.recorder.Events)
	}
	return said
}

// policies is a Decider with real policies of the question placement.
type policies struct {
	t     *testing.T
	set   *policy.Set
	err   error
	rings []func()
	asked int
	last  policy.Input
}

func (p *policies) Decide(ctx context.Context, question policy.Question, input policy.Input) (policy.Decision, error) {
	if question != policy.Placement {
		p.t.Errorf("asked about %s", question)
	}
	p.asked++
	p.last = input
	if p.err != nil {
		return policy.Decision{}, p.err
	}
	return p.set.Decide(ctx, input)
}

func (p *policies) OnChange(_ policy.Question, ring func()) { p.rings = append(p.rings, ring) }

// replace puts modules in force.
func (p *policies) replace(sources ...string) {
	p.t.Helper()
	var modules []policy.Module
	for _, source := range sources {
		modules = append(modules, policy.Module{Name: "test/test.rego", Source: source})
	}
	set, err := policy.Compile(policy.Placement, modules)
	if err != nil {
		p.t.Fatal(err)
	}
	p.set, p.err = set, nil
	for _, ring := range p.rings {
		ring()
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func offloadingWith(namespace string, strategy v1alpha1.OffloadingStrategy, wish *v1alpha1.Placement) *v1alpha1.NamespaceOffloading {
	o := &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName, Generation: 1, UID: "uid",
		},
		Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: strategy},
	}
	if wish != nil {
		o.Spec.Placement = &v1alpha1.NamespacePlacement{Placement: *wish}
	}
	return o
}

// A provider is what one peer looks like from here.
type provider struct {
	name    string
	cpu     string
	perHour string // what a core costs, in EUR; nothing is free
	away    time.Duration
	labels  map[string]string
	closed  bool
}

func (p provider) offer() *v1alpha1.Advertisement {
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.TenantNamespace(p.name), Name: "c-" + p.name,
			Labels: map[string]string{v1alpha1.LabelPeer: p.name},
		},
		Spec: v1alpha1.AdvertisementSpec{
			ClusterID: "c-" + p.name,
			Availability: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(p.cpu),
				corev1.ResourceMemory: resource.MustParse("64Gi"),
				corev1.ResourcePods:   resource.MustParse("100"),
			},
			Timestamp:  metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
			TimeToLive: metav1.NewTime(time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)),
			Sequence:   1,
		},
		Status: v1alpha1.AdvertisementStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
		}}},
	}
	if p.perHour != "" {
		ad.Spec.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
			corev1.ResourceCPU: resource.MustParse(p.perHour),
		}}
	}
	return ad
}

func (p provider) peer() *v1alpha1.Peer {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
	if p.away > 0 {
		peer.Status.RoundTripTime = &metav1.Duration{Duration: p.away}
	}
	return peer
}

func (p provider) node() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   v1alpha1.VirtualNodeName(p.name),
		Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeer: p.name},
	}}
	maps.Copy(node.Labels, p.labels)
	if p.closed {
		node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintWithdrawn, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	return node
}

func (p provider) objects() []client.Object { return []client.Object{p.offer(), p.peer(), p.node()} }
