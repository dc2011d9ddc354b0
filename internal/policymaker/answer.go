package policymaker

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// Bounds of an answer, which must fit beside what was asked.
const (
	maxSteps    = 100
	maxStepText = 512
	maxAnswer   = 128 << 10
)

// An answer is what a ConfigMap that asks gets. Clients read it: fields are added, never renamed.
type answer struct {
	Decision policy.Outcome `json:"decision,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Patch    *patch         `json:"patch,omitempty"`
	Steps    []step         `json:"steps,omitempty"`
	Error    string         `json:"error,omitempty"`
}

// A patch is what a decision changes, with the names that it has in Rego.
type patch struct {
	Availability      corev1.ResourceList `json:"availability,omitempty"`
	LargestPod        corev1.ResourceList `json:"largestPod,omitempty"`
	Prices            *v1alpha1.Prices    `json:"prices,omitempty"`
	Labels            map[string]string   `json:"labels,omitempty"`
	Flags             map[string]string   `json:"flags,omitempty"`
	HideImages        bool                `json:"hideImages,omitempty"`
	Annotations       map[string]string   `json:"annotations,omitempty"`
	NodeSelector      map[string]string   `json:"nodeSelector,omitempty"`
	PriorityClassName string              `json:"priorityClassName,omitempty"`
	RuntimeClassName  string              `json:"runtimeClassName,omitempty"`
	Exclude           map[string]string   `json:"exclude,omitempty"`
	Score             map[string]float64  `json:"score,omitempty"`
	Strict            bool                `json:"strict,omitempty"`
}

// A step is a rule that had a say.
type step struct {
	Rule     string `json:"rule"`
	Location string `json:"location"`
	Text     string `json:"text,omitempty"`
}

func answerOf(decision policy.Decision, steps []policy.Step) answer {
	given := answer{Decision: decision.Outcome, Reason: decision.Reason, Patch: patchOf(decision)}
	for _, s := range steps[:min(len(steps), maxSteps)] {
		given.Steps = append(given.Steps, step{Rule: s.Rule, Location: s.Location, Text: shortened(s.Text, maxStepText)})
	}
	return given
}

// patchOf returns what the decision changes, nil if that is nothing.
func patchOf(decision policy.Decision) *patch {
	switch {
	case decision.Offer != nil:
		p := decision.Offer
		return &patch{
			Availability: p.Availability, LargestPod: p.LargestPod, Prices: p.Prices, Labels: p.Labels, Flags: p.Flags, HideImages: p.HideImages,
		}
	case decision.Pod != nil:
		p := decision.Pod
		return &patch{
			Labels: p.Labels, Annotations: p.Annotations, NodeSelector: p.NodeSelector,
			PriorityClassName: p.PriorityClassName, RuntimeClassName: p.RuntimeClassName,
		}
	case decision.Ranking != nil:
		return &patch{Exclude: decision.Ranking.Exclude, Score: decision.Ranking.Scores, Strict: decision.Ranking.Strict}
	default:
		return nil
	}
}

// encode never returns more than fits.
func (a answer) encode() string {
	data, err := json.MarshalIndent(a, "", "  ")
	if err == nil && len(data) <= maxAnswer {
		return string(data)
	}
	if err == nil {
		err = fmt.Errorf("the answer has more than %d KiB", maxAnswer>>10)
	}
	return encode(answer{Error: shortened(err.Error(), maxMessage)})
}
