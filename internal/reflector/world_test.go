package reflector

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/reflection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	twinName = "shop-lubeck-abc123"
	tenant   = "hanse-peer-lubeck"
)

// world is a home cluster and its peer turin, both fake API servers.
type world struct {
	t        *testing.T
	home     client.Client
	metadata *metadatafake.FakeMetadataClient
	peers    *peerstest.World
	turin    *peerstest.Peer
	writes   int   // at the peer
	refusal  error // what the peer answers to whoever creates something
	events   *events.FakeRecorder
	reads    []string // what was read live
	copier   *copier
	granter  *granter
	queue    workqueue.TypedRateLimitingInterface[request]
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, events: events.NewFakeRecorder(100)}
	w.peers = peerstest.New(t, testScheme(t), peers.Config{})
	w.turin = w.peers.Add("turin", tenant, w.cluster())
	w.home = fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).
		WithObjects(
			turin(),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hanse-turin", Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}}},
		).Build()
	w.metadata = metadatafake.NewSimpleMetadataClient(testScheme(t))
	live := interceptor.NewClient(w.home.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			w.reads = append(w.reads, key.Name)
			return c.Get(ctx, key, o, opts...)
		},
	})
	config := Config{
		Client: w.home, Live: live, Metadata: w.metadata, Events: w.events,
		Namespace: "hanse-system", ServiceAccount: "hanse-manager",
		Links: w.peers.Links,
	}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	w.copier, w.granter = newCopier(config), &granter{config}
	w.run()
	return w
}

// run has what outlives a Reconcile end with the test, and a queue that nobody works on: the tests call Reconcile.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	w.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
	c := w.copier
	started := []source.TypedSource[request]{
		source.TypedFunc[request](c.sources.start), peers.LinkChanges(c.Links, c.linkChanged),
		peers.Changes(c.Links, peers.Mappings, c.mappingChanged),
	}
	for kind, subject := range copies {
		started = append(started, peers.Changes(c.Links, subject, copyChanged(kind)))
	}
	for _, s := range started {
		if err := s.Start(ctx, w.queue); err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(func() {
		cancel()
		w.queue.ShutDown()
	})
}

// connect makes the link to the peer, which has a twin of namespace shop.
func (w *world) connect() *world {
	w.t.Helper()
	marked := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelOffloads: "true"}}}
	if err := w.home.Create(w.t.Context(), marked); err != nil {
		w.t.Fatal(err)
	}
	w.put(&v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "shop"}, Status: v1alpha1.NamespaceMappingStatus{Twin: twinName},
	})
	w.peers.Link(turin())
	return w
}

func turin() *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "turin"}, Spec: v1alpha1.PeerSpec{Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}},
	}
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
	if _, err := w.copier.Reconcile(w.t.Context(), req); err != nil {
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
	wanted, err := w.copier.wanted(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(wanted) == 0 {
		return req
	}
	source, err := w.copier.sources.follow(req)
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
	s := w.copier.sources
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

// cluster is the API server of the peer, with its writes counted.
func (w *world) cluster() client.WithWatch {
	return fake.NewClientBuilder().WithScheme(testScheme(w.t)).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.writes++
			if w.refusal != nil {
				return w.refusal
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			w.writes++
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.writes++
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
}

// follows says whether the kind is followed in the twin.
func (w *world) follows(kind string) bool {
	return slices.Contains(w.turin.Follows(), kind+" in "+twinName)
}

// put creates an object at the peer.
func (w *world) put(object client.Object) {
	w.t.Helper()
	if err := w.turin.Client.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

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
