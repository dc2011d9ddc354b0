// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/remoteevents"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const (
	turin     = "turin" // the peer of most tests
	turinID   = "turin-id"
	turinNode = "hanse-turin"
	tenant    = "hanse-peer-turin"
	twinName  = "shop-lyon-abc123"
)

// world is a home cluster and a provider, both in memory, with the controllers between them.
type world struct {
	told []remoteevents.Report
	*testkit.World
	peers   *peerstest.World
	turin   *peerstest.Peer
	links   *peers.Links
	nodes   *nodeController
	pods    *podController
	evictor *evictor

	mu      sync.Mutex
	writes  []string // side verb kind name
	deletes []client.DeleteOptions
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t, objects...)}
	w.Home.Before(w.record("home"))
	w.Away.Before(w.record("remote"))
	w.peers = peerstest.New(t, testkit.Scheme(), peers.Config{Clock: w.Clock})
	w.turin = w.peers.Add(turin, tenant, w.Away.Client)
	w.Away.Server = w.turin.Mirrored(w.Away.Server)
	w.links = w.peers.Links
	home := w.Home.Client
	w.nodes = &nodeController{
		client: home, live: home, clock: w.Clock, events: w.Events, ports: fakePorts{}, links: w.links,
	}
	w.pods = &podController{
		client: home, live: home, clock: w.Clock, events: w.Events, links: w.links, nodeIP: "192.0.2.7",
		defaultToleration: 5 * time.Minute, tellEvents: func(r remoteevents.Report) { w.told = append(w.told, r) },
	}
	w.evictor = newEvictor(home, home, w.Clock, w.Events, w.pods)
	return w
}

// record keeps the writes of both sides in their order.
func (w *world) record(side string) func(testkit.Write) error {
	return func(write testkit.Write) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes = append(w.writes, side+" "+write.String())
		if write.Verb == "delete" {
			w.deletes = append(w.deletes, write.Delete)
		}
		if side == "remote" && write.Verb == "patch" && write.Object.GetUID() == "" {
			w.Errorf("patched %s %s whatever its UID", write.Kind, write.Name)
		}
		return nil
	}
}

// link returns the link to turin, or nil.
func (w *world) link() *peers.Link {
	link, _ := w.links.Get(turin)
	return link
}

// silence has turin answer nothing any more, over a link that is new, as after a restart.
func (w *world) silence() {
	w.Helper()
	w.turin.Silence()
	w.turin.Rejoin(tenant)
	w.reconcileNode()
	w.wrote()
}

// wrote returns the writes since the last call.
func (w *world) wrote() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	writes := w.writes
	w.writes = nil
	return writes
}

// put is Put, and forgets what was written before.
func (w *world) put(cluster *testkit.Cluster, object client.Object) {
	w.Helper()
	cluster.Put(object)
	w.wrote()
}

// remove is Remove, and forgets what was written before.
func (w *world) remove(cluster *testkit.Cluster, object client.Object) {
	w.Helper()
	cluster.Remove(object)
	w.wrote()
	w.deletes = nil
}

func (w *world) reconcileNode() reconcile.Result {
	w.Helper()
	return w.Reconcile(w.nodes, "", turin)
}

// reconcileDrain looks at the drain of turin's node.
func (w *world) reconcileDrain() reconcile.Result {
	w.Helper()
	return w.Reconcile(w.evictor, "", turin)
}

func (w *world) reconcilePod(name string) reconcile.Result {
	w.Helper()
	result, err := w.tryPod(name)
	if err != nil {
		w.Fatalf("reconcile pod %s: %v", name, err)
	}
	return result
}

func (w *world) tryPod(name string) (reconcile.Result, error) {
	return w.pods.Reconcile(w.Context(), request{Peer: turin, Namespace: "shop", Name: name})
}

func (w *world) node() *corev1.Node {
	w.Helper()
	return testkit.Get[corev1.Node](w.Home, "", turinNode)
}

func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	return testkit.Get[corev1.Pod](w.Home, "shop", name)
}

func (w *world) shadow(name string) *v1alpha1.ShadowPod {
	w.Helper()
	return testkit.Get[v1alpha1.ShadowPod](w.Away, twinName, name)
}

// offloaded prepares a world in which namespace shop can be offloaded to turin.
func offloaded(t *testing.T, more ...client.Object) *world {
	t.Helper()
	w := newWorld(t, append([]client.Object{peer(), advertisement(), offloading()}, more...)...)
	w.reconcileNode()
	w.put(w.Away, mapping())
	w.link().FollowTwin(records, "shop")
	w.wrote()
	return w
}

func peer() *v1alpha1.Peer {
	peer := testkit.Peer(turin, v1alpha1.RoleProvider)
	peer.Status.Mappings = []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "10.200.0.0/16"}}
	peer.Status.Conditions = append(peer.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConnected, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
	})
	return peer
}

func advertisement() *v1alpha1.Advertisement {
	ad := testkit.Advertisement(turin)
	ad.Spec.Images = []v1alpha1.Image{{Names: []string{"registry.example/shop:1"}, SizeBytes: 1000}}
	ad.Spec.Network = &v1alpha1.Network{PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}}
	ad.Spec.Labels = map[string]v1alpha1.Text{corev1.LabelTopologyRegion: "west", "example.com/disk": "fast"}
	ad.Spec.Architectures, ad.Spec.KubernetesVersion = []string{"arm64", "amd64"}, "v1.37.1"
	return ad
}

func offloading() *v1alpha1.NamespaceOffloading { return testkit.Offloading("shop") }

func mapping() *v1alpha1.NamespaceMapping { return testkit.Mapping(turin, "shop", twinName) }

func podCalled(name string) *corev1.Pod {
	pod := testkit.Pod("shop", name, turinNode)
	pod.Labels, pod.CreationTimestamp = map[string]string{"app": "shop"}, metav1.NewTime(testkit.Noon.Add(-time.Hour))
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30))
	return pod
}

// dying is a pod that home has deleted, and that only its kubelet can let go.
func dying(name string, grace int64) *corev1.Pod {
	pod := podCalled(name)
	pod.DeletionTimestamp = ptr.To(metav1.NewTime(testkit.Noon))
	pod.DeletionGracePeriodSeconds = ptr.To(grace)
	pod.Finalizers = []string{"example.com/watched"} // the client in memory knows no grace of its own
	pod.Status.Phase = corev1.PodRunning
	return pod
}

func shadowOf(pod *corev1.Pod) *v1alpha1.ShadowPod {
	shadow := testkit.ShadowPod(twinName, pod)
	// Pods that are dying have a finalizer here, of which the peer knows.
	shadow.Annotations = map[string]string{annotationRevision: revision(pod, nil, false), v1alpha1.AnnotationReportEnd: "true"}
	return shadow
}

// fakePorts gives every node the port that it wants.
type fakePorts struct{}

func (fakePorts) Open(_ context.Context, _ string, wanted int32) (endpoint, error) {
	return endpoint{address: "192.0.2.7", port: cmp.Or(wanted, 20001)}, nil
}

func (fakePorts) Close(string) {}
