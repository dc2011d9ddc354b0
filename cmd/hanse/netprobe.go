// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/internal/netprobe"
)

// newNetprobeCommand is for the pods of `kubectl hanse test network`, and for nobody else.
func newNetprobeCommand() *cobra.Command {
	command := &cobra.Command{Use: "netprobe", Short: "Try out a network between two pods", Hidden: true}
	command.AddCommand(newNetprobeServeCommand(), newNetprobeAskCommand())
	return command
}

func newNetprobeServeCommand() *cobra.Command {
	name, address := "", ""
	command := &cobra.Command{
		Use:   "serve",
		Short: "Answer what others ask",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			server, err := netprobe.Listen(command.Context(), name, address)
			if err != nil {
				return err
			}
			return server.Run(command.Context())
		},
	}
	host, _ := os.Hostname() // of a pod it is the pod's name
	command.Flags().StringVar(&name, "name", host, "what this server calls itself")
	command.Flags().StringVar(&address, "address", ":"+strconv.Itoa(netprobe.Port), "address to serve at, over TCP and UDP")
	return command
}

func newNetprobeAskCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ask",
		Short: "Read questions from standard input, and write the answers to standard output, both as lists in JSON",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			questions, err := netprobe.ReadQuestions(command.InOrStdin())
			if err != nil {
				return err
			}
			answers := netprobe.Prober{Clock: clock.RealClock{}}.Ask(command.Context(), questions)
			return json.NewEncoder(command.OutOrStdout()).Encode(answers)
		},
	}
}
