// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A Claimant is a connection to a cluster that has invited us. It can do what an invitation allows: make one claim, and
// read it.
type Claimant struct{ connection *connection }

// Claimant returns a connection by the invitation, which ends with ctx, or earlier by Close. Nothing is sent yet. The error
// is ErrCredentialsInvalid.
func (l *Links) Claimant(ctx context.Context, invitation *trust.Invitation) (*Claimant, error) {
	to := account{
		servers: invitation.Servers, tls: rest.TLSClientConfig{CAData: invitation.CA},
		namespace: invitation.Namespace, token: invitation.Token,
	}
	if err := cmp.Or(checkNamespace(to.namespace), checkServers(to.servers)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCredentialsInvalid, err)
	}
	conn, err := l.connect(ctx, to, l.newLedger(""))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCredentialsInvalid, err)
	}
	return &Claimant{conn}, nil
}

// Claim makes our claim. Besides the errors of this package it returns AlreadyExists, as apimachinery's errors package
// tells, when the invitation was used before, by us or by another.
func (c *Claimant) Claim(ctx context.Context, claim *v1alpha1.PeeringClaim) error {
	ctx, cancel := context.WithTimeout(ctx, c.connection.timeout)
	defer cancel()
	key := c.key()
	claim.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	if err := c.connection.client.Create(ctx, claim); err != nil {
		return fmt.Errorf("create PeeringClaim %s of the peer: %w", key, classify(err))
	}
	return nil
}

// Read returns the claim that was made by the invitation, whoever made it. Besides the errors of this package it returns
// NotFound.
func (c *Claimant) Read(ctx context.Context) (*v1alpha1.PeeringClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, c.connection.timeout)
	defer cancel()
	claim := &v1alpha1.PeeringClaim{}
	if err := c.connection.client.Get(ctx, c.key(), claim); err != nil {
		return nil, fmt.Errorf("read PeeringClaim %s of the peer: %w", c.key(), classify(err))
	}
	return claim, nil
}

// Close ends the connection.
func (c *Claimant) Close() { c.connection.close() }

func (c *Claimant) key() client.ObjectKey {
	return client.ObjectKey{Namespace: c.connection.account.namespace, Name: v1alpha1.PeeringClaimName}
}
