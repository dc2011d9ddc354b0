package fault

import "slices"

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

// The points of `hanse manager`, which keeps the pods of others.
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

var points = []string{
	TolerationsChanged, ShadowCreated, ChangeCarried, BeforeHomeStatus, HomeStatusWritten, GraceTold, ShadowDeleted, BeforeForget,
	BeforeLettingGo,
	BeforePod, PodCreated, PodUpdated, PodDeleted, BeforeRecord, Recorded, BeforeRelease,
	MappingHeld, TwinCreated, BetweenGuards, TwinSecured, TwinDeleted, BeforeUnmapping,
}

// Points returns the names of all points. What is before the slash is the subcommand that passes it.
func Points() []string { return slices.Clone(points) }
