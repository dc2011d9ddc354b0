// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/run"
)

// hidden are the folders of the machine that a worker has its own ones of. The testbed's own files must be elsewhere.
var hidden = []string{"/run", "/var/run", "/var/lib", "/var/log"}

// ValidateDir tells whether a worker could see its files in this folder.
func ValidateDir(dir string) error {
	for _, parent := range hidden {
		if dir == parent || strings.HasPrefix(dir, parent+"/") {
			return fmt.Errorf("folder of state %s: must not be in %s, of which each worker has its own", dir, parent)
		}
	}
	return nil
}

// EnsureMachine makes the worker's mount namespace and control groups if they do not exist.
func EnsureMachine(ctx context.Context, node plan.Node) error {
	if err := ensureCgroups(node); err != nil {
		return err
	}
	mounted, err := isMounted(node.MountnsPath())
	if err != nil {
		return err
	}
	if mounted && inside(ctx, node, "test", "-e", complete) == nil {
		return nil
	}
	if err := release(node.MountnsPath()); err != nil {
		return err
	}
	return makeMachine(ctx, node)
}

func makeMachine(ctx context.Context, node plan.Node) error {
	if err := privateFolder(node.Cluster.Slot.RunDir()); err != nil {
		return err
	}
	if err := os.WriteFile(node.MountnsPath(), nil, 0o600); err != nil {
		return err
	}
	library := node.LibraryDir()
	for _, dir := range []string{library, node.LogDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // containers run as other users
			return err
		}
	}
	if err := run.Quietly(ctx, "unshare", "--mount="+node.MountnsPath(), "--propagation=private", "true"); err != nil {
		return err
	}
	return inside(ctx, node, "sh", "-ec", setup, "sh", library, node.LogDir())
}

func inside(ctx context.Context, node plan.Node, command ...string) error {
	return run.Quietly(ctx, "nsenter", append([]string{"--mount=" + node.MountnsPath(), "--"}, command...)...)
}

// complete is a file that the last step of making a mount namespace leaves in it.
const complete = "/run/testbed-worker"

// setup makes the new namespace's mounts, after it has let go of those in /run: handles of other nodes' namespaces are
// among them, which would keep those alive. The mounts are shared with what is mounted from them, as on a real node, so that
// mounts of a container can show in others; and /run is not on disk, so that nothing there outlives the worker.
const setup = `sed -n 's|^[^ ]* [^ ]* [^ ]* [^ ]* \(/run/[^ ]*\) .*|\1|p' /proc/self/mountinfo | tac | while read -r old; do
	umount -n -l "$old"
done
mount -n --make-rshared /
mount -n --bind "$1" /var/lib
mount -n --bind "$2" /var/log
mount -n -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock
mkdir -p /var/lib/cni /var/log/pods /var/log/containers
touch ` + complete

// privateFolder makes a folder that handles of mount namespaces can be mounted in. The kernel allows it only where
// mounts are not shared.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	mounted, err := isMounted(dir)
	if err != nil || mounted {
		return err
	}
	// Not with mount(8), which leaves a file of its own in /run.
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on itself: %w", dir, err)
	}
	return syscall.Mount("", dir, "", syscall.MS_PRIVATE, "")
}

// RemoveMachine takes the worker's mount namespace and control groups away. No process may be left in them.
func RemoveMachine(ctx context.Context, node plan.Node) error {
	return errors.Join(release(node.MountnsPath()), removeCgroups(ctx, node.Cgroup()))
}

// RemoveAll takes away what is left of any worker of the slot.
func RemoveAll(ctx context.Context, slot plan.Slot) error {
	entries, err := os.ReadDir(slot.RunDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, entry := range entries {
		errs = append(errs, release(filepath.Join(slot.RunDir(), entry.Name())))
	}
	return errors.Join(append(errs, release(slot.RunDir()), removeCgroups(ctx, slot.Cgroup()))...)
}

// release unmounts a path as often as it is mounted, and removes it.
func release(path string) error {
	for {
		mounted, err := isMounted(path)
		if err != nil {
			return err
		}
		if !mounted {
			break
		}
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// mountPoint is the position of the mount point in a line of /proc/self/mountinfo.
const mountPoint = 4

func isMounted(path string) (bool, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > mountPoint && fields[mountPoint] == path {
			return true, nil
		}
	}
	return false, lines.Err()
}
