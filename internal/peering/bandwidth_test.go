// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"bytes"
	"compress/gzip"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// measuring returns a world in which bandwidth is measured every hour.
func measuring(t *testing.T, peer *v1alpha1.Peer) *world {
	t.Helper()
	w := newWorld(t, peer)
	w.config.BandwidthInterval, w.deps.config.BandwidthInterval = time.Hour, time.Hour
	w.sends(1_234_567)
	return w
}

// transfersWithin returns how many samples are read in that time, in which the peer is probed as ever.
func (w *world) transfersWithin(d time.Duration) int {
	w.t.Helper()
	before := w.samples()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		w.nextProbe()
	}
	return w.samples() - before
}

func TestBandwidthIsShownSteadily(t *testing.T) {
	shown := resource.MustParse("1200k")
	for name, test := range map[string]struct {
		shown    *resource.Quantity
		measured int64
		want     string
	}{
		"nothing is known":            {nil, 0, ""},
		"it is rounded":               {nil, 1_234_567, "1200k"},
		"it is rounded up":            {nil, 996, "1k"},
		"it is little":                {nil, 7, "7"},
		"a little more":               {&shown, 1_500_000, "1200k"},
		"much more":                   {&shown, 1_510_000, "1500k"},
		"a little less":               {&shown, 900_000, "1200k"},
		"much less":                   {&shown, 890_000, "890k"},
		"it cannot be measured again": {&shown, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status := v1alpha1.PeerStatus{Bandwidth: test.shown}
			bandwidth{rate: test.measured}.show(&status)
			if got := textOf(status.Bandwidth); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestBandwidthIsNotMeasuredByDefault(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider, v1alpha1.RoleConsumer))
	w.sends(1_234_567)
	w.reconcile()
	if n := w.transfersWithin(time.Hour); n != 0 || w.samples() != 0 {
		t.Errorf("%d transfers", w.samples())
	}
	w.expectBandwidth("", 0)
	if w.exists(tenant, v1alpha1.BandwidthSample, &corev1.ConfigMap{}) {
		t.Error("the peer can measure")
	}
}

func TestBandwidthIsNotMeasuredAllTheTime(t *testing.T) {
	config := newWorld(t).config
	config.Default()
	for interval, want := range map[time.Duration]bool{0: true, time.Minute: true, time.Second: false, -time.Hour: false} {
		config.BandwidthInterval = interval
		if err := config.Validate(); (err == nil) != want {
			t.Errorf("%v: %v", interval, err)
		}
	}
}

func TestNothingIsLeftOfBandwidthThatWasMeasuredOnce(t *testing.T) {
	w := measuring(t, peerOf(v1alpha1.RoleProvider, v1alpha1.RoleConsumer))
	w.reconcile()
	w.expectBandwidth("1200k", 1_234_567)
	w.config.BandwidthInterval, w.deps.config.BandwidthInterval = 0, 0
	w.clock.Step(2 * repairPeriod)
	w.reconcile()
	w.expectBandwidth("", 0)
	if w.exists(tenant, v1alpha1.BandwidthSample, &corev1.ConfigMap{}) {
		t.Error("the peer can still measure")
	}
}

func TestBandwidthIsMeasuredOnceInAnInterval(t *testing.T) {
	w := measuring(t, peerOf(v1alpha1.RoleProvider))
	w.reconcile()
	w.expectBandwidth("1200k", 1_234_567)
	if n := w.transfersWithin(time.Hour - time.Minute); w.samples() != 1 {
		t.Errorf("%d transfers more within an hour", n)
	}
	if n := w.transfersWithin(15 * time.Minute); n != 1 {
		t.Errorf("%d transfers after that", n)
	}

	w.remote.Refuse(readSample, forbidden)
	w.transfersWithin(2 * time.Hour)
	w.expectBandwidth("", 0)
	w.remote.Refuse(readSample, nil)
	w.transfersWithin(2 * time.Hour)
	w.expectBandwidth("1200k", 1_234_567)
	w.remote.RemoveCredentials()
	w.transfersWithin(time.Hour)
	w.expectBandwidth("", 0)
}

func TestBandwidthIsForgottenWithThePeer(t *testing.T) {
	w := measuring(t, peerOf(v1alpha1.RoleProvider))
	w.reconcile()
	w.remove(w.peer())
	peer := w.peer()
	peer.Finalizers = nil
	w.update(peer)
	w.reconcile()
	if got := w.bandwidthGauge(); got != 0 {
		t.Errorf("the gauge says %g", got)
	}
}

func TestRestartIsNoReasonToMeasure(t *testing.T) {
	peer := peerOf(v1alpha1.RoleProvider)
	peer.Status.Bandwidth = resource.NewQuantity(900_000, resource.DecimalSI)
	w := measuring(t, peer)
	w.reconcile()
	if n := w.transfersWithin(time.Hour - time.Minute); n != 0 {
		t.Errorf("%d transfers", n)
	}
	w.expectBandwidth("900k", 900_000)
}

// transfers bounds how many samples are read at the same time.
func (w *world) transfers() *semaphore.Weighted {
	for _, s := range w.calls.steps {
		if probes, is := s.(*probeStep); is {
			return probes.transfers
		}
	}
	return nil
}

func TestBandwidthIsMeasuredOfFewAtATime(t *testing.T) {
	w := measuring(t, peerOf(v1alpha1.RoleProvider))
	if !w.transfers().TryAcquire(maxTransfers) {
		t.Fatal("others are measured")
	}
	w.reconcile()
	if w.samples() != 0 {
		t.Error("it does not wait for the others")
	}
	w.transfers().Release(maxTransfers)
	w.nextProbe()
	if w.samples() != 1 {
		t.Error("it waits for longer than for the next probe")
	}
}

func TestDeadAndAgentlessPeersAreNotMeasured(t *testing.T) {
	w := measuring(t, peerOf(v1alpha1.RoleProvider))
	w.remote.Refuse(readInfo, noAnswer)
	w.reconcile()
	agentless := peerOf(v1alpha1.RoleProvider)
	agentless.Spec.Mode = v1alpha1.ModeAgentless
	other := measuring(t, agentless)
	other.reconcile()
	if w.samples()+other.samples() != 0 {
		t.Error("there was a transfer")
	}
}

func TestConsumerFindsASample(t *testing.T) {
	w := measuring(t, peerOf(v1alpha1.RoleConsumer))
	w.reconcile()
	sample := &corev1.ConfigMap{}
	w.get(tenant, v1alpha1.BandwidthSample, sample)
	text := sample.Data[v1alpha1.BandwidthSampleKey]
	if len(text) != v1alpha1.BandwidthSampleSize {
		t.Errorf("it has %d bytes", len(text))
	}
	var packed bytes.Buffer
	to := gzip.NewWriter(&packed)
	_, _ = to.Write([]byte(text))
	_ = to.Close()
	if packed.Len() < len(text)*7/10 {
		t.Errorf("it can be compressed to %d bytes", packed.Len())
	}
	w.clock.Step(2 * repairPeriod)
	w.reconcile() // makes the quota, too
	w.clock.Step(2 * repairPeriod)
	w.expectNoWrites()

	peer := w.peer()
	peer.Spec.Roles, peer.Generation = []v1alpha1.PeerRole{v1alpha1.RoleProvider}, 2
	w.update(peer)
	w.reconcile()
	if w.exists(tenant, v1alpha1.BandwidthSample, &corev1.ConfigMap{}) {
		t.Error("a mere provider keeps it")
	}
}

// expectBandwidth compares what is told of the peer, in its status and by the metrics.
func (w *world) expectBandwidth(status string, gauge float64) {
	w.t.Helper()
	if got := textOf(w.peer().Status.Bandwidth); got != status {
		w.t.Errorf("the status says %q, want %q", got, status)
	}
	if got := w.bandwidthGauge(); got != gauge {
		w.t.Errorf("the gauge says %g, want %g", got, gauge)
	}
}

func textOf(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return q.String()
}

func (w *world) bandwidthGauge() float64 {
	w.t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "hanse_peer_bandwidth_bytes_per_second" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}
