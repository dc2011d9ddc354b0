package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

func showRows(to io.Writer, seen *snapshot, by order, output string) error {
	rows := seen.table().Rows
	if by != nil {
		slices.SortFunc(rows, by)
	}
	view := tableView{Rows: []rowView{}}
	for i := range rows {
		view.Rows = append(view.Rows, viewRow(&rows[i]))
	}
	return show(to, view, output, func(d *document) {
		header := []string{"PEER", "CPU", "MEMORY", "PODS", "PRICE", "LATENCY", "LAST HELLO", "LEFT", "ANSWER"}
		cells := func(row *rowView) []string { return offerCells(row, seen.now) }
		printRows(d, seen, view.Rows, tableColumns{header, cells, output == "wide"})
		if len(view.Rows) > 0 {
			d.notes([]string{"A price is that of one core with 1Gi of memory for an hour."})
		}
	})
}

func showMatches(to io.Writer, seen *snapshot, query exchange.Query, by order, output string) error {
	view := tableView{Rows: []rowView{}}
	matches := matchesOf(seen.table(), query, by)
	for i := range matches {
		view.Rows = append(view.Rows, viewMatch(&matches[i]))
	}
	return show(to, view, output, func(d *document) {
		header := []string{"PEER", "FITS", "COST PER HOUR", "LATENCY", "WHY NOT"}
		if len(query.Images) > 0 {
			header = slices.Insert(header, 4, "IMAGES THERE")
		}
		cells := func(row *rowView) []string { return matchCells(row, len(query.Images)) }
		printRows(d, seen, view.Rows, tableColumns{header, cells, output == "wide"})
	})
}

// tableColumns are what is shown of each row.
type tableColumns struct {
	header []string
	cells  func(*rowView) []string
	wide   bool
}

// printRows prints rows for people, and below them what there is to say.
func printRows(d *document, seen *snapshot, rows []rowView, columns tableColumns) {
	if columns.wide {
		columns.header = append(columns.header,
			"CLUSTER ID", "DEVIATION", "BANDWIDTH", "LARGEST POD", "GUARANTEE", "PRICES", "IMAGES", "LABELS")
	}
	lines := [][]string{columns.header}
	notes := seen.silent(rows)
	for i := range rows {
		cells := columns.cells(&rows[i])
		if columns.wide {
			cells = append(cells, wideCells(&rows[i])...)
		}
		for j := range cells {
			cells[j] = printable(cells[j])
		}
		lines = append(lines, cells)
		notes = append(notes, rowNotes(&rows[i])...)
	}
	if len(rows) == 0 {
		d.printf("No cluster offers anything here. To join one: kubectl hanse join TOKEN\n")
	} else {
		d.table(lines...)
	}
	slices.Sort(notes)
	d.notes(notes)
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
	fits := "no"
	if *r.Fits {
		fits = "yes"
	}
	cells := []string{r.Peer, fits, r.Cost.String(), span(r.RoundTripTime)}
	if images > 0 {
		cells = append(cells, fmt.Sprintf("%d of %d", *r.ImagesThere, images))
	}
	return append(cells, orElse(r.Why, none))
}

// fewInCell is how many of many things are named in one cell.
const fewInCell = 4

func wideCells(r *rowView) []string {
	return []string{
		r.ClusterID, span(r.RoundTripDeviation), bandwidth(r.Bandwidth), orElse(amounts(r.LargestPod), none),
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
		notes = append(notes, pendingNote(row.Peer, row.Message))
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

// pendingNote says what to do about an advertisement that waits for an administrator.
func pendingNote(peer, message string) string {
	return fmt.Sprintf("%s: %s: kubectl hanse accept %s, or kubectl hanse refuse %s", peer, orElse(message, "its offer waits for your word"), peer, peer)
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

func bandwidth(bytesPerSecond *resource.Quantity) string {
	if bytesPerSecond == nil {
		return none
	}
	return bytesPerSecond.String() + "B/s"
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
