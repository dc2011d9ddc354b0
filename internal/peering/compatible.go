package peering

import "k8s.io/apimachinery/pkg/util/version"

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
