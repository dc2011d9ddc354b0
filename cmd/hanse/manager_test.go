// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func managerWith(arguments ...string) (*managerFlags, error) {
	flags, set := &managerFlags{}, pflag.NewFlagSet("manager", pflag.ContinueOnError)
	flags.bind(set)
	if err := set.Parse(arguments); err != nil {
		return nil, err
	}
	return flags, flags.complete()
}

func TestDefaultOffloadingIsRead(t *testing.T) {
	flags, err := managerWith(
		"--offload-namespaces=team in (batch,web)", `--offload-spec={"strategy": "Remote", "placement": {"exclude": ["bremen"]}}`,
	)
	if err != nil {
		t.Fatal(err)
	}
	spec := flags.offloading.Spec
	if spec.Strategy != v1alpha1.StrategyRemote || spec.Placement.Exclude[0] != "bremen" {
		t.Errorf("spec: %+v", spec)
	}
	if !flags.offloading.Selector.Matches(labels.Set{"team": "web"}) || flags.offloading.Selector.Matches(labels.Set{"team": "db"}) {
		t.Errorf("selector: %s", flags.offloading.Selector)
	}
}

func TestRangesAndMarginAreRead(t *testing.T) {
	flags, err := managerWith(
		"--pod-cidr=10.1.0.0/16,fd00:1::/48", "--address-pool=10.2.0.0/16,10.3.0.0/16", "--address-pool=10.4.0.0/16",
		"--margin=cpu=1,memory=2Gi", "--margin=pods=5",
	)
	if err != nil {
		t.Fatal(err)
	}
	if ranges := flags.peering.PodCIDRs; len(ranges) != 2 || ranges[1].String() != "fd00:1::/48" {
		t.Errorf("pods have %v", ranges)
	}
	if pools := flags.peering.AddressPools; len(pools) != 3 || pools[2].String() != "10.4.0.0/16" {
		t.Errorf("pools: %v", pools)
	}
	margin := flags.advertising.Margin
	if len(margin) != 3 || margin.Memory().String() != "2Gi" || margin.Pods().Value() != 5 {
		t.Errorf("margin: %v", margin)
	}
}

func TestWithoutFlagsThereAreDefaults(t *testing.T) {
	flags, err := managerWith()
	if err != nil {
		t.Fatal(err)
	}
	if flags.offloading.Selector != nil || len(flags.peering.AddressPools)*len(flags.peering.ServicePools) == 0 || flags.advertising.SilenceTimeout == 0 {
		t.Errorf("got %+v", flags)
	}
}

func TestFlagsOfTheManagerThatMakeNoSense(t *testing.T) {
	for name, arguments := range map[string][]string{
		"no selector":            {"--offload-namespaces=(in"},
		"no JSON":                {"--offload-namespaces=a=b", "--offload-spec={"},
		"a field that is none":   {"--offload-namespaces=a=b", `--offload-spec={"strategie": "Remote"}`},
		"a spec for no purpose":  {`--offload-spec={"strategy": "Remote"}`},
		"no range":               {"--pod-cidr=10.1.0.0"},
		"no range among several": {"--address-pool=10.1.0.0/16,x"},
		"no quantity":            {"--margin=cpu=lots"},
		"no amount":              {"--margin=cpu"},
	} {
		if _, err := managerWith(arguments...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
