// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// world is a home cluster, its peers, real policies, and the controllers.
type world struct {
	t          *testing.T
	clock      *clocktesting.FakeClock
	cluster    *testkit.Cluster
	home       client.Client
	allWrites  int // at home
	writes     int // those of a status
	links      *peerstest.World
	peers      map[string]*peer
	recorder   *events.FakeRecorder
	policies   *policies
	queue      workqueue.TypedRateLimitingInterface[reconcile.Request]
	controller *Controller
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		links: peerstest.New(t, testkit.Scheme(), peers.Config{}), peers: map[string]*peer{},
		recorder: events.NewFakeRecorder(1000), policies: &policies{t: t},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
	}
	t.Cleanup(w.queue.ShutDown)
	w.cluster = testkit.NewCluster(t, w.clock, objects...)
	w.home = w.cluster.Client
	w.cluster.Before(func(write testkit.Write) error {
		w.allWrites++
		if strings.HasSuffix(write.Verb, "/status") {
			w.writes++
		}
		return nil
	})
	w.policies.replace()
	controller, err := New(Config{
		Client: w.home, Live: w.home, Links: w.links.Links, Decider: w.policies, Clock: w.clock, Events: w.recorder,
		Instance: "hanse-manager-0", Namespace: "hanse-system", ClusterID: "c-home",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.controller = controller
	if err := controller.offloadings.start(t.Context(), w.queue); err != nil {
		t.Fatal(err)
	}
	return w
}

// peer is a cluster that there is a link to.
type peer struct {
	*peerstest.Peer
	cluster *testkit.Cluster
	link    *peers.Link
}

const tenantThere = "hanse-peer-lubeck"

// connect makes a link to each of the peers.
func (w *world) connect(names ...string) {
	w.t.Helper()
	for _, name := range names {
		cluster := testkit.NewCluster(w.t, w.clock)
		there := w.links.Add(name, tenantThere, cluster.Client)
		w.peers[name] = &peer{Peer: there, cluster: cluster, link: w.links.Link(provider(name))}
		w.peers[name].link.Mappings()
	}
}

// names are those of our mappings at the peer.
func (p *peer) names() []string {
	return p.cluster.Names(&v1alpha1.NamespaceMappingList{}, tenantThere)
}

// written is how much was written there since the last look.
func (p *peer) written() int { return len(p.cluster.Writes()) }

// answer plays the provider's manager.
func (p *peer) answer(t *testing.T, namespace string, answer v1alpha1.NamespaceMappingStatus) {
	t.Helper()
	mapping := testkit.Get[v1alpha1.NamespaceMapping](p.cluster, tenantThere, namespace)
	mapping.Status = answer
	if err := p.Client.Status().Update(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
}

func (w *world) mustReconcile(r reconcile.Reconciler, request reconcile.Request) {
	w.t.Helper()
	if _, err := r.Reconcile(w.t.Context(), request); err != nil {
		w.t.Fatalf("reconcile %s: %v", request, err)
	}
}

// settle looks at the mapping of the namespace at each peer, and then at its status.
func (w *world) settle(namespace string) {
	w.t.Helper()
	for name := range w.peers {
		w.mustReconcile(w.controller.mappings, pair(namespace, name))
	}
	w.mustReconcile(w.controller.offloadings, offloadingIn(namespace))
}

// settleAll works off the queue of the controller of NamespaceOffloadings, as its worker does.
func (w *world) settleAll() {
	w.t.Helper()
	for w.queue.Len() > 0 {
		request, _ := w.queue.Get()
		w.reconcile(request)
		w.queue.Done(request)
	}
}

// reconcile looks at one NamespaceOffloading, or at everything.
func (w *world) reconcile(request reconcile.Request) time.Duration {
	w.t.Helper()
	result, err := w.controller.offloadings.Reconcile(w.t.Context(), request)
	if err != nil {
		w.t.Fatalf("reconcile %s: %v", request, err)
	}
	return result.RequeueAfter
}

// lookAgain lets the least time between two looks pass, and looks at everything.
func (w *world) lookAgain() {
	w.t.Helper()
	w.clock.Step(interval)
	w.controller.offloadings.queue.Add(everything)
	w.settleAll()
}

func (w *world) offloading(namespace string) *v1alpha1.NamespaceOffloading {
	w.t.Helper()
	return testkit.Get[v1alpha1.NamespaceOffloading](w.cluster, namespace, v1alpha1.NamespaceOffloadingName)
}

func (w *world) update(objects ...client.Object) {
	w.t.Helper()
	w.cluster.Put(objects...)
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
	testkit.ExpectCondition(w.t, w.offloading(namespace).Status.Conditions, v1alpha1.ConditionPlaced, status, reason)
}

func (w *world) expectMessage(namespace, part string) {
	w.t.Helper()
	placed := meta.FindStatusCondition(w.offloading(namespace).Status.Conditions, v1alpha1.ConditionPlaced)
	if !strings.Contains(placed.Message, part) {
		w.t.Errorf("message %q, want %q in it", placed.Message, part)
	}
}

// events are those on NamespaceOffloadings.
func (w *world) events() []string {
	var said []string
	for len(w.recorder.Events) > 0 {
		said = append(said, <-w.recorder.Events)
	}
	return said
}

func (w *world) podEvents() []eventsv1.Event {
	w.t.Helper()
	list := &eventsv1.EventList{}
	if err := w.home.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// policies is a Decider with real policies of the question placement.
type policies struct {
	t       *testing.T
	set     *policy.Set
	err     error
	changed []func()
	asked   int
	last    policy.Input
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

// HasPolicies implements policy.Decider.
func (*policies) HasPolicies(policy.Question) bool { return true }

func (p *policies) OnChange(_ policy.Question, changed func()) {
	p.changed = append(p.changed, changed)
}

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
	for _, changed := range p.changed {
		changed()
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

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return testkit.Namespace(name, labels)
}

func offloadingWith(namespace string, strategy v1alpha1.OffloadingStrategy, selector map[string]v1alpha1.LabelValue,
) *v1alpha1.NamespaceOffloading {
	o := testkit.Offloading(namespace)
	o.Spec.Strategy = strategy
	if selector != nil {
		o.Spec.ClusterSelector = &v1alpha1.ClusterSelector{MatchLabels: selector}
	}
	return o
}

func offloadingBy(namespace string, strategy v1alpha1.OffloadingStrategy, spec *v1alpha1.Placement) *v1alpha1.NamespaceOffloading {
	o := offloadingWith(namespace, strategy, nil)
	if spec != nil {
		o.Spec.Placement = &v1alpha1.NamespacePlacement{Placement: *spec}
	}
	return o
}

func provider(name string) *v1alpha1.Peer { return testkit.Peer(name, v1alpha1.RoleProvider) }

func virtualNode(peer string, labels map[string]string) *corev1.Node {
	return testkit.VirtualNode(peer, labels)
}

func podOn(namespace, name, node string) *corev1.Pod { return testkit.Pod(namespace, name, node) }

// An offerer is what one peer looks like from here.
type offerer struct {
	name    string
	cpu     string
	perHour string // what a core costs, in EUR; nothing is free
	away    time.Duration
	labels  map[string]string
	closed  bool
}

func (p offerer) offer() *v1alpha1.Advertisement {
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

func (p offerer) peer() *v1alpha1.Peer {
	peer := testkit.Peer(p.name)
	if p.away > 0 {
		peer.Status.RoundTripTime = &metav1.Duration{Duration: p.away}
	}
	return peer
}

func (p offerer) node() *corev1.Node {
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

func (p offerer) objects() []client.Object { return []client.Object{p.offer(), p.peer(), p.node()} }
