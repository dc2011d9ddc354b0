// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/trust"
)

// statementLife is for how long what is signed here holds, whatever the Request asks for.
const statementLife = 10 * time.Minute

// A Signer signs what a consumer asks of a provider. Both are ids of clusters.
type Signer struct {
	Key                ed25519.PrivateKey
	Consumer, Provider string
}

// NewSigner returns one that signs as the consumer does, of which it reads the key.
func NewSigner(ctx context.Context, of client.Reader, consumer, provider string) (Signer, error) {
	secret := &corev1.Secret{}
	if err := of.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "hanse-cluster-key"}, secret); err != nil {
		return Signer{}, fmt.Errorf("read the key of %s: %w", consumer, err)
	}
	key, err := trust.ParsePrivateKey(secret.Data["private-key"])
	if err != nil {
		return Signer{}, fmt.Errorf("read the key of %s: %w", consumer, err)
	}
	return Signer{key, consumer, provider}, nil
}

// Sign signs what the Request says now, as the Hanse of the consumer would. Changes of the statement make it a lie.
func (s Signer) Sign(request *v1alpha1.Request, now time.Time, changes ...func(*trust.Statement)) (err error) {
	request.Spec.Signed, err = s.sign(trust.Request, exchange.RequestToSign(request), now, changes...)
	return err
}

// SignQuote signs what the Quote says now, as the Hanse of the consumer would.
func (s Signer) SignQuote(quote *v1alpha1.Quote, now time.Time) (err error) {
	quote.Spec.Signed, err = s.sign(trust.Quote, exchange.QuoteToSign(quote), now)
	return err
}

func (s Signer) sign(kind trust.StatementType, body any, now time.Time, changes ...func(*trust.Statement)) (*v1alpha1.SignedStatement, error) {
	said := trust.Statement{Type: kind, From: s.Consumer, To: s.Provider, Sequence: now.UnixNano(), Expires: now.Add(statementLife)}
	for _, change := range changes {
		change(&said)
	}
	return trust.SignStatement(s.Key, said, body)
}
