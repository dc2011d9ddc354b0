// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/relay"
)

// linkFlags are an impairment as the user wrote it.
type linkFlags struct {
	plan.Impairment
	loss, rate string
}

func (a *app) link() *cobra.Command {
	flags := &linkFlags{}
	command := &cobra.Command{
		Use:   "link CLUSTER [PEER] [off]",
		Short: "Make the connection of a cluster's nodes with others bad; off ends it",
		Long: `Make the connection between the nodes of a cluster and those of a peer bad, or that with all other clusters. What is
said of a peer holds for that one instead of what is said of all.

Everything holds for each direction by itself: with a delay of 100ms an answer takes 200ms longer. What is said replaces what
was said before of the same two. Within the cluster, and between its nodes and this machine, nothing is lost or delayed.

"link CLUSTER off" ends all links of the cluster, "link CLUSTER PEER off" that one.`,
		Example: `  testbed link lubeck --loss 5% --delay 100ms
  testbed link lubeck hamburg --rate 50mbit --mtu 1280
  testbed link lubeck off`,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(command *cobra.Command, args []string) error {
			off := args[len(args)-1] == "off"
			if off {
				args = args[:len(args)-1]
			}
			how, err := flags.parse(command.Flags(), off)
			if err != nil {
				return err
			}
			if len(args) == 0 || len(args) > 2 {
				return fmt.Errorf("want %s", command.Use)
			}
			return a.testbed.Link(command.Context(), args[0], append(args, "")[1], how)
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *linkFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.loss, "loss", "0%", "the share of packets that get lost")
	set.DurationVar(&f.Delay, "delay", 0, "how much later each packet arrives")
	set.StringVar(&f.rate, "rate", "", "how much passes in a second, like 50mbit (kbit, mbit, gbit)")
	set.IntVar(&f.MTU, "mtu", 0, "the largest IP packet that passes; larger ones are dropped silently")
}

// parse reads what is bad about the link: nothing, if it is to be off.
func (f *linkFlags) parse(set *pflag.FlagSet, off bool) (plan.Impairment, error) {
	var err error
	if f.Loss, err = plan.ParseLoss(f.loss); err != nil {
		return plan.Impairment{}, usage(set, "loss", err)
	}
	if f.rate != "" {
		if f.Rate, err = plan.ParseRate(f.rate); err != nil {
			return plan.Impairment{}, usage(set, "rate", err)
		}
	}
	if !off {
		return f.Impairment, f.Validate()
	}
	if f.Impairment != (plan.Impairment{}) {
		return plan.Impairment{}, fmt.Errorf("either off or %s", f.Impairment)
	}
	return plan.Impairment{}, nil
}

// relayCommand is what a cluster's link runs. It finds both ends of the cable open.
func relayCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "relay CONFIG",
		Short:  "Carry frames between the file descriptors 3 and 4",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return runRelay(command.Context(), args[0])
		},
	}
}

// The ends of the cable among a relay's open files.
const (
	insideEnd  = 3
	outsideEnd = 4
)

func runRelay(ctx context.Context, path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // a file of the testbed's own
	if err != nil {
		return err
	}
	carrier := relay.Relay{Now: time.Now}
	if err := json.Unmarshal(text, &carrier); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	inside, err := openEnd(insideEnd, "inside")
	if err != nil {
		return err
	}
	outside, err := openEnd(outsideEnd, "outside")
	if err != nil {
		return err
	}
	return carrier.Run(ctx, inside, outside)
}

// openEnd makes a file of a descriptor, on which a read ends when the file is closed.
func openEnd(fd int, name string) (*os.File, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("the %s end of the cable: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
