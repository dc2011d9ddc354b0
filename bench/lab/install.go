// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// tokenSeconds is how long an experiment may last.
const tokenSeconds = 12 * 60 * 60

// Install installs Hanse as an administrator would, and then takes its pods away: there are no workers to run them, and
// an experiment starts the servers itself. Values are those of the chart, as key=value.
func (c *Cluster) Install(ctx context.Context, values ...string) error {
	args := []string{"install", "--kubeconfig", c.Kubeconfig, "--cluster-id", c.Name, "--image", "hanse.dev/hanse:bench", "--wait=false"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	_, err := c.bed.run(ctx, "kubectl-hanse", args...)
	if err != nil {
		return err
	}
	deployments := &appsv1.DeploymentList{}
	if err := c.List(ctx, deployments, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		return fmt.Errorf("list Deployments of Hanse in %s: %w", c.Name, err)
	}
	for i := range deployments.Items {
		scaled := deployments.Items[i].DeepCopy()
		scaled.Spec.Replicas = ptr.To[int32](0)
		if err := c.Patch(ctx, scaled, client.MergeFrom(&deployments.Items[i])); err != nil {
			return fmt.Errorf("scale Deployment %s of %s: %w", scaled.Name, c.Name, err)
		}
	}
	return nil
}

// Peer lets the cluster consume from the provider, with flags for kubectl hanse join.
func (c *Cluster) Peer(ctx context.Context, provider *Cluster, flags ...string) error {
	invitation, err := c.bed.run(ctx, "kubectl-hanse", "invite", c.Name, "--kubeconfig", provider.Kubeconfig, "--server", provider.Config.Host)
	if err != nil {
		return err
	}
	args := append([]string{"join", strings.TrimSpace(invitation), "--kubeconfig", c.Kubeconfig}, flags...)
	_, err = c.bed.run(ctx, "kubectl-hanse", args...)
	return err
}

// Unpeer ends what Peer made, and waits until both clusters have forgotten each other.
func (c *Cluster) Unpeer(ctx context.Context, other *Cluster) error {
	if _, err := c.bed.run(ctx, "kubectl-hanse", "unpeer", other.Name, "--kubeconfig", c.Kubeconfig); err != nil {
		return err
	}
	return Until(ctx, other.Name+" has forgotten "+c.Name, 200*time.Millisecond, waitTimeout, func(ctx context.Context) error {
		err := other.Get(ctx, client.ObjectKey{Name: c.Name}, &v1alpha1.Peer{})
		if err == nil {
			return errors.New("its Peer is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

// Token returns a token of a ServiceAccount.
func (c *Cluster) Token(ctx context.Context, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = namespace, name
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)},
	}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("create token of ServiceAccount %s/%s in %s: %w", namespace, name, c.Name, err)
	}
	return request.Status.Token, nil
}

// As connects to the cluster with the rights of a ServiceAccount.
func (c *Cluster) As(ctx context.Context, namespace, name string) (client.WithWatch, error) {
	config := rest.AnonymousClientConfig(c.Config)
	config.QPS, config.WarningHandler = c.Config.QPS, c.Config.WarningHandler
	var err error
	if config.BearerToken, err = c.Token(ctx, namespace, name); err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: c.Scheme()})
}

// TokenKubeconfig renders a kubeconfig for the cluster that holds a token.
func (c *Cluster) TokenKubeconfig(token, namespace string) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos[c.Name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: c.Name, Namespace: namespace}
	config.CurrentContext = c.Name
	return clientcmd.Write(*config)
}

// ServerKubeconfig writes a kubeconfig with the rights of one of Hanse's servers, and returns its path.
func (c *Cluster) ServerKubeconfig(ctx context.Context, namespace, role string) (string, error) {
	token, err := c.Token(ctx, namespace, "hanse-"+role)
	if err != nil {
		return "", err
	}
	data, err := c.TokenKubeconfig(token, "")
	if err != nil {
		return "", err
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.bed.State, c.Name, "hanse-"+role+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// HostAddress returns the address of this machine that the cluster's API server reaches it at.
func (c *Cluster) HostAddress(ctx context.Context) (string, error) {
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		return "", err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", server.Host) // sends nothing
	if err != nil {
		return "", fmt.Errorf("find our address towards %s: %w", c.Name, err)
	}
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if err := conn.Close(); err != nil || !ok {
		return "", errors.Join(fmt.Errorf("find our address towards %s", c.Name), err)
	}
	return local.IP.String(), nil
}
