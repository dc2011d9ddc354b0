package policy

// A Question is what policies are asked.
type Question string

// The questions.
const (
	// Incoming asks whether to use what a provider offers, and with which corrections.
	Incoming Question = "incoming"
	// Outgoing asks whether to offer anything to a consumer, and what of it.
	Outgoing Question = "outgoing"
	// ShadowPod asks whether to run a consumer's pod, and how.
	ShadowPod Question = "shadowpod"
	// Placement asks which clusters the pods of a namespace prefer, and which they must not use.
	Placement Question = "placement"
)

// Questions returns all questions.
func Questions() []Question { return []Question{Incoming, Outgoing, ShadowPod, Placement} }
