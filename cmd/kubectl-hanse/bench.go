// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hanse-dev/hanse/internal/netprobe"
)

// benchSeconds is how long throughput and packets a second are measured, each time.
const benchSeconds = 5

func newBenchCommand(global *globalFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure what connects this cluster to peers",
		Example: `  # How fast is the network to all peers, beside that inside this cluster?
  kubectl hanse bench network`,
	}
	command.AddCommand(newBenchNetworkCommand(global))
	return command
}

func newBenchNetworkCommand(global *globalFlags) *cobra.Command {
	flags := &networkFlags{}
	command := &cobra.Command{
		Use:   "network",
		Short: "Measure the network between pods of two clusters",
		Long: "Starts small pods in this cluster and at peers, as `kubectl hanse test network` does, and measures throughput with one\n" +
			"and four streams, round trips, and packets a second, both ways, beside the same between two pods of this cluster.\n" +
			"What it sends is real traffic: a link that costs by the byte costs. Everything that was made is removed again.",
		Example: `  # One peer
  kubectl hanse bench network --peer hamburg`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return runOnStage(command, global, flags, stagePlan{near: true}, func(ctx context.Context, s *stage) error {
				rows, err := s.benchNetwork(ctx)
				return errors.Join(printBench(command.OutOrStdout(), rows, flags.output), err)
			})
		},
	}
	flags.bind(command.Flags(), 10*time.Minute)
	return command
}

// A benchRow is what was measured from one pod to another.
type benchRow struct {
	From             string        `json:"from"`
	To               string        `json:"to"`
	OneStream        float64       `json:"bytesPerSecondOneStream,omitempty"`
	FourStreams      float64       `json:"bytesPerSecondFourStreams,omitempty"`
	Median           time.Duration `json:"roundTripMedianNanoseconds,omitempty"`
	P99              time.Duration `json:"roundTripP99Nanoseconds,omitempty"`
	PacketsPerSecond float64       `json:"packetsPerSecond,omitempty"`
	Error            string        `json:"error,omitempty"`
}

// A leg is from where to where something is measured.
type leg struct {
	from, to *spot
	address  string // of the latter, as the former calls it
}

// benchNetwork measures one leg after the other, because they would take each other's share.
func (s *stage) benchNetwork(ctx context.Context) ([]benchRow, error) {
	home, near := s.home[spotHome], s.home[spotNear]
	legs := []leg{{home, near, address(home, near)}}
	for _, peer := range s.peers {
		away, f := s.away[peer], s.factsOf(ctx, peer)
		legs = append(legs, leg{home, away, address(home, away)}, leg{away, home, seenByPeer(f.connection, address(away, home))})
	}
	var rows []benchRow
	var errs []error
	for _, l := range legs {
		row := s.bench(ctx, l)
		rows = append(rows, row)
		if row.Error != "" {
			errs = append(errs, fmt.Errorf("%s to %s: %s", row.From, row.To, printable(row.Error)))
		}
	}
	return rows, errors.Join(errs...)
}

// bench measures one leg: one thing after the other, and none after one that failed.
func (s *stage) bench(ctx context.Context, l leg) benchRow {
	row := benchRow{From: l.from.place, To: l.to.place}
	ready := newTrial(l.from, l.to, "", greetAt(l.address))
	if row.Error = ready.row.Found; row.Error != "" {
		return row
	}
	for _, measure := range []struct {
		question netprobe.Question
		into     func(netprobe.Answer)
	}{
		{ready.question, func(a netprobe.Answer) {
			if a.Error == "" && a.Name != ready.wants {
				row.Error = fmt.Sprintf("somebody else answers: %q", a.Name)
			}
		}},
		{netprobe.Question{Kind: netprobe.Latency}, func(a netprobe.Answer) { row.Median, row.P99 = a.Median, a.P99 }},
		{netprobe.Question{Kind: netprobe.Throughput, Streams: 1}, func(a netprobe.Answer) { row.OneStream = a.BytesPerSecond }},
		{netprobe.Question{Kind: netprobe.Throughput, Streams: 4}, func(a netprobe.Answer) { row.FourStreams = a.BytesPerSecond }},
		{netprobe.Question{Kind: netprobe.Rate}, func(a netprobe.Answer) { row.PacketsPerSecond = a.PacketsPerSecond }},
	} {
		q := measure.question
		q.Target, q.Seconds = ready.question.Target, benchSeconds
		s.cluster.Report("Measuring %s from %s to %s", q.Kind, l.from.place, l.to.place)
		answers, err := s.ask(ctx, l.from, []netprobe.Question{q})
		if err != nil {
			row.Error = err.Error()
			return row
		}
		measure.into(answers[0])
		if row.Error = orElse(row.Error, answers[0].Error); row.Error != "" {
			return row
		}
	}
	return row
}

func printBench(to io.Writer, rows []benchRow, output string) error {
	return show(to, rows, output, func(d *document) {
		table := [][]string{{"FROM", "TO", "1 STREAM", "4 STREAMS", "ROUND TRIP", "P99", "PACKETS/S"}}
		for _, r := range rows {
			table = append(table, []string{
				r.From, r.To, bits(r.OneStream), bits(r.FourStreams), microseconds(r.Median), microseconds(r.P99), perSecond(r.PacketsPerSecond),
			})
		}
		d.table(table...)
	})
}

// bits is a throughput for people.
func bits(bytesPerSecond float64) string {
	if bytesPerSecond == 0 {
		return none
	}
	return fmt.Sprintf("%.0f Mbit/s", bytesPerSecond*8/1e6)
}

func microseconds(d time.Duration) string {
	if d == 0 {
		return none
	}
	return d.Round(time.Microsecond).String()
}

func perSecond(n float64) string {
	if n == 0 {
		return none
	}
	return fmt.Sprintf("%.0f", n)
}
