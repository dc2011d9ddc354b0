// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	// sealingKey is the key of Secrets under which the private half of a key lies that something is sealed to: in
	// hanse-invitation an invitation back, in hanse-join our session.
	sealingKey = "sealing-key"
	// maxSteps is more than an invitation or a claim ever takes.
	maxSteps = 16
	// maxServers is how many addresses an invitation holds.
	maxServers = 8
)

// inviteStep makes invitations for consumers, and answers their claims.
type inviteStep struct {
	*deps

	admission sync.Mutex // held from looking for another Peer of a cluster's id to setting that id
}

// Reconcile implements step.
func (c *inviteStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if !o.peer.HasRole(v1alpha1.RoleConsumer) || o.namespace == nil || o.deleted() || !o.peer.Protocol().Sessions {
		o.known.inviting, o.known.invitation, o.invited = gate{}, nil, nil
		return result{}, nil // a peer that is no consumer has nothing: tenantStep takes it away
	}
	seen := o.sight()
	if !o.known.inviting.open(seen, o.now) {
		return result{again: o.known.inviting.due}, nil
	}
	f, again, err := c.settle(ctx, o.peer)
	switch {
	case apierrors.IsForbidden(err) && o.now.Sub(o.namespace.CreationTimestamp.Time) < settleTime:
		return result{again: o.now.Add(settlePause)}, nil
	case err != nil:
		return result{}, err
	case f == nil:
		return result{stop: true}, nil
	}
	o.peer, o.invited = f.peer, f
	o.known.invitation, o.known.inviting = f, gate{seen, again}
	return result{again: again}, nil
}

// settle takes step after step until nothing is left to do. It returns what it has found in the end, and when the peer must
// be looked at again.
func (c *inviteStep) settle(ctx context.Context, peer *v1alpha1.Peer) (*invitation, time.Time, error) {
	for range maxSteps {
		f, err := c.look(ctx, peer)
		if err != nil || f == nil {
			return nil, time.Time{}, err
		}
		next := decide(f)
		switch {
		case next == nothing:
			return f, f.due(wait.Jitter(repairPeriod, repairJitter)), nil
		case next == dropInvitation && !f.asked() && !f.told():
			// The serial of an invitation is in the status before the invitation goes, so that it is not made again.
			return f, f.now, nil
		}
		if err := c.act(ctx, next, f); err != nil {
			return nil, time.Time{}, err
		}
	}
	return nil, time.Time{}, errors.New("somebody else undoes each step")
}

// look looks closely. All is read from the API server itself: an old Peer or claim would have us make an invitation
// twice, or answer a claim again that was answered. It returns nil if the Peer is gone.
func (c *inviteStep) look(ctx context.Context, known *v1alpha1.Peer) (*invitation, error) {
	peer := known.DeepCopy()
	there, err := c.find(ctx, peer)
	if err != nil || !there || peer.UID != known.UID || !peer.DeletionTimestamp.IsZero() {
		return nil, err
	}
	f := &invitation{
		peer: peer, now: c.config.Clock.Now(), draft: c.config.draft(peer.Name, nil),
		binding: binding(v1alpha1.TenantNamespace(peer.Name), v1alpha1.ClusterRolePeerTenant),
	}
	var problems [4]error
	f.secret, problems[0] = existing(ctx, c.direct, secret(f.draft.Namespace, v1alpha1.InvitationSecret))
	f.claim, problems[1] = existing(ctx, c.direct, claim(f.draft.Namespace))
	f.account, problems[2] = c.find(ctx, serviceAccount(f.draft.Namespace, v1alpha1.PeerServiceAccount))
	_, problems[3] = c.find(ctx, f.binding)
	if err := errors.Join(problems[:]...); err != nil {
		return nil, err
	}
	if f.secret != nil { // what is no invitation is made anew
		f.token, _ = trust.ParseInvitation(string(f.secret.Data[v1alpha1.InvitationToken]))
	}
	return f, c.observeServers(ctx, f)
}

// observeServers finds out where this cluster's API server is, if anybody has to be told.
func (c *inviteStep) observeServers(ctx context.Context, f *invitation) error {
	if !f.wantsServers() {
		return nil
	}
	f.draft.Servers = c.config.Servers
	if asked := f.peer.Spec.Invitation; asked != nil && len(asked.Servers) > 0 {
		f.draft.Servers = asked.Servers
	}
	if len(f.draft.Servers) > 0 {
		return nil
	}
	slices := &discoveryv1.EndpointSliceList{}
	err := c.direct.List(ctx, slices, client.InNamespace("default"), client.MatchingLabels{
		discoveryv1.LabelServiceName: "kubernetes",
	})
	if err != nil {
		return fmt.Errorf("list the EndpointSlices of Service default/kubernetes: %w", err)
	}
	f.draft.Servers = serversOf(slices.Items)
	return nil
}

// serversOf returns the URLs that the endpoints of Service kubernetes stand for.
func serversOf(endpointSlices []discoveryv1.EndpointSlice) []string {
	servers := []string{}
	for i := range endpointSlices {
		slice := &endpointSlices[i]
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				servers = append(servers, urlsOf(endpoint.Addresses, slice.Ports)...)
			}
		}
	}
	slices.Sort(servers)
	servers = slices.Compact(servers)
	return servers[:min(len(servers), maxServers)]
}

func urlsOf(addresses []string, ports []discoveryv1.EndpointPort) []string {
	urls := []string{}
	for _, port := range ports {
		if port.Port == nil {
			continue
		}
		for _, address := range addresses {
			urls = append(urls, "https://"+net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
		}
	}
	return urls
}

// act takes the step.
func (c *inviteStep) act(ctx context.Context, next action, f *invitation) error {
	namespace := f.draft.Namespace
	switch next {
	case setRights:
		ctrl.LoggerFrom(ctx).Info("Changing the rights of the peer", "access", f.peer.Access())
		return c.bind(ctx, namespace, v1alpha1.ClusterRolePeerTenant, f.rights()...)
	case dropInvitation:
		return c.removeExactly(ctx, f.secret)
	case dropClaim:
		return c.dropClaim(ctx, f.claim)
	case prepare:
		return c.prepare(ctx, f)
	case mint:
		return c.mint(ctx, f)
	case answerClaim:
		return c.answer(ctx, f)
	case clearSession:
		status := f.claim.Status
		status.Session = nil
		return local.ApplyStatus(ctx, c.client, invitationOwner, f.claim, &status)
	default:
		return nil
	}
}

// dropClaim deletes the claim. A consumer may not hold it by a finalizer.
func (c *inviteStep) dropClaim(ctx context.Context, claim *v1alpha1.PeeringClaim) error {
	err := c.patch(ctx, claim, func() { claim.Finalizers = nil })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the finalizers off the PeeringClaim: %w", err)
	}
	return c.removeExactly(ctx, claim)
}

// account makes a ServiceAccount in the tenant namespace whose tokens no pod gets.
func (c *inviteStep) account(ctx context.Context, f *invitation, name string) (*corev1.ServiceAccount, error) {
	account := serviceAccount(f.draft.Namespace, name)
	return account, c.put(ctx, account, func() {
		account.Labels[v1alpha1.LabelPeer] = f.peer.Name
		account.AutomountServiceAccountToken = ptr.To(false)
	})
}

// token returns a token of the ServiceAccount that ends with the Secret.
func (c *inviteStep) token(
	ctx context.Context, account *corev1.ServiceAccount, secret *corev1.Secret, seconds int64,
) (authenticationv1.TokenRequestStatus, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID,
		},
	}}
	if err := c.client.SubResource("token").Create(ctx, account, request); err != nil {
		return request.Status, fmt.Errorf("request a token of ServiceAccount %s: %w", account.Name, err)
	}
	return request.Status, nil
}

// prepare makes the Secret that the invitation's token is going to be bound to.
func (c *inviteStep) prepare(ctx context.Context, f *invitation) error {
	// Expiry is kept in whole seconds; half a second less would be none for one of a second.
	expires := f.now.Add(timeToLive(f.peer) + time.Second - 1).Truncate(time.Second)
	made := secret(f.draft.Namespace, v1alpha1.InvitationSecret)
	made.Annotations = map[string]string{
		v1alpha1.AnnotationSerial:  strconv.FormatInt(f.peer.Spec.Invitation.Serial, 10),
		v1alpha1.AnnotationExpires: expires.UTC().Format(time.RFC3339),
	}
	if f.peer.HasRole(v1alpha1.RoleProvider) {
		key, err := trust.NewSealingKey()
		if err != nil {
			return err
		}
		made.Data = map[string][]byte{sealingKey: []byte(key.Format())}
	}
	return c.create(ctx, f.peer, made)
}

// create makes the Secret of the peer.
func (c *inviteStep) create(ctx context.Context, peer *v1alpha1.Peer, made *corev1.Secret) error {
	made.Labels = map[string]string{v1alpha1.LabelManaged: "true", v1alpha1.LabelPeer: peer.Name}
	return c.write(ctx, made)
}

// mint makes the invitation and puts it into its Secret.
func (c *inviteStep) mint(ctx context.Context, f *invitation) error {
	account, err := c.account(ctx, f, v1alpha1.InvitationServiceAccount)
	if err != nil {
		return err
	}
	err = c.bind(ctx, f.draft.Namespace, v1alpha1.ClusterRolePeerInvitation, accountSubject(account.Namespace, account.Name))
	if err != nil {
		return err
	}
	life := max(minTokenLife, f.expires().Add(pickUpTime).Sub(f.now))
	token, err := c.token(ctx, account, f.secret, int64(life.Seconds()))
	if err != nil {
		return err
	}
	text, err := c.format(f, token.Token)
	if err != nil {
		return err
	}
	secret := f.secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[v1alpha1.InvitationToken] = []byte(text)
	if err := c.write(ctx, secret); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Inviting the peer", "serial", f.serial(), "expires", f.expires(), "servers", f.draft.Servers)
	return nil
}

func (c *inviteStep) format(f *invitation, token string) (string, error) {
	invitation := f.draft
	invitation.ID, invitation.Token, invitation.Expires = rand.Text(), token, f.expires()
	if private := f.secret.Data[sealingKey]; len(private) > 0 {
		key, err := trust.ParseSealingKey(string(private))
		if err != nil {
			return "", fmt.Errorf("read key %s of Secret %s: %w", sealingKey, f.secret.Name, err)
		}
		invitation.SealingKey = key.Public()
	}
	return invitation.Format()
}
