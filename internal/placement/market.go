package placement

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A market is what providers offer at one time, for all namespaces.
type market struct {
	rows   []exchange.Row               // of accepted offers; open where the virtual node is, too
	table  *policy.Value                // the same for policies
	labels map[string]map[string]string // peer → labels of its virtual node
}

func (c *Controller) readMarket(ctx context.Context) (*market, error) {
	ads, peers, nodes := &v1alpha1.AdvertisementList{}, &v1alpha1.PeerList{}, &corev1.NodeList{}
	virtual := client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	// Nothing of it is changed, and all of it is read again and again.
	if err := c.client.List(ctx, ads, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list advertisements: %w", err)
	}
	if err := c.client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list peers: %w", err)
	}
	if err := c.client.List(ctx, nodes, virtual, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list virtual nodes: %w", err)
	}
	copies := slices.DeleteFunc(ads.Items, func(ad v1alpha1.Advertisement) bool { return !c.isCopy(&ad) })
	return newMarket(exchange.NewTable(copies, c.clock.Now()).WithLinks(peers.Items), nodes.Items), nil
}

func newMarket(table exchange.Table, nodes []corev1.Node) *market {
	m := &market{labels: map[string]map[string]string{}}
	open := map[string]bool{} // peer → its virtual node takes pods
	for i := range nodes {
		peer := nodes[i].Labels[v1alpha1.LabelPeer]
		m.labels[peer], open[peer] = nodes[i].Labels, isOpen(&nodes[i])
	}
	var rows []policy.TableRow
	for _, row := range table.Rows {
		if !row.Accepted {
			continue
		}
		// An offer counts for new pods from the time on that there is a node for them.
		row.Open = row.Open && open[row.Peer]
		m.rows = append(m.rows, row)
	}
	for i := range m.rows {
		row := &m.rows[i]
		rows = append(rows, policy.TableRow{Peer: row.Peer, Open: row.Open, Offer: &row.Offer, RoundTrip: row.RoundTrip})
	}
	m.table = policy.NewTable(rows)
	return m
}

// isOpen says whether the virtual node takes pods: neither the administrator has cordoned it, nor the peer.
func isOpen(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == v1alpha1.TaintWithdrawn
	})
}
