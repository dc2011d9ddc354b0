// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// traefik is the namespace of the ingress controller of a cluster.
const traefik = "traefik"

// nodePorts are where it is reached at each node: the port that a URL means → node port.
var nodePorts = map[string]string{"80": "30080", "443": "30443"}

// entrance returns a client that takes each host for the ingress controller of the cluster, and trusts those certificates.
func entrance(ctx context.Context, t *testing.T, c *framework.Cluster, roots *x509.CertPool) *http.Client {
	t.Helper()
	node, err := c.AddressOfNode(ctx, c.WorkerNames(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, host string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(host)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(node, nodePorts[port]))
		},
	}}
}

// enter returns the name of the pod that answers.
func enter(ctx context.Context, entrance *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := entrance.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", url, answer.Status)
	}
	var who struct{ Hostname string }
	return who.Hostname, json.NewDecoder(answer.Body).Decode(&who)
}

// expectAnswers waits until those pods have answered, and fails if another does.
func expectAnswers(t *testing.T, entrance *http.Client, url string, pods ...string) {
	t.Helper()
	answers := map[string]bool{}
	framework.Eventually(t, fmt.Sprintf("%v answer at %s", pods, url), func(ctx context.Context) error {
		name, err := enter(ctx, entrance, url)
		if err != nil {
			return err
		}
		if !slices.Contains(pods, name) {
			t.Fatalf("%s answers at %s, and only %v may", name, url, pods)
		}
		if answers[name] = true; len(answers) < len(pods) {
			return fmt.Errorf("only %v", slices.Sorted(maps.Keys(answers)))
		}
		return nil
	})
}

// ingress makes one for a host of the Service web, with the certificate of a Secret unless that has no name.
func ingress(t *testing.T, c *framework.Cluster, ns, host, secret string) {
	t.Helper()
	name, _, _ := strings.Cut(host, ".")
	spec := networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: host,
		IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
			Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
			Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}},
			},
		}}}},
	}}}
	if secret != "" {
		spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: secret}}
	}
	c.MustCreate(t, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec})
}

// certificate makes a Secret with one for the host, and returns what makes clients trust it.
func certificate(t *testing.T, c *framework.Cluster, ns, name, host string) *x509.CertPool {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.MustCreate(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots
}

// admits has the cluster take Ingresses of the peer for hosts below shop.example, and lets its ingress controller reach the peer's pods,
// until the story ends.
func admits(t *testing.T, c *framework.Cluster, peer *framework.Cluster) {
	t.Helper()
	c.OpenNetwork(t, peer, v1alpha1.Opening{
		From: v1alpha1.OpeningSide{Namespace: traefik}, To: v1alpha1.OpeningSide{PeerNamespace: v1alpha1.AllPeerNamespaces},
	})
	lends(t, c, peer.Name, "ingress", `{"hosts": ["*.shop.example"]}`)
}

// othersAtHamburg have hosts there before lubeck asks for them: hamburg itself and bremen. It returns which pod answers for which host.
func othersAtHamburg(t *testing.T) map[string]string {
	t.Helper()
	admits(t, hamburg, bremen)
	theirs := bremen.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	own := hamburg.CreateNamespace(t)
	bremen.StartNetworkPod(t, theirs, "of-bremen", hamburg)
	hamburg.StartNetworkPod(t, own, "of-hamburg", nil)
	pods := map[string]string{}
	for c, ns := range map[*framework.Cluster]string{bremen: theirs, hamburg: own} {
		host, pod := c.Name+".shop.example", "of-"+c.Name
		c.CreateService(t, ns, "web", map[string]string{"app": pod})
		ingress(t, c, ns, host, "")
		pods[host] = pod
	}
	return pods
}

// A web application with pods in two clusters is reached at the ingress controllers of both, by one Ingress and with one
// certificate. The provider decides for which hosts, and lets nobody take one that somebody else has there.
func TestIngressInTwoClusters(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote, ClusterSelector: framework.SelectPeer("hamburg")})
	admits(t, hamburg, lubeck)
	lubeck.OpenNetwork(t, hamburg, v1alpha1.Opening{
		From: v1alpha1.OpeningSide{PeerNamespace: v1alpha1.AllPeerNamespaces}, To: v1alpha1.OpeningSide{Namespace: ns},
		Ports: []v1alpha1.OpeningPort{{Port: 8080}},
	})
	others := othersAtHamburg(t)
	lubeck.CreateService(t, ns, "web", map[string]string{"app": "web"})
	roots := certificate(t, lubeck, ns, "web", "www.shop.example")
	ingress(t, lubeck, ns, "www.shop.example", "web")
	pods := spreadPods(t, lubeck, ns, "web")
	atHome, atHamburg := entrance(ctx, t, lubeck, roots), entrance(ctx, t, hamburg, roots)
	for _, scheme := range []string{"http", "https"} {
		expectAnswers(t, atHome, scheme+"://www.shop.example", pods...)
		expectAnswers(t, atHamburg, scheme+"://www.shop.example", pods...)
	}
	address, err := hamburg.AddressOfNode(ctx, hamburg.WorkerNames(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	ingressSays(t, ns, "www", hamburg, address)

	for host, pod := range others {
		expectAnswers(t, atHamburg, "http://"+host, pod)
		ingress(t, lubeck, ns, host, "")
	}
	ingress(t, lubeck, ns, "elsewhere.example", "")
	lubeck.AwaitDescription(t, ns, "ingress/elsewhere", v1alpha1.ReasonHostNotAllowed, "elsewhere.example")
	for host, pod := range others {
		name, _, _ := strings.Cut(host, ".")
		lubeck.AwaitDescription(t, ns, "ingress/"+name, v1alpha1.ReasonHostTaken, host)
		expectAnswers(t, atHome, "http://"+host, pods...)
		expectAnswers(t, atHamburg, "http://"+host, pod)
	}

	if _, err := lubeck.Hanse(ctx, "unoffload", ns, "--evict"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "hamburg does not know the host any more", func(ctx context.Context) error {
		_, err := enter(ctx, atHamburg, "http://www.shop.example")
		if err == nil {
			return errors.New("it answers")
		}
		if !strings.Contains(err.Error(), "404") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	ingressSays(t, ns, "www", hamburg, nil)
	expectAnswers(t, atHome, "https://www.shop.example", podNames(lubeck.AwaitReadyPods(t, ns, "web", len(pods)))...)
}

// ingressSays waits until the Ingress says that it is reached at the peer at the address, or, if that is nil, at none.
func ingressSays(t *testing.T, ns, name string, peer *framework.Cluster, address any) {
	t.Helper()
	ingress := &unstructured.Unstructured{}
	ingress.SetGroupVersionKind(networkingv1.SchemeGroupVersion.WithKind("Ingress"))
	ingress.SetNamespace(ns)
	ingress.SetName(name)
	says(t, lubeck, ingress, address, "metadata", "annotations", v1alpha1.AnnotationAddressAt+peer.Name)
}

// spreadPods runs a Deployment with one pod on each worker and one at the only provider, and returns their names.
func spreadPods(t *testing.T, c *framework.Cluster, ns, name string) []string {
	t.Helper()
	spec := framework.NewEchoPodSpec()
	// Once the provider takes no more pods, its node is none over which they are to be spread.
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor),
	}}
	count := len(c.WorkerNames(t)) + 1
	c.MustCreate(t, framework.NewDeployment(ns, name, int32(count), spec))
	pods := c.AwaitReadyPods(t, ns, name, count)
	if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return framework.IsOnVirtualNode(&pod) }) {
		t.Fatalf("no pod is at the provider: %s", framework.Summarize(pods))
	}
	return podNames(pods)
}

func podNames(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	return names
}
