package invitation

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// Config is what an administrator may set. What is not set has the default that is named.
type Config struct {
	// ClusterID is the id of this cluster.
	ClusterID string
	// ClusterKey is the key of this cluster.
	ClusterKey ed25519.PrivateKey
	// SessionLife is for how long a consumer's session lives unless it is renewed. Default 30 days.
	SessionLife time.Duration
	// Servers are the addresses of this cluster's API server as peers reach it, the best first. By default those of
	// Service kubernetes are used.
	Servers []string
	// CA are the certificates, in PEM, that the API server's own is signed by. Empty means those that every computer
	// knows.
	CA []byte
	// Workers is how many peers are worked on at the same time. Default 4.
	Workers int
	// Clock is the time. Default the real one.
	Clock clock.Clock
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.SessionLife = cmp.Or(c.SessionLife, 30*24*time.Hour)
	c.Workers = cmp.Or(c.Workers, 4)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var problems []error
	if c.SessionLife < minTokenLife || c.Workers < 1 {
		problems = append(problems, fmt.Errorf("the life of a session must be at least %s and the number of workers positive",
			minTokenLife))
	}
	if len(c.ClusterKey) != ed25519.PrivateKeySize {
		return errors.Join(append(problems, errors.New("the key of this cluster is missing"))...)
	}
	servers := c.Servers
	if len(servers) == 0 {
		servers = []string{"https://found-out-later"}
	}
	return errors.Join(append(problems, usable(c.draft("any", servers)))...)
}

// draft returns an invitation of the peer without what is made for it alone.
func (c *Config) draft(peer string, servers []string) trust.Invitation {
	return trust.Invitation{
		ClusterID: c.ClusterID,
		PublicKey: trust.FormatPublicKey(c.ClusterKey.Public().(ed25519.PublicKey)),
		Servers:   servers,
		CA:        c.CA,
		Namespace: v1alpha1.TenantNamespace(peer),
	}
}
