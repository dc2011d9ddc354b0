package e2e

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
)

// The provider's API server gets another address, and a certificate of another authority. Its administrator tells the consumer's,
// who writes both into the kubeconfig of the link. The pods there stay as they are.
func TestProviderGetsAnotherAddressAndAuthority(t *testing.T) {
	ctx := alone(t)
	home, remote := lubeck.runsAt(t, hamburg)
	moved := hamburg.movedTo(t)
	cutOff(t) // nobody answers at the old address any more
	eventually(t, "lubeck is told that hamburg does not answer", func(ctx context.Context) error {
		return lubeck.peerSays(ctx, "hamburg", v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable)
	})
	lubeck.linksTo(t, hamburg, moved)
	awaitAgain(t, home, remote)
	eventually(t, "commands run at the new address", func(ctx context.Context) error { return lubeck.runsCommands(ctx, home) })
	lubeck.create(t, shellPod(home.Namespace, "newcomer", forever))
	newcomer := lubeck.awaitReadyPods(t, home.Namespace, "newcomer", 1)[0]
	expectSamePod(t, &newcomer, hamburg.mustRemotePod(t, &newcomer))
	if err := lubeck.peerReady(ctx, "hamburg"); err != nil {
		t.Error(err)
	}
}

// awaitAgain waits until hamburg and lubeck's pod there are Ready again, and checks that the pod is the same as before.
func awaitAgain(t *testing.T, home, remote *corev1.Pod) {
	t.Helper()
	eventually(t, "hamburg is Ready again", func(ctx context.Context) error { return lubeck.peerReady(ctx, "hamburg") })
	eventually(t, "the pod is Ready again", func(ctx context.Context) error {
		now, err := lubeck.pod(ctx, home.Namespace, home.Name)
		if err == nil && !podReady(now) {
			err = errors.New("it is not")
		}
		return err
	})
	expectUntouched(t, lubeck, home, hamburg, remote)
}

// movedTo has the cluster's API server answer at another address too, with a certificate of another authority.
func (c *cluster) movedTo(t *testing.T) clientcmdapi.Cluster {
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
	listener := c.listen(t)
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
func (c *cluster) linksTo(t *testing.T, provider *cluster, where clientcmdapi.Cluster) {
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
		mustTestbed(t, "heal", c.Name, provider.Name)
		if _, err := write(context.Background(), func(*clientcmdapi.Cluster) *clientcmdapi.Cluster { return &before }); err != nil {
			t.Error(err)
		}
	})
}

// Both API servers are away for longer than leases, sessions of watches and requests take to end.
func TestOutageOfBothAPIServers(t *testing.T) {
	const outage = 75 * time.Second // a lease of a node lasts 40 s, and is looked at each 5 s
	market(t)
	ns := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: selects("hamburg")})
	lubeck.create(t, shellPod(ns, "guest", forever))
	home := &lubeck.awaitReadyPods(t, ns, "guest", 1)[0]
	remote := hamburg.mustRemotePod(t, home)
	lubeck.disappears(t)
	hamburg.disappears(t)
	<-time.After(outage) // nobody can be asked meanwhile whether it is long enough
	hamburg.returns(t)
	lubeck.returns(t)
	awaitAgain(t, home, remote)
	eventually(t, "hamburg's node is Ready again", func(ctx context.Context) error {
		node, err := lubeck.virtual(ctx, hamburg)
		if err == nil && !nodeReady(node) {
			err = fmt.Errorf("it says %+v", node.Status.Conditions)
		}
		return err
	})
	eventually(t, "commands run again", func(ctx context.Context) error { return lubeck.runsCommands(ctx, home) })
}
