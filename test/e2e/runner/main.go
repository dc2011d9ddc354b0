// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/hanse-dev/hanse/test/e2e/framework"
	"github.com/hanse-dev/hanse/test/harness"
)

// options are what the caller wants.
type options struct {
	run        *regexp.Regexp // the names of stories
	core, rest bool           // only core stories, or only the others
	keep       bool           // keep the clusters for the next call
	kubernetes string         // the version of the shape "pair"; empty is the testbed's own
	results    string         // the folder of the results
	budget     int            // how many clusters may run at once
	parallel   int            // how many stories may run at once
	list       bool           // print the plan, and run nothing
}

// errFailed is returned when stories failed, which were reported when they did.
var errFailed = errors.New("stories failed")

func main() {
	// Children are ended by us, in order: a terminal sends its signals to them as well.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) { // the help was printed
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
}

// run is the whole program. Its first argument may be bedCommand: then it starts the clusters of one shape, see startBed.
func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == bedCommand {
		return runBedCommand(ctx, args[1:])
	}
	opts, err := parse(args)
	if err != nil {
		return err
	}
	stories, err := discover(ctx, opts)
	if err != nil {
		return err
	}
	if len(stories) == 0 {
		return fmt.Errorf("no story is selected by -run %q", opts.run)
	}
	if opts.list {
		printPlan(os.Stdout, stories)
		return nil
	}
	if err := buildExtras(ctx, stories); err != nil {
		return err
	}
	report, err := newReport(opts.results)
	if err != nil {
		return err
	}
	schedule := newScheduler(opts, stories, report)
	schedule.run(ctx)
	return errors.Join(report.finish(os.Stdout), ctx.Err())
}

func parse(args []string) (options, error) {
	var opts options
	flags := flag.NewFlagSet("e2e", flag.ContinueOnError)
	flags.Func("run", "run only the stories whose names match this regular `expression`", func(text string) (err error) {
		opts.run, err = regexp.Compile(text)
		return err
	})
	flags.BoolVar(&opts.core, "core", false, "run only the core stories")
	flags.BoolVar(&opts.rest, "rest", false, "run all but the core stories")
	flags.BoolVar(&opts.keep, "keep", false, "keep the clusters, so that the next call finds them")
	flags.StringVar(&opts.kubernetes, "kubernetes", "", "`version` of Kubernetes for stories on two clusters; the testbed must have been built for it")
	flags.StringVar(&opts.results, "results", filepath.Join(framework.Root, "bin", "results"), "`folder` for results")
	flags.IntVar(&opts.budget, "budget", 9, "how many clusters may run at the same time")
	flags.IntVar(&opts.parallel, "parallel", 5, "how many stories may run at the same time")
	flags.BoolVar(&opts.list, "list", false, "print the selected stories and their clusters, and run none")
	if err := flags.Parse(args); err != nil {
		return opts, err
	}
	if flags.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if opts.core && opts.rest {
		return opts, errors.New("-core and -rest exclude each other")
	}
	results, err := filepath.Abs(opts.results)
	opts.results = results
	return opts, err
}

// stateFolder returns where the testbed keeps the clusters of a bed.
func stateFolder(bed string) (string, error) {
	return filepath.Abs(filepath.Join(harness.Root, ".testbed", "e2e-"+bed))
}
