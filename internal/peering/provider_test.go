package peering

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	tenantThere = there // our namespace at the peer
	life        = 30 * 24 * time.Hour
)

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

// newJoinWorld is one of a consumer, in which there is nothing but the session at the provider.
func newJoinWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := emptyWorld(t, func(c *Controller) {
		c.steps = []step{c.calls}
		c.calls.steps = c.calls.steps[:1]
	}, append(objects, ownNamespace())...)
	remote := fake.NewClientBuilder().WithScheme(testScheme()).WithStatusSubresource(&v1alpha1.PeeringClaim{}).
		WithInterceptorFuncs(w.remoteInterceptors()).Build()
	w.provider = &provider{world: w, client: remote, key: newKey(t), grants: life}
	w.config.ClusterID, w.config.ClusterKey = "lubeck", newKey(t)
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

func (w *world) upgrade(version string) {
	w.config.Version = version
	w.restart()
}

// remoteInterceptors make writes at the provider fail as those here do.
func (w *world) remoteInterceptors() interceptor.Funcs {
	write := func(do func() error) error {
		if err := ask(w.fail, false); err != nil {
			return err
		}
		return errors.Join(do(), ask(w.fail, true))
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
	}
}

// Close, ClusterInfo and the like are what a provider does for all that is tested elsewhere.
func (*provider) Close(string) {}

func (providerLink) Server() string                              { return "https://192.0.2.1:6443" }
func (l providerLink) Tombstone(context.Context) (string, error) { return "", peers.ErrForbidden }
func (l providerLink) Bandwidth(context.Context) (int64, error)  { return 0, peers.ErrClosed }
func (l providerLink) ClusterInfo(context.Context) (peers.ClusterInfo, error) {
	return peers.ClusterInfo{ClusterID: "hamburg", Version: "v0.1.0", PublicKey: public(l.key)}, l.err
}

// Ensure and Claimant make the provider our Links.
func (p *provider) Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error) {
	secret := &corev1.Secret{}
	err := p.world.client.Get(ctx, client.ObjectKey{Namespace: tenant, Name: v1alpha1.LinkSecret}, secret)
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
	return providerLink{p, credentials}, nil
}

func (p *provider) Claimant(_ context.Context, invitation *trust.Invitation) (Claimant, error) {
	return fakeClaimant{p, invitation}, nil
}

type providerLink struct {
	*provider
	credentials peers.Credentials
}

func (l providerLink) Client() client.Client   { return failing{l.client, &l.err} }
func (l providerLink) TenantNamespace() string { return l.credentials.Namespace }
func (l providerLink) Invitation() string      { return l.credentials.Invitation }

func (l providerLink) Renew(_ context.Context, asked time.Duration) (trust.Session, error) {
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

type fakeClaimant struct {
	*provider
	invitation *trust.Invitation
}

func (g fakeClaimant) Claim(ctx context.Context, claim *v1alpha1.PeeringClaim) error {
	if g.err != nil {
		return g.err
	}
	g.claims++
	return g.client.Create(ctx, claim)
}

func (g fakeClaimant) Read(ctx context.Context) (*v1alpha1.PeeringClaim, error) {
	if g.err != nil {
		return nil, g.err
	}
	claim := &v1alpha1.PeeringClaim{}
	key := client.ObjectKey{Namespace: g.invitation.Namespace, Name: v1alpha1.PeeringClaimName}
	return claim, g.client.Get(ctx, key, claim)
}

func (fakeClaimant) Close() {}

func (*provider) OverBudget(string) error { return nil }
func (*provider) Changes() source.Source  { return nil }

// invitation is one that the provider gives us.
func (p *provider) invitation(id string, change ...func(*trust.Invitation)) *trust.Invitation {
	i := &trust.Invitation{
		ID: id, ClusterID: "hamburg", PublicKey: trust.FormatPublicKey(p.key.Public().(ed25519.PublicKey)),
		Servers: []string{"https://192.0.2.1:6443"}, Namespace: tenantThere, Token: "claimant-" + id,
		Expires: p.world.clock.Now().Add(time.Hour),
	}
	for _, f := range change {
		f(i)
	}
	return i
}

// claim is ours at the peer, or nil.
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

// put writes the Secret of our tenant namespace for the peer.
func (w *world) put(name string, data map[string][]byte, annotations ...string) {
	w.t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: tenant, Name: name}
	err := w.client.Get(w.t.Context(), key, secret)
	secret.Namespace, secret.Name, secret.Data = tenant, name, data
	for i := 0; i < len(annotations); i += 2 {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotations[i], annotations[i+1])
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
	found := secret(tenant, name)
	if !w.exists(tenant, name, found) {
		return nil
	}
	return found
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

// pause reconciles, and returns when the controller wants to look again.
func (w *world) pause() time.Duration {
	w.t.Helper()
	return w.reconcile().RequeueAfter
}

// look reconciles and lets as much time go by as the controller asked for.
func (w *world) look() {
	w.t.Helper()
	w.clock.Step(w.pause())
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

func (w *world) expectSession(status metav1.ConditionStatus, reason string, words ...string) {
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
