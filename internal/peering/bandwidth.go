package peering

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// maxTransfers is from how many peers samples are read at the same time.
const maxTransfers = 2

// A bandwidth is how fast data comes from a peer, and when that is measured next.
type bandwidth struct {
	rate int64 // bytes per second as measured last, 0 if it is not known
	due  time.Time
}

// measure measures how fast data comes from the peer, if that is due, the peer is well, and few others are measured now:
// otherwise there is time with the next probe.
func (c *Controller) measure(ctx context.Context, peer *v1alpha1.Peer, p *probe) {
	now, next := c.config.Clock.Now(), wait.Jitter(c.config.BandwidthInterval, retryJitter)
	b := &p.bandwidth
	if c.config.BandwidthInterval == 0 || p.link == nil || peer.Agentless() {
		b.rate = 0
		return
	}
	if shown := peer.Status.Bandwidth; b.due.IsZero() && shown != nil {
		*b = bandwidth{shown.Value(), now.Add(next)} // a restart is no reason to measure
	}
	if p.err != nil || now.Before(b.due) || !c.transfers.TryAcquire(1) {
		return
	}
	defer c.transfers.Release(1)
	var err error
	if b.rate, err = c.links.Bandwidth(ctx, peer.Name); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("The bandwidth cannot be measured", "reason", err.Error())
	}
	b.due = c.config.Clock.Now().Add(next)
}

// show puts the bandwidth into the status. What is shown there already stays, unless it has moved by more than a quarter.
func (b bandwidth) show(status *v1alpha1.PeerStatus) {
	shown := status.Bandwidth
	switch {
	case b.rate == 0:
		status.Bandwidth = nil
	case shown == nil || max(b.rate-shown.Value(), shown.Value()-b.rate) > shown.Value()/4:
		status.Bandwidth = resource.NewQuantity(twoDigits(b.rate), resource.DecimalSI)
	}
}

// twoDigits rounds to two significant digits.
func twoDigits(n int64) int64 {
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}

// sample is what a peer reads to measure how fast data comes from here: text that nothing on its way can compress by much.
var sample = sync.OnceValue(func() string {
	noise := make([]byte, base64.RawStdEncoding.DecodedLen(v1alpha1.BandwidthSampleSize))
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails; the same each time, so that it is written once
	return base64.RawStdEncoding.EncodeToString(noise)
})

// keepSample keeps what the peer measures by in its tenant namespace, as long as this cluster measures too.
func (t *tenants) keepSample(ctx context.Context, namespace string) error {
	kept := bandwidthSample(namespace)
	if t.config.BandwidthInterval == 0 {
		return t.remove(ctx, kept)
	}
	return t.put(ctx, kept, func() { kept.Data = map[string]string{v1alpha1.BandwidthSampleKey: sample()} })
}

func bandwidthSample(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.BandwidthSample}}
}
