package advertisement

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// commitments follow the advertisements in this cluster: what is locked for each consumer and, if we aggregate, what our
// providers offer. An advertisement that changes costs one comparison, however many consumers there are.
type commitments struct {
	clusterID string
	aggregate bool
	threshold int64

	mu         sync.Mutex
	guaranteed map[string]corev1.ResourceList    // consumer → what is locked for it; replaced, never changed
	relocked   bool                              // the guarantees have changed since the last look
	offers     map[string]v1alpha1.Advertisement // provider → its offer, as accepted
	passed     []v1alpha1.Advertisement          // the offers, sorted; replaced, never changed
}

func newCommitments(config *Config) *commitments {
	return &commitments{
		clusterID:  config.ClusterID,
		aggregate:  config.Aggregate,
		threshold:  config.Threshold,
		guaranteed: map[string]corev1.ResourceList{},
		offers:     map[string]v1alpha1.Advertisement{},
	}
}

// set enters an advertisement or its newest state, and says whether that is of concern for what others are offered.
func (c *commitments) set(ad *v1alpha1.Advertisement) bool {
	peer, inTenant := strings.CutPrefix(ad.Namespace, v1alpha1.TenantNamespacePrefix)
	if !inTenant {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ad.Name != c.clusterID {
		return c.setOffer(peer, ad)
	}
	return c.lock(peer, guaranteed(ad))
}

// remove takes out an advertisement.
func (c *commitments) remove(ad *v1alpha1.Advertisement) bool {
	peer, inTenant := strings.CutPrefix(ad.Namespace, v1alpha1.TenantNamespacePrefix)
	if !inTenant {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ad.Name != c.clusterID {
		return c.drop(peer)
	}
	return c.lock(peer, nil)
}

// guaranteed is what is locked for the consumer of our advertisement: what it was told, from when it has accepted it.
func guaranteed(ad *v1alpha1.Advertisement) corev1.ResourceList {
	ack := ad.Status.Acknowledgement
	if ack == nil || ack.State != v1alpha1.AcknowledgementAccepted {
		return nil
	}
	return ad.Spec.Guarantee
}

func (c *commitments) lock(peer string, guarantee corev1.ResourceList) bool {
	if equality.Semantic.DeepEqual(c.guaranteed[peer], guarantee) {
		return false
	}
	c.guaranteed = maps.Clone(c.guaranteed)
	delete(c.guaranteed, peer)
	if len(guarantee) > 0 {
		c.guaranteed[peer] = guarantee
	}
	c.relocked = true
	return true
}

// setOffer keeps the offer of before as long as the new one is the same within the threshold: what is passed on is a term
// of our own offers, and saying those in full each time that a provider says hello would multiply its messages.
func (c *commitments) setOffer(peer string, ad *v1alpha1.Advertisement) bool {
	if !c.aggregate {
		return false
	}
	if !meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted) {
		return c.drop(peer)
	}
	before, found := c.offers[peer]
	if found && exchange.SameTerms(&before.Spec, &ad.Spec) && !exchange.Moved(before.Spec.Availability, ad.Spec.Availability, c.threshold) {
		return false
	}
	c.offers[peer] = *ad
	c.sort()
	return true
}

func (c *commitments) drop(peer string) bool {
	if _, found := c.offers[peer]; !found {
		return false
	}
	delete(c.offers, peer)
	c.sort()
	return true
}

func (c *commitments) sort() {
	passed := make([]v1alpha1.Advertisement, 0, len(c.offers))
	for _, peer := range slices.Sorted(maps.Keys(c.offers)) {
		passed = append(passed, c.offers[peer])
	}
	c.passed = passed
}

// look returns what is guaranteed, the offers to pass on, and whether the guarantees have changed since the last look.
// The caller must not change them.
func (c *commitments) look() (map[string]corev1.ResourceList, []v1alpha1.Advertisement, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	relocked := c.relocked
	c.relocked = false
	return c.guaranteed, c.passed, relocked
}
