// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// maxServers bounds how many addresses of one API server are tried.
	maxServers = 8
	// maxServer bounds the length of each.
	maxServer = 1024
	// maxInvitationID is what a PeeringClaim takes.
	maxInvitationID = 64
)

// Credentials are what joining a peer gives us. The Secret hanse-link holds them.
type Credentials struct {
	// Servers are the URLs of the peer's API server, the best first. They differ in host and port alone.
	Servers []string
	// CA are the certificates, in PEM, that those of the servers are signed by. Empty means those that every computer
	// knows.
	CA []byte
	// Namespace is our tenant namespace at the peer.
	Namespace string
	// Token is our bearer token at the peer.
	Token string
	// Invitation is the id of the invitation by which we joined, or empty if the link was made by hand.
	Invitation string
}

// SecretData returns what the Secret hanse-link holds of the credentials. They are checked as ParseCredentials does.
func (c Credentials) SecretData() (map[string][]byte, error) {
	if len(c.Servers) == 0 {
		return nil, errors.New("there is no server")
	}
	const name = "hanse"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Servers[0], CertificateAuthorityData: c.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: c.Namespace}
	config.CurrentContext = name
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode the kubeconfig: %w", err)
	}
	data := map[string][]byte{v1alpha1.LinkSecretKey: kubeconfig}
	if len(c.Servers) > 1 {
		data[v1alpha1.LinkSecretServers] = []byte(strings.Join(c.Servers[1:], "\n") + "\n")
	}
	if c.Invitation != "" {
		data[v1alpha1.LinkSecretInvitation] = []byte(c.Invitation)
	}
	if _, err := ParseCredentials(data); err != nil {
		return nil, err
	}
	return data, nil
}

// ParseCredentials reads what the Secret hanse-link holds. Of a link made by hand it leaves out what Credentials have no
// field for, such as a client certificate. Errors never quote the data.
func ParseCredentials(data map[string][]byte) (Credentials, error) {
	a, err := parseAccount(data)
	if err != nil {
		return Credentials{}, err
	}
	byHand := a.tls.ServerName != "" || len(a.tls.CertData) > 0
	if byHand && a.invitation != "" {
		return Credentials{}, errors.New("a link made by joining has neither client certificate nor tls-server-name")
	}
	return Credentials{
		Servers: a.servers, CA: a.tls.CAData, Namespace: a.namespace, Token: a.token, Invitation: a.invitation,
	}, nil
}

// An account is where a peer's API server is and who we are there.
type account struct {
	servers    []string // at least one
	tls        rest.TLSClientConfig
	namespace  string
	token      string
	invitation string
}

func parseAccount(data map[string][]byte) (account, error) {
	kubeconfig, ok := data[v1alpha1.LinkSecretKey]
	if !ok {
		return account{}, fmt.Errorf("key %s is missing", v1alpha1.LinkSecretKey)
	}
	config, namespace, err := parseKubeconfig(kubeconfig)
	if err != nil {
		return account{}, err
	}
	further, err := parseServers(data[v1alpha1.LinkSecretServers])
	if err != nil {
		return account{}, err
	}
	a := account{
		servers: append([]string{config.Host}, further...), tls: config.TLSClientConfig, namespace: namespace,
		token: config.BearerToken, invitation: string(data[v1alpha1.LinkSecretInvitation]),
	}
	return a, cmp.Or(checkServers(a.servers), checkInvitation(a.invitation))
}

func parseServers(data []byte) ([]string, error) {
	if len(data) > maxServers*maxServer {
		return nil, fmt.Errorf("key %s is larger than %d bytes", v1alpha1.LinkSecretServers, maxServers*maxServer)
	}
	return strings.Fields(string(data)), nil
}

// checkServers checks that all servers can be spoken to in the same way.
func checkServers(servers []string) error {
	if len(servers) == 0 || len(servers) > maxServers {
		return fmt.Errorf("there must be 1 to %d servers", maxServers)
	}
	paths := map[string]bool{}
	for _, server := range servers {
		if err := checkServer(server); err != nil {
			return err
		}
		u, err := url.Parse(server)
		if err != nil || len(servers) > 1 && u.Scheme != "https" {
			return errors.New("each of several servers must start with https://")
		}
		paths[strings.TrimSuffix(u.Path, "/")] = true
	}
	if len(paths) > 1 {
		return errors.New("several servers must have the same path")
	}
	return nil
}

func checkInvitation(id string) error {
	if len(id) > maxInvitationID || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("key %s holds no id of an invitation", v1alpha1.LinkSecretInvitation)
	}
	return nil
}

// sameBut reports whether the accounts differ in nothing but the token.
func (a account) sameBut(b account) bool {
	a.token = b.token
	return reflect.DeepEqual(a, b)
}
