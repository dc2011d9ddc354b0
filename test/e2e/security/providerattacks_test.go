// SPDX-License-Identifier: Apache-2.0

package security

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
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/test/e2e/framework"
	"github.com/hanse-dev/hanse/test/hostile"
)

// attackFor returns for how long each of the attacks goes on: until one pod has started, or so that all of them together
// take as long as HANSE_ATTACKS_FOR says, such as 10m. Then as long a quiet time follows on each attack.
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
	calm     []time.Duration // the median of each quiet time after an attack, by which one sees how much is chance
	memory   map[process]int
	restarts map[*framework.Cluster]int
}

type process struct {
	*framework.Cluster
	subcommand string
}

func (p process) String() string { return p.Name + "'s " + p.subcommand }

// TestHostileProvider attacks from one provider in every way that we know, while another one is honest. Pods at the honest one start, our
// processes use little more memory than before and do not restart, and a condition of the Peer reports what is wrong with the hostile one.
// How long the pods take is in the log.
func TestHostileProvider(t *testing.T) {
	framework.Begin(t)
	b := besiege(t)
	attacks, err := hostile.Attacks(b.enemy.scene(t))
	if err != nil {
		t.Fatal(err)
	}
	share := attackFor(t, len(attacks))
	if share > 0 {
		yieldProcessors(t)
	}
	b.measureQuiet(t, share)
	t.Cleanup(func() { b.enemy.liar.End(); b.enemy.liar.HangUp() }) // so that what is deleted at the end goes quickly
	for i, attack := range attacks {
		t.Run(attack.Name, func(t *testing.T) {
			b.stand(t, i, attack, share)
			if share > 0 {
				b.rest(t, i, share)
			}
		})
	}
	b.reportChance(t)
	for p, was := range b.memory {
		expectMemoryNear(t, p.Cluster, p.subcommand, was, 1.5)
	}
	for c, was := range b.restarts {
		if now := c.CountRestarts(t); now != was {
			t.Errorf("Hanse in %s was started again %d times", c.Name, now-was)
		}
	}
	if node, err := lubeck.VirtualNode(t.Context(), hamburg); err != nil || !framework.IsNodeReady(node) {
		t.Errorf("hamburg's node is not Ready: %v", err)
	}
}

func besiege(t *testing.T) *besieged {
	t.Helper()
	b := &besieged{enemy: consumesFromLiar(t, lubeck), memory: map[process]int{}, restarts: map[*framework.Cluster]int{}}
	b.healthy = lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: framework.SelectPeer("hamburg")})
	return b
}

func (b *besieged) measureQuiet(t *testing.T, share time.Duration) {
	t.Helper()
	b.quiet = b.startPods(t, "quiet", 5, share)
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		b.restarts[c] = c.CountRestarts(t)
		for _, subcommand := range []string{"manager", "kubelet"} {
			b.memory[process{c, subcommand}] = usage(t, c, subcommand).Resident
			forgetPeak(t, c, subcommand)
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
	before := b.usage(t)
	times := b.startPods(t, fmt.Sprintf("attack-%d", number), 1, share)
	b.report(t, times, before)
	if !attack.Mild {
		framework.Eventually(t, "the Peer says that something is wrong", func(ctx context.Context) error { return peerComplains(ctx, lubeck, "rostock") })
	}
}

// startPods starts pods at the honest provider, one after the other, so many at least and for so long, and returns how long
// each took.
func (b *besieged) startPods(t *testing.T, prefix string, least int, long time.Duration) []time.Duration {
	t.Helper()
	var times []time.Duration
	for start := time.Now(); len(times) < least || time.Since(start) < long; {
		times = append(times, timesToReady(t, lubeck, b.healthy, fmt.Sprintf("%s-%d", prefix, len(times)), 1)...)
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

// rest lets the provider be honest for as long as it attacked, and measures pods in that time.
func (b *besieged) rest(t *testing.T, number int, share time.Duration) {
	t.Helper()
	b.enemy.liar.End()
	b.enemy.liar.HangUp()
	times := b.startPods(t, fmt.Sprintf("rest-%d", number), 1, share)
	b.calm = append(b.calm, median(times))
	b.quiet = append(b.quiet, times...)
}

// reportChance tells by how much quiet times of the length of an attack differ.
func (b *besieged) reportChance(t *testing.T) {
	t.Helper()
	if len(b.calm) == 0 {
		return
	}
	t.Logf("in %d quiet times pods took %.2f to %.2f times of the quiet median (%v) in the median",
		len(b.calm), ratio(slices.Min(b.calm), median(b.quiet)), ratio(slices.Max(b.calm), median(b.quiet)), median(b.quiet))
}

// usage is what our processes have taken, and this one, which is the attacker's.
func (b *besieged) usage(t *testing.T) map[string]lab.Usage {
	t.Helper()
	attacker, err := lab.Process{Name: "attacker", PID: os.Getpid()}.Usage()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]lab.Usage{"the attacker": attacker}
	for p := range b.memory {
		used[p.String()] = usage(t, p.Cluster, p.subcommand)
	}
	return used
}

// report tells the figures of one attack, which has gone on since the usage before.
func (b *besieged) report(t *testing.T, times []time.Duration, before map[string]lab.Usage) {
	t.Helper()
	t.Logf("%d pods to hamburg took %v in the median, %.2f times of the quiet median, and %.2f times of the longest one at most",
		len(times), median(times), ratio(median(times), median(b.quiet)), ratio(slices.Max(times), slices.Max(b.quiet)))
	now := b.usage(t)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		t.Logf("%s took %v of processor time", name, (now[name].CPU - before[name].CPU).Round(10*time.Millisecond))
	}
	for p, was := range b.memory {
		t.Logf("%s takes %.2f times of its quiet memory, and took %.2f times at most",
			p, ratio(now[p.String()].Resident, was), ratio(now[p.String()].Peak, was))
	}
}

// yieldProcessors lets all others go first where processors are short, as if the attacker had a machine of its own: it is in this
// process. The scheduler weighs sessions against each other, and processes within a session; see autogroup in sched(7).
func yieldProcessors(t *testing.T) {
	t.Helper()
	const group = "/proc/self/autogroup"
	if err := os.WriteFile(group, []byte("19"), 0o600); err != nil {
		t.Logf("the attacker competes with what it attacks: %v", err)
		return
	}
	t.Cleanup(func() { _ = os.WriteFile(group, []byte("0"), 0o600) })
}

func ratio[N ~int | ~int64](now, was N) float64 { return float64(now) / float64(was) }

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

// peerComplains returns an error as long as all conditions of the Peer about the link and what comes over it are True.
func peerComplains(ctx context.Context, c *framework.Cluster, name string) error {
	peer, err := c.GetPeer(ctx, name)
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
