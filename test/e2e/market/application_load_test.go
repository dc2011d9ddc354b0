// SPDX-License-Identifier: Apache-2.0

package market

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A loadSecond is what a pod that asks says of the requests of one second.
type loadSecond struct {
	At      time.Time
	Sent    int
	Failed  int
	Slowest time.Duration
	Errors  []string
}

// seconds are all that the pod has said so far.
func (a *application) seconds(ctx context.Context, from string) ([]loadSecond, error) {
	log, err := lubeck.Kubectl(ctx, "-n", a.ns, "logs", from)
	if err != nil {
		return nil, err
	}
	var all []loadSecond
	for line := range strings.Lines(log) {
		var s loadSecond
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return nil, fmt.Errorf("%s says %q: %w", from, line, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// within are those that end in the step: what it does may be felt by a request of the second in which it begins.
func (s applicationStep) within(all []loadSecond) (found []loadSecond) {
	for _, second := range all {
		if end := second.At.Add(time.Second); end.After(s.from) && !end.After(s.to) {
			found = append(found, second)
		}
	}
	return found
}

// judge prints what the pod has counted, and wants no failure but those before the lost provider was known to be lost.
func (a *application) judge(t *testing.T, from string, lost applicationStep) {
	t.Helper()
	last := a.steps[len(a.steps)-1].to
	var all []loadSecond
	framework.Eventually(t, from+" has told of the last step", func(ctx context.Context) error {
		var err error
		all, err = a.seconds(ctx, from)
		if err == nil && (len(all) == 0 || all[len(all)-1].At.Before(last)) {
			err = fmt.Errorf("%d seconds so far", len(all))
		}
		return err
	})
	table := &bytes.Buffer{}
	w := tabwriter.NewWriter(table, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "step\tseconds\tsent\tfailed\tslowest\t")
	for _, step := range a.steps {
		sent, failed, slowest := 0, 0, time.Duration(0)
		for _, second := range step.within(all) {
			sent, failed, slowest = sent+second.Sent, failed+second.Failed, max(slowest, second.Slowest)
			if second.Failed > 0 && (step != lost || !second.At.Before(a.gone)) {
				t.Errorf("%s, %s: %d failed %.1f s after its begin: %v", from, step.name, second.Failed, second.At.Sub(step.from).Seconds(), second.Errors)
			}
		}
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%d\t%d\t%.2f s\t\n", step.name, step.to.Sub(step.from).Seconds(), sent, failed, slowest.Seconds())
	}
	_ = w.Flush()
	t.Logf("%s:\n%s", from, table)
}

// expectAllOrders looks in the database for each order that was confirmed to the pod.
func (a *application) expectAllOrders(t *testing.T, from string) {
	t.Helper()
	var found struct {
		Confirmed int
		Lost      []int
	}
	framework.Eventually(t, from+" looks for its orders", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "-n", a.ns, "exec", from, "--", "/orders", "get", "http://127.0.0.1:8080/lost")
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(out), &found)
	})
	if found.Confirmed == 0 || len(found.Lost) > 0 {
		t.Errorf("%s: of %d orders that were confirmed these are lost: %v", from, found.Confirmed, found.Lost)
	}
	t.Logf("%s: all of %d orders that were confirmed are there", from, found.Confirmed)
}
