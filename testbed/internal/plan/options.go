// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// DefaultKubernetes is the version of Kubernetes that a cluster has unless another is asked for.
const DefaultKubernetes = "v1.37.1"

// Options are what may differ between clusters.
type Options struct {
	Workers         int              `json:"workers"`
	SimulatedNodes  int              `json:"simulatedNodes,omitempty"`
	SimulatedStart  time.Duration    `json:"simulatedStart,omitempty"` // how long pods on simulated nodes take to start
	PodCIDR         Ranges           `json:"podCIDR"`
	ServiceCIDR     Ranges           `json:"serviceCIDR"` // of the same families in the same order
	Kubernetes      string           `json:"kubernetes"`
	ExtraSchedulers []ExtraScheduler `json:"extraSchedulers,omitempty"`
	Args            []Arg            `json:"args,omitempty"`
	Audit           bool             `json:"audit,omitempty"`
	Metrics         bool             `json:"metrics,omitempty"`      // run metrics-server
	Storage         bool             `json:"storage,omitempty"`      // make volumes for claims
	Snapshots       bool             `json:"snapshots,omitempty"`    // of these volumes, which it includes
	Ingress         bool             `json:"ingress,omitempty"`      // run Traefik
	Multicluster    bool             `json:"multicluster,omitempty"` // answer for clusterset.local
	NAT             bool             `json:"nat,omitempty"`          // the workers reach other clusters under the control plane's address alone
	Links           []Link           `json:"links,omitempty"`
}

// DefaultOptions are the options of a cluster that nothing was said about.
func DefaultOptions() Options {
	return Options{
		Workers:     1,
		PodCIDR:     Ranges{customs[IPv4].pods},
		ServiceCIDR: Ranges{customs[IPv4].services},
		Kubernetes:  DefaultKubernetes,
	}
}

// ExtraScheduler is one more kube-scheduler, for pods that ask for it by name.
type ExtraScheduler struct {
	Name  string        `json:"name"`
	Delay time.Duration `json:"delay,omitempty"` // how much longer it takes for each pod
}

// Arg is one more flag of a component.
type Arg struct {
	Component string `json:"component"` // without a worker's number: all workers have the same
	Flag      string `json:"flag"`
	Value     string `json:"value"`
}

// Components are the names by which --arg knows the components of a cluster.
var Components = []string{
	"apiserver", "containerd", "controller-manager", "coredns", "etcd", "kubelet", "kwok", "metrics-server",
	"provisioner", "proxy", "scheduler", "snapshot-controller",
}

var (
	flagName      = regexp.MustCompile(`^[A-Za-z][-.A-Za-z0-9_]*$`)
	schedulerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	versionName   = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)
)

// ParseArg reads COMPONENT:FLAG=VALUE.
func ParseArg(text string) (Arg, error) {
	name, rest, ok := strings.Cut(text, ":")
	flag, value, hasValue := strings.Cut(rest, "=")
	flag = strings.TrimLeft(flag, "-")
	switch {
	case !ok || !hasValue:
		return Arg{}, fmt.Errorf("%q: want COMPONENT:FLAG=VALUE, like controller-manager:node-monitor-grace-period=8s", text)
	case !slices.Contains(Components, name):
		return Arg{}, fmt.Errorf("%q: no component %q, only %s", text, name, strings.Join(Components, ", "))
	case !flagName.MatchString(flag):
		return Arg{}, fmt.Errorf("%q: %q is not a flag's name", text, flag)
	}
	return Arg{Component: name, Flag: flag, Value: value}, nil
}

// ParseExtraScheduler reads NAME[:delay].
func ParseExtraScheduler(text string) (ExtraScheduler, error) {
	name, delay, hasDelay := strings.Cut(text, ":")
	if !schedulerName.MatchString(name) || name == "default-scheduler" {
		return ExtraScheduler{}, fmt.Errorf("%q: want NAME[:delay], the name a DNS label other than default-scheduler", text)
	}
	scheduler := ExtraScheduler{Name: name}
	if !hasDelay {
		return scheduler, nil
	}
	var err error
	if scheduler.Delay, err = time.ParseDuration(delay); err != nil || scheduler.Delay < 0 {
		return ExtraScheduler{}, fmt.Errorf("%q: %q is not a delay, like 50ms", text, delay)
	}
	return scheduler, nil
}

// Validate tells what is wrong with the options.
func (o Options) Validate() error {
	return errors.Join(
		o.validateCounts(),
		o.validateFamilies(),
		o.validateRanges(),
		o.validateNames(),
	)
}

func (o Options) validateCounts() error {
	if o.Workers < 0 || o.Workers > MaxWorkers {
		return fmt.Errorf("%d workers: want 0 to %d", o.Workers, MaxWorkers)
	}
	if o.SimulatedNodes < 0 {
		return fmt.Errorf("%d simulated nodes: want 0 or more", o.SimulatedNodes)
	}
	if o.SimulatedStart < 0 {
		return fmt.Errorf("start of simulated pods after %s: want 0s or more", o.SimulatedStart)
	}
	return nil
}

func (o Options) validateNames() error {
	if !versionName.MatchString(o.Kubernetes) {
		return fmt.Errorf("kubernetes version %q: want one like %s", o.Kubernetes, DefaultKubernetes)
	}
	seen := map[string]bool{}
	for _, scheduler := range o.ExtraSchedulers {
		if seen[scheduler.Name] {
			return fmt.Errorf("extra scheduler %q is named twice", scheduler.Name)
		}
		seen[scheduler.Name] = true
	}
	return nil
}

// ValidateChange tells which of the changes from these options to others a cluster that exists cannot make.
func (o Options) ValidateChange(to Options) error {
	if o.NAT != to.NAT {
		return errors.New("it exists, and whether it is behind NAT cannot change: take it down first")
	}
	if o.Ingress && !to.Ingress {
		return errors.New("it exists, and Traefik stays in it: take it down first")
	}
	for _, fixed := range []struct{ name, from, to string }{
		{"pod CIDR", o.PodCIDR.String(), to.PodCIDR.String()},
		{"service CIDR", o.ServiceCIDR.String(), to.ServiceCIDR.String()},
		{"Kubernetes version", o.Kubernetes, to.Kubernetes},
	} {
		if fixed.from != fixed.to {
			return fmt.Errorf("it exists with %s %s, which cannot change to %s: take it down first", fixed.name, fixed.from, fixed.to)
		}
	}
	return nil
}

// ArgsOf are the flags that were asked for one component, in the form --flag=value.
func (o Options) ArgsOf(name string) []string {
	var flags []string
	for _, arg := range o.Args {
		if arg.Component == name {
			flags = append(flags, "--"+arg.Flag+"="+arg.Value)
		}
	}
	return flags
}
