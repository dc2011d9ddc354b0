// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"

	"github.com/hanse-dev/hanse/testbed/internal/component"
	"github.com/hanse-dev/hanse/testbed/internal/kube"
	"github.com/hanse-dev/hanse/testbed/internal/pki"
)

// ensureCredentials makes the keys, certificates and kubeconfigs that do not exist yet.
func (c Cluster) ensureCredentials() error {
	if err := pki.EnsureKeyPair(c.PKIDir(), component.ServiceAccountKey); err != nil {
		return err
	}
	for name, requests := range component.Certificates(c.Cluster) {
		authority, err := pki.OpenAuthority(c.PKIDir(), name, c.Now)
		if err != nil {
			return err
		}
		for _, request := range requests {
			if err := authority.Issue(request); err != nil {
				return err
			}
		}
	}
	for path, name := range component.Kubeconfigs(c.Cluster) {
		credentials, err := c.credentials(name)
		if err != nil {
			return err
		}
		text, err := component.Kubeconfig(c.Cluster, component.Credentials(credentials))
		if err != nil {
			return err
		}
		if err := writeFile(path, text); err != nil {
			return err
		}
	}
	return nil
}

func (c Cluster) credentials(name string) (kube.Credentials, error) {
	var credentials kube.Credentials
	for file, into := range map[string]*[]byte{
		component.ClusterCA + ".crt": &credentials.CA, name + ".crt": &credentials.Cert, name + ".key": &credentials.Key,
	} {
		text, err := os.ReadFile(filepath.Join(c.PKIDir(), file)) //nolint:gosec // a file of the testbed's own
		if err != nil {
			return kube.Credentials{}, err
		}
		*into = text
	}
	return credentials, nil
}

// client is an administrator's.
func (c Cluster) client() (*kube.Client, error) {
	credentials, err := c.credentials(component.AdminCert)
	if err != nil {
		return nil, err
	}
	return kube.New(c.Server(), credentials)
}
