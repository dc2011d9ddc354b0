package peering

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// agentlessPeriod is how often an agentless peer is asked at most: it takes a request for each right.
const agentlessPeriod = time.Minute

// neededRights are what we must be allowed to create in each namespace of an agentless peer.
var neededRights = []authorizationv1.ResourceAttributes{
	{Verb: "create", Group: "apps", Resource: "replicasets"},
	{Verb: "create", Resource: "pods"},
}

// errLacking means that an agentless peer does not give us a right that we need.
var errLacking = errors.New("a right is missing")

// greeting asks the peer to introduce itself. One without Hanse cannot, and is asked for our rights instead.
func greeting(ctx context.Context, peer *v1alpha1.Peer, link Link, config Config) (peers.Hello, error) {
	if !peer.Agentless() {
		return link.Hello(ctx)
	}
	hello := peers.Hello{}
	for _, namespace := range peer.Spec.Namespaces {
		for _, right := range neededRights {
			right.Namespace = namespace
			start := config.Clock.Now()
			if err := checkRight(ctx, link, right); err != nil {
				return hello, err
			}
			hello.RoundTrip = config.Clock.Since(start)
		}
	}
	return hello, nil
}

func checkRight(ctx context.Context, link Link, right authorizationv1.ResourceAttributes) error {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
	}
	if err := link.Client().Create(ctx, review); err != nil {
		return fmt.Errorf("%w: ask for our rights in namespace %s: %w", kindOf(err), right.Namespace, err)
	}
	if !review.Status.Allowed {
		return fmt.Errorf("%w: to %s %s in namespace %s", errLacking, right.Verb, right.Resource, right.Namespace)
	}
	return nil
}

// kindOf tells the errors of a request over a link apart as package peers does.
func kindOf(err error) error {
	untrusted := &tls.CertificateVerificationError{}
	switch {
	case errors.Is(err, peers.ErrClosed):
		return peers.ErrClosed
	case apierrors.IsUnauthorized(err):
		return peers.ErrUnauthorized
	case apierrors.IsForbidden(err):
		return errLacking
	case errors.As(err, &untrusted):
		return peers.ErrCredentialsInvalid
	default:
		return peers.ErrUnreachable
	}
}
