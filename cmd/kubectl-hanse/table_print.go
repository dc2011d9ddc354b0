package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// printTable prints rows for people, and below them what there is to say.
func printTable(d *document, seen *snapshot, rows []rowView, flags *tableFlags) {
	if len(rows) == 0 {
		d.printf("No cluster offers anything here. To join one: kubectl hanse join TOKEN\n")
	}
	lines := [][]string{{"PEER", "CPU", "MEMORY", "PODS", "PRICE", "LATENCY", "LAST HELLO", "LEFT", "ANSWER"}}
	if flags.query != nil {
		lines[0] = []string{"PEER", "FITS", "COST PER HOUR", "LATENCY", "WHY NOT"}
		if len(flags.query.Images) > 0 {
			lines[0] = slices.Insert(lines[0], 4, "IMAGES THERE")
		}
	}
	if flags.output == "wide" {
		lines[0] = append(lines[0], "CLUSTER ID", "DEVIATION", "BANDWIDTH", "LARGEST POD", "GUARANTEE", "PRICES", "IMAGES", "LABELS")
	}
	notes := seen.silent(rows)
	for i := range rows {
		var cells []string
		if flags.query != nil {
			cells = matchCells(&rows[i], len(flags.query.Images))
		} else {
			cells = offerCells(&rows[i], seen.now)
		}
		if flags.output == "wide" {
			cells = append(cells, wideCells(&rows[i])...)
		}
		lines = append(lines, cells)
		notes = append(notes, rowNotes(&rows[i])...)
	}
	if len(rows) > 0 {
		d.table(lines...)
	}
	slices.Sort(notes)
	d.notes(notes)
	if len(rows) > 0 && flags.query == nil {
		d.notes([]string{"A price is that of one core with 1Gi of memory for an hour."})
	}
}

func offerCells(r *rowView, now time.Time) []string {
	heard := none
	if r.LastHello != nil {
		heard = duration.HumanDuration(now.Sub(r.LastHello.Time)) + " ago"
	}
	return []string{
		r.Peer, amount(r.Offered, corev1.ResourceCPU), amount(r.Offered, corev1.ResourceMemory), amount(r.Offered, corev1.ResourcePods),
		r.UsualCost.String(), span(r.RoundTripTime), heard, duration.HumanDuration(r.TimeToLive.Sub(now)), ourAnswer(r),
	}
}

func matchCells(r *rowView, images int) []string {
	cells := []string{r.Peer, "no", r.Cost.String(), span(r.RoundTripTime)}
	if *r.Fits {
		cells[1] = "yes"
	}
	if images > 0 {
		cells = append(cells, fmt.Sprintf("%d of %d", *r.ImagesThere, images))
	}
	return append(cells, orElse(r.Why, none))
}

// fewInCell is how many of many things are named in one cell.
const fewInCell = 4

func wideCells(r *rowView) []string {
	bandwidth := none
	if r.Bandwidth != nil {
		bandwidth = r.Bandwidth.String() + "B/s"
	}
	return []string{
		r.ClusterID, span(r.RoundTripDeviation), bandwidth, orElse(amounts(r.LargestPod), none),
		orElse(amounts(r.Guarantee), none), prices(r.Prices), list(imageNames(r.Images), fewInCell), list(pairs(r.Labels), fewInCell),
	}
}

// silent are the providers that have no row, and why.
func (s *snapshot) silent(rows []rowView) []string {
	var notes []string
	for i := range s.peers.Items {
		peer := &s.peers.Items[i]
		hasRow := slices.ContainsFunc(rows, func(row rowView) bool { return row.Peer == peer.Name })
		if peer.HasRole(v1alpha1.RoleProvider) && !hasRow {
			notes = append(notes, peer.Name+": no offer of it is in force"+
				because(currentCondition(peer, v1alpha1.ConditionAdvertised)))
		}
	}
	return notes
}

// rowNotes say why an offer is not used as it is, and what to do.
func rowNotes(row *rowView) []string {
	var notes []string
	switch {
	case row.State == v1alpha1.AcknowledgementPending && row.Reason == v1alpha1.ReasonPendingApproval:
		notes = append(notes, row.Peer+": "+pending(row.Peer, row.Message))
	case !row.Accepted && row.Message != "":
		notes = append(notes, row.Peer+": not used: "+row.Message)
	}
	for _, correction := range row.Corrections {
		notes = append(notes, row.Peer+": corrected: "+correction)
	}
	var behind []string
	for i := range row.Nested {
		behind = append(behind, row.Nested[i].ClusterID)
	}
	if len(behind) > 0 {
		notes = append(notes, row.Peer+": sends pods on; counted in is what is behind it: "+strings.Join(behind, ", "))
	}
	return notes
}

// pending says what to do about an advertisement that waits for an administrator.
func pending(peer, message string) string {
	return fmt.Sprintf("%s: kubectl hanse accept %s, or kubectl hanse refuse %s", orElse(message, "its offer waits for your decision"), peer, peer)
}

// ourAnswer is the acknowledgement, with the reason if it says more, and whether the offer is for new pods.
func ourAnswer(r *rowView) string {
	var more []string
	if r.Reason != "" && r.Reason != string(r.State) {
		more = append(more, r.Reason)
	}
	if r.Phase != v1alpha1.OfferOpen {
		more = append(more, string(r.Phase))
	}
	return string(r.State) + inBrackets(strings.Join(more, ", "))
}

// prices are what is asked for a unit of each resource and hour.
func prices(of *v1alpha1.Prices) string {
	if of == nil || len(of.PerHour)+len(of.PerPlacement) == 0 {
		return "free"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(of.PerHour)) {
		unit, price := string(name), of.PerHour[name].DeepCopy()
		if isBytes(name) {
			unit = "Gi of " + unit
		}
		words = append(words, digits(price.AsDec())+"/"+unit)
	}
	for _, image := range slices.Sorted(maps.Keys(of.PerPlacement)) {
		price := of.PerPlacement[image].DeepCopy()
		words = append(words, digits(price.AsDec())+" once for "+image)
	}
	return of.Currency + " " + list(words, fewInCell)
}

func isBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func pairs(labels map[string]v1alpha1.Text) []string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+string(labels[key]))
	}
	return words
}

// inBrackets puts a reason behind what it is the reason for.
func inBrackets(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}
