package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// printPeer prints all about one peer for people.
func printPeer(to io.Writer, peer *peerStatus) error {
	var text bytes.Buffer
	facts := newTable("Peer:", peer.Name)
	for _, fact := range slices.Concat(identity(peer), provided(peer), consumed(peer)) {
		facts.row(fact[0]+":", printable(fact[1]))
	}
	if err := facts.print(&text, nil); err != nil {
		return err
	}
	if len(peer.Conditions) > 0 {
		text.WriteString("\n")
		conditions := newTable("CONDITION", "STATUS", "REASON", "MESSAGE")
		for _, c := range peer.Conditions {
			conditions.row(c.Type, string(c.Status), c.Reason, orElse(printable(c.Message), none))
		}
		if err := conditions.print(&text, nil); err != nil {
			return err
		}
	}
	_, err := text.WriteTo(to)
	return err
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
		trip := peer.RoundTripTime.Duration.String()
		if peer.Deviation != nil {
			trip += ", plus or minus " + peer.Deviation.Duration.String()
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
	text := amounts(offer.Availability)
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
	words := []string{fmt.Sprintf("%d namespaces", namespaces), fmt.Sprintf("%d objects of a kind in each", objects)}
	if len(of.Resources) > 0 {
		words = append([]string{amounts(of.Resources)}, words...)
	}
	return strings.Join(words, ", ")
}

// amounts are what people look for first, and then the rest by name.
func amounts(of corev1.ResourceList) string {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
	var rest []corev1.ResourceName
	for name := range of {
		if !slices.Contains(first, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	var words []string
	for _, name := range append(first, rest...) {
		if quantity, known := of[name]; known {
			words = append(words, string(name)+" "+quantity.String())
		}
	}
	return orElse(strings.Join(words, ", "), "nothing")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
