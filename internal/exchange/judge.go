package exchange

import (
	"fmt"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// Bounds are the limits of what is believed.
type Bounds struct {
	// ClockSkew is by how much the sender's clock and ours may differ. A clock that is behind by more does no harm as long
	// as what it says has not expired.
	ClockSkew time.Duration
}

// DefaultBounds returns the bounds that hold unless an administrator sets others.
func DefaultBounds() Bounds { return Bounds{ClockSkew: 15 * time.Minute} }

// A Verdict says whether an advertisement can be used. The message names the field and what is wrong with it; it is the
// same every time that the same is wrong, and carries no time.
type Verdict struct {
	Accepted        bool
	Reason, Message string
}

// Judge says whether the offer of a peer can be used now. The clusterID is the one that the peer must have; previous is
// the offer of it that was accepted last, or nil.
func Judge(
	ad *v1alpha1.AdvertisementSpec, b Bounds, clusterID string, previous *v1alpha1.AdvertisementSpec, now time.Time,
) Verdict {
	verdict := judgeIdentity(ad, clusterID, previous)
	if verdict.Accepted {
		verdict = judgeTimes(ad, b, previous, now)
	}
	if verdict.Accepted {
		verdict = judgePhase(ad)
	}
	if verdict.Accepted {
		verdict = judgeQuantities(ad)
	}
	if verdict.Accepted {
		verdict = judgeFields(ad)
	}
	return verdict
}

func judgeIdentity(ad *v1alpha1.AdvertisementSpec, clusterID string, previous *v1alpha1.AdvertisementSpec) Verdict {
	switch {
	case ad.ClusterID != clusterID:
		return refused(v1alpha1.ReasonClusterIDMismatch,
			"spec.clusterID is %s but the peer is cluster %q", quoted(ad.ClusterID), clusterID)
	case ad.Sequence < 0:
		return refused(v1alpha1.ReasonInvalidField, "spec.sequence must not be negative")
	case previous != nil && ad.Sequence < previous.Sequence:
		return refused(v1alpha1.ReasonStale, "spec.sequence is lower than that of the advertisement in use")
	default:
		return accepted()
	}
}

func judgeTimes(ad *v1alpha1.AdvertisementSpec, b Bounds, previous *v1alpha1.AdvertisementSpec, now time.Time) Verdict {
	switch {
	case ad.Timestamp.IsZero():
		return refused(v1alpha1.ReasonInvalidField, "spec.timestamp is missing")
	case ad.TimeToLive.IsZero():
		return refused(v1alpha1.ReasonInvalidField, "spec.timeToLive is missing")
	case !ad.TimeToLive.After(ad.Timestamp.Time):
		return refused(v1alpha1.ReasonInvalidField, "spec.timeToLive must be later than spec.timestamp")
	case ad.Timestamp.Sub(now) > b.ClockSkew:
		return refused(v1alpha1.ReasonClockSkew,
			"spec.timestamp is ahead of the receiver's clock by more than %s: check the clocks of both clusters", b.ClockSkew)
	case ad.TimeToLive.After(now):
		return accepted()
	case now.Sub(ad.Timestamp.Time) > b.ClockSkew && !couldHaveAged(ad, previous):
		return refused(v1alpha1.ReasonClockSkew, "spec.timestamp is behind the receiver's clock by more than %s and spec.timeToLive "+
			"has passed: check the clocks of both clusters, and whether Hanse runs in the sender's", b.ClockSkew)
	default:
		return refused(v1alpha1.ReasonExpired,
			"spec.timeToLive has passed by the receiver's clock: if the advertisement is new, check the clocks of both clusters")
	}
}

// couldHaveAged reports whether a message that has expired by our clock may have been in time when it was made: it is the
// one that we know, or one that was made after it while we were cut off. If its clock has gone back since, or if we have
// never had a message of that cluster that was in time, the clocks are to be suspected.
func couldHaveAged(ad, previous *v1alpha1.AdvertisementSpec) bool {
	return previous != nil && !ad.Timestamp.Before(&previous.Timestamp)
}

func accepted() Verdict { return Verdict{Accepted: true, Reason: v1alpha1.ReasonAccepted} }

func refused(reason, format string, args ...any) Verdict {
	return Verdict{Reason: reason, Message: sanitize.Text(fmt.Sprintf(format, args...), maxMessage)}
}

const (
	maxMessage = 1024
	maxQuoted  = 80
)

// quoted makes what a peer wrote fit to be shown: printable, ASCII and short.
func quoted(text string) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%+q...", text[:maxQuoted])
	}
	return fmt.Sprintf("%+q", text)
}
