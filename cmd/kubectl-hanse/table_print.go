package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

func showRows(to io.Writer, seen market, by order, output string) error {
	view := tableView{Rows: []rowView{}}
	rows := slices.Clone(seen.table.Rows)
	if by != nil {
		slices.SortFunc(rows, by)
	}
	for i := range rows {
		view.Rows = append(view.Rows, viewRow(&rows[i]))
	}
	if output != "table" && output != "wide" {
		return encode(to, view, output)
	}
	return seen.print(to, view, offerColumns(output == "wide"), "A price is that of one core with 1Gi of memory for an hour.")
}

func showMatches(to io.Writer, seen market, matches []exchange.Match, images int, output string) error {
	view := tableView{Rows: []rowView{}}
	for i := range matches {
		view.Rows = append(view.Rows, viewMatch(&matches[i]))
	}
	if output != "table" && output != "wide" {
		return encode(to, view, output)
	}
	return seen.print(to, view, matchColumns(images, output == "wide"), "")
}

// A column shows one thing about a row.
type column struct {
	title string
	cell  func(*rowView, time.Time) string
}

func offerColumns(wide bool) []column {
	columns := []column{
		{"PEER", func(r *rowView, _ time.Time) string { return r.Peer }},
		{"CPU", available(corev1.ResourceCPU)},
		{"MEMORY", available(corev1.ResourceMemory)},
		{"PODS", available(corev1.ResourcePods)},
		{"PRICE", func(r *rowView, _ time.Time) string { return r.UsualCost.String() }},
		{"LATENCY", func(r *rowView, _ time.Time) string { return span(r.RoundTripTime) }},
		{"LAST HELLO", lastHello},
		{"LEFT", func(r *rowView, now time.Time) string { return duration.HumanDuration(r.TimeToLive.Sub(now)) }},
		{"ANSWER", func(r *rowView, _ time.Time) string { return ourAnswer(r) }},
	}
	if wide {
		columns = append(columns, wideColumns()...)
	}
	return columns
}

func wideColumns() []column {
	return []column{
		{"CLUSTER ID", func(r *rowView, _ time.Time) string { return r.ClusterID }},
		{"DEVIATION", func(r *rowView, _ time.Time) string { return span(r.RoundTripDeviation) }},
		{"BANDWIDTH", func(r *rowView, _ time.Time) string { return bandwidth(r.Bandwidth) }},
		{"LARGEST POD", func(r *rowView, _ time.Time) string { return amountsOrNone(r.LargestPod) }},
		{"GUARANTEE", func(r *rowView, _ time.Time) string { return amountsOrNone(r.Guarantee) }},
		{"PRICES", func(r *rowView, _ time.Time) string { return prices(r.Prices) }},
		{"IMAGES", func(r *rowView, _ time.Time) string { return fewOf(imageNames(r.Images)) }},
		{"LABELS", func(r *rowView, _ time.Time) string { return fewOf(pairs(r.Labels)) }},
	}
}

func matchColumns(images int, wide bool) []column {
	columns := []column{
		{"PEER", func(r *rowView, _ time.Time) string { return r.Peer }},
		{"FITS", func(r *rowView, _ time.Time) string { return yesOrNo(*r.Fits) }},
		{"COST PER HOUR", func(r *rowView, _ time.Time) string { return r.Cost.String() }},
		{"LATENCY", func(r *rowView, _ time.Time) string { return span(r.RoundTripTime) }},
	}
	if images > 0 {
		columns = append(columns, column{"IMAGES THERE", func(r *rowView, _ time.Time) string { return fmt.Sprintf("%d of %d", *r.ImagesThere, images) }})
	}
	columns = append(columns, column{"WHY NOT", func(r *rowView, _ time.Time) string { return orElse(r.Why, none) }})
	if wide {
		columns = append(columns, wideColumns()...)
	}
	return columns
}

// print prints rows for people, and below them what there is to say.
func (m market) print(to io.Writer, view tableView, columns []column, legend string) error {
	var text bytes.Buffer
	notes := m.silent()
	if len(view.Rows) == 0 {
		text.WriteString("No cluster offers anything here. To join one: kubectl hanse join TOKEN\n")
		legend = ""
	}
	shown := newTable()
	if len(view.Rows) > 0 {
		shown = newTable(titles(columns)...)
	}
	for i := range view.Rows {
		row := &view.Rows[i]
		var cells []string
		for _, c := range columns {
			cells = append(cells, printable(c.cell(row, m.now)))
		}
		shown.row(cells...)
		notes = append(notes, rowNotes(row)...)
	}
	slices.Sort(notes)
	if legend != "" {
		notes = append(notes, legend)
	}
	if err := shown.print(&text, notes); err != nil {
		return err
	}
	_, err := text.WriteTo(to)
	return err
}

func titles(columns []column) []string {
	var words []string
	for _, c := range columns {
		words = append(words, c.title)
	}
	return words
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
	if behind := clustersBehind(row); behind != "" {
		notes = append(notes, row.Peer+": sends pods on; counted in is what is behind it: "+behind)
	}
	return notes
}

func clustersBehind(row *rowView) string {
	var ids []string
	for i := range row.Nested {
		ids = append(ids, row.Nested[i].ClusterID)
	}
	return strings.Join(ids, ", ")
}

// pendingNote says what to do about an advertisement that waits for an administrator.
func pendingNote(peer, message string) string {
	return fmt.Sprintf("%s: %s: kubectl hanse accept %s, or kubectl hanse refuse %s", peer, orElse(message, "its offer waits for your word"), peer, peer)
}

func available(name corev1.ResourceName) func(*rowView, time.Time) string {
	return func(r *rowView, _ time.Time) string {
		quantity, named := r.Offered[name]
		if !named {
			return none
		}
		return quantity.String()
	}
}

func lastHello(r *rowView, now time.Time) string {
	if r.LastHello == nil {
		return none
	}
	return duration.HumanDuration(now.Sub(r.LastHello.Time)) + " ago"
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
	if len(more) == 0 {
		return string(r.State)
	}
	return string(r.State) + " (" + strings.Join(more, ", ") + ")"
}

func span(d *metav1.Duration) string {
	if d == nil {
		return none
	}
	return d.Duration.String()
}

func bandwidth(bytesPerSecond *resource.Quantity) string {
	if bytesPerSecond == nil {
		return none
	}
	return bytesPerSecond.String() + "B/s"
}

func amountsOrNone(of corev1.ResourceList) string {
	if len(of) == 0 {
		return none
	}
	return amounts(of)
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
	return of.Currency + " " + fewOf(words)
}

func isBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// fewOf names the first of many.
func fewOf(words []string) string {
	const few = 4
	if len(words) > few {
		words = append(slices.Clone(words[:few]), fmt.Sprintf("and %d more", len(words)-few))
	}
	return orElse(strings.Join(words, ", "), none)
}

func pairs(labels map[string]v1alpha1.Text) []string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+string(labels[key]))
	}
	return words
}

func yesOrNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
