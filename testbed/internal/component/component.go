// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// Component is a process of a cluster.
type Component struct {
	Name    string   // such as apiserver or kubelet/1
	Command []string // what is run on the node
	Files   []File
	Node    plan.Node
	// Machine is set for what needs the worker's own mount namespace: the container runtime and the kubelet.
	Machine bool
	// Cable is set for what carries the cluster's frames: it finds both ends of the cable open.
	Cable bool
}

// File is a configuration file.
type File struct {
	Path string
	Text string
}

// All lists the components of a cluster in the order in which they are to be started.
func All(c *plan.Cluster) []Component {
	var components []Component
	if c.Linked() {
		components = append(components, link(c)) // first, because the API server is reached through it
	}
	components = append(components, etcd(c))
	for _, worker := range c.Workers() {
		components = append(components, containerd(worker))
	}
	components = append(components, apiserver(c), controllerManager(c), scheduler(c))
	for _, extra := range c.Options.ExtraSchedulers {
		components = append(components, extraScheduler(c, extra))
	}
	if !c.Rootless {
		components = append(components, coreDNS(c))
	}
	for _, worker := range c.Workers() {
		components = append(components, kubelet(worker), proxy(worker))
	}
	if c.HasMetrics() {
		components = append(components, metricsServer(c))
	}
	if c.HasStorage() {
		components = append(components, provisioner(c))
	}
	if c.HasSnapshots() {
		components = append(components, snapshotController(c))
	}
	if c.Options.SimulatedNodes > 0 {
		components = append(components, kwok(c))
	}
	return components
}

// Find looks a component up by name. A part with a number may be named without it if there is only one of it.
func Find(c *plan.Cluster, name string) (Component, error) {
	components := All(c)
	index := slices.IndexFunc(components, func(component Component) bool { return component.Name == name })
	if index < 0 && c.Options.Workers == 1 {
		index = slices.IndexFunc(components, func(component Component) bool { return component.Name == name+"/1" })
	}
	if index >= 0 {
		return components[index], nil
	}
	names := make([]string, len(components))
	for i, component := range components {
		names[i] = component.Name
	}
	return Component{}, fmt.Errorf("cluster %s has no component %q, only %s", c.Name, name, strings.Join(names, ", "))
}

// FullCommand is the command that runs the component where it belongs. Each of the programs in it replaces itself by
// the next, so the process that is started is the component itself.
func (c Component) FullCommand() []string {
	if c.Node.Cluster.Rootless {
		return c.Command
	}
	enter := []string{"nsenter", "--net=" + c.Node.NetnsPath()}
	if c.Machine {
		enter = append(enter, "--mount="+c.Node.MountnsPath())
	}
	return append(append(enter, "--"), c.Command...)
}

// LogFile is where the component's output goes.
func (c Component) LogFile() string {
	return filepath.Join(c.Node.Cluster.LogDir(), c.fileName()+".log")
}

// PIDFile is where the component's process is written down.
func (c Component) PIDFile() string {
	return filepath.Join(c.Node.Cluster.PIDDir(), c.fileName()+".json")
}

func (c Component) fileName() string {
	return strings.ReplaceAll(c.Name, "/", "-")
}

// kubernetes is the command line of a part of the one binary, with the flags that the user asked for at the end, where
// they win.
func kubernetes(c *plan.Cluster, part, arg string, flags ...string) []string {
	return append(append([]string{c.Kubernetes(), part}, flags...), c.Options.ArgsOf(arg)...)
}
