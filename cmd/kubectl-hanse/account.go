// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

type accountFlags struct {
	peer, output, since string
}

func newAccountCommand(global *globalFlags) *cobra.Command {
	flags := &accountFlags{output: "table"}
	command := &cobra.Command{
		Use:   "account",
		Short: "Show what peers and this cluster have used of each other",
		Long: "Shows, for each day (UTC), peer and application, what pods have used and what was reserved, in unit hours (core hours, GiB hours,\n" +
			"hours of anything else), what it costs by the agreed prices, and whether the peer has counted the same. Nothing is paid by it.",
		Example: `  kubectl hanse account --since 24h
  kubectl hanse account --peer hamburg --since 2026-11-01 -o csv > november.csv`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				return showAccounts(ctx, command.OutOrStdout(), c.client, flags, clock.RealClock{}.Now())
			})
		},
	}
	f := command.Flags()
	f.StringVar(&flags.peer, "peer", "", "show only this peer; by default all")
	f.StringVar(&flags.since, "since", "", "first `day`, such as 2026-11-01, or how long ago that was, such as 24h; by default all that is kept")
	f.VarP(oneOf(&flags.output, "table", "csv", "json", "yaml"), "output", "o", "table, csv, json or yaml")
	return command
}

func showAccounts(ctx context.Context, to io.Writer, c client.Client, flags *accountFlags, now time.Time) error {
	first, err := firstDay(flags.since, now)
	if err != nil {
		return err
	}
	seen := take(ctx, c, scope{}, now, partAccounts)
	if err := seen.err(partAccounts); err != nil {
		return err
	}
	view := seen.accountsView(flags.peer, first)
	if flags.output == "csv" {
		return writeAccounts(to, view.Accounts)
	}
	return show(to, view, flags.output, func(d *document) { printAccounts(d, view.Accounts) })
}

var errSince = errors.New("--since takes a day, such as 2026-11-01, or a duration, such as 24h")

// firstDay is the day of which accounts are shown first.
func firstDay(since string, now time.Time) (time.Time, error) {
	if since == "" {
		return time.Time{}, nil
	}
	if first, err := time.Parse(time.DateOnly, since); err == nil {
		return first, nil
	}
	ago, err := time.ParseDuration(since)
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("%w: %q", errSince, since)
	}
	return now.UTC().Add(-ago).Truncate(24 * time.Hour), nil
}

// accountsView is what `account` shows. Its JSON is for scripts: fields are added, never renamed.
type accountsView struct {
	Accounts []accountView `json:"accounts"`
}

// accountView is the account of one day with one peer in one direction.
type accountView struct {
	Day       string                    `json:"day"`
	Peer      string                    `json:"peer"`
	Direction v1alpha1.AccountDirection `json:"direction"`
	Agreed    metav1.ConditionStatus    `json:"agreed"`
	Reason    string                    `json:"reason"`
	Message   string                    `json:"message,omitempty"`
	Counted   v1alpha1.AccountCount     `json:"counted"`       // by this cluster
	ByPeer    v1alpha1.AccountCount     `json:"countedByPeer"` // as far as it has told
}

func (s *snapshot) accountsView(peer string, first time.Time) accountsView {
	view := accountsView{Accounts: []accountView{}}
	for i := range s.accounts.Items {
		a := &s.accounts.Items[i]
		name, isOfPeer := strings.CutPrefix(a.Namespace, v1alpha1.TenantNamespacePrefix)
		if !isOfPeer || peer != "" && name != peer || a.Direction() == "" || a.Day().Before(first) {
			continue
		}
		agreed := agreedIn(a)
		view.Accounts = append(view.Accounts, accountView{
			Day: a.Day().Format(time.DateOnly), Peer: name, Direction: a.Direction(), Counted: *a.Own(), ByPeer: *a.Peers(),
			Agreed: agreed.Status, Reason: agreed.Reason, Message: agreed.Message,
		})
	}
	slices.SortFunc(view.Accounts, func(a, b accountView) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Direction, b.Direction))
	})
	return view
}

// agreedIn is the condition Agreed, or one that says that there is none.
func agreedIn(a *v1alpha1.Account) metav1.Condition {
	if agreed := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionAgreed); agreed != nil {
		return *agreed
	}
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending}
}

// differingWith says of which accounts with the peer the two sides have counted differently.
func (s *snapshot) differingWith(peer string) []string {
	return namesOf(s.accounts.Items, func(a *v1alpha1.Account) string {
		agreed := agreedIn(a)
		if a.Namespace != v1alpha1.TenantNamespace(peer) || agreed.Status != metav1.ConditionFalse {
			return ""
		}
		return a.Name + " (" + printable(agreed.Message) + ")"
	})
}

// printAccounts prints accounts for people, and below them what differs.
func printAccounts(d *document, all []accountView) {
	if len(all) == 0 {
		d.printf("Nothing was used, neither here by peers nor by this cluster at peers\n")
		return
	}
	lines := [][]string{{"DAY", "PEER", "DIRECTION", "APPLICATION", "USED", "RESERVED", "COST", "AGREED"}}
	var notes []string
	for i := range all {
		a := &all[i]
		for _, e := range a.Counted.Entries {
			lines = append(lines, []string{
				a.Day, a.Peer, string(a.Direction), orElse(e.Application, none), hours(e.Used), hours(e.Reserved), costIn(&e), string(a.Agreed),
			})
		}
		if a.Agreed != metav1.ConditionTrue && a.Message != "" {
			notes = append(notes, fmt.Sprintf("%s, %s, %s: %s", a.Day, a.Peer, a.Direction, a.Message))
		}
	}
	d.table(lines...)
	d.notes(notes)
}

// fewDecimals are as many as people read.
const fewDecimals = 4

func hours(of map[corev1.ResourceName]v1alpha1.Decimal) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, string(name)+"="+rounded(of[name]))
	}
	return orElse(strings.Join(parts, " "), none)
}

func rounded(number v1alpha1.Decimal) string {
	exact, ok := new(inf.Dec).SetString(string(number))
	if !ok {
		return string(number)
	}
	return exchange.Digits(exact.Round(exact, fewDecimals, inf.RoundHalfUp))
}

func costIn(e *v1alpha1.AccountEntry) string {
	if e.Cost == "" {
		return "free"
	}
	return rounded(e.Cost) + " " + e.Currency
}

// writeAccounts writes a line for each application of each account, with a column for each resource.
func writeAccounts(to io.Writer, all []accountView) error {
	used, reserved := map[corev1.ResourceName]bool{}, map[corev1.ResourceName]bool{}
	for i := range all {
		for _, e := range all[i].Counted.Entries {
			for name := range e.Used {
				used[name] = true
			}
			for name := range e.Reserved {
				reserved[name] = true
			}
		}
	}
	header := []string{"day", "peer", "direction", "application", "cost", "currency", "agreed"}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		header = append(header, "used "+string(name))
	}
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		header = append(header, "reserved "+string(name))
	}
	lines := [][]string{header}
	for i := range all {
		a := &all[i]
		for _, e := range a.Counted.Entries {
			line := []string{a.Day, a.Peer, string(a.Direction), e.Application, orElse(string(e.Cost), "0"), e.Currency, string(a.Agreed)}
			for _, name := range slices.Sorted(maps.Keys(used)) {
				line = append(line, orElse(string(e.Used[name]), "0"))
			}
			for _, name := range slices.Sorted(maps.Keys(reserved)) {
				line = append(line, orElse(string(e.Reserved[name]), "0"))
			}
			lines = append(lines, line)
		}
	}
	return csv.NewWriter(to).WriteAll(lines)
}
