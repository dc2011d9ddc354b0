package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	maxReasons   = 16
	maxReason    = 256  // bytes of one
	maxReasonAll = 1000 // bytes of all that lead to an outcome
	maxRanked    = 10000
	maxPeerName  = 40

	reasonNotAllowed = "no rule of the policy allows it"
)

// An Outcome is the answer to a question in one word.
type Outcome string

// The outcomes.
const (
	// Allow means yes.
	Allow Outcome = "Allow"
	// Deny means no.
	Deny Outcome = "Deny"
	// Pend means that an administrator has to decide.
	Pend Outcome = "Pend"
)

// A Decision is the answer of the policies to one question.
type Decision struct {
	Outcome Outcome
	// Reason says why, for people: the reasons of all rules that led to the outcome, sorted and joined; bounded. It may
	// be empty if the outcome is Allow.
	Reason string
	// Offer is what to change, if the question is Incoming or Outgoing; nil is nothing.
	Offer *OfferPatch
	// Pod is what to change, if the question is ShadowPod; nil is nothing.
	Pod *PodPatch
	// Ranking is the answer to Placement; nil for other questions.
	Ranking *Ranking
}

// An OfferPatch changes fields of an advertisement. A nil field is not changed. In JSON its fields, and those of PodPatch
// and Ranking, have the names that rules give them.
type OfferPatch struct {
	// Availability and LargestPod replace the amounts of the resources that they name; a zero takes the resource away, but
	// of those that every advertisement names, which become zero.
	Availability corev1.ResourceList `json:"availability,omitempty"`
	LargestPod   corev1.ResourceList `json:"largestPod,omitempty"`
	// Prices replaces the prices as a whole; one without a currency makes the offer free.
	Prices *v1alpha1.Prices `json:"prices,omitempty"`
	// Labels and Flags replace the values of the keys that they name; an empty value takes the key away.
	Labels map[string]string `json:"labels,omitempty"`
	Flags  map[string]string `json:"flags,omitempty"`
	// HideImages takes all images away.
	HideImages bool `json:"hideImages,omitempty"`
}

// A PodPatch changes fields of a pod that is made for a consumer.
type PodPatch struct {
	// Labels, Annotations and NodeSelector are added; keys that the pod has are replaced, but for those of Hanse.
	Labels       map[string]string `json:"labels,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// PriorityClassName and RuntimeClassName are set unless they are empty.
	PriorityClassName string `json:"priorityClassName,omitempty"`
	RuntimeClassName  string `json:"runtimeClassName,omitempty"`
}

// A Ranking says how clusters compare for the pods of a namespace.
type Ranking struct {
	// Exclude names peers that must not be used, and why.
	Exclude map[string]string `json:"exclude,omitempty"`
	// Scores says of peers how good they are: the higher the better. It is nil if the policies do not compare.
	Scores map[string]float64 `json:"score,omitempty"`
	// Strict lets only the best one be used that fits.
	Strict bool `json:"strict,omitempty"`
}

// decode makes a decision of what the rules answered.
func decode(question Question, answers map[string]ast.Value) (Decision, error) {
	decision, err := outcome(answers)
	if err != nil {
		return Decision{}, err
	}
	return decision, question.point().decode(&decision, answers)
}

func decodeOffer(decision *Decision, answers map[string]ast.Value) error {
	fields, err := patchFields(answers)
	if fields != nil {
		decision.Offer, err = offerPatch(fields)
	}
	return within(rulePatch, err)
}

func decodePod(decision *Decision, answers map[string]ast.Value) error {
	fields, err := patchFields(answers)
	if fields != nil {
		decision.Pod, err = podPatch(fields)
	}
	return within(rulePatch, err)
}

// patchFields returns nil if the rules change nothing.
func patchFields(answers map[string]ast.Value) (ast.Object, error) {
	patch, found := answers[rulePatch]
	if !found {
		return nil, nil
	}
	fields, err := object(patch, maxEntries)
	if err != nil || fields.Len() == 0 {
		return nil, err
	}
	return fields, nil
}

// outcome adds up deny, pend and allow: the strictest wins.
func outcome(answers map[string]ast.Value) (Decision, error) {
	denied, err := reasons(answers[ruleDeny])
	if err != nil {
		return Decision{}, within(ruleDeny, err)
	}
	pending, err := reasons(answers[rulePend])
	if err != nil {
		return Decision{}, within(rulePend, err)
	}
	allowed := true
	if value, found := answers[ruleAllow]; found {
		if allowed, err = boolean(value); err != nil {
			return Decision{}, within(ruleAllow, err)
		}
	}
	switch {
	case denied != "":
		return Decision{Outcome: Deny, Reason: denied}, nil
	case !allowed:
		return Decision{Outcome: Deny, Reason: reasonNotAllowed}, nil
	case pending != "":
		return Decision{Outcome: Pend, Reason: pending}, nil
	default:
		return Decision{Outcome: Allow}, nil
	}
}

// reasons joins the elements of the set, which OPA keeps sorted. No value is no reason.
func reasons(value ast.Value) (string, error) {
	if value == nil {
		return "", nil
	}
	set, isSet := value.(ast.Set)
	if !isSet {
		return "", fmt.Errorf("is %s: it must be a set of reasons", ast.ValueName(value))
	}
	texts := []string{}
	for i, element := range set.Slice() {
		if i == maxReasons {
			texts = append(texts, fmt.Sprintf("and %d more", set.Len()-maxReasons))
			break
		}
		reason, isText := element.Value.(ast.String)
		if !isText || reason == "" {
			return "", fmt.Errorf("contains %s: it must contain reasons, which are texts", ast.ValueName(element.Value))
		}
		texts = append(texts, printable(string(reason), maxReason))
	}
	return bounded(strings.Join(texts, "; "), maxReasonAll), nil
}

func decodeRanking(decision *Decision, answers map[string]ast.Value) (err error) {
	ranking := &Ranking{}
	if ranking.Exclude, err = byPeer(answers[ruleExclude], exclusion); err != nil {
		return within(ruleExclude, err)
	}
	if ranking.Scores, err = byPeer(answers[ruleScore], score); err != nil {
		return within(ruleScore, err)
	}
	if value, found := answers[ruleStrict]; found {
		if ranking.Strict, err = boolean(value); err != nil {
			return within(ruleStrict, err)
		}
	}
	decision.Ranking = ranking
	return nil
}

// byPeer reads an object whose keys are names of peers. It is nil if there are none.
func byPeer[V any](value ast.Value, read func(ast.Value) (V, error)) (map[string]V, error) {
	if value == nil {
		return nil, nil
	}
	values, err := entries[string](value, maxRanked, func(peer string, value ast.Value) (V, error) {
		if len(peer) > maxPeerName || len(validation.IsDNS1123Label(peer)) > 0 {
			var none V
			return none, errors.New("is not the name of a peer")
		}
		return read(value)
	})
	if len(values) == 0 {
		return nil, err
	}
	return values, err
}

func exclusion(value ast.Value) (string, error) {
	reason, isText := value.(ast.String)
	if !isText {
		return "", fmt.Errorf("is %s: it must be a reason, which is a text", ast.ValueName(value))
	}
	return printable(string(reason), maxReason), nil
}

func score(value ast.Value) (float64, error) {
	number, isNumber := value.(ast.Number)
	if !isNumber {
		return 0, fmt.Errorf("is %s: it must be a number", ast.ValueName(value))
	}
	f, finite := number.Float64()
	if !finite {
		return 0, errors.New("is too large a number")
	}
	return f, nil
}
