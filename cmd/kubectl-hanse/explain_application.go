// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func newExplainApplicationCommand(global *globalFlags) *cobra.Command {
	output := ""
	command := &cobra.Command{
		Use:   "application NAME",
		Short: "Say where the components of an application run, why there, and what is wrong if something is",
		Example: `  kubectl hanse explain application shop -n shop
  kubectl hanse explain application shop -n shop -o json | jq .status.refusals`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				app := &v1alpha1.Application{}
				key := client.ObjectKey{Namespace: c.namespace, Name: args[0]}
				if err := c.client.Get(ctx, key, app); err != nil {
					return fmt.Errorf("read Application %s: %w", key, err)
				}
				now := clock.RealClock{}.Now()
				return show(command.OutOrStdout(), applicationExplained{app.Namespace, app.Name, app.Status}, output, func(d *document) {
					explainApplication(d, app, now)
				})
			})
		},
	}
	command.Flags().VarP(oneOf(&output, "json", "yaml"), "output", "o", "json or yaml; by default text")
	return command
}

// applicationExplained is what `explain application` shows to scripts.
type applicationExplained struct {
	Namespace string                     `json:"namespace"`
	Name      string                     `json:"name"`
	Status    v1alpha1.ApplicationStatus `json:"status"`
}

func explainApplication(d *document, app *v1alpha1.Application, now time.Time) {
	view := viewApplication(app)
	d.printf("%-13s %s\n", "Application:", printable(view.Namespace+"/"+view.Name))
	d.printf("%-13s %s\n", "State:", printable(string(view.Phase)+", for "+sinceText(view.Since, now)))
	d.printf("%-13s %s\n", "Price:", printable(orElse(priceText(view.Price), none)))
	components := [][]string{{"COMPONENT", "CLUSTER", "REPLICAS", "READY", "RESERVED", "PRICE/H", "SINCE"}}
	for _, c := range app.Status.Components {
		reserved := "yes"
		switch {
		case c.LostSince != nil:
			reserved = "cut off for " + sinceText(*c.LostSince, now)
		case c.Peer == "":
			reserved = "no" // in this cluster nothing is
		case !c.Acknowledged:
			reserved = "asked"
		}
		components = append(components, []string{
			c.Name, orElse(c.Peer, "this one"), fmt.Sprint(c.Replicas), fmt.Sprint(c.ReadyReplicas), reserved, priceText(c.Price), sinceText(c.Since, now),
		})
	}
	d.section("", components...)
	refusals := [][]string{{"PEER", "NOT ASKED FOR", "WHAT IT SAID"}}
	for _, r := range app.Status.Refusals {
		refusals = append(refusals, []string{r.Peer, r.Until.Sub(now).Round(time.Second).String(), r.Message})
	}
	d.section("Peers that do not take it:\n", refusals...)
	unsuitable := [][]string{{"COMPONENT", "CLUSTER", "WHY"}}
	for _, u := range app.Status.Unsuitable {
		unsuitable = append(unsuitable, []string{u.Component, orElse(u.Peer, "this one"), u.Message})
	}
	d.section("What does not fit where:\n", unsuitable...)
	d.printf("\n%s.\n", printable(view.Message))
}
