// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/hanse-dev/hanse/testbed/internal/run"
)

// needs maps each program that the testbed runs, or has run, to the Debian package that brings it.
var needs = []struct{ program, pkg string }{
	{"containerd", "containerd"},
	{"runc", "runc"},
	{"iptables", "iptables"},
	{"nft", "nftables"},
	{"ip", "iproute2"},
	{"conntrack", "conntrack"},
	{"/usr/lib/cni/ptp", "containernetworking-plugins"},
	{"ethtool", "ethtool"},
	{"socat", "socat"},
	{"busybox", "busybox-static"},
	{"nsenter", "util-linux"},
}

// Missing lists the packages whose programs are not there.
func Missing() []string {
	var missing []string
	for _, need := range needs {
		if _, err := exec.LookPath(need.program); err != nil {
			missing = append(missing, need.pkg)
		}
	}
	return missing
}

// Ensure installs the packages that are missing. Nothing of them is to be started as a service: the run level says so
// to the scripts that would (there is no need to where there is no systemd).
func Ensure(ctx context.Context, say func(format string, args ...any)) error {
	missing := Missing()
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this is no Debian system, so install these yourself: %s", strings.Join(missing, " "))
	}
	say("installing Debian packages: %s", strings.Join(missing, " "))
	if err := run.Quietly(ctx, "apt-get", "update", "--quiet"); err != nil {
		return err
	}
	install := []string{
		"DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1",
		"apt-get", "install", "--quiet", "--yes", "--no-install-recommends",
	}
	return run.Quietly(ctx, "env", append(install, missing...)...)
}
