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

// A book follows the advertisements in this cluster: what is locked for each consumer, and,
// if we aggregate, what our providers offer. One that changes costs one comparison, however many consumers there are.
type book struct {
	clusterID string
	aggregate bool
	threshold int64

	mu         sync.Mutex
	guaranteed map[string]corev1.ResourceList    // consumer → what is locked for it; replaced, never changed
	relocked   bool                              // the guarantees have changed since the last look
	offers     map[string]v1alpha1.Advertisement // provider → its offer, as accepted
	passed     []v1alpha1.Advertisement          // the offers, sorted; replaced, never changed
}

func newBook(config *Config) *book {
	return &book{
		clusterID:  config.ClusterID,
		aggregate:  config.Aggregate,
		threshold:  config.Threshold,
		guaranteed: map[string]corev1.ResourceList{},
		offers:     map[string]v1alpha1.Advertisement{},
	}
}

// set enters an advertisement or its newest state, and says whether that is of concern for what others are offered.
func (b *book) set(ad *v1alpha1.Advertisement) bool {
	peer, inTenant := strings.CutPrefix(ad.Namespace, v1alpha1.TenantNamespacePrefix)
	if !inTenant {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if ad.Name != b.clusterID {
		return b.setOffer(peer, ad)
	}
	return b.lock(peer, guaranteed(ad))
}

// remove takes out an advertisement.
func (b *book) remove(ad *v1alpha1.Advertisement) bool {
	peer, inTenant := strings.CutPrefix(ad.Namespace, v1alpha1.TenantNamespacePrefix)
	if !inTenant {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if ad.Name != b.clusterID {
		return b.drop(peer)
	}
	return b.lock(peer, nil)
}

// guaranteed is what is locked for the consumer of our advertisement: what it was told, from when it has accepted it.
func guaranteed(ad *v1alpha1.Advertisement) corev1.ResourceList {
	ack := ad.Status.Acknowledgement
	if ack == nil || ack.State != v1alpha1.AcknowledgementAccepted {
		return nil
	}
	return ad.Spec.Guarantee
}

func (b *book) lock(peer string, guarantee corev1.ResourceList) bool {
	if equality.Semantic.DeepEqual(b.guaranteed[peer], guarantee) {
		return false
	}
	b.guaranteed = maps.Clone(b.guaranteed)
	delete(b.guaranteed, peer)
	if len(guarantee) > 0 {
		b.guaranteed[peer] = guarantee
	}
	b.relocked = true
	return true
}

// setOffer keeps the offer of before as long as the new one is the same within the threshold: what is passed on is a term
// of our own offers, and saying those in full each time that a provider says hello would multiply its messages.
func (b *book) setOffer(peer string, ad *v1alpha1.Advertisement) bool {
	if !b.aggregate {
		return false
	}
	if !meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted) {
		return b.drop(peer)
	}
	before, found := b.offers[peer]
	if found && exchange.SameTerms(&before.Spec, &ad.Spec) && !exchange.Moved(before.Spec.Availability, ad.Spec.Availability, b.threshold) {
		return false
	}
	b.offers[peer] = *ad
	b.sort()
	return true
}

func (b *book) drop(peer string) bool {
	if _, found := b.offers[peer]; !found {
		return false
	}
	delete(b.offers, peer)
	b.sort()
	return true
}

func (b *book) sort() {
	passed := make([]v1alpha1.Advertisement, 0, len(b.offers))
	for _, peer := range slices.Sorted(maps.Keys(b.offers)) {
		passed = append(passed, b.offers[peer])
	}
	b.passed = passed
}

// look returns what is guaranteed, the offers to pass on, and whether the guarantees have changed since the last look.
// The caller must not change them.
func (b *book) look() (map[string]corev1.ResourceList, []v1alpha1.Advertisement, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	relocked := b.relocked
	b.relocked = false
	return b.guaranteed, b.passed, relocked
}
