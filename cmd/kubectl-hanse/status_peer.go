// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// printStatusOf prints all about one peer.
func printStatusOf(to io.Writer, found overview, name, output string) error {
	peer := find(found.Peers, func(p *peerStatus) bool { return p.Name == name })
	if peer == nil {
		return fmt.Errorf("there is no Peer %s here: `kubectl hanse status` shows those that there are", name)
	}
	return show(to, peer, output, func(d *document) { printPeer(d, peer) })
}

// printPeer prints all about one peer.
func printPeer(d *document, peer *peerStatus) {
	about := facts{{"Peer:", peer.Name}}
	about.identify(peer)
	if slices.Contains(peer.Roles, v1alpha1.RoleProvider) {
		node := none
		if peer.Node.Name != "" {
			node = fmt.Sprintf("%s, %s, %s", peer.Node.Name, readyOrNot(peer.Node.Ready), count(peer.Node.Pods, "pod"))
		}
		about.add("Our session ends", date(peer.SessionExpires))
		about.add("It offers", offered(&peer.Offer, "our answer"))
		about.add("Virtual node", node)
		about.add("Volumes of", strings.Join(peer.Volumes, ", "))
	}
	if slices.Contains(peer.Roles, v1alpha1.RoleConsumer) {
		about.add("Its access", string(peer.Access))
		about.add("Its limits", limits(peer.Limits))
		if peer.InvitationExpires != nil {
			about.add("Its invitation ends", date(peer.InvitationExpires))
		}
		about.add("It is offered", offered(&peer.OfferedToIt, "its answer"))
		about.add("Its namespaces", orElse(strings.Join(peer.Twins, ", "), none))
		about.add("Its pods", fmt.Sprint(peer.Guests))
		about.add("Its reservations", strings.Join(peer.Reservations, ", "))
		about.add("Its broken claims", strings.Join(peer.BrokenClaims, ", "))
	}
	about.add("Accounts that differ", strings.Join(peer.DifferingAccounts, ", "))
	if s := peer.Services; s != nil {
		about.add("Services it imports", services(s.Exported, s.RefusedThere))
		about.add("Services of it here", services(s.Imported, s.RefusedHere))
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
	f.add("Roles", list(peer.Roles, 4))
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
	f.measure(peer)
}

// measure says how the tunnel to the peer is, if there is one.
func (f *facts) measure(peer *peerStatus) {
	if t := peer.Tunnel; t != (tunnelStatus{}) {
		text := orElse(string(t.Endpoint), none)
		if t.Through != "" {
			text += ", through " + t.Through
		}
		if complaint := t.complaint(); complaint != "" {
			text += "; not ready (" + t.Reason + "): " + complaint
		}
		f.add("Tunnel", text)
	}
	if peer.LossPercent != nil {
		f.add("Loss", loss(peer.LossPercent))
	}
	if peer.Throughput != nil {
		f.add("Throughput", speed(peer.Throughput))
	}
}

func offered(offer *offerStatus, whose string) string {
	if offer.Answer == "" {
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

// services says how many are imported, and which are not.
func services(imported int32, refused []v1alpha1.RefusedService) string {
	var whys []string
	for _, r := range refused {
		whys = append(whys, fmt.Sprintf("%s/%s (%s)", r.Namespace, r.Name, r.Message))
	}
	return strings.TrimSuffix(fmt.Sprintf("%d; refused: %s", imported, strings.Join(whys, ", ")), "; refused: ")
}

func limits(given *v1alpha1.PeerLimits) string {
	of := ptr.Deref(given, v1alpha1.PeerLimits{})
	text := fmt.Sprintf("%d namespaces, %d objects of a kind in each, %dMi of a kind in all",
		ptr.Deref(of.Namespaces, v1alpha1.DefaultLimitNamespaces), ptr.Deref(of.Objects, v1alpha1.DefaultLimitObjects),
		ptr.Deref(of.Mebibytes, v1alpha1.DefaultLimitMebibytes))
	if len(of.Resources) > 0 {
		text = amounts(of.Resources) + ", " + text
	}
	return text
}
