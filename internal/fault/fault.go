// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// A trigger goes off when its point has been passed so often.
type trigger struct {
	point string
	left  atomic.Int64
	exit  func()
}

// armed is the process's one trigger, nil in every process but those of the fault suite.
var armed atomic.Pointer[trigger]

// Point marks a moment at which the process may die. It does nothing unless this very point is armed.
func Point(name string) {
	if t := armed.Load(); t != nil && t.point == name && t.left.Add(-1) == 0 {
		t.exit()
	}
}

// Arm has exit called when the point of "NAME" or "NAME:N" is passed for the Nth time, and at no other. An empty text arms
// nothing.
func Arm(text string, exit func()) error {
	if text == "" {
		armed.Store(nil)
		return nil
	}
	name, count, counted := strings.Cut(text, ":")
	if !slices.Contains(points, name) {
		return fmt.Errorf("there is no point %q; there are %s", name, strings.Join(points, ", "))
	}
	t := &trigger{point: name, exit: exit}
	t.left.Store(1)
	if counted {
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not how often point %s is passed: it is a number from 1", count, name)
		}
		t.left.Store(n)
	}
	armed.Store(t)
	return nil
}

// The points of `hanse kubelet`, each named after the write that was done or comes next.
const (
	TolerationsChanged = "kubelet/tolerations-changed"
	ShadowCreated      = "kubelet/shadow-created"
	ChangeCarried      = "kubelet/change-carried"
	BeforeHomeStatus   = "kubelet/before-home-status"
	HomeStatusWritten  = "kubelet/home-status-written"
	GraceTold          = "kubelet/grace-told"
	ShadowDeleted      = "kubelet/shadow-deleted"
	BeforeForget       = "kubelet/before-forget"
	BeforeLettingGo    = "kubelet/before-letting-go"
)

// The points of `hanse manager` at a provider, which keeps the pods of others.
const (
	BeforePod       = "manager/before-pod"
	PodCreated      = "manager/pod-created"
	PodUpdated      = "manager/pod-updated"
	PodDeleted      = "manager/pod-deleted"
	BeforeRecord    = "manager/before-record"
	Recorded        = "manager/recorded"
	BeforeRelease   = "manager/before-release"
	MappingHeld     = "manager/mapping-held"
	TwinCreated     = "manager/twin-created"
	BetweenGuards   = "manager/between-guards"
	TwinSecured     = "manager/twin-secured"
	TwinDeleted     = "manager/twin-deleted"
	BeforeUnmapping = "manager/before-unmapping"
)

// The points of moves, which `hanse manager` of the consumer passes. Each stands behind a write, and so before the next one.
const (
	MoveBegun        = "manager/move-begun"
	MoveCopied       = "manager/move-copied"
	MoveNoted        = "manager/move-noted"
	MoveCostLowered  = "manager/move-cost-lowered"
	MoveHandedOver   = "manager/move-handed-over"
	MoveEvicted      = "manager/move-evicted"
	MoveGated        = "manager/move-gated"
	MoveSteered      = "manager/move-steered"
	MoveCopyEvicted  = "manager/move-copy-evicted"
	MoveSettled      = "manager/move-settled"
	MoveSucceeded    = "manager/move-succeeded"
	MoveAborted      = "manager/move-aborted"
	MoveCostRestored = "manager/move-cost-restored"
	MoveCopyDeleted  = "manager/move-copy-deleted"
	MoveFailed       = "manager/move-failed"
	MoveRestored     = "manager/move-restored"
)

var points = []string{
	TolerationsChanged, ShadowCreated, ChangeCarried, BeforeHomeStatus, HomeStatusWritten, GraceTold, ShadowDeleted, BeforeForget,
	BeforeLettingGo,
	BeforePod, PodCreated, PodUpdated, PodDeleted, BeforeRecord, Recorded, BeforeRelease,
	MappingHeld, TwinCreated, BetweenGuards, TwinSecured, TwinDeleted, BeforeUnmapping,
	MoveBegun, MoveCopied, MoveNoted, MoveCostLowered, MoveHandedOver, MoveEvicted, MoveSettled, MoveSucceeded, MoveAborted, MoveCostRestored,
	MoveCopyDeleted, MoveFailed, MoveGated, MoveSteered, MoveCopyEvicted, MoveRestored,
}

// Points returns the names of all points that the load of the fault suite passes. What is before the slash is the subcommand that passes it.
func Points() []string { return slices.Clone(points) }
