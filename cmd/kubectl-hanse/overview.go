package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/install"
)

// overview is what `status` shows. Its JSON is for scripts: fields are added, never renamed.
type overview struct {
	ClusterID  string            `json:"clusterID"`
	Version    string            `json:"version"`
	Peers      []peerStatus      `json:"peers"`
	Namespaces []namespaceStatus `json:"namespaces"`
	Broken     []brokenPolicy    `json:"brokenPolicies,omitempty"`
}

// peerStatus is one peer. Node and Offer are of what it provides, Access, Limits, OfferedToIt, Twins and Guests of what it
// has here as a consumer.
type peerStatus struct {
	Name              string               `json:"name"`
	ClusterID         string               `json:"clusterID"`
	Mode              v1alpha1.PeerMode    `json:"mode"`
	Roles             []v1alpha1.PeerRole  `json:"roles"`
	Version           string               `json:"version,omitempty"`
	Ready             bool                 `json:"ready"`
	Reason            string               `json:"reason,omitempty"`
	Message           string               `json:"message,omitempty"`
	Parting           bool                 `json:"parting,omitempty"`
	RoundTripTime     *metav1.Duration     `json:"roundTripTime,omitempty"`
	Deviation         *metav1.Duration     `json:"roundTripDeviation,omitempty"`
	SessionExpires    *metav1.Time         `json:"sessionExpires,omitempty"`
	InvitationExpires *metav1.Time         `json:"invitationExpires,omitempty"`
	DiscoveredServers []string             `json:"discoveredServers,omitempty"`
	Node              *nodeStatus          `json:"node,omitempty"`
	Offer             *offerStatus         `json:"offer,omitempty"`
	Access            v1alpha1.PeerAccess  `json:"access,omitempty"`
	Limits            *v1alpha1.PeerLimits `json:"limits,omitempty"`
	OfferedToIt       *offerStatus         `json:"offeredToIt,omitempty"`
	Twins             []string             `json:"twins,omitempty"`
	Guests            int                  `json:"guests"`
	Conditions        []metav1.Condition   `json:"conditions,omitempty"`
}

// discovered reports whether the peer was only found in the network.
func (p *peerStatus) discovered() bool { return len(p.Roles) == 0 }

// nodeStatus is the virtual node of a peer.
type nodeStatus struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Pods  int    `json:"pods"`
}

// offerStatus is an advertisement and the answer to it. InForce tells whether it is a row of the table.
type offerStatus struct {
	Availability corev1.ResourceList `json:"availability"`
	Phase        v1alpha1.OfferPhase `json:"phase,omitempty"`
	TimeToLive   metav1.Time         `json:"timeToLive"`
	InForce      bool                `json:"inForce"`
	Answer       string              `json:"answer"`
	Reason       string              `json:"reason,omitempty"`
	Message      string              `json:"message,omitempty"`
	Corrections  []string            `json:"corrections,omitempty"`
	Guarantee    corev1.ResourceList `json:"guarantee,omitempty"`
}

// expired reports whether the offer ended because it was not renewed.
func (o *offerStatus) expired() bool {
	return o.Reason == v1alpha1.ReasonExpired || o.Answer == string(v1alpha1.AcknowledgementAccepted) && !o.InForce
}

// refused reports whether there is an offer, and somebody or something says no to it.
func (o *offerStatus) refused() bool {
	return o != nil && o.Answer == string(v1alpha1.AcknowledgementRefused) && !o.expired()
}

// namespaceStatus is one offloaded namespace.
type namespaceStatus struct {
	Name     string                       `json:"name"`
	Strategy v1alpha1.OffloadingStrategy  `json:"strategy"`
	Ready    bool                         `json:"ready"`
	Reason   string                       `json:"reason,omitempty"`
	Message  string                       `json:"message,omitempty"`
	Unplaced string                       `json:"unplaced,omitempty"` // why no cluster was chosen for new pods
	Clusters []v1alpha1.ClusterOffloading `json:"clusters,omitempty"`
}

// observed is what an overview is made of.
type observed struct {
	info        corev1.ConfigMap
	peers       v1alpha1.PeerList
	ads         v1alpha1.AdvertisementList
	nodes       corev1.NodeList
	offloadings v1alpha1.NamespaceOffloadingList
	twins       corev1.NamespaceList
	guests      v1alpha1.ShadowPodList
	policies    map[string]policyStanding
	podsOn      map[string]int // name of a virtual node → pods on it
}

func observe(ctx context.Context, c client.Client, namespace string, now time.Time) (overview, error) {
	seen := observed{podsOn: map[string]int{}}
	// Without it Hanse may be starting, and what there is still tells something.
	err := client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ClusterInfo}, &seen.info))
	if err != nil {
		return overview{}, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, v1alpha1.ClusterInfo, err)
	}
	if seen.policies, err = readPolicies(ctx, c, namespace); err != nil {
		return overview{}, err
	}
	for what, list := range map[string]client.ObjectList{
		"peers": &seen.peers, "advertisements": &seen.ads, "namespace offloadings": &seen.offloadings,
		"pods of peers": &seen.guests,
	} {
		if err := c.List(ctx, list); err != nil {
			return overview{}, fmt.Errorf("list %s: %w", what, err)
		}
	}
	err = c.List(ctx, &seen.nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode})
	if err != nil {
		return overview{}, fmt.Errorf("list virtual nodes: %w", err)
	}
	err = c.List(ctx, &seen.twins, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin})
	if err != nil {
		return overview{}, fmt.Errorf("list namespaces of peers: %w", err)
	}
	cluster := install.Cluster{Client: c}
	for i := range seen.nodes.Items {
		name := seen.nodes.Items[i].Name
		pods, err := cluster.PodsOn(ctx, name)
		if err != nil {
			return overview{}, err
		}
		seen.podsOn[name] = len(pods)
	}
	return summarize(seen, now), nil
}

func summarize(seen observed, now time.Time) overview {
	found := overview{
		ClusterID:  seen.info.Data[v1alpha1.ClusterInfoID],
		Version:    seen.info.Data[v1alpha1.ClusterInfoVersion],
		Peers:      []peerStatus{},
		Namespaces: []namespaceStatus{},
		Broken:     brokenPolicies(seen.policies),
	}
	for i := range seen.peers.Items {
		found.Peers = append(found.Peers, summarizePeer(seen, &seen.peers.Items[i], now))
	}
	for i := range seen.offloadings.Items {
		o := &seen.offloadings.Items[i]
		ready := readyOf(o.Status.Conditions)
		found.Namespaces = append(found.Namespaces, namespaceStatus{
			Name: o.Namespace, Strategy: o.Spec.Strategy, Ready: ready.Status == metav1.ConditionTrue,
			Reason: ready.Reason, Message: ready.Message, Unplaced: unplaced(o), Clusters: o.Status.Clusters,
		})
	}
	slices.SortFunc(found.Peers, func(a, b peerStatus) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(found.Namespaces, func(a, b namespaceStatus) int { return strings.Compare(a.Name, b.Name) })
	return found
}

func summarizePeer(seen observed, peer *v1alpha1.Peer, now time.Time) peerStatus {
	ready := readyOf(peer.Status.Conditions)
	status := peerStatus{
		Name: peer.Name, ClusterID: peer.Spec.ClusterID, Mode: v1alpha1.ModeHanse, Roles: peer.Spec.Roles,
		Version: peer.Status.Version, Parting: !peer.DeletionTimestamp.IsZero(),
		Ready: ready.Status == metav1.ConditionTrue, Reason: ready.Reason, Message: ready.Message,
		RoundTripTime: peer.Status.RoundTripTime, Deviation: peer.Status.RoundTripDeviation, DiscoveredServers: peer.Status.DiscoveredServers,
		Conditions: slices.Clone(peer.Status.Conditions),
	}
	slices.SortFunc(status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	if peer.Agentless() {
		status.Mode = v1alpha1.ModeAgentless
	}
	if peer.Status.Session != nil {
		status.SessionExpires = peer.Status.Session.Expires
	}
	if peer.Status.Invitation != nil {
		status.InvitationExpires = peer.Status.Invitation.Expires
	}
	if peer.HasRole(v1alpha1.RoleConsumer) {
		status.Access, status.Limits = peer.Access(), peer.Spec.Limits
	}
	seen.addNode(&status)
	seen.addOffers(&status, now)
	seen.addGuests(&status)
	return status
}

func (s *observed) addNode(status *peerStatus) {
	for i := range s.nodes.Items {
		node := &s.nodes.Items[i]
		if node.Name == v1alpha1.VirtualNodeName(status.Name) {
			status.Node = &nodeStatus{Name: node.Name, Ready: isNodeReady(node), Pods: s.podsOn[node.Name]}
		}
	}
}

func (s *observed) addOffers(status *peerStatus, now time.Time) {
	for i := range s.ads.Items {
		ad := &s.ads.Items[i]
		switch {
		case ad.Namespace != v1alpha1.TenantNamespace(status.Name):
		case ad.Spec.ClusterID == status.ClusterID:
			status.Offer = summarizeOffer(ad, now)
		default:
			status.OfferedToIt = summarizeOffer(ad, now)
		}
	}
}

func (s *observed) addGuests(status *peerStatus) {
	for i := range s.twins.Items {
		twin := &s.twins.Items[i]
		if twin.Labels[v1alpha1.LabelPeer] != status.Name {
			continue
		}
		status.Twins = append(status.Twins, twin.Name)
		for j := range s.guests.Items {
			if s.guests.Items[j].Namespace == twin.Name {
				status.Guests++
			}
		}
	}
	slices.Sort(status.Twins)
}

func summarizeOffer(ad *v1alpha1.Advertisement, now time.Time) *offerStatus {
	table := exchange.NewTable([]v1alpha1.Advertisement{*ad}, now)
	offer := &offerStatus{
		Availability: ad.Spec.Availability, Phase: ad.Spec.Phase, Guarantee: ad.Spec.Guarantee, TimeToLive: ad.Spec.TimeToLive,
		InForce: len(table.Rows) == 1 && table.Rows[0].Accepted, Answer: string(v1alpha1.AcknowledgementPending),
	}
	if ack := ad.Status.Acknowledgement; ack != nil {
		offer.Answer, offer.Reason, offer.Message = string(ack.State), ack.Reason, ack.Message
		offer.Corrections = ack.Corrections
	}
	return offer
}

// unplaced is why no cluster was chosen for the new pods of a namespace, if so.
func unplaced(o *v1alpha1.NamespaceOffloading) string {
	placed := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionPlaced)
	if placed == nil || placed.Status != metav1.ConditionFalse {
		return ""
	}
	return placed.Reason + ": " + placed.Message
}

// readyOf is the condition Ready, or one that says that there is none.
func readyOf(conditions []metav1.Condition) metav1.Condition {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return *ready
	}
	return metav1.Condition{Reason: v1alpha1.ReasonPending, Message: "Hanse has not looked at it yet"}
}

func isNodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
