// SPDX-License-Identifier: Apache-2.0

package component

import (
	_ "embed"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// stages tells KWOK what happens to simulated nodes and their pods.
//
//go:embed stages.yaml
var stages string

func kwok(c *plan.Cluster) Component {
	config := File{
		Path: filepath.Join(c.ControlPlane().ConfigDir(), "kwok.yaml"),
		Text: simulation(c.Options.Kubernetes, c.Options.SimulatedStart),
	}
	command := []string{
		filepath.Join(c.Bin, "kwok"),
		"--v=WARN", // or it logs each write
		"--config=" + config.Path,
		"--kubeconfig=" + kubeconfig(c, "kwok"),
		"--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
		"--node-ip=" + c.Address().String(),
		"--node-lease-duration-seconds=40",
		"--server-address=" + net.JoinHostPort(bindAddress(c), strconv.Itoa(c.Ports.KWOK)),
	}
	return Component{
		Name: "kwok", Node: c.ControlPlane(), Files: []File{config},
		Command: append(command, c.Options.ArgsOf("kwok")...),
	}
}

// simulation is the configuration of KWOK for nodes of a version, and pods that take so long to start.
func simulation(version string, start time.Duration) string {
	return strings.NewReplacer(
		"KUBELET_VERSION", version,
		"START_MILLISECONDS", strconv.FormatInt(start.Milliseconds(), 10),
	).Replace(stages)
}
