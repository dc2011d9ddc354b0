package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/hostile"
)

// attackFor returns for how long each of the attacks goes on: until one pod has started, or so that all of them together
// take as long as HANSE_ATTACKS_FOR says, such as 10m.
func attackFor(t *testing.T, attacks int) time.Duration {
	t.Helper()
	set := os.Getenv("HANSE_ATTACKS_FOR")
	if set == "" {
		return 0
	}
	whole, err := time.ParseDuration(set)
	if err != nil {
		t.Fatal(err)
	}
	return whole / time.Duration(attacks)
}

// A besieged is what is measured of a consumer with one hostile and one honest provider, and what it was while both were honest.
type besieged struct {
	enemy    liarsPeer
	healthy  string          // a namespace whose pods run at the honest provider
	quiet    []time.Duration // how long pods took there
	memory   map[process]int64
	restarts map[*cluster]int
}

type process struct {
	*cluster
	subcommand string
}

func (p process) String() string { return p.Name + "'s " + p.subcommand }

// One provider attacks in every way that we know, and another one is honest: pods to that one start as before, our processes
// take little more memory than before and go on, and the Peer says what is wrong with the hostile one.
func TestHostileProvider(t *testing.T) {
	alone(t, "rostock")
	b := besiege(t)
	attacks, err := hostile.Attacks(b.enemy.scene(t))
	if err != nil {
		t.Fatal(err)
	}
	share := attackFor(t, len(attacks))
	b.measureQuiet(t, share)
	t.Cleanup(func() { b.enemy.liar.End(); b.enemy.liar.HangUp() }) // so that what is deleted at the end goes quickly
	for i, attack := range attacks {
		t.Run(attack.Name, func(t *testing.T) { b.stand(t, i, attack, share) })
	}
	for p, was := range b.memory {
		p.expectMemoryNear(t, p.subcommand, was, 1.5)
	}
	for c, was := range b.restarts {
		if now := c.restarts(t); now != was {
			t.Errorf("Hanse in %s was started again %d times", c.Name, now-was)
		}
	}
	if node, err := lubeck.virtual(t.Context(), hamburg); err != nil || !nodeReady(node) {
		t.Errorf("hamburg's node is not Ready: %v", err)
	}
}

func besiege(t *testing.T) *besieged {
	t.Helper()
	b := &besieged{enemy: lubeck.consumesFromLiar(t), memory: map[process]int64{}, restarts: map[*cluster]int{}}
	b.healthy = lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: selects("hamburg")})
	return b
}

func (b *besieged) measureQuiet(t *testing.T, share time.Duration) {
	t.Helper()
	b.quiet = b.startPods(t, "quiet", 5, share)
	for _, c := range []*cluster{lubeck, hamburg} {
		b.restarts[c] = c.restarts(t)
		for _, subcommand := range []string{"manager", "kubelet"} {
			b.memory[process{c, subcommand}] = c.memoryOf(t, subcommand, "VmRSS")
			c.forgetPeak(t, subcommand)
		}
	}
}

// stand has the provider attack while pods to the honest one start, one after the other, for as long as the share and until
// one has started.
func (b *besieged) stand(t *testing.T, number int, attack hostile.Attack, share time.Duration) {
	t.Helper()
	b.enemy.liar.Begin(attack)
	b.enemy.liar.HangUp()
	b.relink(t, number)
	times := b.startPods(t, fmt.Sprintf("attack-%d", number), 1, share)
	b.report(t, times)
	expectAsBefore(t, b.quiet, times)
	if !attack.Mild {
		eventually(t, "the Peer says that something is wrong", func(ctx context.Context) error { return lubeck.peerComplains(ctx, "rostock") })
	}
}

// startPods starts pods at the honest provider, one after the other, so many at least and for so long, and returns how long
// each took.
func (b *besieged) startPods(t *testing.T, prefix string, least int, long time.Duration) []time.Duration {
	t.Helper()
	var times []time.Duration
	for start := time.Now(); len(times) < least || time.Since(start) < long; {
		times = append(times, lubeck.timesToReady(t, b.healthy, fmt.Sprintf("%s-%d", prefix, len(times)), 1)...)
		err := lubeck.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(b.healthy), client.GracePeriodSeconds(0))
		if err != nil { // ten minutes of pods would not fit into hamburg
			t.Fatal(err)
		}
	}
	return times
}

// relink has another link made to the hostile provider, because attacks before have made the pauses of this one long. Its
// servers are the same one, once more or once less.
func (b *besieged) relink(t *testing.T, number int) {
	t.Helper()
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace("rostock"), Name: v1alpha1.LinkSecret}
	if err := lubeck.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data[v1alpha1.LinkSecretServers] = []byte(strings.Repeat(b.enemy.liar.URL()+"\n", number%2))
	if err := lubeck.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// report tells the figures of one attack.
func (b *besieged) report(t *testing.T, times []time.Duration) {
	t.Helper()
	t.Logf("%d pods to hamburg took %.2f times of the median of quiet times in the median, and %.2f times of the longest one at most",
		len(times), ratio(median(times), median(b.quiet)), ratio(slices.Max(times), slices.Max(b.quiet)))
	processes := slices.SortedFunc(maps.Keys(b.memory), func(x, y process) int { return strings.Compare(x.String(), y.String()) })
	for _, p := range processes {
		now, most := p.memoryOf(t, p.subcommand, "VmRSS"), p.memoryOf(t, p.subcommand, "VmHWM")
		t.Logf("%s takes %.2f times of its quiet memory, and took %.2f times at most", p, ratio(now, b.memory[p]), ratio(most, b.memory[p]))
	}
}

func ratio[N ~int64](now, was N) float64 { return float64(now) / float64(was) }

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

// peerComplains returns an error as long as all conditions of the Peer about the link and what comes over it are True.
func (c *cluster) peerComplains(ctx context.Context, name string) error {
	peer, err := c.peer(ctx, name)
	if err != nil {
		return err
	}
	about := []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAuthenticated, v1alpha1.ConditionWithinBudget, v1alpha1.ConditionAdvertised}
	for _, said := range peer.Status.Conditions {
		if slices.Contains(about, said.Type) && said.Status != metav1.ConditionTrue && said.Message != "" {
			return nil
		}
	}
	return fmt.Errorf("the conditions are %+v", peer.Status.Conditions)
}
