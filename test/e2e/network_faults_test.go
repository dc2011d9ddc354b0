package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// networkNamespace is where gateway and fabric run.
var networkNamespace = v1alpha1.NetworkNamespace(v1alpha1.SystemNamespace)

// A stream is one TCP connection from a pod at home to one at a provider, over which a number comes twenty times a second.
type stream struct{ receiver *party }

// stream begins one, and waits until it flows.
func (c *cluster) stream(t *testing.T) *stream {
	t.Helper()
	ns := c.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	receiver := c.party(t, ns, "receiver", hamburg, script(
		forever, "tail -f /dev/null | nc -l -p 9000 | while read n; do read up rest </proc/uptime; echo $up $n; done >/tmp/stream; echo end >>/tmp/stream"))
	c.party(t, ns, "sender", nil, atHome(c.workers(t)[0]), script(
		forever, fmt.Sprintf("i=0; while sleep 0.05; do i=$((i+1)); echo $i; done | nc %s 9000", receiver.address)))
	s := &stream{receiver}
	s.awaitMore(t, "the stream flows")
	return s
}

// script has the shell of a pod do something beside its work.
func script(work, beside string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.Containers[0].Command[2] = "(" + beside + ") & " + work }
}

// beats returns when each number came, in seconds of the receiver's uptime.
func (s *stream) beats(ctx context.Context) ([]float64, error) {
	out, err := s.receiver.run(ctx, "cat /tmp/stream")
	if err != nil {
		return nil, err
	}
	var beats []float64
	for line := range strings.Lines(out) {
		at, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if at == "end" {
			return beats, fmt.Errorf("the stream has ended after %d numbers", len(beats))
		}
		if number != strconv.Itoa(len(beats)+1) {
			return beats, fmt.Errorf("number %s comes behind %d", number, len(beats))
		}
		when, err := strconv.ParseFloat(at, 64)
		if err != nil {
			return beats, err
		}
		beats = append(beats, when)
	}
	return beats, nil
}

// awaitMore waits until a second's worth of numbers more has come.
func (s *stream) awaitMore(t *testing.T, what string) {
	t.Helper()
	before := -1
	eventually(t, what, func(ctx context.Context) error {
		beats, err := s.beats(ctx)
		if before < 0 {
			before = len(beats)
		}
		if err == nil && len(beats) < before+20 {
			return fmt.Errorf("%d numbers have come, and %d before", len(beats), before)
		}
		return err
	})
}

// longestGap returns how long nothing came, at most, in seconds.
func (s *stream) longestGap(t *testing.T) float64 {
	t.Helper()
	beats, err := s.beats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	longest := 0.0
	for i := range beats[1:] {
		longest = max(longest, beats[i+1]-beats[i])
	}
	return longest
}

// activeGateway returns the pod of the gateway that is active.
func (c *cluster) activeGateway(ctx context.Context) (*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.InNamespace(networkNamespace), client.MatchingLabels{v1alpha1.LabelGateway: v1alpha1.ActiveGateway}); err != nil {
		return nil, err
	}
	alive := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() || !podReady(&pod) })
	if len(alive) != 1 {
		return nil, fmt.Errorf("%d gateways are active", len(alive))
	}
	return &alive[0], nil
}

// awaitStandby returns the active gateway as soon as another one is ready to take over.
func (c *cluster) awaitStandby(t *testing.T) *corev1.Pod {
	t.Helper()
	var active *corev1.Pod
	eventually(t, "two gateways of "+c.Name+" run, one of them active", func(ctx context.Context) error {
		all := &corev1.PodList{}
		err := c.List(ctx, all, client.InNamespace(networkNamespace), client.MatchingLabels{"app.kubernetes.io/component": "gateway"})
		if err != nil {
			return err
		}
		if ready := slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool { return !podReady(&pod) }); len(ready) < 2 {
			return fmt.Errorf("%d run", len(ready))
		}
		active, err = c.activeGateway(ctx)
		return err
	})
	return active
}

// killGateway ends the active gateway as a crash of its node would: at once.
func (c *cluster) killGateway(t *testing.T) {
	t.Helper()
	if err := c.Delete(t.Context(), c.awaitStandby(t), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// evictGateway ends the active gateway as kubectl drain would: it hands over.
func (c *cluster) evictGateway(t *testing.T) {
	t.Helper()
	active := c.awaitStandby(t)
	if err := c.SubResource("eviction").Create(t.Context(), active, &policyv1.Eviction{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the evicted gateway is gone", func(ctx context.Context) error { return c.isGone(ctx, active.DeepCopy()) })
}

// A TCP connection between two clusters survives when the active gateway of one, and then of the other, is evicted, and when it is gone
// from one moment to the next.
func TestGatewayFailover(t *testing.T) {
	network(t)
	for what, end := range map[string]func(*cluster, *testing.T){"evicted": (*cluster).evictGateway, "killed": (*cluster).killGateway} {
		s := lubeck.stream(t)
		for _, c := range []*cluster{lubeck, hamburg} {
			end(c, t)
			s.awaitMore(t, "the stream flows on after the gateway of "+c.Name+" was "+what)
			t.Logf("%s: the longest gap of the stream so far: %.2f s", what, s.longestGap(t))
		}
	}
}

// Gateways are killed as soon as there is another one.
func TestGatewayKilledRepeatedly(t *testing.T) {
	network(t)
	s := lubeck.stream(t)
	for range 2 {
		lubeck.killGateway(t)
		hamburg.killGateway(t)
	}
	s.awaitMore(t, "the stream flows on")
	t.Logf("the longest gap of the stream: %.2f s", s.longestGap(t))
	awaitConnected(t, lubeck, hamburg)
}

// The active gateway is cut off from its API server and from nothing else, so that nobody can tell it that another one takes over. It
// gives up its tunnels by itself, and takes no peer away from the other one.
func TestGatewayCutOffFromItsAPIServer(t *testing.T) {
	ctx := network(t)
	s := lubeck.stream(t)
	first := lubeck.awaitStandby(t)
	inFirst := netnsOfPod(t, first.UID, "/hanse")
	apiServer := "blackhole " + lubeck.clusterIP(t, "default", "kubernetes")
	if _, err := inFirst.run(ctx, "ip route add "+apiServer); err != nil {
		t.Fatal(err)
	}
	heal := sync.OnceFunc(func() {
		if _, err := inFirst.run(context.Background(), "ip route delete "+apiServer); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(heal)
	eventually(t, "another gateway is active", func(ctx context.Context) error {
		now, err := lubeck.activeGateway(ctx)
		if err == nil && now.Name == first.Name {
			return errors.New("it is still the first one")
		}
		return err
	})
	eventually(t, "the first one has given up its tunnels", func(ctx context.Context) error {
		if _, err := inFirst.run(ctx, "ip link show hanse-wg"); err == nil {
			return errors.New("it has them yet")
		}
		return nil
	})
	s.awaitMore(t, "the stream flows on")
	heal()
	s.awaitMore(t, "the stream flows on when the first one knows of the other")
	t.Logf("the longest gap of the stream: %.2f s", s.longestGap(t))
	awaitConnected(t, lubeck, bremen)
}

// All of Hanse starts again in both clusters, at the same time.
func TestBothRestart(t *testing.T) {
	ctx := network(t)
	s := lubeck.stream(t)
	for _, verb := range []string{"restart", "status"} {
		for _, c := range []*cluster{lubeck, hamburg} {
			for ns, what := range map[string][]string{
				v1alpha1.SystemNamespace: {"deployment/hanse-manager", "deployment/hanse-kubelet"},
				networkNamespace:         {"deployment/hanse-gateway", "daemonset/hanse-fabric"},
			} {
				for _, what := range what {
					if out, err := c.Kubectl(ctx, "rollout", verb, "-n", ns, what); err != nil {
						t.Fatalf("%v\n%s", err, out)
					}
				}
			}
		}
	}
	s.awaitMore(t, "the stream flows on")
	t.Logf("the longest gap of the stream: %.2f s", s.longestGap(t))
}

// The key of a gateway is made anew: the stream goes on, and nothing of it is lost.
func TestKeyRotationNoLoss(t *testing.T) {
	ctx := network(t)
	s := lubeck.stream(t)
	before := lubeck.gatewayKey(ctx, t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.GatewayName}}
	if err := lubeck.Delete(ctx, secret); err != nil {
		t.Fatal(err)
	}
	eventually(t, "hamburg knows another key of lubeck", func(ctx context.Context) error {
		if now := lubeck.gatewayKey(ctx, t); now == before {
			return fmt.Errorf("it is still %s", now)
		}
		return nil
	})
	s.awaitMore(t, "the stream flows on")
	t.Logf("the longest gap of the stream: %.2f s", s.longestGap(t))
	awaitConnected(t, lubeck, bremen)
}

// gatewayKey is the public key by which hamburg knows the cluster.
func (c *cluster) gatewayKey(ctx context.Context, t *testing.T) string {
	t.Helper()
	connection, err := hamburg.connection(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return connection.Spec.PublicKey
}

// Whatever was made on a node is gone, as after a start of its machine, and comes back.
func TestNodeReboots(t *testing.T) {
	ctx := network(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away, here := lubeck.party(t, ns, "away", hamburg), lubeck.party(t, ns, "here", nil, atHome(lubeck.workers(t)[1]))
	here.expectReaches(t, away, away.address)
	inNode := lubeck.netnsOf(t, lubeck.workers(t)[1])
	link := func(ctx context.Context) (string, error) {
		out, err := inNode.run(ctx, "ip -o link show hanse-vx")
		index, _, _ := strings.Cut(out, ":")
		return index, err
	}
	before, err := link(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"ip link delete hanse-vx", "nft delete table inet hanse", "nft delete table bridge hanse",
	} {
		if out, err := inNode.run(ctx, command); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	eventually(t, "the node has another link", func(ctx context.Context) error {
		now, err := link(ctx)
		if err == nil && now == before {
			err = errors.New("it has the one that was deleted")
		}
		return err
	})
	here.expectReaches(t, away, away.address)
	eventually(t, "the guards of the node are back", func(ctx context.Context) error {
		_, err := inNode.run(ctx, "nft list table bridge hanse")
		return err
	})
}
