package harness

import (
	"crypto/ed25519"
	"fmt"
	"time"

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

// Sign signs what the Request says now, as the Hanse of the consumer would. Changes of the statement make it a lie.
func (s Signer) Sign(request *v1alpha1.Request, now time.Time, changes ...func(*trust.Statement)) error {
	said := trust.Statement{
		Type: trust.Request, From: s.Consumer, To: s.Provider, Sequence: now.UnixNano(), Expires: now.Add(statementLife),
	}
	for _, change := range changes {
		change(&said)
	}
	signed, err := trust.SignStatement(s.Key, said, exchange.RequestToSign(request))
	if err != nil {
		return fmt.Errorf("sign Request %s: %w", request.Name, err)
	}
	request.Spec.Signed = signed
	return nil
}
