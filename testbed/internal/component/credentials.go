// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/hanse-dev/hanse/testbed/internal/pki"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// Names of the authorities of a cluster.
const (
	ClusterCA    = "ca"
	FrontProxyCA = "front-proxy-ca"
	EtcdCA       = "etcd-ca"
)

// ServiceAccountKey is the name of the key pair that signs the tokens of ServiceAccounts.
const ServiceAccountKey = "service-account"

// AdminCert is the name of the administrator's certificate.
const AdminCert = "admin"

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Certificates tells which certificates each authority of the cluster issues.
func Certificates(c *plan.Cluster) map[string][]pki.Request {
	cluster := []pki.Request{
		{
			Name: "apiserver", User: "kube-apiserver",
			Hosts: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local", c.Name,
			},
			Addresses: append(c.Addresses(), loopback, c.KubernetesService()),
		},
		{Name: "apiserver-kubelet-client", User: "kube-apiserver-kubelet-client"},
		{Name: AdminCert, User: "testbed-admin", Groups: []string{"system:masters"}},
		{Name: "controller-manager", User: "system:kube-controller-manager"},
		{Name: "scheduler", User: "system:kube-scheduler"},
		{Name: "coredns", User: "system:coredns"},
		{Name: "proxy", User: "system:kube-proxy"},
		{
			Name: "metrics-server", User: "system:metrics-server", Hosts: []string{"metrics-server.kube-system.svc"},
			Addresses: c.Addresses(),
		},
		{Name: "provisioner", User: "system:provisioner"},
		{Name: "snapshot-controller", User: "system:snapshot-controller"},
		{Name: "kwok", User: "system:kwok", Groups: []string{"system:masters"}},
	}
	for _, worker := range c.Workers() {
		cluster = append(cluster, pki.Request{
			Name: worker.Name(), User: "system:node:" + worker.Name(), Groups: []string{"system:nodes"},
			Hosts: []string{worker.Name()}, Addresses: worker.Addresses(),
		})
	}
	return map[string][]pki.Request{
		ClusterCA:    cluster,
		FrontProxyCA: {{Name: "front-proxy-client", User: "front-proxy-client"}},
		EtcdCA: {
			{Name: "etcd", User: "etcd", Hosts: []string{"localhost"}, Addresses: []netip.Addr{loopback}},
			{Name: "apiserver-etcd-client", User: "kube-apiserver-etcd-client"},
		},
	}
}

// Kubeconfigs tells which kubeconfig, by its path, is made of which certificate.
func Kubeconfigs(c *plan.Cluster) map[string]string {
	paths := map[string]string{c.Kubeconfig(): AdminCert}
	for _, name := range []string{
		"controller-manager", "scheduler", "coredns", "proxy", "kwok", "metrics-server", "provisioner", "snapshot-controller",
	} {
		paths[kubeconfig(c, name)] = name
	}
	for _, worker := range c.Workers() {
		paths[kubeconfig(c, worker.Name())] = worker.Name()
	}
	return paths
}

func kubeconfig(c *plan.Cluster, name string) string {
	return filepath.Join(c.PKIDir(), name+".kubeconfig")
}

func cert(c *plan.Cluster, name string) string {
	return filepath.Join(c.PKIDir(), name+".crt")
}

func key(c *plan.Cluster, name string) string {
	return filepath.Join(c.PKIDir(), name+".key")
}

// Credentials are the contents of PEM files.
type Credentials struct {
	CA, Cert, Key []byte
}

// Kubeconfig renders a kubeconfig that holds its credentials. Its cluster, user and context have the cluster's name, so
// that those of several clusters can be used together. JSON is YAML.
func Kubeconfig(c *plan.Cluster, credentials Credentials) ([]byte, error) {
	type named map[string]any
	config := map[string]any{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []named{{"name": c.Name, "cluster": map[string]string{
			"server": c.Server(), "certificate-authority-data": encode(credentials.CA),
		}}},
		"users": []named{{"name": c.Name, "user": map[string]string{
			"client-certificate-data": encode(credentials.Cert), "client-key-data": encode(credentials.Key),
		}}},
		"contexts":        []named{{"name": c.Name, "context": map[string]string{"cluster": c.Name, "user": c.Name}}},
		"current-context": c.Name,
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render kubeconfig of %s: %w", c.Name, err)
	}
	return append(text, '\n'), nil
}

func encode(text []byte) string {
	return base64.StdEncoding.EncodeToString(text)
}
