package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// none stands for what there is not.
const none = "-"

// printTables prints an overview for people, with more columns if it may be wide.
func printTables(to io.Writer, found overview, wide bool) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "Cluster %s, Hanse %s\n\n", orElse(found.ClusterID, none), orElse(found.Version, none))
	if len(found.Peers) == 0 {
		text.WriteString("No peers. Make one with `kubectl hanse invite NAME` in one cluster and `kubectl hanse join TOKEN` in another\n")
	} else if err := printPeers(&text, found.Peers, wide); err != nil {
		return err
	}
	text.WriteString("\n")
	if len(found.Namespaces) == 0 {
		text.WriteString("No offloaded namespaces. Make one with: kubectl hanse offload NAMESPACE\n")
	} else if err := printNamespaces(&text, found.Namespaces); err != nil {
		return err
	}
	if err := printBroken(&text, found.Broken); err != nil {
		return err
	}
	_, err := text.WriteTo(to)
	return err
}

func printPeers(to *bytes.Buffer, peers []peerStatus, wide bool) error {
	header := []string{"PEER", "ROLES", "READY", "NODE", "PODS", "CPU", "MEMORY", "FREE PODS", "OFFER"}
	if wide {
		header = append(header, "CLUSTER ID", "VERSION", "RTT", "SESSION ENDS", "ACCESS", "GUESTS")
	}
	table := newTable(header...)
	var notes []string
	for i := range peers {
		peer := &peers[i]
		cells := peerCells(peer)
		if wide {
			cells = append(cells, moreCells(peer)...)
		}
		table.row(cells...)
		notes = append(notes, peerNotes(peer)...)
	}
	return table.print(to, notes)
}

func peerCells(peer *peerStatus) []string {
	node, pods := none, none
	if peer.Node != nil {
		node, pods = peer.Node.Name, fmt.Sprint(peer.Node.Pods)
		if !peer.Node.Ready {
			node += " (not ready)"
		}
	}
	ready := yesOr(peer.Ready, peer.Reason)
	if peer.discovered() {
		ready = v1alpha1.ReasonDiscovered
	}
	return []string{
		peer.Name, roles(peer.Roles), ready, node, pods, amount(peer.Offer, corev1.ResourceCPU),
		amount(peer.Offer, corev1.ResourceMemory), amount(peer.Offer, corev1.ResourcePods), answer(peer.Offer),
	}
}

func moreCells(peer *peerStatus) []string {
	guests, trip := none, none
	if peer.Access != "" {
		guests = fmt.Sprint(peer.Guests)
	}
	if peer.RoundTripTime != nil {
		trip = peer.RoundTripTime.Duration.String()
	}
	return []string{
		orElse(peer.ClusterID, none), orElse(printable(peer.Version), none), trip, date(peer.SessionExpires),
		orElse(string(peer.Access), none), guests,
	}
}

// date is when something ends, for people.
func date(t *metav1.Time) string {
	if t == nil {
		return none
	}
	return t.UTC().Format("2006-01-02 15:04")
}

func peerNotes(peer *peerStatus) []string {
	var notes []string
	if peer.discovered() {
		return []string{peer.Name + ": found in the network, and no peer yet: invite it, or join with an invitation of it"}
	}
	if peer.Access != "" && peer.Access != v1alpha1.AccessOpen {
		notes = append(notes, peer.Name+": its access is "+string(peer.Access))
	}
	if !peer.Ready && peer.Message != "" {
		notes = append(notes, peer.Name+": "+peer.Message)
	}
	if peer.Offer.refused() {
		notes = append(notes, peer.Name+": its offer is refused: "+peer.Offer.Message)
	}
	if peer.Offer != nil && peer.Offer.Reason == v1alpha1.ReasonPendingApproval {
		notes = append(notes, pendingNote(peer.Name, peer.Offer.Message))
	}
	if peer.OfferedToIt.refused() {
		notes = append(notes, peer.Name+": it refuses our offer: "+peer.OfferedToIt.Message)
	}
	return notes
}

func printNamespaces(to *bytes.Buffer, namespaces []namespaceStatus) error {
	table := newTable("NAMESPACE", "STRATEGY", "READY", "CLUSTERS")
	var notes []string
	for i := range namespaces {
		n := &namespaces[i]
		table.row(n.Name, string(n.Strategy), yesOr(n.Ready, n.Reason), clusters(n.Clusters))
		if !n.Ready && n.Message != "" {
			notes = append(notes, n.Name+": "+n.Message)
		}
		if n.Unplaced != "" {
			notes = append(notes, n.Name+": "+n.Unplaced)
		}
	}
	return table.print(to, notes)
}

// table is text in columns, with notes below.
type table struct{ rows [][]string }

func newTable(header ...string) *table { return &table{rows: [][]string{header}} }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(to *bytes.Buffer, notes []string) error {
	writer := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	for _, row := range t.rows {
		if _, err := io.WriteString(writer, strings.Join(row, "\t")+"\n"); err != nil {
			return err
		}
	}
	if err := writer.Flush(); err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintln(to, "  "+printable(note))
	}
	return nil
}

// printable keeps a peer's words from moving the cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
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

func amount(offer *offerStatus, resource corev1.ResourceName) string {
	if offer == nil {
		return none
	}
	quantity, known := offer.Availability[resource]
	if !known {
		return none
	}
	return quantity.String()
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

func clusters(of []v1alpha1.ClusterOffloading) string {
	const few = 5
	var words []string
	for _, cluster := range of {
		if len(words) == few {
			words = append(words, fmt.Sprintf("and %d more", len(of)-few))
			break
		}
		word := cluster.Peer
		if cluster.State != "Ready" {
			word += " (" + cluster.State + ")"
		}
		words = append(words, word)
	}
	return orElse(strings.Join(words, ", "), none)
}
