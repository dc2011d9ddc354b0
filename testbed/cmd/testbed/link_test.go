// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

func TestLinkFlags(t *testing.T) {
	for _, test := range []struct {
		name    string
		args    []string
		off     bool
		want    plan.Impairment
		wantErr string
	}{
		{"all of them", []string{"--loss=5%", "--delay=100ms", "--rate=50mbit", "--mtu=1280"}, false, plan.Impairment{
			Loss: 0.05, Delay: 100 * time.Millisecond, Rate: 50_000_000, MTU: 1280,
		}, ""},
		{"none", nil, false, plan.Impairment{}, "say what is bad"},
		{"off", nil, true, plan.Impairment{}, ""},
		{"off and not off", []string{"--mtu=1280"}, true, plan.Impairment{}, "either off or mtu 1280"},
		{"no loss", []string{"--loss=some"}, false, plan.Impairment{}, "--loss: "},
		{"no rate", []string{"--rate=fast"}, false, plan.Impairment{}, "--rate: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			flags, set := &linkFlags{}, pflag.NewFlagSet("link", pflag.ContinueOnError)
			flags.add(set)
			if err := set.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			got, err := flags.parse(set, test.off)
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Fatalf("got error %v, want %q", err, test.wantErr)
			}
			if test.wantErr == "" {
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
		})
	}
}
