package kubelet

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// certificateLife is longer than any process that makes a certificate for itself.
const certificateLife = 10 * 365 * 24 * time.Hour

type certificateSource func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// runner runs what it is given with the rest of the process.
type runner interface {
	Add(runnable manager.Runnable) error
}

// servingCertificate returns the certificate of the kubelet API: that of the files, which are watched then, or one made
// in memory. API servers do not verify it unless they were told to.
func servingCertificate(config Config, with runner) (certificateSource, error) {
	if config.CertFile == "" {
		return selfSigned(config)
	}
	watcher, err := certwatcher.New(config.CertFile, config.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read serving certificate: %w", err)
	}
	if err := with.Add(watcher); err != nil {
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
