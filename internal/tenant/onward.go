// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
)

// bound finds out where the pod may be sent on to, if its consumer asks something of those clusters, and returns why not to
// others. What cannot be obeyed keeps the pod here.
func (r *shadowPodReconciler) bound(ctx context.Context, seen *observation) (why string, err error) {
	seen.next = nil
	switch {
	case seen.shadow.Spec.Onward == "":
		return "", nil
	case !r.config.SendOn:
		return "This cluster sends no pods on", nil
	case len(seen.path) == 0:
		return "It has come through too many clusters", nil
	}
	asked, err := offload.ReadOnward(seen.shadow.Spec.Onward)
	if err != nil {
		return "What is asked of other clusters cannot be read: " + err.Error(), nil //nolint:nilerr // the record tells; trying again cannot help
	}
	hops, err := r.hops.of(ctx, r, seen.peer, seen.now)
	if err != nil {
		return "", err
	}
	next, left, err := exchange.Onward(asked, hops)
	if err != nil {
		return err.Error(), nil //nolint:nilerr // the record tells; trying again cannot help
	}
	seen.next = next
	reasons := make([]string, len(left))
	for i, one := range left {
		reasons[i] = one.ClusterID + ": " + one.Why
	}
	return strings.Join(reasons, "; "), nil
}

// hopsFresh is for how long it is believed what there is behind us: pods come in crowds, and each is asked about.
const hopsFresh = time.Second

// hops are the clusters that pods may be sent on to, as they were found a moment ago.
type hops struct {
	mu     sync.Mutex
	byPeer map[string]foundHops // consumer → those that it is told of
}

type foundHops struct {
	at   time.Time
	hops []exchange.Hop
}

func (h *hops) of(ctx context.Context, r *shadowPodReconciler, consumer string, now time.Time) ([]exchange.Hop, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.byPeer[consumer]; ok && now.Sub(known.at).Abs() < hopsFresh {
		return known.hops, nil
	}
	found, err := r.readHops(ctx, consumer)
	if err != nil {
		return nil, err
	}
	if h.byPeer == nil {
		h.byPeer = map[string]foundHops{}
	}
	h.byPeer[consumer] = foundHops{now, found}
	return found, nil
}

// readHops returns those that our offer to the consumer says are behind us, with what it says that pods cost there.
func (r *shadowPodReconciler) readHops(ctx context.Context, consumer string) ([]exchange.Hop, error) {
	ad := &v1alpha1.Advertisement{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(consumer), Name: r.config.ClusterID}
	if err := r.client.Get(ctx, key, ad, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	nodes := &corev1.NodeList{}
	err := r.client.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list virtual nodes: %w", err)
	}
	var found []exchange.Hop
	for _, id := range exchange.NextHops(&ad.Spec) {
		hop := exchange.Hop{Row: exchange.Row{ClusterID: id}}
		for i := range ad.Spec.Nested {
			if nested := &ad.Spec.Nested[i]; nested.ClusterID == id && len(nested.Path) == 0 {
				hop.Priced, hop.Offer.Prices = true, nested.Prices
			}
		}
		for i := range nodes.Items {
			if labels := nodes.Items[i].Labels; labels[v1alpha1.LabelClusterID] == id {
				hop.Labels = labels
			}
		}
		if err := r.measure(ctx, &hop); err != nil {
			return nil, err
		}
		found = append(found, hop)
	}
	return found, nil
}

// measure fills in what is measured of the way to the hop, if it is a peer.
func (r *shadowPodReconciler) measure(ctx context.Context, hop *exchange.Hop) error {
	peer := hop.Labels[v1alpha1.LabelPeer]
	if peer == "" {
		return nil
	}
	found, err := r.readPeer(ctx, peer)
	if err != nil {
		return err
	}
	hop.MeasuredBy(&found.Status)
	return nil
}

// sentOn puts on record where the pod may be sent on to, which is noted on it where its consumer asks something of those clusters.
func (d *decision) sentOn(s *observation) {
	text := s.pod.Annotations[v1alpha1.AnnotationSentOn]
	if text == "" {
		return
	}
	c := metav1.Condition{
		Type: v1alpha1.ConditionOnward, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStaysHere, Message: text,
	}
	if len(offload.Path(s.pod)) > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonPlacementObeyed
	}
	d.condition(s, c)
}
