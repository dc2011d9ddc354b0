package namespaces

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// world is a home cluster and its peers, all of them fake API servers.
type world struct {
	t          *testing.T
	clock      *clocktesting.FakeClock
	home       client.Client
	homeWrites atomic.Int64
	peers      map[string]*fakeRemote
	controller *Controller
	budget     map[string]bool // controller of pods → they may not be evicted
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t:     t,
		clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		peers: map[string]*fakeRemote{},
	}
	w.home = fake.NewClientBuilder().
		WithScheme(testScheme(t)).
		WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.NamespaceOffloading{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).
		WithInterceptorFuncs(w.homeFuncs()).
		Build()
	controller, err := New(Config{
		Client: w.home, Live: w.home, Clock: w.clock, Instance: "hanse-manager-0", Namespace: "hanse-system", Settle: time.Nanosecond,
		Connect: func(_ context.Context, peer *v1alpha1.Peer) (Remote, error) { return w.peers[peer.Name], nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.controller = controller
	w.start()
	return w
}

// homeFuncs counts what is written at home, and keeps the PodDisruptionBudgets.
func (w *world) homeFuncs() interceptor.Funcs {
	funcs := counting(&w.homeWrites)
	funcs.SubResourceCreate = func(ctx context.Context, c client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption) error {
		pod := &corev1.Pod{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), pod); err != nil {
			return err
		}
		if owner := metav1.GetControllerOf(pod); owner != nil && w.budget[owner.Name] {
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}
		return c.SubResource(sub).Create(ctx, o, body, opts...)
	}
	return funcs
}

// start gives each controller a queue that nobody works on: the tests call Reconcile.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	for _, bell := range []*doorbell{
		&w.controller.connector.queue, &w.controller.mapper.queue, &w.controller.reporter.queue,
		&w.controller.evictor.queue,
	} {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		w.t.Cleanup(queue.ShutDown)
		if err := bell.Start(ctx, queue); err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(func() {
		cancel()
		w.controller.connector.running.Wait()
	})
}

// connect makes a peer with a fake API server and lets the connector find it.
func (w *world) connect(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.peers[name] = newFakeRemote(w.t, name)
		w.mustReconcile(w.controller.connector, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}

func (w *world) mustReconcile(r reconcile.Reconciler, request reconcile.Request) {
	w.t.Helper()
	if _, err := r.Reconcile(context.Background(), request); err != nil {
		w.t.Fatalf("reconcile %s: %v", request, err)
	}
}

// settle runs the mapper for the namespace and each peer, and then the reporter.
func (w *world) settle(namespace string) {
	w.t.Helper()
	for name := range w.peers {
		w.mustReconcile(w.controller.mapper, pair(namespace, name))
	}
	w.mustReconcile(w.controller.reporter, offloadingIn(namespace))
}

func (w *world) offloading(namespace string) *v1alpha1.NamespaceOffloading {
	w.t.Helper()
	o := &v1alpha1.NamespaceOffloading{}
	if err := w.home.Get(context.Background(), offloadingIn(namespace).NamespacedName, o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *world) events() []eventsv1.Event {
	w.t.Helper()
	list := &eventsv1.EventList{}
	if err := w.home.List(context.Background(), list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// fakeRemote is a peer whose mirror is always up to date.
type fakeRemote struct {
	t      *testing.T
	client client.Client
	writes atomic.Int64
	done   chan struct{}
	synced bool
}

func newFakeRemote(t *testing.T, _ string) *fakeRemote {
	r := &fakeRemote{t: t, done: make(chan struct{}), synced: true}
	r.client = fake.NewClientBuilder().
		WithScheme(testScheme(t)).
		WithStatusSubresource(&v1alpha1.NamespaceMapping{}).
		WithInterceptorFuncs(counting(&r.writes)).
		Build()
	return r
}

func (r *fakeRemote) Client() client.Client   { return r.client }
func (r *fakeRemote) TenantNamespace() string { return "hanse-peer-lubeck" }
func (r *fakeRemote) Done() <-chan struct{}   { return r.done }
func (r *fakeRemote) Mappings(context.Context, func(types.NamespacedName)) (Mirror, error) {
	return r, nil
}
func (r *fakeRemote) HasSynced() bool                   { return r.synced }
func (r *fakeRemote) WaitForSync(context.Context) error { return nil }

func (r *fakeRemote) Get(key types.NamespacedName) (client.Object, bool) {
	mapping := &v1alpha1.NamespaceMapping{}
	if err := r.client.Get(context.Background(), key, mapping); err != nil {
		return nil, false
	}
	return mapping, true
}

func (r *fakeRemote) List() []client.Object {
	list := &v1alpha1.NamespaceMappingList{}
	if err := r.client.List(context.Background(), list); err != nil {
		r.t.Error(err)
	}
	var objects []client.Object
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return objects
}

func (r *fakeRemote) names() []string {
	var names []string
	for _, o := range r.List() {
		names = append(names, o.GetName())
	}
	return names
}

// answer plays the provider's manager.
func (r *fakeRemote) answer(namespace string, answer v1alpha1.NamespaceMappingStatus) {
	r.t.Helper()
	object, ok := r.Get(types.NamespacedName{Namespace: r.TenantNamespace(), Name: namespace})
	if !ok {
		r.t.Fatalf("no mapping of %s to answer", namespace)
	}
	mapping := object.(*v1alpha1.NamespaceMapping)
	mapping.Status = answer
	if err := r.client.Status().Update(context.Background(), mapping); err != nil {
		r.t.Fatal(err)
	}
}

func twin(name string) v1alpha1.NamespaceMappingStatus {
	return v1alpha1.NamespaceMappingStatus{Twin: name, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTwinCreated,
	}}}
}

func refused(reason, message string) v1alpha1.NamespaceMappingStatus {
	return v1alpha1.NamespaceMappingStatus{Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}}}
}

// counting counts what is written.
func counting(writes *atomic.Int64) interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			writes.Add(1)
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			writes.Add(1)
			return c.Delete(ctx, o, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration,
			opts ...client.SubResourceApplyOption,
		) error {
			writes.Add(1)
			return c.SubResource(sub).Apply(ctx, o, opts...)
		},
	}
}

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func offloadingWith(namespace string, strategy v1alpha1.OffloadingStrategy, selector map[string]v1alpha1.LabelValue,
) *v1alpha1.NamespaceOffloading {
	o := &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName, Generation: 1},
		Spec:       v1alpha1.NamespaceOffloadingSpec{Strategy: strategy},
	}
	if selector != nil {
		o.Spec.ClusterSelector = &v1alpha1.ClusterSelector{MatchLabels: selector}
	}
	return o
}

func provider(name string) *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PeerSpec{ClusterID: name, Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}},
	}
}

func virtualNode(peer string, labels map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.VirtualNodeName(peer),
		Labels: map[string]string{
			v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeer: peer,
		},
	}}
	for key, value := range labels {
		node.Labels[key] = value
	}
	return node
}

func podOn(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid")},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}
