package advertisement

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// offer returns what is offered to the peer now. The sequence and the times are those of a message that is sent now.
func (c *Config) offer(peer *v1alpha1.Peer, there offerable, prices *v1alpha1.Prices, previous int64, now time.Time) v1alpha1.AdvertisementSpec {
	limits := limitsOf(peer)
	spec := v1alpha1.AdvertisementSpec{
		ClusterID: c.ClusterID,
		Phase:     exchange.PhaseFor(peer),
		// The clock makes the sequence grow also when the object was deleted in between.
		Sequence:          max(previous+1, now.UnixMilli()),
		Timestamp:         metav1.NewTime(now.Truncate(time.Second)),
		TimeToLive:        metav1.NewTime(now.Truncate(time.Second).Add(c.HelloTimeout)),
		Availability:      there.Availability(peer.Name, limits),
		LargestPod:        there.LargestPod(peer.Name, limits),
		Images:            slices.Clone(there.Images),
		Prices:            prices,
		Labels:            maps.Clone(there.Labels),
		Architectures:     slices.Clone(there.Architectures),
		KubernetesVersion: there.KubernetesVersion,
	}
	if podCIDR := orDefault(c.PodCIDR, there.PodCIDR); podCIDR != "" {
		spec.Network = &v1alpha1.Network{PodCIDR: podCIDR}
	}
	return spec
}

func limitsOf(peer *v1alpha1.Peer) corev1.ResourceList {
	if peer.Spec.Limits == nil {
		return nil
	}
	return peer.Spec.Limits.Resources
}

// message is what must be said to a consumer, and when.
type message struct {
	kind  string // of metrics: full or partial
	after time.Duration
}

// due compares what was said last with what would be said now: another phase is told at once, new terms and large
// changes of what is free as soon as the rate allows, small ones when they have settled, and a hello when it is time.
func (c *Config) due(peer string, said, now *v1alpha1.AdvertisementSpec, at time.Time) message {
	age := at.Sub(said.Timestamp.Time)
	switch {
	case exchange.Phase(said) != exchange.Phase(now):
		return message{kind: "full"}
	case !exchange.SameTerms(said, now):
		return message{"full", max(0, c.MinInterval-age)}
	case exchange.Moved(said.Availability, now.Availability, c.Threshold):
		return message{"partial", max(0, c.MinInterval-age)}
	case !equality.Semantic.DeepEqual(said.Availability, now.Availability):
		return message{"partial", max(0, c.SettleInterval-age)}
	default:
		return message{"partial", max(0, spread(c.HelloInterval, peer)-age)}
	}
}

// spread takes up to a tenth off the interval, for each peer another part, so that peers that were told at the same time
// are not for ever.
func spread(interval time.Duration, peer string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(peer)) // never fails
	return interval - interval/10*time.Duration(hash.Sum32()%100)/100
}

// same reports whether nothing that consumers are told of has changed.
func same(a, b offerable) bool {
	return sameDescription(a, b) && equality.Semantic.DeepEqual(a.Free(), b.Free())
}

func sameDescription(a, b offerable) bool {
	return equality.Semantic.DeepEqual(a.Description, b.Description)
}
