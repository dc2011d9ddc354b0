// SPDX-License-Identifier: Apache-2.0

// Command run runs the integration tests: packages side by side, each on control planes that no other uses meanwhile. It ends
// all clusters at the end, also after a failure or a signal.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hanse-dev/hanse/test/report"
)

// packageTimeout is how long a package may take, with the time that it waits for free clusters.
const packageTimeout = 40 * time.Minute

// endTimeout is how long clusters may take to end.
const endTimeout = 2 * time.Minute

type options struct {
	sets     string
	selected string
	results  string
	keep     bool
	packages []string
}

func main() {
	o := options{}
	flag.StringVar(&o.sets, "sets", "4,2,2", "how many clusters each set has; as many packages run side by side as there are sets")
	flag.StringVar(&o.selected, "run", "", "run only tests that match this regular expression")
	flag.StringVar(&o.results, "results", "bin/results", "folder for JUnit XML, and for logs and objects of tests that failed")
	flag.BoolVar(&o.keep, "keep", false, "keep the clusters for the next call")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = []string{"./test/integration/..."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

var errFailed = errors.New("tests failed")

func (o *options) run(ctx context.Context) error {
	results, err := filepath.Abs(o.results)
	if err != nil {
		return err
	}
	state, err := filepath.Abs(filepath.Join(".testbed", "integration"))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(results, "integration")); err != nil { // of an earlier run
		return err
	}
	if err := os.MkdirAll(filepath.Dir(state), 0o750); err != nil {
		return err
	}
	start := time.Now()
	tests := report.New(os.Stdout)
	err = o.test(ctx, tests, state, results)
	if !o.keep {
		err = errors.Join(err, o.end(context.WithoutCancel(ctx), state))
	}
	tests.Summary(10)
	fmt.Printf("integration tests took %.0f s\n", time.Since(start).Seconds())
	return errors.Join(err, tests.WriteFile(filepath.Join(results, "integration.xml")))
}

// test runs go test. The tests start the clusters that they need.
func (o *options) test(ctx context.Context, tests *report.Report, state, results string) error {
	sets := strings.Split(o.sets, ",")
	args := append([]string{
		"test", "-json", "-count=1", "-vet=off", "-timeout=" + packageTimeout.String(), "-p=" + strconv.Itoa(len(sets)), "-run=" + o.selected,
	}, o.packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	// go test does not pass signals on to the tests, so that the signal goes to its process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(),
		"GOGC=400", // processor time is scarcer than memory; the clusters inherit it
		"HANSE_INTEGRATION="+state, "HANSE_INTEGRATION_SETS="+o.sets, "HANSE_INTEGRATION_RESULTS="+filepath.Join(results, "integration"))
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	err = errors.Join(tests.Read(events), cmd.Wait(), context.Cause(ctx))
	if tests.Failed() {
		return errFailed
	}
	return err
}

// end ends the clusters of all sets.
func (o *options) end(ctx context.Context, state string) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	var group errgroup.Group
	for i := range strings.Split(o.sets, ",") {
		set := fmt.Sprintf("%s-%d", state, i+1)
		group.Go(func() error { return endSet(ctx, set) })
	}
	return group.Wait()
}

func endSet(ctx context.Context, set string) error {
	if err := os.Remove(set + ".lock"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(set); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "bin/testbed", "--state", set, "down").CombinedOutput(); err != nil {
		return fmt.Errorf("end clusters of %s: %w\n%s", set, err, out)
	}
	return nil
}
