package broker

import (
	"crypto/ed25519"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// refusals are the versions of Messages that were refused, so that each is counted once.
type refusals struct {
	mu   sync.Mutex
	seen map[refusedVersion]string // → reason
}

type refusedVersion struct {
	broker  string
	message types.UID
	version string
}

// mostRefusals bounds how many are remembered. When there are more, some are counted twice.
const mostRefusals = 4096

// refuse counts a Message that is not taken in.
func (m *member) refuse(seen *scene, message *v1alpha1.Message, err error) {
	why := &trust.Refusal{Reason: v1alpha1.ReasonMalformed}
	errors.As(err, &why)
	key := refusedVersion{seen.broker.Name, message.UID, message.ResourceVersion}
	m.refused.mu.Lock()
	defer m.refused.mu.Unlock()
	if m.refused.seen[key] == why.Reason {
		return
	}
	if m.refused.seen == nil || len(m.refused.seen) >= mostRefusals {
		m.refused.seen = map[refusedVersion]string{}
	}
	m.refused.seen[key] = why.Reason
	refused.WithLabelValues(seen.broker.Name, why.Reason).Inc()
}

func publicOf(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }
