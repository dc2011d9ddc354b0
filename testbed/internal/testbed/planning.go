// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

var (
	errOthers = errors.New("its folder is another testbed's")
	errMixed  = errors.New("the clusters of one testbed are all with root or all without: use another folder of state")
	errPorts  = errors.New("no port is free")
)

// planned is what the clusters of these names are to be, all but their slot.
func (t *Testbed) planned(names []string, existing []*plan.Cluster, change func(*plan.Options)) ([]*plan.Cluster, error) {
	if slices.ContainsFunc(existing, func(other *plan.Cluster) bool { return other.Rootless != t.Rootless }) {
		return nil, errMixed
	}
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

// The ports of clusters without root are below those that kernels give to connections: such a port would be lost to a
// connection while its server is stopped.
const firstPort, lastPort = 30000, 32767

// freePorts finds ports that nobody listens on, and that no other cluster has. It begins anywhere, because other testbeds may
// look for ports at the same time.
func freePorts(others []*plan.Cluster) (plan.Ports, error) {
	var ports plan.Ports
	taken := map[int]bool{}
	for _, other := range others {
		for _, port := range numbers(&other.Ports) {
			taken[*port] = true
		}
	}
	const count = lastPort - firstPort + 1
	next := rand.IntN(count) //nolint:gosec // no secret: only where to begin
	for _, port := range numbers(&ports) {
		for tried := 0; *port == 0; tried++ {
			if tried == count {
				return plan.Ports{}, errPorts
			}
			if candidate := firstPort + next%count; !taken[candidate] && isFree(candidate) {
				*port = candidate
			}
			next++
		}
	}
	return ports, nil
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // it waits for nothing
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

func numbers(ports *plan.Ports) []*int {
	return []*int{
		&ports.APIServer, &ports.EtcdClient, &ports.EtcdPeer, &ports.ControllerManager, &ports.Scheduler, &ports.KWOK,
	}
}
