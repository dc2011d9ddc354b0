package peering

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// apiVersions are the versions of Hanse's API that this cluster speaks.
var apiVersions = []string{v1alpha1.GroupVersion.Version}

// compatible reports whether two versions of Hanse understand each other: the same ones do, and those of one major
// version whose minor versions are at most one apart. A build without a version, "dev", knows only its like.
func compatible(a, b string) bool {
	if a == b {
		return true
	}
	left, errLeft := version.ParseSemantic(a)
	right, errRight := version.ParseSemantic(b)
	if errLeft != nil || errRight != nil {
		return false
	}
	apart := int64(left.Minor()) - int64(right.Minor()) //nolint:gosec // minor versions are small
	return left.Major() == right.Major() && -1 <= apart && apart <= 1
}

// commonAPI reports whether both sides speak one version of Hanse's API. A peer that does not tell speaks the first.
func commonAPI(theirs []string) bool {
	if theirs == nil {
		theirs = []string{"v1alpha1"}
	}
	return slices.ContainsFunc(theirs, func(v string) bool { return slices.Contains(apiVersions, strings.TrimSpace(v)) })
}

// software is what a peer runs, as it says.
type software struct {
	version     string
	apiVersions []string
}

// theirSoftware returns what the peer runs. One that we consume from introduces itself, and a mere consumer has written
// it into its claim.
func theirSoftware(peer *v1alpha1.Peer, f *facts) (software, bool) {
	if _, open := unasked(v1alpha1.ConditionCompatible, peer, f); !open {
		return software{f.probe.hello.Version, f.probe.hello.APIVersions}, authenticated(peer, f).ok()
	}
	if peer.HasRole(v1alpha1.RoleConsumer) && accepted(f.claim) && f.claim.Spec.Version != "" {
		return software{version: f.claim.Spec.Version}, true
	}
	return software{}, false
}

// compatibility is whether what both sides run fits together. It is told and nothing more: what runs keeps running.
func compatibility(peer *v1alpha1.Peer, f *facts) condition {
	const kind = v1alpha1.ConditionCompatible
	theirs, known := theirSoftware(peer, f)
	if known && peer.Agentless() {
		return isTrue(kind, "The peer runs no Hanse, so there are no versions to compare")
	}
	if !known {
		if c, open := unasked(kind, peer, f); open {
			return c
		}
		return unknown(kind, v1alpha1.ReasonPending, "The peer's version is not known: see condition Authenticated")
	}
	if !compatible(f.ours, theirs.version) {
		return isFalse(kind, v1alpha1.ReasonIncompatibleVersion, "The peer runs Hanse %q and this cluster %q: the major "+
			"versions must be the same and the minor ones at most one apart; upgrade the older one. What runs keeps running",
			theirs.version, f.ours)
	}
	if !commonAPI(theirs.apiVersions) {
		return isFalse(kind, v1alpha1.ReasonIncompatibleAPI, "The peer speaks version %s of Hanse's API and this cluster %s: "+
			"upgrade the older one. What runs keeps running", strings.Join(theirs.apiVersions, ", "), strings.Join(apiVersions, ", "))
	}
	return isTrue(kind, "The versions of Hanse on both sides understand each other")
}
