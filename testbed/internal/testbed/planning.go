package testbed

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

var errOthers = errors.New("its folder is another testbed's")

// planned is what the clusters of these names are to be, all but their slot.
func (t *Testbed) planned(names []string, existing []*plan.Cluster, change func(*plan.Options)) ([]*plan.Cluster, error) {
	all := slices.Clone(existing)
	var clusters []*plan.Cluster
	for _, name := range names {
		index := slices.IndexFunc(all, func(other *plan.Cluster) bool { return other.Name == name })
		if index < 0 {
			fresh, err := t.fresh(name, all)
			if err != nil {
				return nil, fmt.Errorf("cluster %s: %w", name, err)
			}
			all = append(all, fresh)
			index = len(all) - 1
		}
		one := all[index]
		before := one.Options
		change(&one.Options)
		err := one.Validate()
		if index < len(existing) {
			err = errors.Join(err, before.ValidateChange(one.Options))
		}
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", name, err)
		}
		clusters = append(clusters, one)
	}
	return clusters, nil
}

// fresh is a cluster that does not exist yet, with the options that it has if nothing is said.
func (t *Testbed) fresh(name string, others []*plan.Cluster) (*plan.Cluster, error) {
	if isTestbed(filepath.Join(t.Dir, name)) {
		return nil, errOthers
	}
	one := &plan.Cluster{
		Name: name, Rootless: t.Rootless, Options: plan.DefaultOptions(), Ports: plan.UsualPorts,
		Dir: filepath.Join(t.Dir, name), Bin: t.Bin,
	}
	var err error
	if one.Index, err = plan.FreeIndex(others); err != nil {
		return nil, err
	}
	if t.Rootless {
		one.Options.Workers = 0
		one.Ports, err = freePorts(others)
	}
	return one, err
}

// freePorts finds ports that nobody listens on, and that no other cluster has.
func freePorts(others []*plan.Cluster) (plan.Ports, error) {
	var (
		ports plan.Ports
		taken = map[int]bool{}
		held  []net.Listener // until all are found, so that none is found twice
	)
	defer func() {
		for _, listener := range held {
			_ = listener.Close()
		}
	}()
	for _, other := range others {
		for _, port := range numbers(&other.Ports) {
			taken[*port] = true
		}
	}
	for _, port := range numbers(&ports) {
		for *port == 0 || taken[*port] {
			listener, err := net.Listen("tcp4", "127.0.0.1:0") //nolint:noctx // it waits for nothing
			if err != nil {
				return plan.Ports{}, fmt.Errorf("find a free port: %w", err)
			}
			held = append(held, listener)
			*port = listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // always so for tcp
		}
	}
	return ports, nil
}

func numbers(ports *plan.Ports) []*int {
	return []*int{
		&ports.APIServer, &ports.EtcdClient, &ports.EtcdPeer, &ports.ControllerManager, &ports.Scheduler, &ports.KWOK,
	}
}
