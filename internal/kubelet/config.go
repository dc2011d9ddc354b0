// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/internal/trace"
)

// Config is what an administrator may set.
type Config struct {
	// NodeIP is the address of this process at which the cluster's API server reaches the kubelet API. It is the
	// address of every virtual node.
	NodeIP netip.Addr
	// PodIPs are all addresses of the pod of this process, the main one first: pods at peers are shown with addresses of the same
	// families. Without any they are shown with all that they have.
	PodIPs []netip.Addr
	// FirstPort and LastPort bound the ports of the kubelet API, one for each virtual node.
	FirstPort, LastPort int
	// Workers is how many pods are worked on at the same time.
	Workers int
	// LeaseDuration is how long a virtual node counts as alive after it renewed its lease, and LeaseRenewal how often
	// it does that. Many nodes renew less often, down to twice in LeaseDuration.
	LeaseDuration, LeaseRenewal time.Duration
	// DefaultToleration is for how long pods tolerate a node that is not ready if their authors have not said: what the
	// API server of this cluster puts on them.
	DefaultToleration time.Duration
	// CertFile and KeyFile are the serving certificate of the kubelet API, read again when they change. Without them
	// one is made in memory.
	CertFile, KeyFile string
	// Tracer records where the time goes that pods take to be ready. It may be nil.
	Tracer *trace.Tracer
}

// Default fills in what was not set.
func (c *Config) Default() {
	// Above the ports of Kubernetes' own components, below those of NodePort Services.
	c.FirstPort, c.LastPort = cmp.Or(c.FirstPort, 20000), cmp.Or(c.LastPort, 29999)
	c.Workers = cmp.Or(c.Workers, 32)
	c.LeaseDuration, c.LeaseRenewal = cmp.Or(c.LeaseDuration, 40*time.Second), cmp.Or(c.LeaseRenewal, 10*time.Second)
	c.DefaultToleration = cmp.Or(c.DefaultToleration, 5*time.Minute)
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var problems []error
	if !c.NodeIP.IsValid() || c.NodeIP.IsUnspecified() {
		problems = append(problems, fmt.Errorf("node IP %q is no address that the API server could reach", c.NodeIP))
	}
	if c.FirstPort < 1 || c.LastPort > 65535 || c.FirstPort > c.LastPort {
		problems = append(problems, fmt.Errorf("ports %d to %d are no range of ports", c.FirstPort, c.LastPort))
	}
	if c.Workers < 1 {
		problems = append(problems, fmt.Errorf("%d workers: at least one is needed", c.Workers))
	}
	if c.LeaseRenewal <= 0 || c.LeaseRenewal >= c.LeaseDuration {
		problems = append(problems, fmt.Errorf("a lease of %s cannot be renewed every %s", c.LeaseDuration, c.LeaseRenewal))
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		problems = append(problems, errors.New("the certificate and the key of the kubelet API need each other"))
	}
	return errors.Join(problems...)
}

// certificateLife is longer than any process that makes a certificate for itself.
const certificateLife = 10 * 365 * 24 * time.Hour

type certificateSource func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// servingCertificate returns the certificate of the kubelet API: that of the files, which are watched then, or one made
// in memory. API servers do not verify it unless they were told to.
func servingCertificate(config Config, run func(manager.Runnable) error) (certificateSource, error) {
	if config.CertFile == "" {
		return selfSigned(config)
	}
	watcher, err := certwatcher.New(config.CertFile, config.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read serving certificate: %w", err)
	}
	if err := run(watcher); err != nil {
		return nil, err
	}
	return watcher.GetCertificate, nil
}

func selfSigned(config Config) (certificateSource, error) {
	chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{
		Host:         config.NodeIP.String(),
		AlternateIPs: []net.IP{config.NodeIP.AsSlice()},
		MaxAge:       certificateLife,
	})
	if err != nil {
		return nil, fmt.Errorf("make serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("use serving certificate: %w", err)
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
}
