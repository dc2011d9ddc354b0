// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/run"
)

// Join puts the links of the cluster's nodes where they belong: into the bridge, or into a switch of their own where the
// cluster has bad links.
func Join(ctx context.Context, cluster *plan.Cluster) error {
	if !cluster.Linked() {
		return errors.Join(batch(ctx, joinScript(cluster, cluster.Slot.Bridge())), RemoveSwitch(ctx, cluster))
	}
	if !exists(cluster.Switch()) {
		if err := run.Quietly(ctx, "ip", "link", "add", cluster.Switch(), "type", "bridge"); err != nil {
			return err
		}
	}
	return batch(ctx, switchScript(cluster)+joinScript(cluster, cluster.Switch()))
}

// RemoveSwitch takes the cluster's own switch away, if it has one.
func RemoveSwitch(ctx context.Context, cluster *plan.Cluster) error {
	if !exists(cluster.Switch()) {
		return nil
	}
	return deleteLink(ctx, cluster.Switch())
}

// OpenCable lays the cable from the cluster's switch to the bridge, and returns its ends: the one in the switch first. Both are
// there for as long as somebody holds the files.
func OpenCable(ctx context.Context, cluster *plan.Cluster) ([]*os.File, error) {
	inside, outside := cluster.Cable()
	var ends []*os.File
	for _, name := range []string{inside, outside} {
		end, err := openTAP(name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open TAP device %s: %w", name, err), closeAll(ends))
		}
		ends = append(ends, end)
	}
	if err := batch(ctx, cableScript(cluster)); err != nil {
		return nil, errors.Join(err, closeAll(ends))
	}
	return ends, nil
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, file := range files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// openTAP makes a device that takes and gives whole frames. Its kernel side can do nothing by itself, so what the file gives is
// never larger than the device's MTU, and has its checksums.
func openTAP(name string) (*os.File, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}
