// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

func ranges(t *testing.T, text string) plan.Ranges {
	t.Helper()
	found, err := plan.ParseRanges(text)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func parse(args ...string) (func(*plan.Options), error) {
	flags, set := &upFlags{}, pflag.NewFlagSet("up", pflag.ContinueOnError)
	flags.add(set)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	return flags.change(set)
}

func TestOnlyGivenFlagsChangeOptions(t *testing.T) {
	existing := plan.Options{
		Workers: 3, PodCIDR: ranges(t, "10.64.0.0/16"), ServiceCIDR: ranges(t, "10.128.0.0/16"),
		Kubernetes: "v1.36.3", Audit: true, SimulatedNodes: 5, Args: []plan.Arg{{Component: "etcd", Flag: "a", Value: "b"}},
	}
	for _, test := range []struct {
		name string
		args []string
		want func(*plan.Options)
	}{
		{"none", nil, func(*plan.Options) {}},
		{"a number that is the default", []string{"--workers=1"}, func(o *plan.Options) { o.Workers = 1 }},
		{"off", []string{"--audit=false"}, func(o *plan.Options) { o.Audit = false }},
		{"flags of components replace those there were", []string{"--arg=kubelet:v=4", "--arg=etcd:c=d"}, func(o *plan.Options) {
			o.Args = []plan.Arg{{Component: "kubelet", Flag: "v", Value: "4"}, {Component: "etcd", Flag: "c", Value: "d"}}
		}},
		{"an empty one takes them away", []string{"--arg="}, func(o *plan.Options) { o.Args = nil }},
		{"schedulers", []string{"--extra-scheduler=a", "--extra-scheduler=b:1s"}, func(o *plan.Options) {
			o.ExtraSchedulers = []plan.ExtraScheduler{{Name: "a"}, {Name: "b", Delay: time.Second}}
		}},
		{"the rest", []string{
			"--simulated-nodes=7", "--simulated-start=2s", "--pod-cidr=10.0.0.0/16", "--service-cidr=10.1.0.0/16", "--kubernetes=v1.35.4",
			"--metrics", "--storage", "--snapshots", "--ingress", "--nat",
		}, func(o *plan.Options) {
			o.Metrics, o.Storage, o.Snapshots, o.Ingress, o.NAT = true, true, true, true, true
			o.SimulatedNodes, o.SimulatedStart, o.Kubernetes = 7, 2*time.Second, "v1.35.4"
			o.PodCIDR, o.ServiceCIDR = ranges(t, "10.0.0.0/16"), ranges(t, "10.1.0.0/16")
		}},
		{"both families", []string{"--ip-families=dual"}, func(o *plan.Options) {
			o.PodCIDR, o.ServiceCIDR = ranges(t, "10.244.0.0/16,fd00:10:244::/56"), ranges(t, "10.96.0.0/12,fd00:10:96::/112")
		}},
		{"a range of one's own wins", []string{"--ip-families=ipv6", "--pod-cidr=fd01::/56"}, func(o *plan.Options) {
			o.PodCIDR, o.ServiceCIDR = ranges(t, "fd01::/56"), ranges(t, "fd00:10:96::/112")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			change, err := parse(test.args...)
			if err != nil {
				t.Fatal(err)
			}
			want, got := existing, existing
			test.want(&want)
			change(&got)
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestErrorsNameTheFlag(t *testing.T) {
	for arg, want := range map[string]string{
		"--pod-cidr=10.244.0.0":    "--pod-cidr",
		"--service-cidr=all":       "--service-cidr",
		"--ip-families=all":        "--ip-families",
		"--arg=v=4":                "--arg",
		"--extra-scheduler=slow:x": "--extra-scheduler",
	} {
		if _, err := parse(arg); err == nil || !strings.HasPrefix(err.Error(), want+": ") {
			t.Errorf("%s: got %v, want %s: ...", arg, err, want)
		}
	}
}
