package peering

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A world is a cluster with a fake API server, a clock, and peers that answer as they are told.
type world struct {
	t        *testing.T
	client   client.Client
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	links    *fakeLinks
	ahead    time.Duration // how far our clock is ahead of the API server's
	writes   int           // all writes to the API
	reads    int           // of what no cache has
	refuse   func(client.Object) error
	noRights func() bool // in the tenant namespace, but for bindings
	*Controller
}

type fakeLinks struct {
	err     error // of Ensure
	link    *fakeLink
	ensured int
	renew   func(*fakeLink) // what Ensure finds out, nil for nothing

	rate      int64 // what Bandwidth measures
	rateErr   error
	transfers int
}

// A fakeLink leads to a cluster of its own.
type fakeLink struct {
	hello     peers.Hello
	err       error
	asked     int
	tombstone string
	remote    client.Client
	refuse    error // of every request of the client
}

// there is our tenant namespace at the peer.
const there = "hanse-peer-lubeck"

func (l *fakeLinks) Ensure(context.Context, *v1alpha1.Peer) (Link, error) {
	l.ensured++
	if l.err != nil {
		return nil, l.err
	}
	if l.renew != nil {
		l.renew(l.link)
	}
	return l.link, nil
}

func (l *fakeLinks) Bandwidth(context.Context, string) (int64, error) {
	l.transfers++
	if l.rateErr != nil {
		return 0, l.rateErr
	}
	return l.rate, nil
}

func (l *fakeLinks) Close(string) {}

func (l *fakeLink) Hello(context.Context) (peers.Hello, error) { l.asked++; return l.hello, l.err }
func (*fakeLink) Server() string                               { return "https://192.0.2.1:6443" }
func (*fakeLink) Invitation() string                           { return "their-invitation" }
func (*fakeLink) TenantNamespace() string                      { return there }
func (l *fakeLink) Client() client.Client                      { return l.remote }

func (l *fakeLink) Tombstone(context.Context) (string, error) {
	if l.tombstone == "" {
		return "", peers.ErrForbidden
	}
	return l.tombstone, nil
}

// connect makes the cluster that the link leads to.
func (l *fakeLink) connect(scheme *runtime.Scheme) {
	ourClaim := &v1alpha1.PeeringClaim{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "claim"}}
	l.remote = fake.NewClientBuilder().WithScheme(scheme).WithObjects(ourClaim).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l.refuse != nil {
				return l.refuse
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if l.refuse != nil {
				return l.refuse
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
}

var (
	ourKey   = ed25519.NewKeyFromSeed([]byte("the key of the cluster in Lubeck"))
	theirKey = ed25519.NewKeyFromSeed([]byte("the key of the one in Hamburg   "))
)

// theirTombstone is the statement of the peer that it has parted from us.
func theirTombstone(t *testing.T, key ed25519.PrivateKey, invitation string) string {
	t.Helper()
	text, err := trust.SignTombstone(key, trust.Tombstone{From: "c-hamburg", To: "c-lubeck", Invitation: invitation})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{
		t:        t,
		clock:    clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		recorder: events.NewFakeRecorder(100),
		links: &fakeLinks{link: &fakeLink{hello: peers.Hello{
			ClusterID: "c-hamburg", Version: "v0.1.0", RoundTrip: 10 * time.Millisecond,
		}}},
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(objects...).WithObjects(installed(w.clock.Now().Add(-time.Hour))).
		WithStatusSubresource(&v1alpha1.Peer{}).WithInterceptorFuncs(w.countWrites()).Build()
	w.links.link.connect(scheme)
	config := Config{
		ClusterID: "c-lubeck", ClusterKey: ourKey, Version: "v0.1.0", Clock: w.clock,
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	}
	w.Controller = New(config, w.client, w.client, w.links, w.recorder)
	return w
}

// write counts a write, unless it only asks for the time, and does it.
func (w *world) write(object client.Object, do func() error) error {
	if review, ok := object.(*authenticationv1.SelfSubjectReview); ok {
		review.CreationTimestamp = metav1.NewTime(w.clock.Now().Add(-w.ahead))
		return nil
	}
	w.writes++
	if w.refuse != nil {
		if err := w.refuse(object); err != nil {
			return err
		}
	}
	return do()
}

func (w *world) countWrites() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Namespace != "" && !isMessage(o) {
				w.reads++
			}
			_, binding := o.(*rbacv1.RoleBinding)
			if !binding && key.Namespace == v1alpha1.TenantNamespace("hamburg") && w.noRights != nil && w.noRights() {
				return apierrors.NewForbidden(schema.GroupResource{}, key.Name, nil)
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return w.write(o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return w.write(o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.write(o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.write(o, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceApply: func(
			ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
		) error {
			w.writes++
			before := w.peer().Status.Conditions
			if err := c.SubResource(sub).Apply(ctx, o, opts...); err != nil {
				return err
			}
			// The fake does not know that conditions are a map by type, and drops those of others.
			peer := w.peer()
			for i := range before {
				if slices.Contains(foreignConditions, before[i].Type) {
					meta.SetStatusCondition(&peer.Status.Conditions, before[i])
				}
			}
			return c.Status().Update(ctx, peer)
		},
	}
}

// isMessage reports whether the object is of a kind that is watched in tenant namespaces.
func isMessage(o client.Object) bool {
	switch o.(type) {
	case *v1alpha1.Advertisement, *v1alpha1.PeeringClaim:
		return true
	default:
		return false
	}
}

func peerOf(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "hamburg", UID: "peer-uid", Generation: 1},
		Spec:       v1alpha1.PeerSpec{ClusterID: "c-hamburg", PublicKey: public(theirKey), Roles: roles},
	}
}

func advertisement(podCIDR string) *v1alpha1.Advertisement {
	return &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-peer-hamburg", Name: "c-hamburg"},
		Spec:       v1alpha1.AdvertisementSpec{ClusterID: "c-hamburg", Network: &v1alpha1.Network{PodCIDR: podCIDR}},
	}
}

// says is what another package writes into the status of the Peer.
func (w *world) says(kind string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	peer := w.peer()
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: "As " + kind + " says",
	})
	if err := w.client.Status().Update(w.t.Context(), peer); err != nil {
		w.t.Fatal(err)
	}
}

// joins is what package invitation does when the peer uses our invitation.
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
		if err := w.tenants.bind(w.t.Context(), answer.Namespace, role, subject); err != nil {
			w.t.Fatal(err)
		}
	}
	return answer
}

// linked is what package session does when we use the peer's invitation.
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
	if err := w.client.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(object client.Object) {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) reconcile() reconcile.Result {
	w.t.Helper()
	result, err := w.tryReconcile()
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

func (w *world) tryReconcile() (reconcile.Result, error) {
	return w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "hamburg"}})
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

func (w *world) expectEvents(want int) {
	w.t.Helper()
	if got := len(w.recorder.Events); got != want {
		w.t.Errorf("%d events, want %d", got, want)
	}
	for len(w.recorder.Events) > 0 {
		w.t.Log(<-w.recorder.Events)
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
