package agentless

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// podsUnlessSaid is how many pods are offered where no quota says how many there may be: as many as one node has by
// default.
const podsUnlessSaid = 110

// always are the resources that every offer names.
var always = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
}

// offer returns what the peer can be believed to have for us, without times, or in words for the administrator why that
// cannot be known.
func (s survey) offer(peer *v1alpha1.Peer, settings Config) (*v1alpha1.AdvertisementSpec, string) {
	limits := s.limits(peer.Name)
	if s.ledger == nil {
		return s.offerOfQuotas(peer, limits)
	}
	capacity, claims := s.ledger.Capacity(nil), exchange.Claims{Limits: limits}
	offer := s.ledger.Describe(settings.LabelKeys, nil).Offer
	offer.ClusterID = peer.Spec.ClusterID
	offer.Availability = complete(capacity.Availability(peer.Name, claims))
	offer.LargestPod = capacity.LargestPod(peer.Name, claims)
	offer.Network = nil // nothing over there could make a tunnel
	return &offer, ""
}

// offerOfQuotas makes an offer of what the quotas of the namespace leave.
func (s survey) offerOfQuotas(peer *v1alpha1.Peer, limits corev1.ResourceList) (*v1alpha1.AdvertisementSpec, string) {
	namespace := peer.Spec.Namespaces[0]
	_, cpu := limits[corev1.ResourceCPU]
	_, memory := limits[corev1.ResourceMemory]
	switch {
	case s.hidden:
		return nil, "Nobody can tell what the peer has: its user may list neither nodes and pods of all namespaces nor " +
			"resourcequotas in namespace " + namespace + ". Have its administrator allow one of the two"
	case !cpu || !memory:
		return nil, "Nobody can tell what the peer has: its user may not list nodes and pods of all namespaces, and no " +
			"ResourceQuota of namespace " + namespace + " limits both requests.cpu and requests.memory. Have its " +
			"administrator allow that, or make such a quota"
	}
	if _, named := limits[corev1.ResourcePods]; !named {
		limits[corev1.ResourcePods] = *resource.NewQuantity(podsUnlessSaid, resource.DecimalSI)
	}
	return &v1alpha1.AdvertisementSpec{ClusterID: peer.Spec.ClusterID, Availability: complete(limits)}, ""
}

// complete names all that an offer always names.
func complete(list corev1.ResourceList) corev1.ResourceList {
	for _, name := range always {
		if _, named := list[name]; !named {
			list[name] = resource.Quantity{Format: resource.DecimalSI}
		}
	}
	return list
}

// limits returns the most that we may have by the quotas: what they leave, and what our own pods hold of them. What no
// quota names is missing.
func (s survey) limits(peer string) corev1.ResourceList {
	held := s.own.Capacity(nil).Held(peer)
	limits := corev1.ResourceList{}
	for i := range s.quotas {
		for name, left := range leftOf(&s.quotas[i]) {
			left.Add(held[name])
			if least, named := limits[name]; !named || left.Cmp(least) < 0 {
				limits[name] = left
			}
		}
	}
	return limits
}

// leftOf returns what the quota leaves of what pods ask for. One that counts only some pods says nothing.
func leftOf(quota *corev1.ResourceQuota) corev1.ResourceList {
	if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
		return nil
	}
	left := corev1.ResourceList{}
	for key, hard := range quota.Spec.Hard {
		name, asked := exchange.CountedBy(key)
		if !asked {
			continue
		}
		rest := hard.DeepCopy()
		rest.Sub(quota.Status.Used[key])
		if rest.Sign() < 0 {
			rest = resource.Quantity{Format: hard.Format}
		}
		if least, twice := left[name]; !twice || rest.Cmp(least) < 0 {
			left[name] = rest
		}
	}
	return left
}

// said reports whether the advertisement says what the offer does, and need not be said again yet.
func said(ad *v1alpha1.AdvertisementSpec, offer *v1alpha1.AdvertisementSpec, now time.Time, interval time.Duration) bool {
	like := *ad
	like.Sequence, like.FullSequence = 0, 0
	like.Timestamp, like.TimeToLive = metav1.Time{}, metav1.Time{}
	return now.Before(ad.Timestamp.Add(interval)) && sameOffer(&like, offer)
}

func sameOffer(a, b *v1alpha1.AdvertisementSpec) bool {
	return sameAmounts(a.Availability, b.Availability) && sameAmounts(a.LargestPod, b.LargestPod) && exchange.SameTerms(a, b)
}

func sameAmounts(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// What is read of a peer at most.
const (
	pageSize   = 500
	maxObjects = 50_000
)

// A survey is what a peer lets us read about its capacity.
type survey struct {
	ledger *exchange.Ledger // of its nodes and all its pods; nil if we may not read them
	own    *exchange.Ledger // of our own pods in the namespace that pods run in
	quotas []corev1.ResourceQuota
	// hidden says that we may not read the namespace's quotas either.
	hidden bool
}

// surveyor reads capacity at a peer.
type surveyor struct {
	reader    client.Reader
	id        string
	peer      string
	namespace string // that pods run in
}

// look reads what it may. That it may not is no error.
func (s surveyor) look(ctx context.Context) (survey, error) {
	seen := survey{own: exchange.NewLedger()}
	whole := exchange.NewLedger()
	err := s.readNodes(ctx, whole)
	if err == nil {
		err = s.readPods(ctx, func(pod *corev1.Pod) { whole.SetPod(s.marked(pod)) })
	}
	switch {
	case err == nil:
		seen.ledger = whole
	case !apierrors.IsForbidden(err):
		return seen, fmt.Errorf("read nodes and pods of the peer: %w", err)
	}
	quotas := &corev1.ResourceQuotaList{}
	err = s.reader.List(ctx, quotas, client.InNamespace(s.namespace), client.Limit(pageSize))
	if seen.hidden = apierrors.IsForbidden(err); err != nil && !seen.hidden {
		return seen, fmt.Errorf("read quotas of namespace %s of the peer: %w", s.namespace, err)
	}
	if seen.quotas = quotas.Items; len(seen.quotas) == 0 {
		return seen, nil
	}
	// One node of its own stands for all, since a quota counts also what has no node yet.
	quotaNode := &corev1.Node{}
	quotaNode.Name = "quota"
	seen.own.SetNode(quotaNode)
	err = s.readPods(ctx, func(pod *corev1.Pod) {
		pod.Spec.NodeName = quotaNode.Name
		seen.own.SetPod(s.marked(pod))
	}, client.InNamespace(s.namespace), client.MatchingLabels{v1alpha1.LabelAgentless: s.id})
	if err != nil {
		return seen, fmt.Errorf("read our pods in namespace %s of the peer: %w", s.namespace, err)
	}
	return seen, nil
}

// marked says on the pod whether it is ours. What the peer itself says about that means nothing.
func (s surveyor) marked(pod *corev1.Pod) *corev1.Pod {
	delete(pod.Labels, v1alpha1.LabelPeer)
	if pod.Labels[v1alpha1.LabelAgentless] == s.id {
		pod.Labels[v1alpha1.LabelPeer] = s.peer
	}
	return pod
}

func (s surveyor) readNodes(ctx context.Context, into *exchange.Ledger) error {
	fresh := func() client.ObjectList { return &corev1.NodeList{} }
	return s.each(ctx, fresh, func(item runtime.Object) {
		if node, is := item.(*corev1.Node); is {
			_, _ = exchange.TrimNode(node) // of a node it says no error
			into.SetNode(node)
		}
	})
}

func (s surveyor) readPods(ctx context.Context, take func(*corev1.Pod), of ...client.ListOption) error {
	fresh := func() client.ObjectList { return &corev1.PodList{} }
	return s.each(ctx, fresh, func(item runtime.Object) {
		if pod, is := item.(*corev1.Pod); is {
			take(pod)
		}
	}, of...)
}

// each lists page by page, and has each object taken.
func (s surveyor) each(
	ctx context.Context, fresh func() client.ObjectList, take func(runtime.Object), of ...client.ListOption,
) error {
	seen, next := 0, ""
	for {
		list := fresh()
		options := append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, of...)
		if err := s.reader.List(ctx, list, options...); err != nil {
			return err
		}
		// An empty page counts too, so that a list of nothing but pages ends.
		if seen += max(meta.LenList(list), pageSize/10); seen > maxObjects {
			return fmt.Errorf("the peer lists more than %d objects", maxObjects)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			take(item)
			return nil
		})
		if err != nil {
			return err
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
