package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	i := slices.IndexFunc(found.Peers, func(p peerStatus) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no Peer %s here: `kubectl hanse status` shows those that there are", name)
	}
	return show(to, found.Peers[i], output, func(d *document) { printPeer(d, &found.Peers[i]) })
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
	node, pods, ready := none, none, yesOr(peer.Ready, peer.Reason)
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
		peer.Name, roles(peer.Roles), ready, node, pods, amount(free, corev1.ResourceCPU),
		amount(free, corev1.ResourceMemory), amount(free, corev1.ResourcePods), answer(peer.Offer),
	}
}

func widePeerCells(peer *peerStatus) []string {
	guests := none
	if peer.Access != "" {
		guests = fmt.Sprint(peer.Guests)
	}
	return []string{
		orElse(peer.ClusterID, none), orElse(printable(peer.Version), none), span(peer.RoundTripTime), date(peer.SessionExpires),
		orElse(string(peer.Access), none), guests,
	}
}

func peerNotes(peer *peerStatus) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, peer.Name+": "+fmt.Sprintf(format, args...)) }
	if peer.discovered() {
		add("found in the network, and no peer yet: invite it, or join with an invitation of it")
		return notes
	}
	if peer.Access != "" && peer.Access != v1alpha1.AccessOpen {
		add("its access is %s", peer.Access)
	}
	if !peer.Ready && peer.Message != "" {
		add("%s", peer.Message)
	}
	if peer.Offer.refused() {
		add("its offer is refused: %s", peer.Offer.Message)
	}
	if peer.Offer != nil && peer.Offer.Reason == v1alpha1.ReasonPendingApproval {
		notes = append(notes, pendingNote(peer.Name, peer.Offer.Message))
	}
	if peer.OfferedToIt.refused() {
		add("it refuses our offer: %s", peer.OfferedToIt.Message)
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
		rows = append(rows, []string{n.Name, string(n.Strategy), yesOr(n.Ready, n.Reason), clusters(n.Clusters)})
		if !n.Ready && n.Message != "" {
			notes = append(notes, n.Name+": "+n.Message)
		}
		if n.Unplaced != "" {
			notes = append(notes, n.Name+": "+n.Unplaced)
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
	facts := [][]string{{"Peer:", peer.Name}}
	for _, fact := range slices.Concat(identity(peer), provided(peer), consumed(peer)) {
		facts = append(facts, []string{fact[0] + ":", printable(fact[1])})
	}
	d.table(facts...)
	if len(peer.Conditions) == 0 {
		return
	}
	d.printf("\n")
	conditions := [][]string{{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
	for _, c := range peer.Conditions {
		conditions = append(conditions, []string{c.Type, string(c.Status), c.Reason, orElse(printable(c.Message), none)})
	}
	d.table(conditions...)
}

// A fact is a name and what there is under it.
type fact = [2]string

func identity(peer *peerStatus) []fact {
	ready := yesOr(peer.Ready, peer.Reason)
	if !peer.Ready && peer.Message != "" {
		ready += ": " + peer.Message
	}
	facts := []fact{{"Cluster id", orElse(peer.ClusterID, "not known yet")}, {"Roles", roles(peer.Roles)}}
	if peer.discovered() {
		facts = append(facts, fact{"Discovered at", orElse(strings.Join(peer.DiscoveredServers, ", "), none)})
	}
	if peer.Mode == v1alpha1.ModeAgentless {
		facts = append(facts, fact{"Mode", string(peer.Mode)})
	}
	facts = append(facts, fact{"Ready", ready})
	if peer.Parting {
		facts = append(facts, fact{"Parting", "yes"})
	}
	if peer.Version != "" {
		facts = append(facts, fact{"Hanse there", peer.Version})
	}
	if peer.RoundTripTime != nil {
		trip := span(peer.RoundTripTime)
		if peer.Deviation != nil {
			trip += ", plus or minus " + span(peer.Deviation)
		}
		facts = append(facts, fact{"Round trip", trip})
	}
	return facts
}

// provided is what the peer does for this cluster.
func provided(peer *peerStatus) []fact {
	if !slices.Contains(peer.Roles, v1alpha1.RoleProvider) {
		return nil
	}
	node := none
	if peer.Node != nil {
		state := "ready"
		if !peer.Node.Ready {
			state = "not ready"
		}
		node = fmt.Sprintf("%s, %s, %s", peer.Node.Name, state, count(peer.Node.Pods, "pod"))
	}
	return []fact{
		{"Our session ends", ends(peer.SessionExpires)},
		{"It offers", offered(peer.Offer, "our answer")},
		{"Virtual node", node},
	}
}

// consumed is what this cluster does for the peer.
func consumed(peer *peerStatus) []fact {
	if !slices.Contains(peer.Roles, v1alpha1.RoleConsumer) {
		return nil
	}
	facts := []fact{{"Its access", string(peer.Access)}, {"Its limits", limits(peer.Limits)}}
	if peer.InvitationExpires != nil {
		facts = append(facts, fact{"Its invitation ends", ends(peer.InvitationExpires)})
	}
	return append(facts,
		fact{"It is offered", offered(peer.OfferedToIt, "its answer")},
		fact{"Its namespaces", orElse(strings.Join(peer.Twins, ", "), none)},
		fact{"Its pods", fmt.Sprint(peer.Guests)},
	)
}

func ends(t *metav1.Time) string {
	if t == nil {
		return none
	}
	return date(t) + " UTC"
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
	namespaces, objects := int32(v1alpha1.DefaultLimitNamespaces), int32(v1alpha1.DefaultLimitObjects)
	if of.Namespaces != nil {
		namespaces = *of.Namespaces
	}
	if of.Objects != nil {
		objects = *of.Objects
	}
	text := fmt.Sprintf("%d namespaces, %d objects of a kind in each", namespaces, objects)
	if len(of.Resources) > 0 {
		text = amounts(of.Resources) + ", " + text
	}
	return text
}

func roles(of []v1alpha1.PeerRole) string {
	var words []string
	for _, role := range of {
		words = append(words, string(role))
	}
	return orElse(strings.Join(words, ","), none)
}

func yesOr(yes bool, otherwise string) string {
	if yes {
		return "True"
	}
	return "False (" + otherwise + ")"
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
