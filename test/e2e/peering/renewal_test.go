// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// The provider's API server gets another address, and a certificate of another authority. Its administrator tells the consumer's,
// who writes both into the kubeconfig of the link. The pods there stay as they are.
func TestProviderGetsAnotherAddressAndAuthority(t *testing.T) {
	ctx := framework.Begin(t)
	home, remote := lubeck.RunPodAt(t, hamburg)
	moved := movedTo(t, hamburg)
	framework.CutOff(t) // nobody answers at the old address any more
	framework.Eventually(t, "lubeck is told that hamburg does not answer", func(ctx context.Context) error {
		return lubeck.CheckPeerCondition(ctx, "hamburg", v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable)
	})
	linksTo(t, lubeck, hamburg, moved)
	awaitAgain(t, home, remote)
	framework.Eventually(t, "commands run at the new address", func(ctx context.Context) error { return lubeck.CheckExec(ctx, home) })
	lubeck.MustCreate(t, framework.NewShellPod(home.Namespace, "newcomer", framework.RunForever))
	newcomer := lubeck.AwaitReadyPods(t, home.Namespace, "newcomer", 1)[0]
	framework.ExpectSamePod(t, &newcomer, hamburg.MustGetRemotePod(t, &newcomer))
	if err := lubeck.CheckPeerReady(ctx, "hamburg"); err != nil {
		t.Error(err)
	}
}

// awaitAgain waits until hamburg and lubeck's pod there are Ready again, and checks that the pod is the same as before.
func awaitAgain(t *testing.T, home, remote *corev1.Pod) {
	t.Helper()
	framework.Eventually(t, "hamburg is Ready again", func(ctx context.Context) error { return lubeck.CheckPeerReady(ctx, "hamburg") })
	framework.Eventually(t, "the pod is Ready again", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, home.Namespace, home.Name)
		if err == nil && !framework.IsPodReady(now) {
			err = errors.New("it is not")
		}
		return err
	})
	framework.ExpectUntouched(t, lubeck, home, hamburg, remote)
}

// movedTo has the cluster's API server answer at another address too, with a certificate of another authority.
func movedTo(t *testing.T, c *framework.Cluster) clientcmdapi.Cluster {
	t.Helper()
	behind, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	// Commands are streams of their own protocol, to which HTTP/2 does not change over.
	transport, err := rest.TransportFor(&rest.Config{Host: c.Config.Host, TLSClientConfig: rest.TLSClientConfig{
		CAData: c.Config.CAData, NextProtos: []string{"http/1.1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	proxy.Transport, proxy.FlushInterval = transport, -1 // events come one by one
	listener := c.Listen(t)
	address := listener.Addr().(*net.TCPAddr).IP
	certificate, key, err := certutil.GenerateSelfSignedCertKey(address.String(), []net.IP{address}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(proxy)
	server.Listener.Close() //nolint:errcheck // nobody was told of it
	server.Listener, server.EnableHTTP2 = listener, true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: certificate}
}

// linksTo writes where the provider is into the Secret of the link, and back at the story's end.
func linksTo(t *testing.T, c *framework.Cluster, provider *framework.Cluster, where clientcmdapi.Cluster) {
	t.Helper()
	key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace(provider.Name), Name: v1alpha1.LinkSecret}
	write := func(ctx context.Context, change func(*clientcmdapi.Cluster) *clientcmdapi.Cluster) (before clientcmdapi.Cluster, err error) {
		link := &corev1.Secret{}
		if err := c.Get(ctx, key, link); err != nil {
			return before, err
		}
		config, err := clientcmd.Load(link.Data[v1alpha1.LinkSecretKey])
		if err != nil {
			return before, err
		}
		for name := range config.Clusters {
			before = *config.Clusters[name]
			config.Clusters[name] = change(config.Clusters[name])
		}
		if link.Data[v1alpha1.LinkSecretKey], err = clientcmd.Write(*config); err != nil {
			return before, err
		}
		delete(link.Data, v1alpha1.LinkSecretServers)
		return before, c.Update(ctx, link)
	}
	before, err := write(t.Context(), func(*clientcmdapi.Cluster) *clientcmdapi.Cluster { return &where })
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(before.CertificateAuthorityData, where.CertificateAuthorityData) || before.Server == where.Server {
		t.Fatal("nothing is another than before")
	}
	t.Cleanup(func() {
		framework.MustTestbed(t, "heal", c.Name, provider.Name)
		if _, err := write(context.Background(), func(*clientcmdapi.Cluster) *clientcmdapi.Cluster { return &before }); err != nil {
			t.Error(err)
		}
	})
}

// Both API servers are away for longer than leases, sessions of watches and requests take to end.
func TestOutageOfBothAPIServers(t *testing.T) {
	const outage = 75 * time.Second // a lease of a node lasts 40 s, and is looked at each 5 s
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: framework.SelectPeer("hamburg")})
	lubeck.MustCreate(t, framework.NewShellPod(ns, "guest", framework.RunForever))
	home := &lubeck.AwaitReadyPods(t, ns, "guest", 1)[0]
	remote := hamburg.MustGetRemotePod(t, home)
	disappears(t, lubeck)
	disappears(t, hamburg)
	<-time.After(outage) // nobody can be asked meanwhile whether it is long enough
	hamburg.StartAPIServer(t)
	lubeck.StartAPIServer(t)
	awaitAgain(t, home, remote)
	framework.Eventually(t, "hamburg's node is Ready again", func(ctx context.Context) error {
		node, err := lubeck.VirtualNode(ctx, hamburg)
		if err == nil && !framework.IsNodeReady(node) {
			err = fmt.Errorf("it says %+v", node.Status.Conditions)
		}
		return err
	})
	framework.Eventually(t, "commands run again", func(ctx context.Context) error { return lubeck.CheckExec(ctx, home) })
}
