package invitation

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// maxServers is how many addresses an invitation holds.
const maxServers = 8

// observe looks closely. All is read from the API server itself: an old Peer or claim would have us make an invitation
// twice, or answer a claim again that was answered.
func (c *Controller) observe(ctx context.Context, known *v1alpha1.Peer) (*facts, error) {
	peer := &v1alpha1.Peer{}
	err := c.direct.Get(ctx, client.ObjectKeyFromObject(known), peer)
	if apierrors.IsNotFound(err) || err == nil && (peer.UID != known.UID || !peer.DeletionTimestamp.IsZero()) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("read Peer: %w", err)
	}
	f := &facts{peer: peer, now: c.config.Clock.Now(), draft: c.config.draft(peer.Name, nil)}
	for _, read := range []func(context.Context, *facts) error{
		c.observeSecret, c.observeClaim, c.observeRights, c.observeServers,
	} {
		if err := read(ctx, f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (c *Controller) observeSecret(ctx context.Context, f *facts) error {
	secret := &corev1.Secret{}
	found, err := c.find(ctx, f.draft.Namespace, v1alpha1.InvitationSecret, secret)
	if !found || err != nil {
		return err
	}
	f.secret = secret
	// What is no invitation is made anew.
	f.invitation, _ = trust.ParseInvitation(string(secret.Data[v1alpha1.InvitationToken]))
	return nil
}

func (c *Controller) observeClaim(ctx context.Context, f *facts) error {
	claim := &v1alpha1.PeeringClaim{}
	found, err := c.find(ctx, f.draft.Namespace, v1alpha1.PeeringClaimName, claim)
	if found {
		f.claim = claim
	}
	return err
}

func (c *Controller) observeRights(ctx context.Context, f *facts) error {
	var err error
	if f.account, err = c.find(ctx, f.draft.Namespace, v1alpha1.PeerServiceAccount, &corev1.ServiceAccount{}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{}
	found, err := c.find(ctx, f.draft.Namespace, v1alpha1.ClusterRolePeerTenant, binding)
	if found {
		f.binding = binding
	}
	return err
}

// find reads an object, and reports whether there is one.
func (c *Controller) find(ctx context.Context, namespace, name string, object client.Object) (bool, error) {
	err := c.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %T %s: %w", object, name, err)
	}
	return true, nil
}

// observeServers finds out where this cluster's API server is, if anybody has to be told.
func (c *Controller) observeServers(ctx context.Context, f *facts) error {
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
