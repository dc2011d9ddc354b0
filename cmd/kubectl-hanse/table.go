package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

type tableFlags struct {
	output string
	sort   string
	query  string
}

func newTableCommand(global *globalFlags) *cobra.Command {
	flags := &tableFlags{}
	command := &cobra.Command{
		Use:   "table",
		Short: "Show what other clusters offer this one, and what it costs",
		Long: "Shows the exchange table: a row for each cluster that offers something here, with what is free there, the price, the\n" +
			"round trip, and our answer. With --for it shows which of them a pod fits in, and what it would cost there.",
		Example: `  kubectl hanse table
  kubectl hanse table --sort price -o wide

  # Where would this pod fit, and what would it cost?
  kubectl hanse table --for 'cpu=2,memory=4Gi,image=nginx'

  kubectl hanse table -o json | jq '.rows[] | select(.accepted) | .peer'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				return showTable(ctx, command.OutOrStdout(), c.client, flags, clock.RealClock{}.Now())
			})
		},
	}
	command.Flags().StringVarP(&flags.output, "output", "o", "table", "table, wide, json or yaml")
	command.Flags().StringVar(&flags.sort, "sort", "", "price, latency or cpu: what is best comes first; by default by cluster id, and with --for by cost")
	command.Flags().StringVar(&flags.query, "for", "", "what a pod asks for, such as 'cpu=2,memory=4Gi,image=nginx'")
	return command
}

func showTable(ctx context.Context, to io.Writer, c client.Client, flags *tableFlags, now time.Time) error {
	if flags.output == "" {
		flags.output = "table"
	}
	order, err := orderOf(flags.sort)
	if err != nil {
		return err
	}
	query, err := queryOf(flags.query)
	if err != nil {
		return err
	}
	seen, err := observeMarket(ctx, c, now)
	if err != nil {
		return err
	}
	if query == nil {
		return showRows(to, seen, order, flags.output)
	}
	if flags.sort == exchange.OrderPrice {
		order = nil // matches come by what the pod in question costs there
	}
	return showMatches(to, seen, seen.matches(*query, order), len(query.Images), flags.output)
}

// An order compares two rows; nil leaves them as they are.
type order func(a, b exchange.Row) int

func orderOf(name string) (order, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // no order is one
	}
	by, err := exchange.By(name)
	if err != nil {
		return nil, fmt.Errorf("read --sort: %w", err)
	}
	return by, nil
}

func queryOf(text string) (*exchange.Query, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nothing is asked for
	}
	query, err := exchange.ParseQuery(text)
	if err != nil {
		return nil, fmt.Errorf("read --for: %w", err)
	}
	return &query, nil
}

// market is the exchange table, and whom it should have a row of.
type market struct {
	table exchange.Table
	peers []v1alpha1.Peer // the providers, by name
	now   time.Time
}

// observeMarket computes the table from our copies of what the providers advertise. What we offer to a peer lies beside
// its copy, under our own cluster id, and is no row.
func observeMarket(ctx context.Context, c client.Client, now time.Time) (market, error) {
	peers, ads := &v1alpha1.PeerList{}, &v1alpha1.AdvertisementList{}
	if err := c.List(ctx, peers); err != nil {
		return market{}, fmt.Errorf("list peers: %w", err)
	}
	if err := c.List(ctx, ads); err != nil {
		return market{}, fmt.Errorf("list advertisements: %w", err)
	}
	seen := market{now: now}
	copies := map[client.ObjectKey]string{} // where the copy of a provider lies → its Peer
	for i := range peers.Items {
		peer := &peers.Items[i]
		if peer.HasRole(v1alpha1.RoleProvider) {
			copies[client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}] = peer.Name
			seen.peers = append(seen.peers, *peer)
		}
	}
	var offers []v1alpha1.Advertisement
	for i := range ads.Items {
		if _, isCopy := copies[client.ObjectKeyFromObject(&ads.Items[i])]; isCopy {
			offers = append(offers, ads.Items[i])
		}
	}
	slices.SortFunc(seen.peers, func(a, b v1alpha1.Peer) int { return strings.Compare(a.Name, b.Name) })
	seen.table = exchange.NewTable(offers, now).WithLinks(seen.peers)
	return seen, nil
}

// silent are the providers that have no row, and why.
func (m market) silent() []string {
	var notes []string
	for i := range m.peers {
		peer := &m.peers[i]
		hasRow := slices.ContainsFunc(m.table.Rows, func(row exchange.Row) bool { return row.Peer == peer.Name })
		if !hasRow {
			notes = append(notes, peer.Name+": no offer of it is in force"+
				because(currentCondition(peer, v1alpha1.ConditionAdvertised)))
		}
	}
	return notes
}

// matches says how each row suits the query: those that fit come first, and then what the order says.
func (m market) matches(query exchange.Query, by order) []exchange.Match {
	matches := m.table.Match(query)
	if by == nil {
		return matches
	}
	fitting := slices.IndexFunc(matches, func(match exchange.Match) bool { return !match.Fits })
	if fitting < 0 {
		fitting = len(matches)
	}
	for _, group := range [][]exchange.Match{matches[:fitting], matches[fitting:]} {
		slices.SortFunc(group, func(a, b exchange.Match) int { return by(*a.Row, *b.Row) })
	}
	return matches
}
