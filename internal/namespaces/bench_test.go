// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const (
	manyPeers      = 1_000
	manyNamespaces = 5_000
)

// shelf is a cache that costs next to nothing, so that what is measured is ours.
type shelf struct {
	client.Client
	offloadings map[string]*v1alpha1.NamespaceOffloading
	peers       map[string]*v1alpha1.Peer
	nodes       map[string]*corev1.Node
	all         struct {
		peers v1alpha1.PeerList
		nodes corev1.NodeList
		ads   v1alpha1.AdvertisementList
	}
}

func newShelf() *shelf {
	s := &shelf{
		offloadings: map[string]*v1alpha1.NamespaceOffloading{}, peers: map[string]*v1alpha1.Peer{}, nodes: map[string]*corev1.Node{},
	}
	for i := range manyPeers {
		from := offerer{name: fmt.Sprintf("peer-%04d", i), cpu: "100", labels: map[string]string{"region": fmt.Sprint("r-", i%10), "tier": "gold"}}
		peer, node := provider(from.name), from.node()
		s.peers[peer.Name], s.nodes[node.Name] = peer, node
		s.all.peers.Items = append(s.all.peers.Items, *peer)
		s.all.nodes.Items = append(s.all.nodes.Items, *node)
		s.all.ads.Items = append(s.all.ads.Items, *from.offer())
	}
	for i := range manyNamespaces {
		o := offloadingWith(fmt.Sprintf("shop-%04d", i), v1alpha1.StrategyRemote, map[string]v1alpha1.LabelValue{
			"region": v1alpha1.LabelValue(fmt.Sprint("r-", i%10)), "tier": "gold",
		})
		o.UID, o.ResourceVersion = types.UID(o.Namespace), "1"
		s.offloadings[o.Namespace] = o
	}
	return s
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	found := true
	switch o := o.(type) {
	case *v1alpha1.NamespaceOffloading:
		var is *v1alpha1.NamespaceOffloading
		if is, found = s.offloadings[key.Namespace]; found {
			*o = *is
		}
	case *v1alpha1.Peer:
		var is *v1alpha1.Peer
		if is, found = s.peers[key.Name]; found {
			*o = *is
		}
	case *corev1.Node:
		var is *corev1.Node
		if is, found = s.nodes[key.Name]; found {
			*o = *is
		}
	case *corev1.Namespace:
		*o = corev1.Namespace{}
	}
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return nil
}

func (s *shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.PeerList:
		list.Items = append(list.Items, s.all.peers.Items...)
	case *corev1.NodeList:
		list.Items = append(list.Items, s.all.nodes.Items...)
	case *v1alpha1.AdvertisementList:
		list.Items = append(list.Items, s.all.ads.Items...)
	}
	return nil
}

// BenchmarkPeerForAllNamespaces is what it costs to see for which of 5,000 namespaces one more of 1,000 peers needs a twin.
func BenchmarkPeerForAllNamespaces(b *testing.B) {
	s := newShelf()
	m := &mappings{Config: Config{Client: s, Live: s}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		twins := 0
		for name := range s.offloadings {
			seen, err := m.observe(b.Context(), s, name, fmt.Sprintf("peer-%04d", i%manyPeers))
			if err != nil {
				b.Fatal(err)
			}
			if seen.need() == needed {
				twins++
			}
		}
		if twins != manyNamespaces/10 {
			b.Fatalf("%d namespaces need a twin", twins)
		}
	}
}

// allow is a policy that lets all pods go everywhere.
type allow struct{}

func (allow) Decide(context.Context, policy.Question, policy.Input) (policy.Decision, error) {
	return policy.Decision{Outcome: policy.Allow}, nil
}
func (allow) HasPolicies(policy.Question) bool { return false }
func (allow) OnChange(policy.Question, func()) {}

// BenchmarkNamespaceAmongPeers is what it costs to see where the pods of one of 5,000 namespaces go among 1,000 peers.
func BenchmarkNamespaceAmongPeers(b *testing.B) {
	s := newShelf()
	o := &offloadings{pace: pace{}, Config: Config{
		Client: s, Live: s, Links: peers.NewLinks(peers.Config{Scheme: testkit.Scheme()}), Decider: allow{}, ClusterID: "c-home",
		Clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
	}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("shop-%04d", i%manyNamespaces)
		seen, err := o.observe(b.Context(), s.offloadings[name])
		if err != nil || len(seen.clusters) != manyPeers/10 {
			b.Fatalf("%d clusters, error %v", len(seen.clusters), err)
		}
		clear(o.pace) // as if a second had passed
		if _, err := o.place(b.Context(), offloadingIn(name), &seen); err != nil || seen.placed.condition == nil {
			b.Fatalf("placed %+v, error %v", seen.placed, err)
		}
	}
}
