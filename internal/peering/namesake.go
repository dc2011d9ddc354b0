// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// clusterIDField is the index of Peers by the cluster that they stand for.
const clusterIDField = "spec.clusterID"

func indexClusterID(object client.Object) []string {
	if peer, ok := object.(*v1alpha1.Peer); ok && peer.Spec.ClusterID != "" {
		return []string{peer.Spec.ClusterID}
	}
	return nil
}

// observeNamesake looks for an older Peer that stands for the same cluster. Joining makes no such Peers, but somebody can.
func (c *Controller) observeNamesake(ctx context.Context, o *observation) error {
	all, err := c.standFor(ctx, o.peer.Spec.ClusterID)
	if err != nil {
		return err
	}
	for i := range all {
		if other := &all[i]; len(other.Spec.Roles) > 0 && byAge(other, o.peer) < 0 { // one without roles was only discovered
			o.namesake = other.Name
		}
	}
	return nil
}

// standFor returns the Peers that stand for the cluster, which are the cache's own. Nobody stands for no cluster.
func (c *Controller) standFor(ctx context.Context, clusterID string) ([]v1alpha1.Peer, error) {
	if clusterID == "" {
		return nil, nil
	}
	all := &v1alpha1.PeerList{}
	if err := c.client.List(ctx, all, client.MatchingFields{clusterIDField: clusterID}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list peers: %w", err)
	}
	return all.Items, nil
}

// byAge compares which of two objects was there first. An object is not older than itself.
func byAge(a, b metav1.Object) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// namesakes returns the Peers that stand for the cluster of a Peer that has come, gone or changed.
func (c *Controller) namesakes(ctx context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, id := range indexClusterID(object) {
		all, err := c.standFor(ctx, id)
		if err != nil {
			return nil // the cache, which this event came from, can always be read
		}
		for i := range all {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
		}
	}
	return requests
}

// uses reports whether this cluster has to do with the provider by this Peer: an older one that stands for the same cluster has
// the session there, and all that we have at the provider belongs to that.
func (o *observation) uses() bool { return o.peer.HasRole(v1alpha1.RoleProvider) && o.namesake == "" }

// second is what is wrong with a Peer that stands for a cluster for which there is an older one, nil for others.
func second(o *observation) *condition {
	if o.namesake == "" || o.deleted() || len(o.peer.Spec.Roles) == 0 {
		return nil
	}
	return isFalse(v1alpha1.ReasonClusterIDTaken, "Peer %q stands for cluster %q already, and nothing is taken from it by this one: "+
		"delete one of the two", o.namesake, o.peer.Spec.ClusterID)
}
