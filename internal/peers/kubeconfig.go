// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// maxKubeconfig bounds what is parsed: the largest real ones hold a bundle of a few certificates.
const maxKubeconfig = 64 << 10

// parseKubeconfig returns the one connection that the kubeconfig describes and the tenant namespace that it names. It
// refuses whatever would make this process run a program, read a file or speak to anything but that server.
//
// Errors never quote the kubeconfig, since they end up in conditions that more people may read than the Secret.
func parseKubeconfig(data []byte) (*rest.Config, string, error) {
	if len(data) > maxKubeconfig {
		return nil, "", fmt.Errorf("the kubeconfig is larger than %d bytes", maxKubeconfig)
	}
	kubeconfig, err := clientcmd.Load(data)
	if err != nil {
		return nil, "", errors.New("it is not a kubeconfig")
	}
	if len(kubeconfig.Contexts) != 1 || len(kubeconfig.Clusters) != 1 || len(kubeconfig.AuthInfos) != 1 {
		return nil, "", errors.New("the kubeconfig must have exactly one context, one cluster and one user")
	}
	current := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if current == nil {
		return nil, "", errors.New("current-context does not name the kubeconfig's context")
	}
	cluster, user := kubeconfig.Clusters[current.Cluster], kubeconfig.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return nil, "", errors.New("the context does not name the kubeconfig's cluster and user")
	}
	if err := cmp.Or(checkNamespace(current.Namespace), checkCluster(cluster), checkUser(user)); err != nil {
		return nil, "", err
	}
	return &rest.Config{
		Host:        cluster.Server,
		BearerToken: user.Token,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: cluster.TLSServerName,
			CAData:     cluster.CertificateAuthorityData,
			CertData:   user.ClientCertificateData,
			KeyData:    user.ClientKeyData,
		},
	}, current.Namespace, nil
}

func checkNamespace(namespace string) error {
	if !strings.HasPrefix(namespace, v1alpha1.TenantNamespacePrefix) || len(validation.IsDNS1123Label(namespace)) > 0 {
		return fmt.Errorf("the context's namespace must be a tenant namespace, whose name starts with %s",
			v1alpha1.TenantNamespacePrefix)
	}
	return nil
}

func checkCluster(cluster *clientcmdapi.Cluster) error {
	switch {
	case cluster.CertificateAuthority != "":
		return errors.New("the cluster names a file (certificate-authority): use certificate-authority-data")
	case cluster.InsecureSkipTLSVerify:
		return errors.New("the cluster sets insecure-skip-tls-verify")
	case cluster.ProxyURL != "":
		return errors.New("the cluster sets proxy-url")
	default:
		return checkServer(cluster.Server)
	}
}

func checkServer(server string) error {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return errors.New("the cluster's server is not a URL such as https://host:6443")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("the cluster's server may have neither user, query nor fragment")
	}
	if u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()) {
		return nil
	}
	return errors.New("the cluster's server must start with https://")
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

func checkUser(user *clientcmdapi.AuthInfo) error {
	switch {
	case user.Exec != nil:
		return errors.New("the user names a program (exec)")
	case user.AuthProvider != nil:
		return errors.New("the user names an auth-provider")
	case user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "":
		return errors.New("the user names a file: use token, or client-certificate-data and client-key-data")
	case user.Username != "" || user.Password != "":
		return errors.New("the user has a password: use token, or client-certificate-data and client-key-data")
	case impersonates(user):
		return errors.New("the user impersonates another")
	default:
		return checkSecrets(user)
	}
}

func impersonates(user *clientcmdapi.AuthInfo) bool {
	return user.Impersonate != "" || user.ImpersonateUID != "" ||
		len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0
}

func checkSecrets(user *clientcmdapi.AuthInfo) error {
	hasCertificate, hasKey := len(user.ClientCertificateData) > 0, len(user.ClientKeyData) > 0
	switch {
	case user.Token == "" && !hasCertificate && !hasKey:
		return errors.New("the user has no token and no client certificate")
	case hasCertificate != hasKey:
		return errors.New("client-certificate-data and client-key-data must both be set")
	case strings.ContainsFunc(user.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the token has characters that no token has, such as a line break")
	default:
		return nil
	}
}
