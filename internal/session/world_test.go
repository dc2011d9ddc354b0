package session

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

const (
	tenantHere  = "hanse-peer-hamburg" // the peer's namespace in our cluster
	tenantThere = "hanse-peer-lubeck"  // ours in the peer's
	life        = 30 * 24 * time.Hour
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A world is our cluster, which is lubeck, with a clock, and a provider, hamburg.
type world struct {
	t        *testing.T
	client   client.Client
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	provider *provider
	key      ed25519.PrivateKey
	writes   int              // all writes to our API
	fail     func(bool) error // asked before (false) and after (true) each write, here and there
	*Controller
}

// A provider is the other cluster: its API server, and its manager where answer is called.
type provider struct {
	world  *world
	client client.Client
	key    ed25519.PrivateKey
	grants time.Duration // life of its sessions
	claims int           // how often a claim was made
	renews int
	err    error // what every request fails with
	stale  bool  // whether links go on with credentials of before
	peer   *v1alpha1.Peer
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(start), recorder: events.NewFakeRecorder(1000), key: newKey(t)}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	build := func(count *int) *fake.ClientBuilder {
		return fake.NewClientBuilder().WithScheme(scheme).
			WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.PeeringClaim{}).WithInterceptorFuncs(w.intercept(count))
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantHere, Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: "hamburg", v1alpha1.LabelManaged: "true",
	}}}
	w.client = build(&w.writes).WithObjects(append(objects, ns)...).Build()
	w.provider = &provider{world: w, client: build(new(int)).Build(), key: newKey(t), grants: life}
	w.restart()
	return w
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// restart puts a new manager in the place of the one that was.
func (w *world) restart() { w.upgrade("v0.1.0") }

func (w *world) upgrade(version string) {
	config := Config{ClusterID: "lubeck", ClusterKey: w.key, Version: version, Clock: w.clock}
	config.Default()
	if err := config.Validate(); err != nil {
		w.t.Fatal(err)
	}
	w.Controller = New(config, w.client, w.client, w.provider, w.recorder)
}

func (w *world) intercept(count *int) interceptor.Funcs {
	write := func(do func() error) error {
		*count++
		if w.fail == nil {
			return do()
		}
		if err := w.fail(false); err != nil {
			return err
		}
		return errors.Join(do(), w.fail(true))
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceApply: func(
			ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
		) error {
			return write(func() error {
				before := w.peer().Status.Conditions
				if err := c.SubResource(sub).Apply(ctx, o, opts...); err != nil {
					return err
				}
				return w.restore(ctx, c, before)
			})
		},
	}
}

// restore brings back the conditions of others, which the fake drops: it does not know that they are a map by type.
func (w *world) restore(ctx context.Context, c client.Client, before []metav1.Condition) error {
	peer := w.peer()
	for _, condition := range before {
		if condition.Type != v1alpha1.ConditionSession {
			meta.SetStatusCondition(&peer.Status.Conditions, condition)
		}
	}
	return c.Status().Update(ctx, peer)
}

// Ensure and Guest make the provider our Links.
func (p *provider) Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error) {
	secret := &corev1.Secret{}
	err := p.world.client.Get(ctx, client.ObjectKey{Namespace: tenantHere, Name: v1alpha1.LinkSecret}, secret)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", peers.ErrCredentialsMissing, err)
	}
	credentials, err := peers.ParseCredentials(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", peers.ErrCredentialsInvalid, err)
	}
	p.peer = peer
	if p.stale {
		credentials.Invitation = "of before"
	}
	return fakeLink{p, credentials}, nil
}

func (p *provider) Guest(_ context.Context, invitation *trust.Invitation) (Guest, error) {
	return fakeGuest{p, invitation}, nil
}

type fakeLink struct {
	*provider
	credentials peers.Credentials
}

func (l fakeLink) Client() client.Client   { return failing{l.client, &l.err} }
func (l fakeLink) TenantNamespace() string { return l.credentials.Namespace }
func (l fakeLink) Invitation() string      { return l.credentials.Invitation }

func (l fakeLink) Renew(_ context.Context, asked time.Duration) (trust.Session, error) {
	l.renews++
	if l.err != nil {
		return trust.Session{}, l.err
	}
	return trust.Session{
		Token: fmt.Sprintf("renewed-%d", l.renews), Expires: l.world.clock.Now().Add(min(asked, l.grants)),
	}, nil
}

// A failing client fails with an error, if there is one.
type failing struct {
	client.Client
	err *error
}

func (f failing) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if *f.err != nil {
		return *f.err
	}
	return f.Client.Get(ctx, key, o, opts...)
}

type fakeGuest struct {
	*provider
	invitation *trust.Invitation
}

func (g fakeGuest) Claim(ctx context.Context, claim *v1alpha1.PeeringClaim) error {
	if g.err != nil {
		return g.err
	}
	g.claims++
	return g.client.Create(ctx, claim)
}

func (g fakeGuest) Read(ctx context.Context) (*v1alpha1.PeeringClaim, error) {
	if g.err != nil {
		return nil, g.err
	}
	claim := &v1alpha1.PeeringClaim{}
	key := client.ObjectKey{Namespace: g.invitation.Namespace, Name: v1alpha1.PeeringClaimName}
	return claim, g.client.Get(ctx, key, claim)
}

func (fakeGuest) Close() {}

// invitation is one that the provider gives us.
func (p *provider) invitation(id string, change ...func(*trust.Invitation)) *trust.Invitation {
	i := &trust.Invitation{
		ID: id, ClusterID: "hamburg", PublicKey: trust.FormatPublicKey(p.key.Public().(ed25519.PublicKey)),
		Servers: []string{"https://192.0.2.1:6443"}, Namespace: tenantThere, Token: "guest-" + id,
		Expires: p.world.clock.Now().Add(time.Hour),
	}
	for _, f := range change {
		f(i)
	}
	return i
}

// claim is ours over there, or nil.
func (p *provider) claim() *v1alpha1.PeeringClaim {
	p.world.t.Helper()
	claim := &v1alpha1.PeeringClaim{}
	key := client.ObjectKey{Namespace: tenantThere, Name: v1alpha1.PeeringClaimName}
	if err := p.client.Get(p.world.t.Context(), key, claim); err != nil {
		if client.IgnoreNotFound(err) != nil {
			p.world.t.Fatal(err)
		}
		return nil
	}
	return claim
}

// answer is what the provider's manager does with the claim.
func (p *provider) answer() {
	t := p.world.t
	t.Helper()
	claim := p.claim()
	if claim == nil || claim.Status.Session != nil || len(claim.Status.Conditions) > 0 {
		return
	}
	if err := trust.VerifyClaim(trust.FormatPublicKey(p.key.Public().(ed25519.PublicKey)), &claim.Spec); err != nil {
		t.Fatal(err)
	}
	sealed, err := trust.SealSession(p.key, &claim.Spec, trust.Session{
		Token: "session-" + claim.Spec.Invitation, Expires: p.world.clock.Now().Add(p.grants),
	})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.Session = sealed
	p.update(claim)
}

func (p *provider) update(claim *v1alpha1.PeeringClaim) {
	p.world.t.Helper()
	if err := p.client.Status().Update(p.world.t.Context(), claim); err != nil {
		p.world.t.Fatal(err)
	}
}

func (p *provider) refuse(reason, message string) {
	claim := p.claim()
	claim.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}}
	p.update(claim)
}

// forget deletes the claim, as a provider does that makes a new invitation.
func (p *provider) forget() {
	if err := p.client.Delete(p.world.t.Context(), p.claim()); err != nil {
		p.world.t.Fatal(err)
	}
}

func peerOf(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "hamburg", UID: "peer-uid", Generation: 1},
		Spec:       v1alpha1.PeerSpec{Roles: roles},
	}
}

// put writes the Secret of our tenant namespace for the peer.
func (w *world) put(name string, data map[string][]byte, annotations ...string) {
	w.t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: tenantHere, Name: name}
	err := w.client.Get(w.t.Context(), key, secret)
	secret.Namespace, secret.Name, secret.Data = tenantHere, name, data
	for i := 0; i < len(annotations); i += 2 {
		annotate(secret, annotations[i], annotations[i+1])
	}
	if err == nil {
		err = w.client.Update(w.t.Context(), secret)
	} else {
		err = w.client.Create(w.t.Context(), secret)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// offered puts the invitation where join looks for it.
func (w *world) offered(i *trust.Invitation) {
	w.t.Helper()
	w.put(v1alpha1.JoinSecret, map[string][]byte{v1alpha1.InvitationToken: []byte(format(w.t, i))})
}

func format(t *testing.T, i *trust.Invitation) string {
	t.Helper()
	text, err := i.Format()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// secret returns nil if there is none.
func (w *world) secret(name string) *corev1.Secret {
	w.t.Helper()
	secret, err := w.secrets.read(w.t.Context(), "hamburg", name)
	if err != nil {
		w.t.Fatal(err)
	}
	return secret
}

func (w *world) token() string {
	w.t.Helper()
	secret := w.secret(v1alpha1.LinkSecret)
	if secret == nil {
		return ""
	}
	credentials, err := peers.ParseCredentials(secret.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	return credentials.Token
}

func (w *world) peer() *v1alpha1.Peer {
	w.t.Helper()
	peer := &v1alpha1.Peer{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: "hamburg"}, peer); err != nil {
		w.t.Fatal(err)
	}
	return peer
}

func (w *world) change(f func(*v1alpha1.Peer)) {
	w.t.Helper()
	peer := w.peer()
	f(peer)
	if err := w.client.Update(w.t.Context(), peer); err != nil {
		w.t.Fatal(err)
	}
}

// says is what others write into the status of the Peer.
func (w *world) says(kind string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	peer := w.peer()
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, ObservedGeneration: peer.Generation,
		LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
	if err := w.client.Status().Update(w.t.Context(), peer); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tryReconcile() (reconcile.Result, error) {
	return w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "hamburg"}})
}

func (w *world) reconcile() time.Duration {
	w.t.Helper()
	result, err := w.tryReconcile()
	if err != nil {
		w.t.Fatal(err)
	}
	return result.RequeueAfter
}

// look reconciles and lets as much time go by as the controller asked for.
func (w *world) look() {
	w.t.Helper()
	w.clock.Step(w.reconcile())
}

// join goes on until the two clusters are peers.
func (w *world) join() {
	w.t.Helper()
	for range 10 {
		w.provider.answer()
		w.look()
		if w.secret(v1alpha1.JoinSecret) == nil {
			return
		}
	}
	w.t.Fatalf("not joined: %v", w.session())
}

func (w *world) session() *metav1.Condition {
	return meta.FindStatusCondition(w.peer().Status.Conditions, v1alpha1.ConditionSession)
}

func (w *world) expect(status metav1.ConditionStatus, reason string, words ...string) {
	w.t.Helper()
	got := w.session()
	if got == nil {
		w.t.Fatal("no condition Session")
	}
	if got.Status != status || got.Reason != reason {
		w.t.Fatalf("Session is %s, %s (%s), want %s, %s", got.Status, got.Reason, got.Message, status, reason)
	}
	for _, word := range words {
		if !strings.Contains(got.Message, word) {
			w.t.Errorf("message %q lacks %q", got.Message, word)
		}
	}
}

// expectEvents wants events of just these reasons since it was called last.
func (w *world) expectEvents(want ...string) {
	w.t.Helper()
	var got []string
	for len(w.recorder.Events) > 0 {
		got = append(got, strings.Fields(<-w.recorder.Events)[1])
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("events %v, want %v", got, want)
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
