package kubelet

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
)

const (
	turin     = "turin" // the peer of most tests
	turinID   = "turin-id"
	turinNode = "hanse-turin"
	tenant    = "hanse-peer-turin"
	twinName  = "shop-lyon-abc123"
)

var start = time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC)

// world is a home cluster and a provider, both in memory, with the controllers between them.
type world struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	home    client.WithWatch
	remote  client.WithWatch
	peers   *peerstest.World
	turin   *peerstest.Peer
	links   *peers.Links
	events  *events.FakeRecorder
	nodes   *nodeController
	pods    *podController
	evictor *evictor

	mu      sync.Mutex
	writes  []string // verb kind name, of both sides
	deletes []client.DeleteOptions
	failing map[string]error // the same → what is answered instead
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(start), events: events.NewFakeRecorder(100),
		failing: map[string]error{},
	}
	w.home = w.cluster("home", objects...)
	w.peers = peerstest.New(t, testScheme(), peers.Config{Clock: w.clock})
	w.turin = w.peers.Add(turin, tenant, w.cluster("remote"))
	w.remote, w.links = w.turin.Client, w.peers.Links
	w.nodes = &nodeController{
		client: w.home, live: w.home, clock: w.clock, events: w.events, ports: fakePorts{}, links: w.links,
	}
	w.pods = &podController{
		client: w.home, live: w.home, clock: w.clock, events: w.events, links: w.links, nodeIP: "192.0.2.7",
		defaultToleration: 5 * time.Minute,
	}
	w.evictor = newEvictor(w.home, w.home, w.clock, w.events, w.pods)
	return w
}

// link returns the link to turin, or nil.
func (w *world) link() *peers.Link {
	link, _ := w.links.Get(turin)
	return link
}

// silence has turin answer nothing any more, over a link that is new, as after a restart.
func (w *world) silence() {
	w.t.Helper()
	w.turin.Silence()
	w.turin.Rejoin(tenant)
	w.reconcileNode()
	w.wrote()
}

func testScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

func (w *world) cluster(side string, objects ...client.Object) client.WithWatch {
	record := func(verb string, object client.Object) error {
		name := side + " " + verb + " " + kindOf(object) + " " + object.GetName()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes = append(w.writes, name)
		return w.failing[name]
	}
	return fake.NewClientBuilder().WithScheme(testScheme()).
		WithObjects(objects...).
		WithStatusSubresource(&corev1.Pod{}, &corev1.Node{}, &v1alpha1.Peer{}, &v1alpha1.Advertisement{},
			&v1alpha1.ShadowPod{}, &v1alpha1.NamespaceMapping{}).
		WithIndex(&corev1.Pod{}, nodeNameField, indexPod).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := record("create", o); err != nil {
					return err
				}
				if o.GetUID() == "" {
					o.SetUID(types.UID(side + "-" + o.GetName()))
				}
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if err := record("update", o); err != nil {
					return err
				}
				return c.Update(ctx, o, opts...)
			},
			Patch: func(
				ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption,
			) error {
				if err := record("patch", o); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if err := record("delete", o); err != nil {
					return err
				}
				options := client.DeleteOptions{}
				options.ApplyOptions(opts)
				w.mu.Lock()
				w.deletes = append(w.deletes, options)
				w.mu.Unlock()
				return c.Delete(ctx, o, opts...)
			},
			SubResourceCreate: func(
				ctx context.Context, c client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption,
			) error {
				if err := record("create "+sub, o); err != nil {
					return err
				}
				return c.SubResource(sub).Create(ctx, o, body, opts...)
			},
			SubResourcePatch: func(
				ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption,
			) error {
				if err := record("patch "+sub, o); err != nil {
					return err
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).
		Build()
}

func kindOf(object client.Object) string {
	gvks, _, err := testScheme().ObjectKinds(object)
	if err != nil {
		panic(err)
	}
	return gvks[0].Kind
}

// wrote returns the writes since the last call.
func (w *world) wrote() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	writes := w.writes
	w.writes = nil
	return writes
}

func (w *world) fail(name string, err error) { w.failing[name] = err }

func (w *world) create(c client.Client, object client.Object) {
	w.t.Helper()
	if err := c.Create(w.t.Context(), object); err != nil {
		w.t.Fatalf("create %s: %v", object.GetName(), err)
	}
	w.wrote()
}

func (w *world) updateStatus(c client.Client, object client.Object) {
	w.t.Helper()
	if err := c.Status().Update(w.t.Context(), object); err != nil {
		w.t.Fatalf("update status of %s: %v", object.GetName(), err)
	}
	w.wrote()
}

func (w *world) update(c client.Client, object client.Object) {
	w.t.Helper()
	if err := c.Update(w.t.Context(), object); err != nil {
		w.t.Fatalf("update %s: %v", object.GetName(), err)
	}
	w.wrote()
}

func (w *world) delete(c client.Client, object client.Object) {
	w.t.Helper()
	if err := c.Delete(w.t.Context(), object); err != nil {
		w.t.Fatalf("delete %s: %v", object.GetName(), err)
	}
	w.wrote()
	w.deletes = nil
}

func (w *world) reconcileNode() reconcile.Result {
	w.t.Helper()
	result, err := w.nodes.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: turin}})
	if err != nil {
		w.t.Fatalf("reconcile node: %v", err)
	}
	return result
}

// reconcileDrain looks at the drain of turin's node.
func (w *world) reconcileDrain() reconcile.Result {
	w.t.Helper()
	result, err := w.evictor.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: turin}})
	if err != nil {
		w.t.Fatalf("reconcile drain: %v", err)
	}
	return result
}

func (w *world) reconcilePod(name string) reconcile.Result {
	w.t.Helper()
	result, err := w.tryPod(name)
	if err != nil {
		w.t.Fatalf("reconcile pod %s: %v", name, err)
	}
	return result
}

func (w *world) tryPod(name string) (reconcile.Result, error) {
	return w.pods.Reconcile(w.t.Context(), request{Peer: turin, Namespace: "shop", Name: name})
}

func (w *world) node() *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{}
	if err := w.home.Get(w.t.Context(), client.ObjectKey{Name: turinNode}, node); err != nil {
		w.t.Fatalf("read virtual node: %v", err)
	}
	return node
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	if err := w.home.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, pod); err != nil {
		w.t.Fatalf("read pod: %v", err)
	}
	return pod
}

func (w *world) shadow(name string) *v1alpha1.ShadowPod {
	w.t.Helper()
	shadow := &v1alpha1.ShadowPod{}
	if err := w.remote.Get(w.t.Context(), client.ObjectKey{Namespace: twinName, Name: name}, shadow); err != nil {
		w.t.Fatalf("read ShadowPod: %v", err)
	}
	return shadow
}

// offloaded prepares a world in which namespace shop can be offloaded to turin.
func offloaded(t *testing.T, more ...client.Object) *world {
	t.Helper()
	w := newWorld(t, append([]client.Object{peer(), advertisement(), offloading()}, more...)...)
	w.reconcileNode()
	w.create(w.remote, mapping())
	w.link().FollowTwin(records, "shop")
	w.wrote()
	return w
}

func peer() *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: turin},
		Spec:       v1alpha1.PeerSpec{ClusterID: turinID, Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}},
		Status:     v1alpha1.PeerStatus{RemappedPodCIDR: "10.200.0.0/16"},
	}
}

func advertisement() *v1alpha1.Advertisement {
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: turinID},
		Spec: v1alpha1.AdvertisementSpec{
			ClusterID: turinID,
			Availability: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"),
				corev1.ResourcePods: resource.MustParse("100"), corev1.ResourceEphemeralStorage: resource.MustParse("50Gi"),
			},
			Images:            []v1alpha1.Image{{Names: []string{"registry.example/shop:1"}, SizeBytes: 1000}},
			Network:           &v1alpha1.Network{PodCIDR: "10.244.0.0/16"},
			Labels:            map[string]v1alpha1.Text{corev1.LabelTopologyRegion: "west", "example.com/disk": "fast"},
			Architectures:     []string{"arm64", "amd64"},
			KubernetesVersion: "v1.37.1",
		},
	}
	meta.SetStatusCondition(&ad.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
	})
	return ad
}

func offloading() *v1alpha1.NamespaceOffloading {
	return &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName},
	}
}

func mapping() *v1alpha1.NamespaceMapping {
	m := &v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "shop"},
		Spec:       v1alpha1.NamespaceMappingSpec{HomeNamespace: "shop"},
		Status:     v1alpha1.NamespaceMappingStatus{Twin: twinName},
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTwinCreated,
	})
	return m
}

func podCalled(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Generation: 1,
			Labels: map[string]string{"app": "shop"}, CreationTimestamp: metav1.NewTime(start.Add(-time.Hour)),
		},
		Spec: corev1.PodSpec{
			NodeName:                      turinNode,
			Containers:                    []corev1.Container{{Name: "web", Image: "registry.example/shop:1"}},
			TerminationGracePeriodSeconds: ptr.To(int64(30)),
			RestartPolicy:                 corev1.RestartPolicyAlways,
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// dying is a pod that home has deleted, and that only its kubelet can let go.
func dying(name string, grace int64) *corev1.Pod {
	pod := podCalled(name)
	pod.DeletionTimestamp = ptr.To(metav1.NewTime(start))
	pod.DeletionGracePeriodSeconds = ptr.To(grace)
	pod.Finalizers = []string{"example.com/watched"} // the client in memory knows no grace of its own
	pod.Status.Phase = corev1.PodRunning
	return pod
}

func shadowOf(pod *corev1.Pod) *v1alpha1.ShadowPod {
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: twinName, Name: pod.Name, UID: types.UID("shadow-" + pod.Name),
			// Pods that are dying have a finalizer here, of which the peer knows.
			Annotations: map[string]string{annotationRevision: revision(pod, nil), v1alpha1.AnnotationReportEnd: "true"},
			Finalizers:  []string{v1alpha1.FinalizerShadowPod},
		},
		Spec: v1alpha1.ShadowPodSpec{HomeUID: pod.UID, Pod: runtime.RawExtension{Raw: []byte(`{}`)}},
	}
}

// fakePorts gives every node the port that it wants.
type fakePorts struct{}

func (fakePorts) Open(_ context.Context, _ string, wanted int32) (endpoint, error) {
	return endpoint{address: "192.0.2.7", port: cmp.Or(wanted, 20001)}, nil
}

func (fakePorts) Close(string) {}
