package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// networkSettings are those of the phases connected and network, in which each cluster has a gateway.
var networkSettings = []string{"gateway.enabled=true"}

// connected marks a story that needs nothing but that lubeck, hamburg and bremen, all of which use the same ranges of addresses, are
// connected, and runs beside others.
func connected(t *testing.T, needs ...string) context.Context {
	t.Helper()
	belongs(t, "connected", needs)
	t.Parallel()
	awaitConnected(t, lubeck, hamburg)
	awaitConnected(t, lubeck, bremen)
	return t.Context()
}

// network marks a story that changes the network between the three, or what it depends on. It begins when lubeck is connected to
// both others.
func network(t *testing.T, needs ...string) context.Context {
	t.Helper()
	belongs(t, "network", needs)
	awaitConnected(t, lubeck, hamburg)
	awaitConnected(t, lubeck, bremen)
	return t.Context()
}

func setUpNetwork(ctx context.Context) error {
	if lubeck == nil { // all selected stories have other clusters
		return nil
	}
	for _, c := range []*cluster{lubeck, hamburg, bremen} {
		if err := remember(ctx, c, rememberedNodes, c.nodeStates); err != nil {
			return err
		}
	}
	err := errors.Join(
		installMulticluster(ctx, lubeck, hamburg, bremen), remember(ctx, bremen, rememberedObjects, bremen.inventory),
		installAll(ctx, lubeck, hamburg, bremen))
	if err != nil {
		return err
	}
	return errors.Join(peerBothWays(ctx, lubeck, hamburg), peerBothWays(ctx, lubeck, bremen), peerBothWays(ctx, hamburg, bremen))
}

// awaitConnected waits until each of the two says that it is connected to the other.
func awaitConnected(t *testing.T, a, b *cluster) {
	t.Helper()
	for c, peer := range map[*cluster]*cluster{a: b, b: a} {
		eventually(t, c.Name+" is connected to "+peer.Name, func(ctx context.Context) error { return c.connectedTo(ctx, peer) })
	}
}

// connectedTo reports what keeps pods of the two clusters apart.
func (c *cluster) connectedTo(ctx context.Context, peer *cluster) error {
	p, err := c.peer(ctx, peer.Name)
	if err != nil {
		return err
	}
	if !p.Connected() {
		return fmt.Errorf("%s", conditionsOf(p))
	}
	return nil
}

// A party is a pod that answers HTTP on port 8080 and has a shell, and whose home is the cluster.
type party struct {
	home    *cluster
	pod, ns string
	address string // as home shows it
}

// party starts one in the namespace: at the peer, or, if that is nil, at home.
func (c *cluster) party(t *testing.T, ns, name string, at *cluster, change ...func(*corev1.PodSpec)) *party {
	t.Helper()
	return c.parties(t, ns, map[string]*cluster{name: at}, change...)[name]
}

// parties starts several at the same time: name → where.
func (c *cluster) parties(t *testing.T, ns string, places map[string]*cluster, change ...func(*corev1.PodSpec)) map[string]*party {
	t.Helper()
	for name, at := range places {
		spec := shellSpec(forever)
		spec.Containers = append(spec.Containers, echoSpec().Containers...)
		if at != nil {
			spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: at.Name}
		}
		for _, change := range change {
			change(&spec)
		}
		c.create(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name, "tier": "shop"}}, Spec: spec,
		})
	}
	found := map[string]*party{}
	for name := range places {
		pod := c.awaitReadyPods(t, ns, name, 1)[0]
		found[name] = &party{home: c, ns: ns, pod: name, address: pod.Status.PodIP}
	}
	return found
}

// run runs a script in the shell of the pod and returns what it prints.
func (p *party) run(ctx context.Context, script string) (string, error) {
	return p.home.Kubectl(ctx, "exec", "-n", p.ns, p.pod, "-c", "main", "--", "/bin/sh", "-c", script)
}

// ask has the pod send one HTTP request that is larger than a packet, and returns the name of the pod that answers with all of it.
func (p *party) ask(ctx context.Context, host string) (string, error) {
	out, err := p.run(ctx, fmt.Sprintf("timeout 3 wget -q -O- http://%s/$(head -c 3000 /dev/zero | tr '\\0' x)", host))
	if err != nil {
		return "", err
	}
	var answer struct{ Hostname string }
	err = json.Unmarshal([]byte(out), &answer)
	return answer.Hostname, err
}

// reaches returns an error unless another pod answers there.
func (p *party) reaches(ctx context.Context, other *party, at string) error {
	name, err := p.ask(ctx, net.JoinHostPort(at, "8080"))
	if err == nil && name != other.pod {
		return fmt.Errorf("%s answers at %s, and not %s", name, at, other.pod)
	}
	return err
}

func (p *party) expectReaches(t *testing.T, other *party, at string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s reaches %s at %s", p.pod, other.pod, at), func(ctx context.Context) error { return p.reaches(ctx, other, at) })
}

// seenBy returns the address by which pods of ours that run at the peer know an address here.
func (c *cluster) seenBy(ctx context.Context, t *testing.T, peer *cluster, own string) string {
	t.Helper()
	return seenIn(t, c.mustConnection(ctx, t, peer).Spec.Ours, own)
}

// seenHere returns how the cluster sees an address of the peer.
func (c *cluster) seenHere(ctx context.Context, t *testing.T, peer *cluster, own string) string {
	t.Helper()
	return seenIn(t, c.mustConnection(ctx, t, peer).Spec.Theirs, own)
}

func (c *cluster) mustConnection(ctx context.Context, t *testing.T, peer *cluster) *v1alpha1.Connection {
	t.Helper()
	connection, err := c.connection(ctx, peer)
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

func seenIn(t *testing.T, mappings []v1alpha1.RangeMapping, own string) string {
	t.Helper()
	seen, ok := overlay.Seen(overlay.Mappings(mappings), netip.MustParseAddr(own))
	if !ok {
		t.Fatalf("nothing of %v tells how %s is seen", mappings, own)
	}
	return seen.String()
}

// service makes a Service of the pods of the namespace that have these labels, with addresses of these families, or else of the
// cluster's first one.
func (c *cluster) service(t *testing.T, ns, name string, labels map[string]string, families ...corev1.IPFamily) *corev1.Service {
	t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: labels, IPFamilies: families, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	c.create(t, svc)
	return svc
}

// Home pods on both workers, one in the network of its node, and pods at two providers reach each other at the addresses that
// each knows of the other.
func TestPodToPodBothWays(t *testing.T) {
	ctx := connected(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away := lubeck.parties(t, ns, map[string]*cluster{"at-hamburg": hamburg, "at-bremen": bremen})
	here := map[string]*party{}
	for i, node := range lubeck.workers(t) {
		name := fmt.Sprintf("here-%d", i)
		here[name] = lubeck.party(t, ns, name, nil, func(spec *corev1.PodSpec) {
			spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		})
	}
	for _, provider := range []*cluster{hamburg, bremen} {
		there := away["at-"+provider.Name]
		for _, pod := range here {
			pod.expectReaches(t, there, there.address)
			there.expectReaches(t, pod, lubeck.seenBy(ctx, t, provider, pod.address))
		}
	}
	onNode := lubeck.party(t, lubeck.namespace(t), "on-node", nil, func(spec *corev1.PodSpec) {
		spec.HostNetwork = true
		spec.Containers[1].Env = append(spec.Containers[1].Env, corev1.EnvVar{Name: "PORT", Value: "18080"})
		spec.Containers[1].ReadinessProbe, spec.Containers[1].Ports = nil, nil
	})
	onNode.expectReaches(t, away["at-hamburg"], away["at-hamburg"].address)
}

// workers returns the names of the real nodes.
func (c *cluster) workers(t *testing.T) []string {
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

// One Service at home has endpoints in three clusters. Who asks it from home, or from a pod that runs elsewhere, is answered by
// all of them.
func TestServiceAcrossClusters(t *testing.T) {
	connected(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	svc := lubeck.service(t, ns, "shop", map[string]string{"tier": "shop"})
	parties := lubeck.parties(t, ns, map[string]*cluster{"at-hamburg": hamburg, "at-bremen": bremen})
	parties["here"] = lubeck.party(t, ns, "here", nil, atHome(lubeck.workers(t)[0]))
	for _, from := range []string{"here", "at-hamburg"} {
		for _, host := range []string{svc.Spec.ClusterIP, "shop"} {
			if from == "at-hamburg" && host != "shop" {
				continue // it knows the Service by its name, as addresses of home are other ones there
			}
			answered := map[string]bool{}
			eventually(t, "all three pods answer to "+from+" at "+host, func(ctx context.Context) error {
				for range 6 {
					name, err := parties[from].ask(ctx, host)
					if err != nil {
						return err
					}
					answered[name] = true
				}
				if len(answered) != len(parties) {
					return fmt.Errorf("only %v have answered", answered)
				}
				return nil
			})
		}
	}
}

// atHome has a pod run on that node.
func atHome(node string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

// Names mean at the provider what they mean at home, also where the provider has a Service of the very same name in a namespace
// of the very same name.
func TestDNSMeansHome(t *testing.T) {
	connected(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	other := lubeck.namespace(t)
	away := lubeck.party(t, ns, "away", hamburg)
	lubeck.service(t, ns, "shop", map[string]string{"app": "here"})
	lubeck.service(t, other, "stock", map[string]string{"app": "in-stock"})
	lubeck.party(t, ns, "here", nil, atHome(lubeck.workers(t)[0]))
	lubeck.party(t, other, "in-stock", nil)

	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
	hamburg.create(t, theirs)
	t.Cleanup(func() { _ = hamburg.Delete(context.Background(), theirs) })
	hamburg.service(t, other, "stock", map[string]string{"app": "of-hamburg"})
	hamburg.party(t, other, "of-hamburg", nil)

	for host, want := range map[string]string{
		"shop": "here", "shop." + ns: "here", "shop." + ns + ".svc.cluster.local": "here",
		"stock." + other: "in-stock", "stock." + other + ".svc": "in-stock",
	} {
		eventually(t, host+" means the one at home", func(ctx context.Context) error {
			got, err := away.ask(ctx, host)
			if err == nil && got != want {
				return fmt.Errorf("%s answers", got)
			}
			return err
		})
	}
	if out, err := away.run(t.Context(), "nslookup nowhere."+other+".svc.cluster.local"); err == nil {
		t.Errorf("a name that is nobody's means %s", strings.TrimSpace(out))
	}
}

// Two parts of an application that run at two providers reach each other.
func TestLeafToLeaf(t *testing.T) {
	connected(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	parties := lubeck.parties(t, ns, map[string]*cluster{"at-hamburg": hamburg, "at-bremen": bremen})
	lubeck.service(t, ns, "stock", map[string]string{"app": "at-bremen"})
	eventually(t, "the pod at hamburg reaches the one at bremen by name", func(ctx context.Context) error {
		name, err := parties["at-hamburg"].ask(ctx, "stock")
		if err == nil && name != "at-bremen" {
			return fmt.Errorf("%s answers", name)
		}
		return err
	})
}
