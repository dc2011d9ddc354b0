// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hanse-dev/hanse/bench/advertisements"
	"github.com/hanse-dev/hanse/bench/applications"
	"github.com/hanse-dev/hanse/bench/broker"
	"github.com/hanse-dev/hanse/bench/bursts"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
	"github.com/hanse-dev/hanse/bench/moves"
	"github.com/hanse-dev/hanse/bench/network"
	"github.com/hanse-dev/hanse/bench/reflection"
	"github.com/hanse-dev/hanse/bench/requests"
	"github.com/hanse-dev/hanse/bench/scale"
)

// experiments are what can be measured, in this order.
var experiments = []struct {
	names   []string // by which it is asked for
	measure func(*options, context.Context, *report) error
}{
	{[]string{"advertisements"}, (*options).advertisements},
	{[]string{"applications"}, (*options).measureApplications},
	{[]string{"broker"}, (*options).measureBroker},
	{[]string{"bursts", floors}, (*options).measureBursts},
	{[]string{"guards"}, (*options).measureGuards},
	{[]string{"moves"}, (*options).measureMoves},
	{[]string{"network"}, (*options).measureNetwork},
	{[]string{"reflection"}, (*options).measureReflection},
	{[]string{"requests"}, (*options).measureRequests},
	{[]string{"scale"}, (*options).measureScale},
}

// floors are bursts without Hanse.
const floors = "floors"

// wants tells whether one of the names is asked for.
func (o *options) wants(names ...string) bool {
	return slices.ContainsFunc(strings.Split(o.run, ","), func(wanted string) bool { return slices.Contains(names, wanted) })
}

// measure makes the experiments that are asked for.
func (o *options) measure(ctx context.Context, into *report) error {
	for _, experiment := range experiments {
		if !o.wants(experiment.names...) {
			continue
		}
		if err := experiment.measure(o, ctx, into); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) measureBursts(ctx context.Context, into *report) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	result, err := bursts.Run(ctx, o.burstsConfig())
	into.add(result.Tables()...)
	return err
}

func (o *options) measureGuards(ctx context.Context, into *report) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	result, err := bursts.Guards(ctx, o.burstsConfig())
	into.add(result.Tables()...)
	return err
}

func (o *options) measureRequests(ctx context.Context, into *report) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	result, err := requests.Run(ctx, requests.Config{Bed: o.bed, Count: slices.Max(o.bursts), Rounds: 5 * o.rounds, Say: say})
	into.add(result.Tables()...)
	return err
}

func (o *options) measureMoves(ctx context.Context, into *report) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	result, err := moves.Run(ctx, moves.Config{Bed: o.bed, Count: o.moves, AtOnce: 10, SchedulerQPS: o.qps, Say: say})
	into.add(result.Tables()...)
	return err
}

func (o *options) measureApplications(ctx context.Context, into *report) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	result, err := applications.Run(ctx, applications.Config{Bed: o.bed, Count: o.applications, Say: say})
	into.add(result.Tables()...)
	return err
}

func (o *options) measureBroker(ctx context.Context, into *report) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	result, err := broker.Run(ctx, broker.Config{Bed: o.bed, Members: o.members, Rounds: 100, Say: say})
	into.add(result.Tables()...)
	return err
}

func (o *options) measureNetwork(ctx context.Context, into *report) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	config := o.network
	config.Bed, config.Say = o.bed, say
	result, err := network.Run(ctx, config)
	into.add(result.Tables()...)
	return err
}

func (o *options) measureReflection(ctx context.Context, into *report) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	config := o.reflection
	config.Bed, config.SchedulerQPS, config.Say = o.bed, o.qps, say
	result, err := reflection.Run(ctx, config)
	into.add(result.Tables()...)
	return err
}

func (o *options) burstsConfig() bursts.Config {
	return bursts.Config{
		Bed: o.bed, Sizes: o.bursts, Rounds: o.rounds, Single: o.single, Floors: o.wants(floors), Say: say,
		Clusters: o.clusters(o.bursts...),
	}
}

func (o *options) measureScale(ctx context.Context, into *report) error {
	config := o.scale
	config.Bed, config.Limit, config.Say = o.bed, o.limit, say
	config.Clusters = o.clusters(config.Pods, config.Running+config.Restarts)
	var shown error
	config.Show = func(tables ...measure.Table) {
		into.add(tables...)
		for _, table := range tables {
			shown = errors.Join(shown, table.Write(os.Stderr))
		}
	}
	return errors.Join(scale.Run(ctx, config), shown)
}

// clusters are those in which at most so many pods run at a time.
func (o *options) clusters(pods ...int) lab.PairConfig {
	return lab.PairConfig{Nodes: lab.NodesFor(slices.Max(append(pods, 0))), SchedulerQPS: o.qps}
}

func (o *options) advertisements(ctx context.Context, into *report) error {
	configs := []advertisements.Config{{Bed: o.bed, Count: o.ones, OneByOne: true, Say: say}}
	for _, count := range o.ads {
		config := advertisements.Config{Bed: o.bed, Count: count, Say: say}
		if count >= 1000 {
			config.Idle = time.Minute
		}
		configs = append(configs, config)
	}
	results, err := o.allAdvertisements(ctx, configs)
	if len(results) > 0 {
		into.add(advertisements.Tables(results)...)
	}
	return err
}

func (o *options) allAdvertisements(ctx context.Context, configs []advertisements.Config) ([]advertisements.Result, error) {
	var results []advertisements.Result
	for _, config := range configs {
		if config.Count == 0 {
			continue
		}
		result, err := o.someAdvertisements(ctx, config)
		if err != nil {
			return results, err
		}
		results = append(results, result)
		tables := advertisements.Tables([]advertisements.Result{result})
		if err := tables[0].Write(os.Stderr); err != nil {
			return results, err
		}
	}
	return results, nil
}

func (o *options) someAdvertisements(ctx context.Context, config advertisements.Config) (advertisements.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	return advertisements.Run(ctx, config)
}
