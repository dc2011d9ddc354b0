// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseArg(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       Arg
		wantErr    string
	}{
		{"a flag", "controller-manager:node-monitor-grace-period=8s", Arg{"controller-manager", "node-monitor-grace-period", "8s"}, ""},
		{"hyphens before the flag do no harm", "apiserver:--v=4", Arg{"apiserver", "v", "4"}, ""},
		{"the value may hold anything", "kubelet:node-labels=a=b:c", Arg{"kubelet", "node-labels", "a=b:c"}, ""},
		{"the value may be empty", "scheduler:config=", Arg{"scheduler", "config", ""}, ""},
		{"no component", "v=4", Arg{}, "want COMPONENT:FLAG=VALUE"},
		{"no value", "apiserver:v", Arg{}, "want COMPONENT:FLAG=VALUE"},
		{"an unknown component", "api-server:v=4", Arg{}, `no component "api-server"`},
		{"a worker's number is not part of it", "kubelet/1:v=4", Arg{}, `no component "kubelet/1"`},
		{"an empty flag", "apiserver:=4", Arg{}, "not a flag's name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseArg(test.text)
			expect(t, got, err, test.want, test.wantErr)
		})
	}
}

func TestParseExtraScheduler(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       ExtraScheduler
		wantErr    string
	}{
		{"just a name", "second", ExtraScheduler{Name: "second"}, ""},
		{"with a delay", "slow:200ms", ExtraScheduler{Name: "slow", Delay: 200 * time.Millisecond}, ""},
		{"a delay without a unit", "slow:200", ExtraScheduler{}, "not a delay"},
		{"a negative delay", "slow:-1s", ExtraScheduler{}, "not a delay"},
		{"the default one's name", "default-scheduler", ExtraScheduler{}, "other than default-scheduler"},
		{"no name", ":1s", ExtraScheduler{}, "want NAME[:delay]"},
		{"no DNS label", "Slow", ExtraScheduler{}, "want NAME[:delay]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseExtraScheduler(test.text)
			expect(t, got, err, test.want, test.wantErr)
		})
	}
}

// expect compares a result, or an error's text where one is wanted.
func expect[T any](t *testing.T, got T, err error, want T, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("got error %v, want one with %q", err, wantErr)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*Options)
		wantErr string // empty: none
	}{
		{"the default options", func(*Options) {}, ""},
		{"no workers", func(o *Options) { o.Workers = 0 }, ""},
		{"fewer than no workers", func(o *Options) { o.Workers = -1 }, "-1 workers"},
		{"more workers than addresses", func(o *Options) { o.Workers = MaxWorkers + 1 }, "101 workers"},
		{"negative simulated nodes", func(o *Options) { o.SimulatedNodes = -1 }, "-1 simulated nodes"},
		{"a negative start", func(o *Options) { o.SimulatedStart = -time.Second }, "after -1s"},
		{"as many nodes as ranges", func(o *Options) { o.SimulatedNodes = 255 }, ""},
		{"more nodes than ranges", func(o *Options) { o.SimulatedNodes = 256 }, "257 nodes do not fit"},
		{"many nodes in a big range", func(o *Options) { o.SimulatedNodes, o.PodCIDR = 5000, cidr("10.0.0.0/10") }, ""},
		{"a pod CIDR with host bits", func(o *Options) { o.PodCIDR = cidr("10.244.1.0/16") }, "want 10.244.0.0/16"},
		{"an IPv6 pod CIDR beside an IPv4 service CIDR", func(o *Options) { o.PodCIDR = cidr("fd00::/48") }, "want the same families"},
		{"dual stack", func(o *Options) {
			o.PodCIDR, o.ServiceCIDR = cidr("10.1.0.0/16,fd01::/48"), cidr("10.2.0.0/16,fd02::/112")
		}, ""},
		{"dual stack with IPv6 first", func(o *Options) {
			o.PodCIDR, o.ServiceCIDR = cidr("fd01::/48,10.1.0.0/16"), cidr("fd02::/112,10.2.0.0/16")
		}, ""},
		{"dual stack in another order", func(o *Options) {
			o.PodCIDR, o.ServiceCIDR = cidr("10.1.0.0/16,fd01::/48"), cidr("fd02::/112,10.2.0.0/16")
		}, "in the same order"},
		{"one family twice", func(o *Options) {
			o.PodCIDR, o.ServiceCIDR = cidr("10.1.0.0/16,10.3.0.0/16"), cidr("10.2.0.0/16,10.4.0.0/16")
		}, "one of each family"},
		{"no range", func(o *Options) { o.PodCIDR, o.ServiceCIDR = nil, nil }, "want one range"},
		{"only IPv6", func(o *Options) { o.PodCIDR, o.ServiceCIDR = cidr("fd01::/48"), cidr("fd02::/112") }, ""},
		{"more IPv6 Services than Kubernetes takes", func(o *Options) { o.PodCIDR, o.ServiceCIDR = cidr("fd01::/48"), cidr("fd02::/64") }, "want a prefix of /108 to /120"},
		{"more IPv6 nodes than Kubernetes takes", func(o *Options) { o.PodCIDR, o.ServiceCIDR = cidr("fd01::/32"), cidr("fd02::/112") }, "want a prefix of /48 to /62"},
		{"more nodes than IPv6 ranges", func(o *Options) { o.PodCIDR, o.ServiceCIDR, o.Workers = cidr("fd01::/62"), cidr("fd02::/112"), 5 }, "5 nodes do not fit"},
		{"an IPv6 range of the nodes' addresses", func(o *Options) { o.PodCIDR, o.ServiceCIDR = cidr("fd00:212::/56"), cidr("fd02::/112") }, "nodes have their addresses"},
		{"a pod CIDR that is too small", func(o *Options) { o.PodCIDR = cidr("10.244.0.0/24") }, "want a prefix of /8 to /22"},
		{"ranges that overlap", func(o *Options) { o.ServiceCIDR = cidr("10.244.0.0/20") }, "overlap"},
		{"a range of the nodes' addresses", func(o *Options) { o.PodCIDR = cidr("10.212.0.0/16") }, "nodes have their addresses"},
		{"another version", func(o *Options) { o.Kubernetes = "v1.36.3" }, ""},
		{"a version without its v", func(o *Options) { o.Kubernetes = "1.36.3" }, "want one like v1.37.1"},
		{"a version that leads elsewhere", func(o *Options) { o.Kubernetes = "v1.36.3/../x" }, "want one like v1.37.1"},
		{"two schedulers of one name", func(o *Options) { o.ExtraSchedulers = []ExtraScheduler{{Name: "a"}, {Name: "a"}} }, "named twice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := DefaultOptions()
			test.change(&options)
			err := options.Validate()
			if test.wantErr == "" && err != nil {
				t.Errorf("got error %v, want none", err)
			}
			if test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("got error %v, want one with %q", err, test.wantErr)
			}
		})
	}
}

func TestRangesAreReadAsTheyWereWritten(t *testing.T) {
	for _, text := range []string{`"10.244.0.0/16"`, `"10.244.0.0/16,fd00:10:244::/56"`} {
		var ranges Ranges
		if err := json.Unmarshal([]byte(text), &ranges); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(ranges); err != nil || string(got) != text {
			t.Errorf("%s became %s, %v", text, got, err)
		}
	}
	if _, err := ParseRanges("10.244.0.0/16,"); err == nil {
		t.Error("an empty range was taken")
	}
}

func TestDefaultRangesAreValid(t *testing.T) {
	for families, want := range map[string]string{
		"ipv4": "10.244.0.0/16 10.96.0.0/12", "ipv6": "fd00:10:244::/56 fd00:10:96::/112",
		"dual": "10.244.0.0/16,fd00:10:244::/56 10.96.0.0/12,fd00:10:96::/112",
	} {
		options, err := DefaultOptions(), error(nil)
		if options.PodCIDR, options.ServiceCIDR, err = DefaultRanges(families); err != nil {
			t.Fatal(err)
		}
		if got := options.PodCIDR.String() + " " + options.ServiceCIDR.String(); got != want {
			t.Errorf("%s: got %s, want %s", families, got, want)
		}
		if err := options.Validate(); err != nil {
			t.Errorf("%s: %v", families, err)
		}
	}
	if _, _, err := DefaultRanges("ipx"); err == nil {
		t.Error("a family that does not exist was taken")
	}
}

func TestOnlyWhatCanChangeMayChange(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*Options)
		allowed bool
	}{
		{"nothing", func(*Options) {}, true},
		{"workers and flags", func(o *Options) { o.Workers, o.Audit, o.Args = 3, true, []Arg{{"etcd", "a", "b"}} }, true},
		{"Traefik", func(o *Options) { o.Ingress = true }, true},
		{"the pod CIDR", func(o *Options) { o.PodCIDR = cidr("10.64.0.0/16") }, false},
		{"the service CIDR", func(o *Options) { o.ServiceCIDR = cidr("10.64.0.0/16") }, false},
		{"whether it is behind NAT", func(o *Options) { o.NAT = true }, false},
		{"the version", func(o *Options) { o.Kubernetes = "v1.36.3" }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := DefaultOptions()
			test.change(&to)
			if err := DefaultOptions().ValidateChange(to); (err == nil) != test.allowed {
				t.Errorf("got error %v, want allowed: %v", err, test.allowed)
			}
		})
	}
	with := DefaultOptions()
	with.Ingress = true
	if err := with.ValidateChange(DefaultOptions()); err == nil {
		t.Error("Traefik was taken away")
	}
}

func TestArgsOf(t *testing.T) {
	options := Options{Args: []Arg{{"apiserver", "v", "4"}, {"etcd", "debug", "true"}, {"apiserver", "a", "b=c"}}}
	if diff := cmp.Diff([]string{"--v=4", "--a=b=c"}, options.ArgsOf("apiserver")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func cidr(text string) Ranges {
	ranges, err := ParseRanges(text)
	if err != nil {
		panic(err)
	}
	return ranges
}
