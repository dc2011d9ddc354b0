// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// AtHamburg places a pod.
var AtHamburg = map[string]string{v1alpha1.LabelPeer: "hamburg"}

// ExpectTokenAtProvider fails the story if a condition of the pod says that its token stayed at home.
func ExpectTokenAtProvider(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if told := PodConditionStatus(pod, v1alpha1.PodToken); told != corev1.ConditionUnknown {
		t.Errorf("that its token stayed at home the pod says: %s", told)
	}
}

// GetConnection returns what the cluster knows of the tunnel to the peer.
func (c *Cluster) GetConnection(ctx context.Context, peer *Cluster) (*v1alpha1.Connection, error) {
	connection := &v1alpha1.Connection{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: v1alpha1.ConnectionName}
	return connection, c.Get(ctx, key, connection)
}

// ClusterIP returns the address of the Service.
func (c *Cluster) ClusterIP(t *testing.T, ns, name string) string {
	t.Helper()
	svc := &corev1.Service{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, svc); err != nil {
		t.Fatal(err)
	}
	return svc.Spec.ClusterIP
}

// OpenNetwork lets through what the Peer says, until the story ends.
func (c *Cluster) OpenNetwork(t *testing.T, to *Cluster, openings ...v1alpha1.Opening) {
	t.Helper()
	c.SetNetwork(t, to, &v1alpha1.PeerNetwork{Open: openings})
}

// SetNetwork has the Peer say so, until the story ends.
func (c *Cluster) SetNetwork(t *testing.T, to *Cluster, network *v1alpha1.PeerNetwork) {
	t.Helper()
	set := func(ctx context.Context, network *v1alpha1.PeerNetwork) error {
		peer, err := c.GetPeer(ctx, to.Name)
		if err != nil {
			return err
		}
		before := peer.DeepCopy()
		peer.Spec.Network = network
		return c.Patch(ctx, peer, client.MergeFrom(before))
	}
	if err := set(t.Context(), network); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.Background(), nil); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// NodeAddress returns that of a worker.
func (c *Cluster) NodeAddress(t *testing.T, number int) string {
	t.Helper()
	address, err := c.AddressOfNode(t.Context(), c.WorkerNames(t)[number])
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// AwaitConnected waits until each of the two says that it is connected to the other.
func AwaitConnected(t *testing.T, a, b *Cluster) {
	t.Helper()
	for c, peer := range map[*Cluster]*Cluster{a: b, b: a} {
		Eventually(t, c.Name+" is connected to "+peer.Name, func(ctx context.Context) error { return c.CheckConnectedTo(ctx, peer) })
	}
}

// CheckConnectedTo reports what keeps pods of the two clusters apart.
func (c *Cluster) CheckConnectedTo(ctx context.Context, peer *Cluster) error {
	p, err := c.GetPeer(ctx, peer.Name)
	if err != nil {
		return err
	}
	if !p.Connected() {
		return fmt.Errorf("%s", ConditionsOf(p))
	}
	return nil
}

// A NetworkPod is a pod that answers HTTP on port 8080 and has a shell. Its home is the cluster that it was created in.
type NetworkPod struct {
	Home    *Cluster
	Pod, Ns string
	Address string // as home shows it
}

// StartNetworkPod starts one in the namespace: at the peer, or, if that is nil, at home.
func (c *Cluster) StartNetworkPod(t *testing.T, ns, name string, at *Cluster, change ...func(*corev1.PodSpec)) *NetworkPod {
	t.Helper()
	return c.StartNetworkPods(t, ns, map[string]*Cluster{name: at}, change...)[name]
}

// StartNetworkPods starts several at the same time: name → where.
func (c *Cluster) StartNetworkPods(t *testing.T, ns string, places map[string]*Cluster, change ...func(*corev1.PodSpec)) map[string]*NetworkPod {
	t.Helper()
	for name, at := range places {
		spec := NewShellPodSpec(RunForever)
		spec.Containers = append(spec.Containers, NewEchoPodSpec().Containers...)
		if at != nil {
			spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: at.Name}
		}
		for _, change := range change {
			change(&spec)
		}
		c.MustCreate(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name, "tier": "shop"}}, Spec: spec,
		})
	}
	found := map[string]*NetworkPod{}
	for name := range places {
		pod := c.AwaitReadyPods(t, ns, name, 1)[0]
		found[name] = &NetworkPod{Home: c, Ns: ns, Pod: name, Address: pod.Status.PodIP}
	}
	return found
}

// Run runs a script in the shell of the pod and returns what it prints.
func (p *NetworkPod) Run(ctx context.Context, script string) (string, error) {
	return p.Home.Kubectl(ctx, "exec", "-n", p.Ns, p.Pod, "-c", "main", "--", "/bin/sh", "-c", script)
}

// Request has the pod send one HTTP request that is larger than a packet, and returns the name of the pod that answers with all of it.
func (p *NetworkPod) Request(ctx context.Context, host string) (string, error) {
	out, err := p.Run(ctx, fmt.Sprintf("timeout 3 wget -q -O- http://%s/$(head -c 3000 /dev/zero | tr '\\0' x)", host))
	if err != nil {
		return "", err
	}
	var answer struct{ Hostname string }
	err = json.Unmarshal([]byte(out), &answer)
	return answer.Hostname, err
}

// CheckReaches returns an error unless another pod answers there.
func (p *NetworkPod) CheckReaches(ctx context.Context, other *NetworkPod, at string) error {
	name, err := p.Request(ctx, net.JoinHostPort(at, "8080"))
	if err == nil && name != other.Pod {
		return fmt.Errorf("%s answers at %s, and not %s", name, at, other.Pod)
	}
	return err
}

// ExpectReaches waits until the pod gets an answer of the other one at the address.
func (p *NetworkPod) ExpectReaches(t *testing.T, other *NetworkPod, at string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s reaches %s at %s", p.Pod, other.Pod, at), func(ctx context.Context) error { return p.CheckReaches(ctx, other, at) })
}

// TranslateToPeer returns the address by which pods of ours that run at the peer know an address here.
func (c *Cluster) TranslateToPeer(ctx context.Context, t *testing.T, peer *Cluster, own string) string {
	t.Helper()
	return translate(t, c.MustGetConnection(ctx, t, peer).Spec.Ours, own)
}

// TranslateFromPeer returns how the cluster sees an address of the peer.
func (c *Cluster) TranslateFromPeer(ctx context.Context, t *testing.T, peer *Cluster, own string) string {
	t.Helper()
	return translate(t, c.MustGetConnection(ctx, t, peer).Spec.Theirs, own)
}

// MustGetConnection returns the Connection to the peer.
func (c *Cluster) MustGetConnection(ctx context.Context, t *testing.T, peer *Cluster) *v1alpha1.Connection {
	t.Helper()
	connection, err := c.GetConnection(ctx, peer)
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

func translate(t *testing.T, mappings []v1alpha1.RangeMapping, own string) string {
	t.Helper()
	seen, ok := overlay.Seen(overlay.Mappings(mappings), netip.MustParseAddr(own))
	if !ok {
		t.Fatalf("nothing of %v tells how %s is seen", mappings, own)
	}
	return seen.String()
}

// CreateService makes a Service of the pods of the namespace that have these labels, with addresses of these families, or else of the
// cluster's first one.
func (c *Cluster) CreateService(t *testing.T, ns, name string, labels map[string]string, families ...corev1.IPFamily) *corev1.Service {
	t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: labels, IPFamilies: families, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	c.MustCreate(t, svc)
	return svc
}

// WorkerNames returns the names of the real nodes.
func (c *Cluster) WorkerNames(t *testing.T) []string {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := c.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range nodes.Items {
		if nodes.Items[i].Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
			names = append(names, nodes.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// OnNode has a pod run on that node.
func OnNode(node string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}
