// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// NetworkNamespace is where gateway and fabric run.
var NetworkNamespace = v1alpha1.NetworkNamespace(v1alpha1.SystemNamespace)

// A Stream is one TCP connection from a pod at home to one at a provider, over which a number comes twenty times a second.
type Stream struct{ Receiver *NetworkPod }

// StartStream begins one, and waits until it flows.
func (c *Cluster) StartStream(t *testing.T) *Stream {
	t.Helper()
	ns := c.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	receiver := c.StartNetworkPod(t, ns, "receiver", Hamburg, WithScript(
		RunForever, "tail -f /dev/null | nc -l -p 9000 | while read n; do read up rest </proc/uptime; echo $up $n; done >/tmp/stream; echo end >>/tmp/stream"))
	c.StartNetworkPod(t, ns, "sender", nil, OnNode(c.WorkerNames(t)[0]), WithScript(
		RunForever, fmt.Sprintf("i=0; while sleep 0.05; do i=$((i+1)); echo $i; done | nc %s 9000", receiver.Address)))
	s := &Stream{receiver}
	s.AwaitMore(t, "the stream flows")
	return s
}

// WithScript has the shell of a pod do something beside its work.
func WithScript(work, beside string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.Containers[0].Command[2] = "(" + beside + ") & " + work }
}

// Beats returns when each number came, in seconds of the receiver's uptime.
func (s *Stream) Beats(ctx context.Context) ([]float64, error) {
	out, err := s.Receiver.Run(ctx, "cat /tmp/stream")
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

// AwaitMore waits until a second's worth of numbers more has come.
func (s *Stream) AwaitMore(t *testing.T, what string) {
	t.Helper()
	before := -1
	Eventually(t, what, func(ctx context.Context) error {
		beats, err := s.Beats(ctx)
		if before < 0 {
			before = len(beats)
		}
		if err == nil && len(beats) < before+20 {
			return fmt.Errorf("%d numbers have come, and %d before", len(beats), before)
		}
		return err
	})
}

// LongestGap returns how long nothing came, at most, in seconds.
func (s *Stream) LongestGap(t *testing.T) float64 {
	t.Helper()
	beats, err := s.Beats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	longest := 0.0
	for i := range beats[1:] {
		longest = max(longest, beats[i+1]-beats[i])
	}
	return longest
}

// ActiveGateway returns the pod of the gateway that is active.
func (c *Cluster) ActiveGateway(ctx context.Context) (*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.InNamespace(NetworkNamespace), client.MatchingLabels{v1alpha1.LabelGateway: v1alpha1.ActiveGateway}); err != nil {
		return nil, err
	}
	alive := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() || !IsPodReady(&pod) })
	if len(alive) != 1 {
		return nil, fmt.Errorf("%d gateways are active", len(alive))
	}
	return &alive[0], nil
}

// AwaitStandbyGateway returns the active gateway as soon as another one is ready to take over.
func (c *Cluster) AwaitStandbyGateway(t *testing.T) *corev1.Pod {
	t.Helper()
	var active *corev1.Pod
	Eventually(t, "two gateways of "+c.Name+" run, one of them active", func(ctx context.Context) error {
		all := &corev1.PodList{}
		err := c.List(ctx, all, client.InNamespace(NetworkNamespace), client.MatchingLabels{"app.kubernetes.io/component": "gateway"})
		if err != nil {
			return err
		}
		if ready := slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool { return !IsPodReady(&pod) }); len(ready) < 2 {
			return fmt.Errorf("%d run", len(ready))
		}
		active, err = c.ActiveGateway(ctx)
		return err
	})
	return active
}

// EvictGateway ends the active gateway as kubectl drain would: it hands over.
func (c *Cluster) EvictGateway(t *testing.T) {
	t.Helper()
	active := c.AwaitStandbyGateway(t)
	if err := c.SubResource("eviction").Create(t.Context(), active, &policyv1.Eviction{}); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the evicted gateway is gone", func(ctx context.Context) error { return c.CheckGone(ctx, active.DeepCopy()) })
}
