// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/relay"
)

// link is the process that loses and delays what the cluster's nodes and others send each other. What the machine itself
// sends and gets passes, so that the testbed and its user work on as ever.
func link(c *plan.Cluster) Component {
	config, err := json.MarshalIndent(relay.Relay{Exempt: []netip.Prefix{c.Slot.Machine(plan.IPv4), c.Slot.Machine(plan.IPv6)}, Links: c.Options.Links}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("links of %s: %v", c.Name, err)) // texts and numbers can be written
	}
	file := File{Path: filepath.Join(c.ControlPlane().ConfigDir(), "link.json"), Text: string(config)}
	return Component{
		Name: "link", Node: c.ControlPlane(), Files: []File{file}, Cable: true,
		Command: []string{filepath.Join(c.Bin, "testbed"), "relay", file.Path},
	}
}
