package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func printStatus(to io.Writer, found overview, output string) error {
	return show(to, found, output, func(d *document) {
		d.printf("Cluster %s, Hanse %s\n\n", orElse(found.ClusterID, none), orElse(found.Version, none))
		printPeers(d, found.Peers, output == "wide")
		d.printf("\n")
		printNamespaces(d, found.Namespaces)
		printBroken(d, found.Broken)
		if len(found.Hidden) > 0 {
			d.printf("\nYour rights do not suffice to see %s\n", strings.Join(found.Hidden, ", "))
		}
	})
}

// printStatusOf prints all about one peer.
func printStatusOf(to io.Writer, found overview, name, output string) error {
	peer := find(found.Peers, func(p *peerStatus) bool { return p.Name == name })
	if peer == nil {
		return fmt.Errorf("there is no Peer %s here: `kubectl hanse status` shows those that there are", name)
	}
	return show(to, peer, output, func(d *document) { printPeer(d, peer) })
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
	node, pods, ready := none, none, peer.String()
	if peer.Node != nil {
		node, pods = peer.Node.Name, fmt.Sprint(peer.Node.Pods)
		if !peer.Node.Ready {
			node += " (not ready)"
		}
	}
	if peer.discovered() {
		ready = v1alpha1.ReasonDiscovered
	}
	var free corev1.ResourceList
	if peer.Offer != nil {
		free = peer.Offer.Availability
	}
	return []string{
		peer.Name, list(peer.Roles, 2), ready, node, pods, amount(free, corev1.ResourceCPU),
		amount(free, corev1.ResourceMemory), amount(free, corev1.ResourcePods), answer(peer.Offer),
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
	if peer.Offer != nil {
		add(peer.Offer.refused(), "its offer is refused: %s", peer.Offer.Message)
		add(peer.Offer.Reason == v1alpha1.ReasonPendingApproval, "%s", pending(peer.Name, peer.Offer.Message))
	}
	if peer.OfferedToIt != nil {
		add(peer.OfferedToIt.refused(), "it refuses our offer: %s", peer.OfferedToIt.Message)
	}
	return notes
}

func printNamespaces(d *document, namespaces []namespaceStatus) {
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
	var words []string
	for _, cluster := range of {
		word := cluster.Peer
		if cluster.State != "Ready" {
			word += " (" + cluster.State + ")"
		}
		words = append(words, word)
	}
	return list(words, 5)
}

// printPeer prints all about one peer.
func printPeer(d *document, peer *peerStatus) {
	about := facts{{"Peer:", peer.Name}}
	about.identify(peer)
	if slices.Contains(peer.Roles, v1alpha1.RoleProvider) {
		node := none
		if peer.Node != nil {
			node = fmt.Sprintf("%s, %s, %s", peer.Node.Name, readyOrNot(peer.Node.Ready), count(peer.Node.Pods, "pod"))
		}
		about.add("Our session ends", date(peer.SessionExpires))
		about.add("It offers", offered(peer.Offer, "our answer"))
		about.add("Virtual node", node)
	}
	if slices.Contains(peer.Roles, v1alpha1.RoleConsumer) {
		about.add("Its access", string(peer.Access))
		about.add("Its limits", limits(peer.Limits))
		if peer.InvitationExpires != nil {
			about.add("Its invitation ends", date(peer.InvitationExpires))
		}
		about.add("It is offered", offered(peer.OfferedToIt, "its answer"))
		about.add("Its namespaces", orElse(strings.Join(peer.Twins, ", "), none))
		about.add("Its pods", fmt.Sprint(peer.Guests))
	}
	d.table(about...)
	conditions := [][]string{{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
	for _, c := range peer.Conditions {
		conditions = append(conditions, []string{c.Type, string(c.Status), c.Reason, orElse(c.Message, none)})
	}
	d.section("", conditions...)
}

// facts are names, and what there is under them.
type facts [][]string

// add adds a fact, unless there is nothing to say.
func (f *facts) add(name, value string) {
	if value != "" {
		*f = append(*f, []string{name + ":", value})
	}
}

// identify says who the peer is, and how the link to it is.
func (f *facts) identify(peer *peerStatus) {
	f.add("Cluster id", orElse(peer.ClusterID, "not known yet"))
	f.add("Roles", list(peer.Roles, 2))
	if peer.discovered() {
		f.add("Discovered at", orElse(strings.Join(peer.DiscoveredServers, ", "), none))
	}
	if peer.Mode == v1alpha1.ModeAgentless {
		f.add("Mode", string(peer.Mode))
	}
	f.add("Ready", strings.TrimSuffix(peer.String()+": "+peer.complaint(), ": "))
	if peer.Parting {
		f.add("Leaving", "yes")
	}
	f.add("Hanse there", peer.Version)
	switch {
	case peer.RoundTripDeviation != nil:
		f.add("Round trip", span(peer.RoundTripTime)+", plus or minus "+span(peer.RoundTripDeviation))
	case peer.RoundTripTime != nil:
		f.add("Round trip", span(peer.RoundTripTime))
	}
}

func offered(offer *offerStatus, whose string) string {
	if offer == nil {
		return none
	}
	text := orElse(amounts(offer.Availability), "nothing")
	if offer.Phase != "" && offer.Phase != v1alpha1.OfferOpen {
		text += " (" + string(offer.Phase) + ")"
	}
	if len(offer.Guarantee) > 0 {
		text += ", guaranteed " + amounts(offer.Guarantee)
	}
	text += "; " + whose + ": " + answer(offer)
	if offer.Message != "" {
		text += ": " + offer.Message
	}
	if len(offer.Corrections) > 0 {
		text += "; corrected: " + strings.Join(offer.Corrections, ", ")
	}
	return text
}

func limits(of *v1alpha1.PeerLimits) string {
	if of == nil {
		of = &v1alpha1.PeerLimits{}
	}
	text := fmt.Sprintf("%d namespaces, %d objects of a kind in each",
		ptr.Deref(of.Namespaces, v1alpha1.DefaultLimitNamespaces), ptr.Deref(of.Objects, v1alpha1.DefaultLimitObjects))
	if len(of.Resources) > 0 {
		text = amounts(of.Resources) + ", " + text
	}
	return text
}

func answer(offer *offerStatus) string {
	switch {
	case offer == nil:
		return none
	case offer.expired():
		return v1alpha1.ReasonExpired
	default:
		return offer.Answer
	}
}
