package reflector

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	twinName = "shop-lubeck-abc123"
	tenant   = "hanse-peer-lubeck"
)

// world is a home cluster and its peer turin, both fake API servers.
type world struct {
	t          *testing.T
	home       client.Client
	metadata   *metadatafake.FakeMetadataClient
	peer       *fakeRemote
	events     *events.FakeRecorder
	reads      []string // what was read live
	controller *Controller
	queue      workqueue.TypedRateLimitingInterface[request]
	losses     workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, peer: newFakeRemote(t), events: events.NewFakeRecorder(100)}
	w.home = fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).
		WithObjects(
			&v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "turin"}, Spec: v1alpha1.PeerSpec{Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hanse-turin", Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}}},
		).Build()
	w.metadata = metadatafake.NewSimpleMetadataClient(testScheme(t))
	live := interceptor.NewClient(w.home.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			w.reads = append(w.reads, key.Name)
			return c.Get(ctx, key, o, opts...)
		},
	})
	controller, err := New(Config{
		Client: w.home, Live: live, Metadata: w.metadata, Events: w.events,
		Namespace: "hanse-system", ServiceAccount: "hanse-manager",
		Connect: func(context.Context, *v1alpha1.Peer) (Remote, error) { return w.peer, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.controller = controller
	w.run()
	return w
}

// run has what outlives a Reconcile end with the test, and a queue that nobody works on: the tests call Reconcile.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	w.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
	if err := w.controller.changes.Start(ctx, w.queue); err != nil {
		w.t.Fatal(err)
	}
	w.losses = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	if err := w.controller.losses.Start(ctx, w.losses); err != nil {
		w.t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{w.controller.copier.sites.Run, w.controller.copier.sources.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
		w.queue.ShutDown()
		w.losses.ShutDown()
	})
}

// connect lets the connector find the peer, which has a twin of namespace shop.
func (w *world) connect() *world {
	w.t.Helper()
	w.peer.put(&v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "shop"}, Status: v1alpha1.NamespaceMappingStatus{Twin: twinName},
	})
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: "turin"}}
	if _, err := w.controller.connector.Reconcile(w.t.Context(), req); err != nil {
		w.t.Fatal(err)
	}
	return w
}

// save puts an object into the home cluster, or changes it there.
func (w *world) save(object client.Object) {
	w.t.Helper()
	ctx := w.t.Context()
	known := object.DeepCopyObject().(client.Object)
	if err := w.home.Get(ctx, client.ObjectKeyFromObject(object), known); err == nil {
		object.SetResourceVersion(known.GetResourceVersion())
		if err := w.home.Update(ctx, object); err != nil {
			w.t.Fatal(err)
		}
	} else if err := w.home.Create(ctx, object); err != nil {
		w.t.Fatal(err)
	}
	w.tell(object)
}

// tell has the metadata of the object watched as it is now.
func (w *world) tell(object client.Object) {
	w.t.Helper()
	resource, kind := "configmaps", "ConfigMap"
	if _, secret := object.(*corev1.Secret); secret {
		resource, kind = "secrets", "Secret"
	}
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	seen := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
			ResourceVersion: object.GetResourceVersion(), Labels: object.GetLabels(), Annotations: object.GetAnnotations(),
		},
	}
	_ = w.metadata.Tracker().Delete(gvr, object.GetNamespace(), object.GetName())
	if err := w.metadata.Tracker().Create(gvr, seen, object.GetNamespace()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(object client.Object) {
	w.t.Helper()
	if err := w.home.Delete(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
	resource := "configmaps"
	if _, secret := object.(*corev1.Secret); secret {
		resource = "secrets"
	}
	err := w.metadata.Tracker().Delete(corev1.SchemeGroupVersion.WithResource(resource), object.GetNamespace(), object.GetName())
	if err != nil {
		w.t.Fatal(err)
	}
}

// settle works on the queue until the condition holds, as the controller would.
func (w *world) settle(condition func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("the condition does not come true")
		}
		for w.queue.Len() > 0 {
			req, _ := w.queue.Get()
			w.mustReconcile(req)
			w.queue.Done(req)
		}
	}
}

func (w *world) mustReconcile(req request) {
	w.t.Helper()
	if _, err := w.controller.copier.Reconcile(w.t.Context(), req); err != nil {
		w.t.Fatalf("reconcile %v: %v", req, err)
	}
}

// look looks at a kind in namespace shop, with watches that show what there is.
func (w *world) look(kind reflection.Kind) {
	w.t.Helper()
	w.mustReconcile(w.warm(kind))
}

// warm returns the request to look at a kind in namespace shop when the watches that it takes show what there is.
func (w *world) warm(kind reflection.Kind) request {
	w.t.Helper()
	req := request{Peer: "turin", place: place{Namespace: "shop", Kind: kind}}
	wanted, err := w.controller.copier.wanted(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(wanted) == 0 {
		return req
	}
	source, err := w.controller.copier.sources.follow(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !source.synced(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("what pods need is not seen")
		}
	}
	return req
}

func (w *world) watches(p place) *watched {
	s := w.controller.copier.sources
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[p]
}

func (w *world) expectEvent(parts ...string) {
	w.t.Helper()
	select {
	case got := <-w.events.Events:
		for _, part := range parts {
			if !strings.Contains(got, part) {
				w.t.Errorf("event %q has no %q", got, part)
			}
		}
	default:
		w.t.Errorf("no event, want one with %q", parts)
	}
}

func (w *world) expectNoEvent() {
	w.t.Helper()
	select {
	case got := <-w.events.Events:
		w.t.Errorf("event %q", got)
	default:
	}
}

// fakeRemote is a peer whose mirrors are always up to date.
type fakeRemote struct {
	t      *testing.T
	client client.Client
	done   chan struct{}
	writes int
	err    error // what mirrors say
	// refusal is what the peer answers to whoever creates something.
	refusal error

	mu      sync.Mutex
	watched map[string]int // kind/namespace → open watches
}

func newFakeRemote(t *testing.T) *fakeRemote {
	r := &fakeRemote{t: t, done: make(chan struct{}), watched: map[string]int{}}
	r.client = fake.NewClientBuilder().WithScheme(testScheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			r.writes++
			if r.refusal != nil {
				return r.refusal
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			r.writes++
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			r.writes++
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
	return r
}

func (r *fakeRemote) Client() client.Client   { return r.client }
func (r *fakeRemote) TenantNamespace() string { return tenant }
func (r *fakeRemote) Done() <-chan struct{}   { return r.done }

func (r *fakeRemote) Watch(
	ctx context.Context, example client.Object, namespace string, _ func(types.NamespacedName),
) (Mirror, error) {
	m := &fakeMirror{remote: r, namespace: namespace, kind: "NamespaceMapping"}
	if partial, ok := example.(*metav1.PartialObjectMetadata); ok {
		m.kind = partial.Kind
	}
	r.count(m, 1)
	context.AfterFunc(ctx, func() { r.count(m, -1) })
	return m, nil
}

func (r *fakeRemote) count(m *fakeMirror, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched[m.kind+"/"+m.namespace] += n
}

func (r *fakeRemote) watches(kind string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watched[kind+"/"+twinName]
}

func (r *fakeRemote) put(object client.Object) {
	r.t.Helper()
	if err := r.client.Create(r.t.Context(), object); err != nil {
		r.t.Fatal(err)
	}
}

// fakeMirror shows the peer as it is.
type fakeMirror struct {
	remote          *fakeRemote
	kind, namespace string
}

func (m *fakeMirror) list() client.ObjectList {
	switch m.kind {
	case "ConfigMap":
		return &corev1.ConfigMapList{}
	case "Secret":
		return &corev1.SecretList{}
	default:
		return &v1alpha1.NamespaceMappingList{}
	}
}

func (m *fakeMirror) List() []client.Object {
	list := m.list()
	if err := m.remote.client.List(context.Background(), list, client.InNamespace(m.namespace)); err != nil {
		m.remote.t.Error(err)
	}
	var objects []client.Object
	switch list := list.(type) {
	case *corev1.ConfigMapList:
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	case *corev1.SecretList:
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	case *v1alpha1.NamespaceMappingList:
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
	return objects
}

func (m *fakeMirror) Get(key types.NamespacedName) (client.Object, bool) {
	for _, object := range m.List() {
		if client.ObjectKeyFromObject(object) == key {
			return object, true
		}
	}
	return nil, false
}

func (m *fakeMirror) HasSynced() bool                   { return true }
func (m *fakeMirror) WaitForSync(context.Context) error { return nil }
func (m *fakeMirror) Err() error                        { return m.remote.err }

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, rbacv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// podUsing is a pod of namespace shop on a virtual node that mounts the Secret password and the ConfigMap settings.
func podUsing(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.PodSpec{
			NodeName: "hanse-turin",
			Volumes: []corev1.Volume{
				{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password"}}},
				{Name: "b", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
				}}},
			},
		},
	}
}

func password(value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "password", UID: "u-1"},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"password": []byte(value)},
	}
}
