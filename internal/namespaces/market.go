// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A market is what providers offer at one time, for all namespaces.
type market struct {
	rows  []exchange.Row          // of accepted offers; open where the virtual node is, too
	table *policy.Value           // the same for policies
	nodes map[string]*corev1.Node // peer → its virtual node
	// behind are the clusters that providers send pods on to, for policies; nil if there are none.
	behind *policy.Value
	// behindIDs are their ids.
	behindIDs []string
	// bySelector are the rows that cluster selectors, as texts, leave.
	bySelector map[string][]exchange.Row
}

func (c *Config) readMarket(ctx context.Context) (*market, error) {
	table, nodes, err := c.readTable(ctx)
	if err != nil {
		return nil, err
	}
	return newMarket(table, nodes), nil
}

// readTable returns the table, and the virtual nodes by their peers. The nodes are the cache's own.
func (c *Config) readTable(ctx context.Context) (exchange.Table, map[string]*corev1.Node, error) {
	ads, peers := &v1alpha1.AdvertisementList{}, &v1alpha1.PeerList{}
	// Nothing of it is changed, and all of it is read again and again.
	if err := c.Client.List(ctx, ads, client.UnsafeDisableDeepCopy); err != nil {
		return exchange.Table{}, nil, fmt.Errorf("list advertisements: %w", err)
	}
	if err := c.Client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		return exchange.Table{}, nil, fmt.Errorf("list peers: %w", err)
	}
	nodes, err := virtualNodes(ctx, c.Client)
	if err != nil {
		return exchange.Table{}, nil, err
	}
	copies := slices.DeleteFunc(ads.Items, func(ad v1alpha1.Advertisement) bool { return !c.isCopy(&ad) })
	byPeer := make(map[string]*corev1.Node, len(nodes))
	for i := range nodes {
		byPeer[nodes[i].Labels[v1alpha1.LabelPeer]] = &nodes[i]
	}
	return exchange.NewTable(copies, c.Clock.Now()).WithLinks(peers.Items), byPeer, nil
}

func newMarket(table exchange.Table, nodes map[string]*corev1.Node) *market {
	m := &market{nodes: nodes, bySelector: map[string][]exchange.Row{}}
	var rows []policy.TableRow
	for _, row := range table.Rows {
		if !row.Accepted {
			continue
		}
		// An offer counts for new pods from the time on that there is a node for them.
		node := m.nodes[row.Peer]
		row.Open = row.Open && node != nil && offload.TakesPods(node)
		m.rows = append(m.rows, row)
		rows = append(rows, policy.TableRow{
			Peer: row.Peer, Open: row.Open, Offer: &row.Offer,
			RoundTrip: row.RoundTrip, Bandwidth: row.Bandwidth, Throughput: row.Throughput, Loss: row.Loss,
		})
	}
	m.table = policy.NewTable(rows)
	m.lookBehind()
	return m
}

// lookBehind makes a table of what providers offer of others, as if these were peers that are called by their ids.
func (m *market) lookBehind() {
	var rows []policy.TableRow
	seen := map[string]bool{}
	for i := range m.rows {
		for j := range m.rows[i].Offer.Nested {
			nested := &m.rows[i].Offer.Nested[j]
			if seen[nested.ClusterID] {
				continue
			}
			seen[nested.ClusterID] = true
			m.behindIDs = append(m.behindIDs, nested.ClusterID)
			rows = append(rows, policy.TableRow{Peer: nested.ClusterID, Open: true, Offer: &v1alpha1.AdvertisementSpec{
				ClusterID: nested.ClusterID, Availability: nested.Availability, Prices: nested.Prices, Labels: nested.Labels,
			}})
		}
	}
	if len(rows) > 0 {
		m.behind = policy.NewTable(rows)
	}
}

// A pace keeps looks at the same thing apart: the first is taken at once, and however many are asked for in the interval
// after it, one is taken at its end. It is used by one worker. It has when the next look may be taken.
type pace map[reconcile.Request]time.Time

// wait returns how long to wait for the next look. If that is no time at all, the look counts as taken.
func (p pace) wait(request reconcile.Request, now time.Time) time.Duration {
	if wait := p[request].Sub(now); wait > 0 {
		return min(wait, interval) // a clock that was set back must not stop us
	}
	p[request] = now.Add(interval)
	return 0
}
