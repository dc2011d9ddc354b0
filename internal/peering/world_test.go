// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ed25519"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A world is a cluster with a fake API server, a clock, and peers that answer as they are told. Its controller can be killed.
type world struct {
	t        *testing.T
	client   client.WithWatch
	clock    *clocktesting.FakeClock
	recorder *recorder
	links    *peerstest.World
	away     *testkit.Cluster // the peer's cluster
	remote   *peerstest.Peer  // the way there
	provider *provider        // what does there what a provider does, if something does
	config   Config
	pick     func(*Controller)     // the steps that are done, all by default
	ahead    time.Duration         // how far our clock is ahead of the API server's
	writes   int                   // all writes to the API
	statuses int                   // those of them that are of a status
	reads    int                   // of what no cache has
	limit    int                   // of writes, after which the process is dead, or -1
	uids     int                   // given so far
	tokens   map[string]boundToken // token → what it was made for
	refuse   func(client.Object) error
	verb     func(string) error          // asked before each write, or nil
	fail     func(bool) error            // asked before (false) and after (true) each write, here and there
	managed  []metav1.ManagedFieldsEntry // of the Peer
	applied  []string                    // who has written the status of the Peer, and whether something
	noRights func() bool                 // in the tenant namespace, but for bindings

	stopwatch           *clocktesting.FakeClock // by which links measure times
	roundTrip, transfer time.Duration           // how long it takes the peer to introduce itself, and to send a sample
	wait                chan struct{}           // until which there is no introduction
	*Controller
}

var (
	ourKey   = ed25519.NewKeyFromSeed([]byte("the key of the cluster in Lubeck"))
	theirKey = ed25519.NewKeyFromSeed([]byte("the key of the one in Hamburg   "))
)

// hamburg is what the peer says of itself.
var hamburg = peers.ClusterInfo{ClusterID: "c-hamburg", Version: "v0.1.0"}

// theirTombstone is the statement of the peer that it has parted from us.
func theirTombstone(t *testing.T, key ed25519.PrivateKey, invitation string) string {
	t.Helper()
	text, err := trust.SignTombstone(key, trust.Tombstone{From: "c-hamburg", To: "c-lubeck", Invitation: invitation})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// newWorld is one in which invitations and sessions are not looked at: tests say how they stand.
func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := emptyWorld(t, func(c *Controller) {
		c.steps = slices.DeleteFunc(c.steps, func(s step) bool { _, is := s.(*inviteStep); return is })
		c.calls.steps = slices.DeleteFunc(c.calls.steps, func(s step) bool {
			switch s.(type) {
			case *sessionStep:
				return true
			default:
				return false
			}
		})
	}, append(objects, installed(start.Add(-time.Hour)))...)
	w.config.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	w.restart()
	return w
}

// newInviteWorld is one of a provider, in which there is nothing but invitations.
func newInviteWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := emptyWorld(t, func(c *Controller) {
		c.steps = slices.DeleteFunc(c.steps, func(s step) bool { _, is := s.(*inviteStep); return !is })
	}, objects...)
	w.config.Servers = ourServers
	w.restart()
	return w
}

func emptyWorld(t *testing.T, pick func(*Controller), objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(start), recorder: &recorder{}, pick: pick, limit: -1, tokens: map[string]boundToken{},
		config: Config{ClusterID: "c-lubeck", ClusterKey: ourKey, Version: "v0.1.0"}, roundTrip: 10 * time.Millisecond,
	}
	w.client = fake.NewClientBuilder().WithScheme(testkit.Scheme()).WithObjects(objects...).WithIndex(&v1alpha1.Peer{}, clusterIDField, indexClusterID).
		WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.PeeringClaim{}, &v1alpha1.Connection{}).WithInterceptorFuncs(w.interceptors()).Build()
	w.connect(nil)
	w.lead(w.away.Client)
	w.introduces(hamburg)
	w.away.Put(claim(there))
	return w
}

// restart begins a new process that knows nothing.
func (w *world) restart() {
	w.limit = -1
	w.config.Clock = w.clock
	w.links.Links.Close("hamburg")
	w.Controller = New(w.config, w.client, w.client, w.links.Links, w.recorder)
	if err := w.deps.config.Validate(); err != nil {
		w.t.Fatal(err)
	}
	w.pick(w.Controller)
	w.calls.run = func(work func()) {
		work()
		<-w.calls.ended // reconcile knows it already
	}
}

// write counts a write, unless it only asks for the time, and does it, if the process is not dead.
func (w *world) write(verb string, object client.Object, do func() error) error {
	if review, ok := object.(*authenticationv1.SelfSubjectReview); ok {
		review.CreationTimestamp = metav1.NewTime(w.clock.Now().Add(-w.ahead))
		return nil
	}
	if w.limit == 0 {
		return errKilled
	}
	for _, err := range []error{
		ask(w.verb, verb), ask(w.fail, false),
	} {
		if err != nil {
			return err
		}
	}
	w.limit--
	w.writes++
	if verb == "apply status" {
		w.statuses++
	}
	if w.refuse != nil {
		if err := w.refuse(object); err != nil {
			return err
		}
	}
	return errors.Join(do(), ask(w.fail, true))
}

func ask[T any](whom func(T) error, about T) error {
	if whom == nil {
		return nil
	}
	return whom(about)
}

func peerOf(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "hamburg", UID: "peer-uid", Generation: 1},
		Spec:       v1alpha1.PeerSpec{ClusterID: "c-hamburg", PublicKey: trust.PublicKeyOf(theirKey), Roles: roles},
	}
}

// newPeer is one of which nothing is pinned yet.
func newPeer(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	peer := peerOf(roles...)
	peer.Spec.ClusterID, peer.Spec.PublicKey = "", ""
	return peer
}

func invited(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	peer := newPeer(roles...)
	peer.Spec.Invitation = &v1alpha1.PeerInvitation{}
	return peer
}

// ownNamespace is the tenant namespace of the peer.
func ownNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: tenant, UID: "namespace-uid", CreationTimestamp: metav1.NewTime(start),
		Labels: map[string]string{
			v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: "hamburg", v1alpha1.LabelManaged: "true",
		},
		Annotations: map[string]string{v1alpha1.AnnotationPeerUID: "peer-uid"},
	}}
}

// says is what is said in a condition of the Peer.
func (w *world) says(kind string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	peer := w.peer()
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: "As " + kind + " says", ObservedGeneration: peer.Generation + 1, // it is pinned yet
		LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
	if err := w.client.Status().Update(w.t.Context(), peer); err != nil {
		w.t.Fatal(err)
	}
}

// advertises has our copy of hamburg's offer, which is made if there is none, carry that answer.
func (w *world) advertises(status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	ad := advertisement("")
	if !w.exists(ad.Namespace, ad.Name, ad) {
		w.create(ad)
	}
	meta.SetStatusCondition(&ad.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: "As the answer says",
		LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
	w.update(ad)
}

// joins is what inviteStep does when the peer uses our invitation.
func (w *world) joins() *v1alpha1.PeeringClaim {
	w.t.Helper()
	w.says(v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined)
	answer := claim(v1alpha1.TenantNamespace("hamburg"))
	answer.Spec = v1alpha1.PeeringClaimSpec{Invitation: "our-invitation", ClusterID: "c-hamburg", Version: "v0.1.0"}
	answer.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}
	w.create(
		answer,
		serviceAccount(answer.Namespace, "hanse-peer"), serviceAccount(answer.Namespace, "hanse-invitation"),
		secret(answer.Namespace, "hanse-session"), secret(answer.Namespace, "hanse-invitation"),
	)
	for _, role := range []string{v1alpha1.ClusterRolePeerTenant, v1alpha1.ClusterRolePeerInvitation} {
		subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: answer.Namespace, Name: "hanse-peer"}
		if err := w.bind(w.t.Context(), answer.Namespace, role, subject); err != nil {
			w.t.Fatal(err)
		}
	}
	return answer
}

// linked is what sessionStep does when we use the peer's invitation.
func (w *world) linked() {
	w.t.Helper()
	link := secret(v1alpha1.TenantNamespace("hamburg"), "hanse-link")
	link.Data = map[string][]byte{"invitation": []byte("their-invitation")}
	w.create(link)
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		if err := w.client.Create(w.t.Context(), object); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) update(object client.Object) {
	w.t.Helper()
	desired := object.DeepCopyObject().(client.Object)
	if err := w.client.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
	if answered, is := desired.(*v1alpha1.PeeringClaim); is {
		answered.ResourceVersion = object.GetResourceVersion()
		if err := w.client.Status().Update(w.t.Context(), answered); err != nil {
			w.t.Fatal(err)
		}
		object.SetResourceVersion(answered.ResourceVersion)
	}
}

func (w *world) remove(object client.Object) {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

// contact is what is known of the peer.
func (w *world) contact() contact { return w.states["hamburg"].contact }

// reconcile has the controller look at the peer, and at everything that a watch would not tell of.
func (w *world) reconcile() reconcile.Result {
	w.t.Helper()
	result, err := w.tryReconcile()
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

func (w *world) tryReconcile() (reconcile.Result, error) {
	if known := w.states["hamburg"]; known != nil {
		known.contact.gate, known.contact.sessionGate = gate{}, gate{}
	}
	for looks := 1; ; looks++ {
		before := w.generation()
		result, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "hamburg"}})
		now := w.generation()
		pinned := now != 0 && now != before // which a watch would tell us
		if err != nil || result.RequeueAfter != time.Millisecond && !pinned || looks == 10 {
			return result, err
		}
	}
}

// generation is that of the Peer, 0 for one that is gone or going.
func (w *world) generation() int64 {
	peer := &v1alpha1.Peer{}
	if !w.exists("", "hamburg", peer) || !peer.DeletionTimestamp.IsZero() {
		return 0
	}
	return peer.Generation
}

// edit changes the spec of the Peer.
func (w *world) edit(change func(*v1alpha1.PeerSpec)) {
	w.t.Helper()
	w.change(func(peer *v1alpha1.Peer) {
		change(&peer.Spec)
		peer.Generation++
	})
}

func (w *world) change(f func(*v1alpha1.Peer)) {
	w.t.Helper()
	peer := w.peer()
	f(peer)
	w.update(peer)
}

func (w *world) claim() *v1alpha1.PeeringClaim {
	w.t.Helper()
	found := claim(tenant)
	w.get(tenant, found.Name, found)
	return found
}

func (w *world) peer() *v1alpha1.Peer {
	w.t.Helper()
	peer := &v1alpha1.Peer{}
	w.get("", "hamburg", peer)
	return peer
}

func (w *world) get(namespace, name string, object client.Object) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exists(namespace, name string, object client.Object) bool {
	w.t.Helper()
	err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *world) expect(kind string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	got := meta.FindStatusCondition(w.peer().Status.Conditions, kind)
	if got == nil {
		w.t.Errorf("no condition %s", kind)
		return
	}
	if got.Status != status || got.Reason != reason {
		w.t.Errorf("%s is %s, %s (%s), want %s, %s", kind, got.Status, got.Reason, got.Message, status, reason)
	}
}

// expectEventCount wants so many events since the last time.
func (w *world) expectEventCount(want int) {
	w.t.Helper()
	if got := len(w.recorder.events); got != want {
		w.t.Errorf("%d events, want %d: %v", got, want, w.recorder.events)
	}
	w.recorder.events = nil
}

// expectEvents wants events of just these reasons since the last time, besides those of Ready.
func (w *world) expectEvents(want ...string) {
	w.t.Helper()
	got := []string{}
	for _, told := range w.recorder.events {
		if told.action != "CheckPeer" {
			got = append(got, told.reason)
		}
	}
	w.recorder.events = nil
	if strings.Join(got, " ") != strings.Join(want, " ") {
		w.t.Errorf("events %v, want %v", got, want)
	}
}

// firstEvent returns the first event of the reason.
func (w *world) firstEvent(reason string) string {
	for _, told := range w.recorder.events {
		if told.reason == reason {
			return told.note
		}
	}
	return ""
}

func (w *world) expectNo(name string, object client.Object) {
	w.t.Helper()
	if w.exists(tenant, name, object) {
		w.t.Errorf("%T %s is there", object, name)
	}
}

func (w *world) expectJoined(status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	w.expect(v1alpha1.ConditionJoined, status, reason)
}

func (w *world) expectSubjects(binding string, want int) {
	w.t.Helper()
	got := &rbacv1.RoleBinding{}
	w.get(tenant, binding, got)
	if len(got.Subjects) != want {
		w.t.Errorf("RoleBinding %s has subjects %v, want %d", binding, got.Subjects, want)
	}
}

// expectNoWrites reconciles and sees that nothing is written.
func (w *world) expectNoWrites() {
	w.t.Helper()
	before := w.writes
	w.reconcile()
	if w.writes != before {
		w.t.Errorf("%d writes though nothing changed", w.writes-before)
	}
}

// installed is Hanse's own namespace, which is as old as the installation.
func installed(at time.Time) *corev1.Namespace {
	ns := namespace("hanse-system", nil)
	ns.CreationTimestamp = metav1.NewTime(at)
	return ns
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}
