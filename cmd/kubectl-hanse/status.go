// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

func newStatusCommand(global *globalFlags) *cobra.Command {
	output := ""
	command := &cobra.Command{
		Use:   "status [PEER]",
		Short: "Show the peers of a cluster, their nodes, and what they offer",
		Long: "Shows each peer with its virtual node and what it offers or is offered, and each offloaded namespace; of one peer,\n" +
			"all that is known. Problems come with their causes.",
		Example: `  kubectl hanse status
  kubectl hanse status -o wide
  kubectl hanse status hamburg
  kubectl hanse status -n shop
  kubectl hanse status -o json | jq '.peers[] | select(.ready == false) | .reason'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return global.withHanse(command, 30*time.Second, func(ctx context.Context, c *connection, system string) error {
				found, err := observe(ctx, c.client, system, global.namespace, clock.RealClock{}.Now())
				if err != nil {
					return err
				}
				if len(args) == 0 {
					return printStatus(command.OutOrStdout(), found, output)
				}
				return printStatusOf(command.OutOrStdout(), found, args[0], output)
			})
		},
	}
	command.Flags().VarP(oneOf(&output, "wide", "json", "yaml"), "output", "o", "wide, json or yaml; by default a table")
	return command
}

// overview is what `status` shows. Its JSON is for scripts: fields are added, never renamed.
type overview struct {
	ClusterID  string            `json:"clusterID"`
	Version    string            `json:"version"`
	Peers      []peerStatus      `json:"peers"`
	Namespaces []namespaceStatus `json:"namespaces"`
	Broken     []brokenPolicy    `json:"brokenPolicies,omitempty"`
	Hidden     []string          `json:"hidden,omitempty"` // what the user may not see
	about      string            // the namespace that was asked about, "" for all
}

// peerStatus is one peer. Node and Offer are of what it provides, Access, Limits, OfferedToIt, Twins and Guests of what it
// has here as a consumer.
type peerStatus struct {
	Name      string              `json:"name"`
	ClusterID string              `json:"clusterID"`
	Mode      v1alpha1.PeerMode   `json:"mode"`
	Roles     []v1alpha1.PeerRole `json:"roles"`
	readiness
	v1alpha1.PeerStatus
	Tunnel            tunnelStatus         `json:"tunnel,omitzero"`
	Parting           bool                 `json:"parting,omitempty"`
	SessionExpires    *metav1.Time         `json:"sessionExpires,omitempty"`
	InvitationExpires *metav1.Time         `json:"invitationExpires,omitempty"`
	Node              nodeStatus           `json:"node,omitzero"`
	Offer             offerStatus          `json:"offer,omitzero"`
	Access            v1alpha1.PeerAccess  `json:"access,omitempty"`
	Limits            *v1alpha1.PeerLimits `json:"limits,omitempty"`
	OfferedToIt       offerStatus          `json:"offeredToIt,omitzero"`
	Volumes           []string             `json:"volumes,omitempty"`      // our claims whose volumes are there
	BrokenClaims      []string             `json:"brokenClaims,omitempty"` // its claims that are not kept as it asks
	Twins             []string             `json:"twins,omitempty"`
	Guests            int                  `json:"guests"`
	Reservations      []string             `json:"reservations,omitempty"`      // what is reserved here for it
	DifferingAccounts []string             `json:"differingAccounts,omitempty"` // of which the two sides have counted differently
}

// readiness is what a condition Ready says.
type readiness struct {
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

func readinessOf(conditions []metav1.Condition) readiness {
	ready := readyOf(conditions)
	return readiness{ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message}
}

// String is it in a cell of a table.
func (r readiness) String() string {
	if r.Ready {
		return "True"
	}
	return "False (" + r.Reason + ")"
}

// complaint is why something is not ready, if that is said.
func (r readiness) complaint() string {
	if r.Ready {
		return ""
	}
	return r.Message
}

// discovered reports whether the peer was only found in the network.
func (p *peerStatus) discovered() bool { return len(p.Roles) == 0 }

// nodeStatus is the virtual node of a peer.
type nodeStatus struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Pods  int    `json:"pods"`
	// Closed is why the node takes no new pods, if so.
	Closed string `json:"closed,omitempty"`
}

// tunnelStatus is the tunnel to the gateway of a peer.
type tunnelStatus struct {
	Endpoint v1alpha1.HostPort `json:"endpoint,omitempty"`
	Through  string            `json:"through,omitempty"` // the peer that relays, if one does
	readiness
}

// offerStatus is an advertisement and the answer to it. InForce tells whether it is a row of the table.
type offerStatus struct {
	Availability corev1.ResourceList `json:"availability"`
	Phase        v1alpha1.OfferPhase `json:"phase,omitempty"`
	TimeToLive   metav1.Time         `json:"timeToLive"`
	Guarantee    corev1.ResourceList `json:"guarantee,omitempty"`
	InForce      bool                `json:"inForce"`
	Answer       string              `json:"answer"`
	v1alpha1.Acknowledgement
}

// expired reports whether the offer ended because it was not renewed.
func (o *offerStatus) expired() bool {
	return o.Reason == v1alpha1.ReasonExpired || o.State == v1alpha1.AcknowledgementAccepted && !o.InForce
}

// refused reports whether somebody or something says no to the offer.
func (o *offerStatus) refused() bool {
	return o.State == v1alpha1.AcknowledgementRefused && !o.expired()
}

// namespaceStatus is one offloaded namespace.
type namespaceStatus struct {
	Name     string                      `json:"name"`
	Strategy v1alpha1.OffloadingStrategy `json:"strategy"`
	readiness
	Unplaced string                       `json:"unplaced,omitempty"` // why no cluster was chosen for new pods
	Clusters []v1alpha1.ClusterOffloading `json:"clusters,omitempty"`
}

// observe looks at the cluster whose Hanse is in that namespace, and at the offloading of one namespace, or of all if none
// is named.
func observe(ctx context.Context, c client.Client, system, namespace string, now time.Time) (overview, error) {
	parts := []part{partInfo, partPolicies, partPeers, partOffers, partConnections, partOffloadings, partNamespaces, partShadowPods, partVirtualNodes, partPodsAway, partVolumes, partShadowClaims, partRequests, partAccounts}
	s := take(ctx, c, scope{system: system}, now, parts...)
	hidden, err := s.errButHidden(parts...)
	if err == nil && len(hidden) > 0 {
		err = s.err(partPeers) // without peers there is nothing to show
	}
	found := overview{
		ClusterID: s.clusterID, Version: s.version, Peers: []peerStatus{}, Namespaces: []namespaceStatus{},
		Broken: brokenPolicies(s.policies), Hidden: hidden, about: namespace,
	}
	for i := range s.peers.Items {
		found.Peers = append(found.Peers, s.statusOf(&s.peers.Items[i]))
	}
	offloadings := s.offloadingsOf(namespace)
	for i := range offloadings {
		o := &offloadings[i]
		found.Namespaces = append(found.Namespaces, namespaceStatus{
			o.Namespace, o.Spec.Strategy, readinessOf(o.Status.Conditions), unplaced(o), o.Status.Clusters,
		})
	}
	return found, err
}

func (s *snapshot) statusOf(peer *v1alpha1.Peer) peerStatus {
	status := peerStatus{
		Name: peer.Name, ClusterID: peer.Spec.ClusterID, Mode: cmp.Or(peer.Spec.Mode, v1alpha1.ModeHanse), Roles: peer.Spec.Roles,
		Parting: !peer.DeletionTimestamp.IsZero(), readiness: readinessOf(peer.Status.Conditions), PeerStatus: peer.Status,
		Twins: s.namespacesOf(v1alpha1.TypeTwin, peer.Name), Guests: len(s.podsOf(peer.Name)),
		Volumes: s.volumesAt(peer.Name), BrokenClaims: s.brokenClaimsOf(peer.Name),
		Reservations: s.reservationsOf(peer.Name), DifferingAccounts: s.differingWith(peer.Name),
	}
	status.Conditions = sortedConditions(peer)
	if peer.Status.Session != nil {
		status.SessionExpires = peer.Status.Session.Expires
	}
	if peer.Status.Invitation != nil {
		status.InvitationExpires = peer.Status.Invitation.Expires
	}
	if peer.HasRole(v1alpha1.RoleConsumer) {
		status.Access, status.Limits = peer.Access(), peer.Spec.Limits
	}
	if node := s.node(v1alpha1.VirtualNodeName(peer.Name)); node != nil {
		status.Node = nodeStatus{Name: node.Name, Ready: exchange.IsReady(node), Pods: len(s.podsOn(node.Name))}
		if closed := s.nodeFactsOf(node.Name).closed(); closed != nil {
			status.Node.Closed = closed.Message
		}
	}
	if c := s.connection(peer.Name); c != nil {
		status.Tunnel = tunnelStatus{c.Status.Endpoint, c.Status.Through, readinessOf(c.Status.Conditions)}
	}
	for i := range s.offers.Items {
		offer := &s.offers.Items[i]
		switch {
		case offer.Namespace != v1alpha1.TenantNamespace(peer.Name):
		case offer.Spec.ClusterID == peer.Spec.ClusterID:
			status.Offer = s.offerStatus(offer)
		default:
			status.OfferedToIt = s.offerStatus(offer)
		}
	}
	return status
}

func sortedConditions(peer *v1alpha1.Peer) []metav1.Condition {
	conditions := slices.Clone(peer.Status.Conditions)
	slices.SortFunc(conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return conditions
}

func (s *snapshot) offerStatus(ad *v1alpha1.Advertisement) offerStatus {
	table := exchange.NewTable([]v1alpha1.Advertisement{*ad}, s.now)
	offer := offerStatus{
		Availability: ad.Spec.Availability, Phase: ad.Spec.Phase, Guarantee: ad.Spec.Guarantee, TimeToLive: ad.Spec.TimeToLive,
		InForce: len(table.Rows) == 1 && table.Rows[0].Accepted, Acknowledgement: v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementPending},
	}
	if ad.Status.Acknowledgement != nil {
		offer.Acknowledgement = *ad.Status.Acknowledgement
	}
	offer.Answer = string(offer.State)
	return offer
}

func printStatus(to io.Writer, found overview, output string) error {
	return show(to, found, output, func(d *document) {
		d.printf("Cluster %s, Hanse %s\n\n", orElse(found.ClusterID, none), orElse(found.Version, none))
		printPeers(d, found.Peers, output == "wide")
		d.printf("\n")
		printNamespaces(d, found.Namespaces, found.about)
		printBroken(d, found.Broken)
		if len(found.Hidden) > 0 {
			d.printf("\nYour rights do not suffice to see %s\n", strings.Join(found.Hidden, ", "))
		}
	})
}

func printPeers(d *document, peers []peerStatus, wide bool) {
	if len(peers) == 0 {
		d.printf("No peers. Make one with `kubectl hanse invite NAME` in one cluster and `kubectl hanse join TOKEN` in another\n")
		return
	}
	header := []string{"PEER", "ROLES", "READY", "NODE", "PODS", "CPU", "MEMORY", "FREE PODS", "OFFER"}
	if wide {
		header = append(header, "CLUSTER ID", "VERSION", "RTT", "SESSION ENDS", "ACCESS", "GUESTS")
	}
	rows := [][]string{header}
	var notes []string
	for i := range peers {
		cells := peerCells(&peers[i])
		if wide {
			cells = append(cells, widePeerCells(&peers[i])...)
		}
		rows = append(rows, cells)
		notes = append(notes, peerNotes(&peers[i])...)
	}
	d.table(rows...)
	d.notes(notes)
}

func peerCells(peer *peerStatus) []string {
	node, pods := none, none
	if peer.Node.Name != "" {
		node, pods = peer.Node.Name, fmt.Sprint(peer.Node.Pods)
		if !peer.Node.Ready {
			node += " (not ready)"
		}
	}
	free := peer.Offer.Availability
	return []string{
		peer.Name, list(peer.Roles, 4), peer.String(), node, pods, amount(free, corev1.ResourceCPU),
		amount(free, corev1.ResourceMemory), amount(free, corev1.ResourcePods), answer(&peer.Offer),
	}
}

func widePeerCells(peer *peerStatus) []string {
	guests := none
	if peer.Access != "" {
		guests = fmt.Sprint(peer.Guests)
	}
	return []string{
		orElse(peer.ClusterID, none), orElse(peer.Version, none), span(peer.RoundTripTime), date(peer.SessionExpires),
		orElse(string(peer.Access), none), guests,
	}
}

func peerNotes(peer *peerStatus) []string {
	if peer.discovered() {
		return []string{peer.Name + ": found in the network, and no peer yet: invite it, or join with an invitation of it"}
	}
	var notes []string
	add := func(applies bool, format string, args ...any) {
		if applies {
			notes = append(notes, peer.Name+": "+fmt.Sprintf(format, args...))
		}
	}
	add(peer.Access != "" && peer.Access != v1alpha1.AccessOpen, "its access is %s", peer.Access)
	add(peer.complaint() != "", "%s", peer.Message)
	if introduced := meta.FindStatusCondition(peer.Conditions, v1alpha1.ConditionIntroduced); introduced != nil {
		add(introduced.Status == metav1.ConditionFalse, "it is not introduced: %s", introduced.Message)
	}
	if admitted := meta.FindStatusCondition(peer.Conditions, v1alpha1.ConditionAdmitted); admitted != nil {
		add(admitted.Status == metav1.ConditionFalse, "it is no member yet: %s", admitted.Message)
	}
	add(peer.Offer.refused(), "its offer is refused: %s", peer.Offer.Message)
	add(peer.Offer.Reason == v1alpha1.ReasonPendingApproval, "%s", pending(peer.Name, peer.Offer.Message))
	add(peer.Node.Closed != "" && len(notes) == 0, "its node takes no new pods: %s", peer.Node.Closed)
	add(peer.OfferedToIt.refused(), "it refuses our offer: %s", peer.OfferedToIt.Message)
	return notes
}

func printNamespaces(d *document, namespaces []namespaceStatus, about string) {
	if len(namespaces) == 0 && about != "" {
		d.printf("Namespace %s is not offloaded. To have it offloaded: kubectl hanse offload %[1]s\n", about)
		return
	}
	if len(namespaces) == 0 {
		d.printf("No offloaded namespaces. Make one with: kubectl hanse offload NAMESPACE\n")
		return
	}
	rows := [][]string{{"NAMESPACE", "STRATEGY", "READY", "CLUSTERS"}}
	var notes []string
	for i := range namespaces {
		n := &namespaces[i]
		rows = append(rows, []string{n.Name, string(n.Strategy), n.String(), clusters(n.Clusters)})
		for _, why := range []string{n.complaint(), n.Unplaced} {
			if why != "" {
				notes = append(notes, n.Name+": "+why)
			}
		}
	}
	d.table(rows...)
	d.notes(notes)
}

func clusters(of []v1alpha1.ClusterOffloading) string {
	return list(namesOf(of, func(cluster *v1alpha1.ClusterOffloading) string {
		if cluster.State == v1alpha1.ClusterReady {
			return cluster.Peer
		}
		return cluster.Peer + " (" + cluster.State + ")"
	}), 5)
}

func answer(offer *offerStatus) string {
	if offer.expired() {
		return v1alpha1.ReasonExpired
	}
	return orElse(offer.Answer, none)
}
