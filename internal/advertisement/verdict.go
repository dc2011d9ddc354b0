package advertisement

import (
	"strings"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// verdict is the answer to a message.
type verdict struct {
	state           v1alpha1.AcknowledgementState
	reason, message string
	corrections     []string
}

const (
	messageExpired = "The time to live of the advertisement has passed, or the peer has been silent for too long"
	messageStale   = "spec.sequence is lower than that of the advertisement before"
	messageLoop    = "The aggregated advertisement contains one that has passed this cluster before, or passed another twice, " +
		"or has come too far: the peer must leave that one out"
	messagePending                = "An administrator of the receiver has to decide, by kubectl hanse accept or refuse"
	messageRefusedByPolicy        = "A policy of the receiver refuses the advertisement"
	messageRefusedByAdministrator = "An administrator of the receiver refuses the advertisement"
	// Why is for the receiver's own administrator, and does not go to the provider.
	messagePolicyFailed = "The receiver's policies cannot be asked: `kubectl hanse status` there says why"
	messageUnjudged     = "The advertisement was not judged yet"
	messageCorrected    = "The receiver uses the advertisement with the changes that acknowledgement.corrections names"
)

// maxMessage is the bound of messages of acknowledgements in the API.
const maxMessage = 1024

func refusal(reason, message string) verdict {
	return verdict{state: v1alpha1.AcknowledgementRefused, reason: reason, message: bounded(message)}
}

// corrected says so of an accepted message that is used with changes.
func (v verdict) corrected() verdict {
	if len(v.corrections) > 0 {
		v.reason = v1alpha1.ReasonCorrected
		v.message = bounded(withCause(messageCorrected, v.message))
	}
	return v
}

// event says it in words of an event, which the reason precedes.
func (v verdict) event() string {
	switch {
	case len(v.corrections) > 0:
		return bounded("The advertisement is used with changes: " + strings.Join(v.corrections, "; "))
	case v.state == v1alpha1.AcknowledgementAccepted:
		return bounded(withCause("The advertisement is used", v.message))
	default:
		return v.message
	}
}

func withCause(message, cause string) string {
	if cause == "" {
		return message
	}
	return message + ": " + cause
}

// bounded keeps a message within what a status can store.
func bounded(message string) string { return sanitize.Text(message, maxMessage) }
