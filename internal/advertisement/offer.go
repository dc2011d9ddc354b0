// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// draft returns what the peer would be offered now if no policy had a say. It has no sequence and no times, and shares
// memory with the state that it was made from: whoever changes it copies it.
func (c *Config) draft(
	peer *v1alpha1.Peer, there *offerable, images []v1alpha1.Image, prices *v1alpha1.Prices,
) v1alpha1.AdvertisementSpec {
	claims := exchange.Claims{Limits: limitsOf(peer), Guarantee: guaranteeOf(peer), Others: there.locks.against(peer.Name)}
	spec := there.Offer
	spec.ClusterID = c.ClusterID
	spec.Phase = exchange.PhaseFor(peer)
	spec.Availability = there.Availability(peer.Name, claims)
	spec.LargestPod = there.LargestPod(peer.Name, claims)
	spec.Guarantee = claims.Guarantee
	spec.Ingress = ingressFor(peer)
	spec.Images = images
	spec.Prices = prices
	if c.Aggregate {
		offers := there.Leftovers(peer.Name, there.offers)
		spec = exchange.Aggregate(spec, offers, c.AggregateShare, peer.Spec.ClusterID)
		exchange.Within(claims.Limits, &spec)
	}
	return spec
}

func limitsOf(peer *v1alpha1.Peer) corev1.ResourceList {
	if peer.Spec.Limits == nil {
		return nil
	}
	return peer.Spec.Limits.Resources
}

// ingressFor returns which Ingresses the peer may have here.
func ingressFor(peer *v1alpha1.Peer) *v1alpha1.IngressOffer {
	allowed := peer.Spec.Ingress
	if allowed == nil || len(allowed.Hosts) == 0 {
		return nil
	}
	return &v1alpha1.IngressOffer{Hosts: allowed.Hosts, ClassName: allowed.ClassName}
}

// guaranteeOf leaves out what no receiver would believe.
func guaranteeOf(peer *v1alpha1.Peer) corev1.ResourceList {
	guarantee := maps.Clone(peer.Spec.Guarantee)
	for name, quantity := range guarantee {
		most := exchange.MaxQuantity(name)
		switch {
		case quantity.Sign() <= 0:
			delete(guarantee, name)
		case quantity.Cmp(most) > 0:
			guarantee[name] = most
		}
	}
	if len(guarantee) == 0 {
		return nil
	}
	return guarantee
}

// stamp makes the offer a message that is sent now.
func (c *Config) stamp(spec *v1alpha1.AdvertisementSpec, published *v1alpha1.Advertisement, now time.Time) {
	// The clock makes the sequence grow also when the object was deleted in between. Behind the largest number it begins with
	// the clock again.
	spec.Sequence = now.UnixMilli()
	if published != nil && published.Spec.Sequence < math.MaxInt64 {
		spec.Sequence = max(spec.Sequence, published.Spec.Sequence+1)
	}
	spec.Timestamp = metav1.NewTime(now.Truncate(time.Second))
	spec.TimeToLive = metav1.NewTime(spec.Timestamp.Add(c.SilenceTimeout))
}

// fullMessage says the whole offer.
func fullMessage(published *v1alpha1.Advertisement, offer v1alpha1.AdvertisementSpec) *v1alpha1.Advertisement {
	ad := published.DeepCopy()
	ad.Spec = *offer.DeepCopy() // the client writes what the API server answers into the object
	ad.Spec.FullSequence = offer.Sequence
	if ad.Annotations == nil {
		ad.Annotations = map[string]string{}
	}
	ad.Annotations[v1alpha1.AnnotationFullSent] = offer.Timestamp.UTC().Format(time.RFC3339)
	return ad
}

// partialMessage says that of the offer which may change without a full message.
func partialMessage(published *v1alpha1.Advertisement, offer v1alpha1.AdvertisementSpec) *v1alpha1.Advertisement {
	ad := published.DeepCopy()
	ad.Spec.Availability, ad.Spec.LargestPod = offer.Availability.DeepCopy(), offer.LargestPod.DeepCopy()
	ad.Spec.Sequence, ad.Spec.Timestamp, ad.Spec.TimeToLive = offer.Sequence, offer.Timestamp, offer.TimeToLive
	return ad
}

// The kinds of messages, as metrics name them.
const (
	kindFull    = "full"
	kindPartial = "partial"
)

// due compares what was said last with what would be said now, and returns the kind of the next message and when to send it. A
// message is full when the terms are new, or when the last full one was long ago.
func (c *Config) due(
	peer string, published *v1alpha1.Advertisement, now *v1alpha1.AdvertisementSpec, at time.Time,
) (kind string, after time.Duration) {
	after = c.allowedDelay(peer, &published.Spec, now) - at.Sub(published.Spec.Timestamp.Time)
	// Of all messages, the one nearest to the end of the interval is full.
	old := at.Sub(lastFull(published)) >= c.FullInterval-c.RenewInterval/2
	if old || !exchange.SameTerms(&published.Spec, now) {
		return kindFull, after
	}
	return kindPartial, after
}

// allowedDelay is for how long after the last message the peer can wait to be told that its offer is not what it was then:
// another phase is told at once, and once in which ranges the peer is seen, without which there is no tunnel; new terms and large
// changes of what is free as soon as the rate allows, other images and small changes when they have settled, and that nothing has
// changed with the next renewal.
func (c *Config) allowedDelay(peer string, then, now *v1alpha1.AdvertisementSpec) time.Duration {
	bare := *then
	bare.Images = now.Images
	switch {
	case exchange.Phase(then) != exchange.Phase(now), !seesPeer(then) && seesPeer(now):
		return 0
	case !exchange.SameTerms(&bare, now), exchange.Moved(then.Availability, now.Availability, c.Threshold),
		exchange.Moved(then.LargestPod, now.LargestPod, c.Threshold):
		return c.MinInterval
	case !equality.Semantic.DeepEqual(then.Images, now.Images),
		!equality.Semantic.DeepEqual(then.Availability, now.Availability),
		!equality.Semantic.DeepEqual(then.LargestPod, now.LargestPod):
		return c.SettleInterval
	default:
		return spread(c.RenewInterval, peer)
	}
}

// seesPeer says whether the offer tells in which ranges we see the peer. An answer that is withdrawn leaves those as they are, so a
// peer cannot have us tell them again and again.
func seesPeer(offer *v1alpha1.AdvertisementSpec) bool {
	return offer.Network != nil && len(offer.Network.Mappings) > 0
}

// lastFull is when, by our own clock, our advertisement was last said in full. It is long ago if it is not known.
func lastFull(published *v1alpha1.Advertisement) time.Time {
	at, err := time.Parse(time.RFC3339, published.Annotations[v1alpha1.AnnotationFullSent])
	if err != nil {
		return time.Time{}
	}
	return at
}

// spread takes up to a tenth off the interval, for each peer another part, so that peers that were told at the same time
// are not for ever.
func spread(interval time.Duration, peer string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(peer)) // never fails
	return interval - interval/10*time.Duration(hash.Sum32()%100)/100
}

// locks is what is kept free for consumers: what each is guaranteed, or what is reserved for its Requests, and it does not hold
// yet. The sum of all is made once, so
// that what a thousand consumers are offered does not cost a million subtractions.
type locks struct {
	missing map[string]corev1.ResourceList // consumer → what is kept free for it
	total   corev1.ResourceList
}

func locksOf(capacity exchange.Capacity, guaranteed, reserved map[string]corev1.ResourceList) locks {
	l := locks{missing: make(map[string]corev1.ResourceList, len(guaranteed)), total: corev1.ResourceList{}}
	for peer, guarantee := range guaranteed {
		held, missing := capacity.Held(peer), corev1.ResourceList{}
		for name, quantity := range guarantee {
			lack := quantity.DeepCopy()
			lack.Sub(held[name])
			if lack.Sign() > 0 {
				missing[name] = lack
			}
		}
		l.missing[peer] = missing
	}
	for peer, rest := range reserved {
		l.missing[peer] = quota.Max(l.missing[peer], rest)
	}
	for _, missing := range l.missing {
		l.total = quota.Add(l.total, missing)
	}
	return l
}

// allOthers is the name under which against sums up consumers. No Peer can have that name, and nothing holds capacity under it: the pods of
// this cluster's own users count under the empty name.
const allOthers = "*"

// against returns what is kept free for others than the peer, as of one that holds nothing.
func (l locks) against(peer string) map[string]corev1.ResourceList {
	if len(l.total) == 0 {
		return nil
	}
	rest := l.total.DeepCopy()
	for name, quantity := range l.missing[peer] {
		left := rest[name]
		left.Sub(quantity)
		rest[name] = left
	}
	return map[string]corev1.ResourceList{allOthers: rest}
}

// PricesConfigMap is the ConfigMap in Hanse's own namespace that says what resources cost, see exchange.ParsePrices.
const PricesConfigMap = "hanse-prices"

// askedPrices is what is asked for.
type askedPrices struct {
	prices  *v1alpha1.Prices
	old     bool // the setting is broken, and these are what was asked for last, changes by policies included
	unknown bool // the setting is broken, and nothing was asked for yet
}

// readPrices reads the setting. As long as it is broken, each consumer is asked for what it was asked for before.
func (p *Publisher) readPrices(ctx context.Context, published *v1alpha1.Advertisement) (askedPrices, error) {
	setting := &corev1.ConfigMap{}
	err := p.client.Get(ctx, types.NamespacedName{Namespace: p.config.Namespace, Name: PricesConfigMap}, setting)
	if apierrors.IsNotFound(err) {
		return askedPrices{}, nil
	}
	if err != nil {
		return askedPrices{}, fmt.Errorf("read the prices: %w", err)
	}
	prices, err := exchange.ParsePrices(setting.Data)
	switch {
	case err == nil:
		return askedPrices{prices: prices}, nil
	case published != nil:
		return askedPrices{prices: published.Spec.Prices, old: true}, nil
	default:
		return askedPrices{unknown: true}, nil
	}
}

func (p *Publisher) isPrices(object client.Object) bool {
	return object.GetNamespace() == p.config.Namespace && object.GetName() == PricesConfigMap
}

// onPrices has all consumers told of new prices, and tells the administrator if they are broken: once for each change,
// which is why it is done here and not where the prices are used.
func (p *Publisher) onPrices(ctx context.Context, object client.Object) []reconcile.Request {
	if setting, isConfigMap := object.(*corev1.ConfigMap); isConfigMap {
		if _, err := exchange.ParsePrices(setting.Data); err != nil {
			p.recorder.Eventf(setting, nil, corev1.EventTypeWarning, "InvalidPrices", "ReadPrices",
				"Consumers are asked for the prices of before, and new ones are offered nothing, until this is repaired: %s",
				bounded(err.Error()))
		}
	}
	return peersWith(ctx, p.client, told)
}
