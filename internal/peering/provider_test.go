// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	tenantThere = there // our namespace at the peer
	life        = 30 * 24 * time.Hour
)

// A provider is what the manager of the other cluster does, where answer is called.
type provider struct {
	world  *world
	key    ed25519.PrivateKey
	grants time.Duration // life of its sessions
	stale  bool          // whether links go on with credentials of before
}

// newJoinWorld is one of a consumer, in which there is nothing but the session at the provider.
func newJoinWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := emptyWorld(t, func(c *Controller) {
		c.steps = []step{c.calls}
		c.calls.steps = c.calls.steps[:1]
	}, append(objects, ownNamespace())...)
	w.provider = &provider{world: w, key: newKey(t), grants: life}
	w.connect(lateReader{w.client, w.provider})
	w.remote = w.links.Serve("hamburg", interceptor.NewClient(w.away.Client, w.remoteInterceptors()))
	w.remote.IssueTokens(w.provider.renew)
	w.introduces(peers.ClusterInfo{ClusterID: "hamburg", Version: "v0.1.0", PublicKey: trust.PublicKeyOf(w.provider.key)})
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

// A lateReader reads our credentials. While the provider is stale, it reads those of before.
type lateReader struct {
	client.Reader
	provider *provider
}

// Get implements client.Reader.
func (l lateReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := l.Reader.Get(ctx, key, o, opts...)
	if secret, is := o.(*corev1.Secret); is && err == nil && l.provider.stale {
		secret.ResourceVersion, secret.Data[v1alpha1.LinkSecretInvitation] = "of-before", []byte("of-before")
	}
	return err
}

// renew gives us a new token.
func (p *provider) renew(request *authenticationv1.TokenRequest) error {
	asked := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
	request.Status = authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprintf("renewed-%d", p.renews()),
		ExpirationTimestamp: metav1.NewTime(p.world.clock.Now().Add(min(asked, p.grants))),
	}
	return nil
}

// renews returns how often a new token was asked for.
func (p *provider) renews() int { return p.world.remote.Requests(renewal) }

// claims returns how often a claim was made.
func (p *provider) claims() int { return p.world.remote.Requests(joining) }

// fails has every request fail, or none if there is no error.
func (p *provider) fails(err error) { p.world.remote.Refuse("", err) }

// invitation is one that the provider gives us.
func (p *provider) invitation(id string, change ...func(*trust.Invitation)) *trust.Invitation {
	i := &trust.Invitation{
		ID: id, ClusterID: "hamburg", PublicKey: trust.PublicKeyOf(p.key),
		Servers: []string{p.world.remote.URL()}, Namespace: tenantThere, Token: "claimant-" + id,
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
	if !p.world.away.Find(claim, tenantThere, v1alpha1.PeeringClaimName) {
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
	if err := trust.VerifyClaim(trust.PublicKeyOf(p.key), &claim.Spec); err != nil {
		t.Fatal(err)
	}
	sealed, err := trust.SealSession(p.key, &claim.Spec, trust.Session{
		Token: "session-" + claim.Spec.Invitation, Expires: p.world.clock.Now().Add(p.grants),
	})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.Session = sealed
	p.world.away.Put(claim)
}

func (p *provider) refuse(reason, message string) {
	claim := p.claim()
	claim.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}}
	p.world.away.Put(claim)
}

// forget deletes the claim, as a provider does that makes a new invitation.
func (p *provider) forget() {
	p.world.t.Helper()
	p.world.away.Remove(p.claim())
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
