// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

type tableFlags struct {
	output string
	sort   string
	query  *exchange.Query
}

func newTableCommand(global *globalFlags) *cobra.Command {
	flags := &tableFlags{output: "table"}
	command := &cobra.Command{
		Use:   "table",
		Short: "Show what other clusters offer this one, and what it costs",
		Long: "Shows the exchange table: a row for each cluster that offers something here, with what is free there, the price, the\n" +
			"round trip, and our answer. With --for it shows which of them a pod fits in, and what it would cost there.",
		Example: `  kubectl hanse table
  kubectl hanse table --sort price -o wide
  kubectl hanse table --for 'cpu=2,memory=4Gi,image=nginx'
  kubectl hanse table -o json | jq '.rows[] | select(.accepted) | .peer'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				return showTable(ctx, command.OutOrStdout(), c.client, flags, clock.RealClock{}.Now())
			})
		},
	}
	f := command.Flags()
	f.VarP(oneOf(&flags.output, "table", "wide", "json", "yaml"), "output", "o", "table, wide, json or yaml")
	f.Var(oneOf(&flags.sort, exchange.OrderPrice, exchange.OrderLatency, exchange.OrderCPU), "sort",
		"price, latency or cpu: what is best comes first; by default by cluster id, and with --for by cost")
	f.Func("for", "what a `pod` asks for, such as 'cpu=2,memory=4Gi,image=nginx'", parseInto(&flags.query, func(text string) (*exchange.Query, error) {
		query, err := exchange.ParseQuery(text)
		return &query, err
	}))
	return command
}

func showTable(ctx context.Context, to io.Writer, c client.Client, flags *tableFlags, now time.Time) error {
	seen := take(ctx, c, scope{}, now, partPeers, partOffers)
	if err := seen.err(partPeers, partOffers); err != nil {
		return err
	}
	view, err := seen.tableView(flags)
	if err != nil {
		return err
	}
	return show(to, view, flags.output, func(d *document) { printTable(d, seen, view.Rows, flags) })
}

// tableView is the table in the order that the user wants. What a pod fits in comes before the others, by what the pod costs.
func (s *snapshot) tableView(flags *tableFlags) (tableView, error) {
	view, table := tableView{Rows: []rowView{}}, s.table()
	var matches []exchange.Match
	for i := range table.Rows {
		matches = append(matches, exchange.Match{Row: &table.Rows[i], Fits: true})
	}
	if flags.query != nil {
		matches = table.Match(*flags.query)
	}
	if flags.sort != "" && (flags.query == nil || flags.sort != exchange.OrderPrice) {
		by, err := exchange.By(flags.sort)
		if err != nil {
			return view, err
		}
		slices.SortStableFunc(matches, func(a, b exchange.Match) int {
			if a.Fits == b.Fits {
				return by(*a.Row, *b.Row)
			}
			return strings.Compare(fmt.Sprint(b.Fits), fmt.Sprint(a.Fits)) // true comes before false
		})
	}
	for i := range matches {
		row, match := s.viewRow(matches[i].Row), &matches[i]
		if flags.query != nil {
			cost := viewCost(match.Cost())
			row.Fits, row.Why, row.Cost, row.ImagesThere = &match.Fits, match.Why, &cost, &match.ImagesThere
		}
		view.Rows = append(view.Rows, row)
	}
	return view, nil
}

// tableView is what `table` shows. Its JSON is for scripts: fields are added, never renamed.
type tableView struct {
	Rows []rowView `json:"rows"`
}

// rowView is the offer of one cluster. Fits, Why, Cost and ImagesThere are there if a pod was asked for.
type rowView struct {
	v1alpha1.AdvertisementSpec // as the provider said it, or as it is used

	Peer               string                        `json:"peer"`
	Node               string                        `json:"node"`
	Accepted           bool                          `json:"accepted"`
	State              v1alpha1.AcknowledgementState `json:"state"`
	Reason             string                        `json:"reason,omitempty"`
	Message            string                        `json:"message,omitempty"`
	Corrections        []string                      `json:"corrections,omitempty"`
	Offered            corev1.ResourceList           `json:"offered"`   // with what is nested
	UsualCost          costView                      `json:"usualCost"` // of one core with 1Gi
	RoundTripTime      *metav1.Duration              `json:"roundTripTime,omitempty"`
	RoundTripDeviation *metav1.Duration              `json:"roundTripDeviation,omitempty"`
	Bandwidth          *resource.Quantity            `json:"bandwidth,omitempty"`  // bytes per second
	Throughput         *resource.Quantity            `json:"throughput,omitempty"` // bytes per second
	LossPercent        *int32                        `json:"lossPercent,omitempty"`
	LastHello          metav1.Time                   `json:"lastHello,omitzero"`

	Fits        *bool     `json:"fits,omitempty"`
	Why         string    `json:"why,omitempty"`
	Cost        *costView `json:"cost,omitempty"`
	ImagesThere *int      `json:"imagesThere,omitempty"`
}

// costView is an exact amount of money, as decimal digits: for an hour, and once for the images. Without a currency it is
// free.
type costView struct {
	PerHour      string `json:"perHour"`
	PerPlacement string `json:"perPlacement,omitempty"`
	Currency     string `json:"currency,omitempty"`
}

func viewCost(cost exchange.Cost) costView {
	view := costView{PerHour: exchange.Digits(cost.PerHour), Currency: cost.Currency}
	if cost.PerPlacement != nil && cost.PerPlacement.Sign() > 0 {
		view.PerPlacement = exchange.Digits(cost.PerPlacement)
	}
	return view
}

// String is the cost for people.
func (v costView) String() string {
	if v.PerHour == "0" && v.PerPlacement == "" {
		return "free"
	}
	text := v.PerHour + " " + v.Currency
	if v.PerPlacement != "" {
		text += " + " + v.PerPlacement + " once"
	}
	return text
}

func (s *snapshot) viewRow(row *exchange.Row) rowView {
	view := rowView{
		AdvertisementSpec: row.Offer, Peer: row.Peer, Node: v1alpha1.VirtualNodeName(row.Peer), Accepted: row.Accepted,
		State: row.State, Reason: row.Reason, Message: row.Message, Corrections: row.Corrections,
		Offered: exchange.Offered(&row.Offer), UsualCost: viewCost(row.PricePerHour(exchange.DefaultRequest())),
		LastHello: metav1.NewTime(row.LastHello),
	}
	view.Phase = exchange.Phase(&row.Offer)
	if peer := s.peer(row.Peer); peer != nil {
		view.RoundTripTime, view.RoundTripDeviation, view.Bandwidth = peer.Status.RoundTripTime, peer.Status.RoundTripDeviation, peer.Status.Bandwidth
		view.Throughput, view.LossPercent = peer.Status.Throughput, peer.Status.LossPercent
	}
	return view
}

// imageNames are the names by which people know the images of an offer: the first of each that is no digest.
func imageNames(images []v1alpha1.Image) []string {
	var names []string
	for _, image := range images {
		i := slices.IndexFunc(image.Names, func(name string) bool { return !strings.Contains(name, "@") })
		if name := image.Names; len(name) > 0 {
			names = append(names, name[max(i, 0)])
		}
	}
	return names
}

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
		lines[0] = append(lines[0], "CLUSTER ID", "DEVIATION", "LOSS", "BANDWIDTH", "THROUGHPUT", "LARGEST POD", "GUARANTEE", "PRICES", "IMAGES", "LABELS")
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
	if !r.LastHello.IsZero() {
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
	return []string{
		r.ClusterID, span(r.RoundTripDeviation), loss(r.LossPercent), speed(r.Bandwidth), speed(r.Throughput), orElse(amounts(r.LargestPod), none),
		orElse(amounts(r.Guarantee), none), prices(r.Prices), list(imageNames(r.Images), fewInCell), list(pairs(r.Labels), fewInCell),
	}
}

func speed(bytesPerSecond *resource.Quantity) string {
	if bytesPerSecond == nil {
		return none
	}
	return bytesPerSecond.String() + "B/s"
}

func loss(percent *int32) string {
	if percent == nil {
		return none
	}
	return strconv.Itoa(int(*percent)) + " %"
}

// silent are the providers that have no row, and why.
func (s *snapshot) silent(rows []rowView) []string {
	return namesOf(s.peers.Items, func(peer *v1alpha1.Peer) string {
		hasRow := slices.ContainsFunc(rows, func(row rowView) bool { return row.Peer == peer.Name })
		if hasRow || !peer.HasRole(v1alpha1.RoleProvider) {
			return ""
		}
		return peer.Name + ": no offer of it is in force" + because(currentCondition(peer, v1alpha1.ConditionAdvertised))
	})
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
	behind := namesOf(row.Nested, func(offer *v1alpha1.NestedOffer) string { return offer.ClusterID })
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
		words = append(words, exchange.Digits(price.AsDec())+"/"+unit)
	}
	for _, image := range slices.Sorted(maps.Keys(of.PerPlacement)) {
		price := of.PerPlacement[image].DeepCopy()
		words = append(words, exchange.Digits(price.AsDec())+" once for "+image)
	}
	return of.Currency + " " + list(words, fewInCell)
}

func isBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func pairs(labels map[string]v1alpha1.Text) []string {
	return namesOf(slices.Collect(maps.Keys(labels)), func(key *string) string { return *key + "=" + string(labels[*key]) })
}

// inBrackets puts a reason behind what it is the reason for.
func inBrackets(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}
