// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

func newAuctionCommand(global *globalFlags) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "auction APPLICATION",
		Short: "Show who has offered what for an application, and who has won",
		Long: "Shows the last auction of the application: a row for each cluster that was asked, with its interest and price for all of\n" +
			"the application and for each component, what it has won, and why its offer does not count if so.",
		Example: `  kubectl hanse auction shop -n shop
  kubectl hanse auction shop -n shop -o json | jq '.offers[] | select(.won) | .peer'`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				return showAuction(ctx, command.OutOrStdout(), c.client, client.ObjectKey{Namespace: c.namespace, Name: args[0]}, output)
			})
		},
	}
	command.Flags().VarP(oneOf(&output, "json", "yaml"), "output", "o", "json or yaml; by default text")
	return command
}

func showAuction(ctx context.Context, to io.Writer, c client.Client, key client.ObjectKey, output string) error {
	app := &v1alpha1.Application{}
	if err := c.Get(ctx, key, app); err != nil {
		return fmt.Errorf("read Application %s: %w", key, err)
	}
	auction := app.Status.Auction
	if auction == nil {
		return fmt.Errorf("there was no auction for Application %s: spec.auction says when there is one", key) //nolint:err113 // it is shown
	}
	return show(to, auction, output, func(d *document) { printAuction(d, auction) })
}

func printAuction(d *document, auction *v1alpha1.ApplicationAuction) {
	state := "offers count until"
	if auction.Phase == v1alpha1.AuctionClosed {
		state = "closed, offers counted until"
	}
	d.printf("Round %d, %s %s\n", auction.Round, state, auction.Deadline.UTC().Format(time.RFC3339))
	rows := [][]string{{"CLUSTER", "INTEREST", "PRICE", "COMPONENTS", "WON", "MESSAGE"}}
	for i := range auction.Offers {
		offer := &auction.Offers[i]
		interest, price, parts := none, none, []string{}
		if offer.Interest > 0 {
			interest, price = fmt.Sprint(offer.Interest), costOf(offer.Price)
		}
		for _, c := range offer.Components {
			parts = append(parts, fmt.Sprintf("%s %d %s", c.Name, c.Interest, costOf(c.Price)))
		}
		rows = append(rows, []string{
			bidder(offer), interest, price, orElse(strings.Join(parts, ", "), none),
			orElse(strings.Join(offer.Won, ", "), none), orElse(offer.Message, none),
		})
	}
	d.section("", rows...)
	if auction.Message != "" {
		d.printf("\n%s\n", printable(auction.Message))
	}
}

// bidder is who has offered, and through which broker it was asked.
func bidder(offer *v1alpha1.AuctionOffer) string {
	return throughBroker(orElse(offer.Peer, "this cluster"), offer.Broker)
}

// throughBroker names a cluster, and the broker through which it was met, if any.
func throughBroker(cluster, broker string) string {
	if broker == "" {
		return cluster
	}
	return cluster + " (through " + broker + ")"
}

// costOf is the price of an hour, for people.
func costOf(offered *v1alpha1.OfferedPrice) string {
	price := exchange.ReadPrice(offered)
	if price == nil {
		return "free"
	}
	return exchange.Digits(price.Amount.AsDec()) + " " + price.Currency
}
