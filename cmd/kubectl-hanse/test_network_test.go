// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/netprobe"
)

// A network is a cluster with the peer hamburg, and what passes between the two.
type network struct {
	*world
	answer func(pod string, q netprobe.Question) netprobe.Answer
	broken map[string]string // pod → why it does not start
	hidden bool              // pods at the peer show no address
}

// newNetwork makes one in which everything works.
func newNetwork(t *testing.T, objects ...client.Object) *network {
	t.Helper()
	n := &network{answer: fine}
	labels := map[string]string{install.PartOfLabel: install.PartOf}
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "hanse-manager", Labels: labels}}
	manager.Spec.Template.Spec.Containers = []corev1.Container{{Image: "example.com/hanse:v1"}}
	n.world = newWorld(t, append(objects, manager)...)
	inner := n.client
	n.client = interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			switch made := o.(type) {
			case *corev1.Pod:
				if err := c.Get(ctx, client.ObjectKey{Namespace: made.Namespace, Name: "default"}, &corev1.ServiceAccount{}); err != nil {
					return apierrors.NewForbidden(corev1.Resource("pods"), made.Name, err)
				}
				n.run(made)
			case *corev1.Service:
				made.Spec.ClusterIP = "10.96.0.10"
			}
			return c.Create(ctx, o, options...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, o, options...)
			if made, ok := o.(*corev1.ServiceAccount); ok && apierrors.IsNotFound(err) { // Kubernetes makes it a moment later
				made.Namespace, made.Name = key.Namespace, key.Name
				return errors.Join(err, c.Create(ctx, made))
			}
			return err
		},
	})
	n.manager = func(ctx context.Context, c client.Client, written client.Object) error {
		switch made := written.(type) {
		case *corev1.Namespace:
			return c.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: made.Name, Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "PEM"},
			})
		case *corev1.Service:
			endpoint := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: made.Namespace, Name: made.Name}}
			endpoint.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}}}
			return c.Create(ctx, endpoint)
		default:
			return decide(ctx, c, written)
		}
	}
	n.exec = func(_ context.Context, pod client.ObjectKey, command []string, input []byte) ([]byte, error) {
		questions, err := netprobe.ReadQuestions(bytes.NewReader(input))
		if err != nil {
			return nil, err
		}
		if n.answer == nil {
			return nil, errors.New("the kubelet does not answer")
		}
		var answers []netprobe.Answer
		for _, q := range questions {
			answers = append(answers, n.answer(pod.Name, q))
		}
		return json.Marshal(answers)
	}
	return n
}

// run is what the kubelets make of a pod, and the policy that sends pods away.
func (n *network) run(pod *corev1.Pod) {
	away := !strings.HasPrefix(pod.Namespace, "network-test-home-")
	if away {
		sendAway(pod)
		term := &pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpIn, Values: []string{"hamburg"},
		})
	}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.0.5"}
	if away {
		pod.Status.PodIP = "100.64.0.7"
	}
	if away && n.hidden {
		pod.Status.PodIP = ""
	}
	if why := n.broken[pod.Name]; why != "" {
		ready.Status = corev1.ConditionFalse
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why}},
		}}
	}
	pod.Status.Conditions = []corev1.PodCondition{ready}
}

// fine is how pods answer where everything works.
func fine(pod string, q netprobe.Question) netprobe.Answer {
	other := map[string]string{"remote": "home"}[pod]
	if strings.Contains(q.Target, "10.244.0.5") {
		other = "near"
	}
	switch {
	case q.Kind == netprobe.Resolve:
		return netprobe.Answer{Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
	case q.Kind == netprobe.Packet && q.Size > 1400:
		return netprobe.Answer{Fits: 1390}
	case q.Kind == netprobe.Latency:
		return netprobe.Answer{Median: 812345, P99: 1923456}
	case q.Kind == netprobe.Throughput:
		return netprobe.Answer{BytesPerSecond: 125e6 * float64(q.Streams)}
	case q.Kind == netprobe.Rate:
		return netprobe.Answer{PacketsPerSecond: 98765.4}
	default:
		return netprobe.Answer{Name: cmp.Or(other, "remote")}
	}
}

// connected is a peer with a tunnel to it.
func connected() (*v1alpha1.Peer, *v1alpha1.Connection) {
	peer := newPeer("hamburg", v1alpha1.RoleProvider)
	setCondition(peer, v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	return peer, &v1alpha1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.ConnectionName},
		Spec: v1alpha1.ConnectionSpec{Ours: []v1alpha1.RangeMapping{
			{Own: "10.244.0.0/16", Seen: "100.65.0.0/16"}, {Own: "10.96.0.0/16", Seen: "240.1.0.0/16"},
		}},
		Status: v1alpha1.ConnectionStatus{MTU: 1390},
	}
}

// stageOf is the stage of a verb, with short waits.
func (n *network) stageOf(t *testing.T, peer string) *stage {
	t.Helper()
	command, _, _ := listener()
	s, err := newStage(soon(t), n.connection, n.cluster(command), v1alpha1.SystemNamespace, peer)
	if err != nil {
		t.Fatal(err)
	}
	s.settling = time.Second
	return s
}

// tested runs the test of the network, checks that nothing is left, and returns what the user sees.
func (n *network) tested(t *testing.T, full bool) (out string, err error) {
	t.Helper()
	var text bytes.Buffer
	err = n.stageOf(t, "").use(soon(t), stagePlan{host: true, everyNode: full}, func(ctx context.Context, s *stage) error {
		rows := s.testNetwork(ctx)
		return errors.Join(printNetwork(&text, rows, "table"), networkVerdict(rows))
	})
	n.nothingIsLeft(t)
	return text.String(), err
}

func (n *network) nothingIsLeft(t *testing.T) {
	t.Helper()
	left := &corev1.NamespaceList{}
	if err := n.client.List(t.Context(), left, client.MatchingLabels{stageLabel: stageName}); err != nil || len(left.Items) > 0 {
		t.Errorf("%d namespaces are left, %v", len(left.Items), err)
	}
}

func TestTheTableSaysWhatWorksAndWhy(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*network, *v1alpha1.Peer, *v1alpha1.Connection)
		full   bool
		works  bool
	}{
		"everything works": {func(*network, *v1alpha1.Peer, *v1alpha1.Connection) {}, false, true},
		"from every node":  {func(*network, *v1alpha1.Peer, *v1alpha1.Connection) {}, true, true},
		"the tunnel is down": {func(n *network, p *v1alpha1.Peer, _ *v1alpha1.Connection) {
			setCondition(p, v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonTunnelDown, "The gateway of hamburg does not answer")
			n.hidden, n.answer = true, failing(func(string, netprobe.Question) bool { return true })
		}, false, false},
		"only home reaches the peer": {func(n *network, _ *v1alpha1.Peer, _ *v1alpha1.Connection) {
			n.answer = failing(func(pod string, _ netprobe.Question) bool { return pod == "remote" })
		}, false, false},
		"large packets are lost": {func(n *network, _ *v1alpha1.Peer, _ *v1alpha1.Connection) {
			n.answer = failing(func(_ string, q netprobe.Question) bool { return q.Kind == netprobe.Packet && q.Size > 1000 })
		}, false, false},
		"names are not found": {func(n *network, _ *v1alpha1.Peer, _ *v1alpha1.Connection) {
			n.answer = failing(func(_ string, q netprobe.Question) bool {
				return strings.Contains(q.Target, ".svc") || strings.HasPrefix(q.Target, "kubernetes")
			})
		}, false, false},
		"the pod at the peer does not start": {func(n *network, _ *v1alpha1.Peer, _ *v1alpha1.Connection) {
			n.broken = map[string]string{"remote": "ImagePullBackOff"}
		}, false, false},
		"no pod can be asked": {func(n *network, _ *v1alpha1.Peer, _ *v1alpha1.Connection) { n.answer = nil }, false, false},
		"somebody else answers": {func(n *network, _ *v1alpha1.Peer, _ *v1alpha1.Connection) {
			n.answer = func(pod string, q netprobe.Question) netprobe.Answer {
				if pod == "host" {
					return netprobe.Answer{Name: "web\x1b[2J"}
				}
				return fine(pod, q)
			}
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer, connection := connected()
			n := newNetwork(t)
			test.change(n, peer, connection)
			for _, object := range []client.Object{peer, connection, newHost("lubeck-1")} {
				if err := n.client.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			out, err := n.tested(t, test.full)
			if works := err == nil; works != test.works || !works && !errors.Is(err, errNetwork) {
				t.Errorf("error %v", err)
			}
			golden(t, "network-"+strings.ReplaceAll(name, " ", "-")+".txt", out)
		})
	}
}

// failing is a network in which some questions get no answer.
func failing(fails func(pod string, q netprobe.Question) bool) func(string, netprobe.Question) netprobe.Answer {
	return func(pod string, q netprobe.Question) netprobe.Answer {
		if fails(pod, q) {
			return netprobe.Answer{Error: "no answer"}
		}
		return fine(pod, q)
	}
}

func newHost(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func TestPodsAreAskedAtAddressesOfAFamilyThatBothHave(t *testing.T) {
	const four, six = "10.244.0.5", "fd00::5"
	at := func(ips ...string) *spot {
		s := &spot{pod: &corev1.Pod{}}
		for _, ip := range ips {
			s.pod.Status.PodIPs = append(s.pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		s.pod.Status.PodIP = ips[0]
		return s
	}
	for name, test := range map[string]struct {
		from, to *spot
		want     string
	}{
		"one has both, and the other IPv6":           {at("fd00::9"), at(four, six), six},
		"one has IPv6, and the other both":           {at("10.244.0.9", "fd00::9"), at(six), six},
		"both have both":                             {at("10.244.0.9", "fd00::9"), at(four, six), four},
		"there is none in common: that is the fault": {at("fd00::9"), at(four), four},
		"the pod that asks does not run":             {&spot{}, at(four, six), four},
		"the pod that is asked does not run":         {at(four), &spot{}, ""},
	} {
		if got := address(test.from, test.to); got != test.want {
			t.Errorf("%s: %q is asked, want %q", name, got, test.want)
		}
	}
}

func TestAnInterruptedTestLeavesNothing(t *testing.T) {
	for name, at := range map[string]string{"while pods are made": "set", "while pods are asked": "work"} {
		t.Run(name, func(t *testing.T) {
			peer, connection := connected()
			n := newNetwork(t, peer, connection)
			ctx, interrupt := context.WithCancel(soon(t))
			if at == "set" {
				n.client = interceptor.NewClient(n.client, interceptor.Funcs{
					Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
						if _, isPod := o.(*corev1.Pod); isPod {
							interrupt()
						}
						return cmp.Or(ctx.Err(), c.Create(ctx, o, options...))
					},
				})
			}
			err := n.stageOf(t, "").use(ctx, stagePlan{host: true}, func(ctx context.Context, _ *stage) error {
				interrupt()
				return ctx.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			n.nothingIsLeft(t)
		})
	}
}

func TestAPeerThatTakesNoPodsIsNotTested(t *testing.T) {
	peer, connection := connected()
	n := newNetwork(t, peer, connection)
	manager := n.manager
	n.manager = func(ctx context.Context, c client.Client, written client.Object) error {
		if _, isOffloading := written.(*v1alpha1.NamespaceOffloading); isOffloading {
			return nil // nobody looks at it
		}
		return manager(ctx, c, written)
	}
	out, err := n.tested(t, false)
	if !errors.Is(err, errNetwork) || strings.Contains(out, string(resultWorks)) || !strings.Contains(out, string(resultUntested)) {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestPeersToTryAreThoseThatRunOurPods(t *testing.T) {
	s := &snapshot{}
	s.peers.Items = []v1alpha1.Peer{*newPeer("bremen", v1alpha1.RoleConsumer), *newPeer("hamburg", v1alpha1.RoleProvider)}
	for name, test := range map[string]struct {
		of    *snapshot
		named string
		want  string // "" is an error
	}{
		"all":                    {s, "", "hamburg"},
		"one":                    {s, "hamburg", "hamburg"},
		"one that runs none":     {s, "bremen", ""},
		"one that nobody knows":  {s, "danzig", ""},
		"none that runs our own": {&snapshot{}, "", ""},
	} {
		got, err := test.of.peersToTry(test.named)
		if strings.Join(got, " ") != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestNothingIsTestedWithoutAnImage(t *testing.T) {
	peer, _ := connected()
	w := newWorld(t, peer)
	command, _, _ := listener()
	if _, err := newStage(soon(t), w.connection, w.cluster(command), v1alpha1.SystemNamespace, ""); err == nil {
		t.Error("no error")
	}
}

func TestNetworkRowsAreJSONForScripts(t *testing.T) {
	var text bytes.Buffer
	rows := []networkRow{{From: "home", To: "hamburg", What: whatTCP, Result: resultFails, Found: "no answer", Cause: "the tunnel"}}
	if err := printNetwork(&text, rows, "json"); err != nil {
		t.Fatal(err)
	}
	golden(t, "network.json", text.String())
}

func TestTheNetworkIsMeasured(t *testing.T) {
	for name, answer := range map[string]func(string, netprobe.Question) netprobe.Answer{
		"well": fine,
		"down": failing(func(pod string, q netprobe.Question) bool { return pod == "remote" && q.Kind == netprobe.Throughput }),
	} {
		t.Run(name, func(t *testing.T) {
			peer, connection := connected()
			n := newNetwork(t, peer, connection)
			n.answer = answer
			var text bytes.Buffer
			err := n.stageOf(t, "hamburg").use(soon(t), stagePlan{near: true}, func(ctx context.Context, s *stage) error {
				rows, err := s.benchNetwork(ctx)
				return errors.Join(printBench(&text, rows, "table"), err)
			})
			if (err == nil) != (name == "well") {
				t.Errorf("error %v", err)
			}
			n.nothingIsLeft(t)
			golden(t, "bench-"+name+".txt", text.String())
		})
	}
}

func TestACommandInAPodCannotFillOurMemory(t *testing.T) {
	out := &bounded{}
	if _, err := out.Write(make([]byte, maxSaid)); err != nil {
		t.Error(err)
	}
	if _, err := out.Write([]byte("x")); !errors.Is(err, errTooMuch) {
		t.Errorf("error %v", err)
	}
}
