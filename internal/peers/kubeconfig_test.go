// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func validKubeconfig() *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: "https://192.0.2.1:6443", CertificateAuthorityData: []byte("ca"), TLSServerName: "kubernetes",
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: tenant}
	config.CurrentContext = "x"
	return config
}

func TestKubeconfigIsTaken(t *testing.T) {
	got, namespace, err := parseKubeconfig(encode(t, validKubeconfig()))
	if err != nil {
		t.Fatal(err)
	}
	want := &rest.Config{
		Host: "https://192.0.2.1:6443", BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{ServerName: "kubernetes", CAData: []byte("ca")},
	}
	if namespace != tenant || !cmp.Equal(got, want) {
		t.Errorf("namespace %s, %s", namespace, cmp.Diff(want, got))
	}
}

func TestKubeconfigIsRefused(t *testing.T) {
	tests := map[string]struct {
		change func(config *clientcmdapi.Config, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo)
		taken  bool
	}{
		"runs a program": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "sh", APIVersion: "client.authentication.k8s.io/v1"}
		}},
		"auth provider": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}},
		"token file": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.TokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
		}},
		"certificate file": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificate = "/etc/hosts"
		}},
		"key file": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientKey = "/etc/hosts"
		}},
		"authority file": {change: func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthority, c.CertificateAuthorityData = "/etc/hosts", nil
		}},
		"password": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Username, u.Password = "a", "b"
		}},
		"impersonation": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Impersonate = "system:admin"
		}},
		"no credentials": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token = ""
		}},
		"certificate without key": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData = []byte("cert")
		}},
		"token of two lines": {change: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token = "a\r\nX-Remote-User: b"
		}},
		"no verification": {change: func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		}},
		"proxy": {change: func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = "http://192.0.2.9"
		}},
		"plain HTTP": {change: func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "http://192.0.2.1"
		}},
		"plain HTTP on loopback": {taken: true, change: func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "http://127.0.0.1:8080"
		}},
		"another scheme": {change: func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "file:///etc/hosts"
		}},
		"no host": {change: func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://"
		}},
		"user in the server": {change: func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://a:b@192.0.2.1"
		}},
		"path in the server": {taken: true, change: func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = "https://192.0.2.1/k8s/clusters/c"
		}},
		"no namespace": {change: func(config *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			config.Contexts["x"].Namespace = ""
		}},
		"foreign namespace": {change: func(config *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			config.Contexts["x"].Namespace = "kube-system"
		}},
		"path as namespace": {change: func(config *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			config.Contexts["x"].Namespace = tenant + "/../kube-system"
		}},
		"two contexts": {change: func(config *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			config.Contexts["y"] = config.Contexts["x"]
		}},
		"two users": {change: func(config *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			config.AuthInfos["v"] = u
		}},
		"current context unknown": {change: func(config *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			config.CurrentContext = "y"
		}},
		"user unknown": {change: func(config *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			config.Contexts["x"].AuthInfo = "v"
		}},
		"huge": {change: func(config *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = make([]byte, maxKubeconfig)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := validKubeconfig()
			test.change(config, config.Clusters["c"], config.AuthInfos["u"])
			_, _, err := parseKubeconfig(encode(t, config))
			if taken := err == nil; taken != test.taken {
				t.Errorf("got %v, want it taken: %t", err, test.taken)
			}
		})
	}
}

func FuzzParseKubeconfig(f *testing.F) {
	f.Add(encode(f, validKubeconfig()))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Config","clusters":null,"users":[{"name":"u","user":null}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, namespace, err := parseKubeconfig(data)
		if err != nil {
			return
		}
		if config.ExecProvider != nil || config.AuthProvider != nil || config.BearerTokenFile != "" ||
			config.CAFile != "" || config.CertFile != "" || config.KeyFile != "" || config.Insecure {
			t.Errorf("takes more than it should: %v", config)
		}
		if err := checkServer(config.Host); err != nil {
			t.Error(err)
		}
		if err := checkNamespace(namespace); err != nil {
			t.Error(err)
		}
	})
}
