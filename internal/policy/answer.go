// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
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
	// Terms is the answer to Quote; nil for other questions.
	Terms *Terms
}

// Terms are those of an offer for an application, as far as the policies say something of them.
type Terms struct {
	// Interest is how gladly the application is taken, from 0 to MaxInterest; nil is not said.
	Interest *int32 `json:"interest,omitempty"`
	// Prices replace the ones that are advertised, as a whole; ones without a currency make the offer free. nil is not said.
	Prices *v1alpha1.Prices `json:"prices,omitempty"`
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
	Labels map[string]v1alpha1.Text `json:"labels,omitempty"`
	Flags  map[string]v1alpha1.Text `json:"flags,omitempty"`
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
	err = question.point().decode(&decision, answers)
	return decision, err
}

// decodeNothing is for a question to which the answer is yes or no.
func decodeNothing(*Decision, map[string]ast.Value) error { return nil }

func decodeTerms(decision *Decision, answers map[string]ast.Value) error {
	terms := &Terms{}
	decision.Terms = terms
	return readAnswers(answers, map[string]reader{
		ruleInterest: into(&terms.Interest, interest), rulePrices: into(&terms.Prices, prices),
	})
}

// interest is rounded up, so that what is more than nothing does not become a no.
func interest(value ast.Value) (*int32, error) {
	number, err := score(value)
	if err == nil && (number < 0 || number > v1alpha1.MaxInterest) {
		err = fmt.Errorf("must be from 0 to %d", v1alpha1.MaxInterest)
	}
	return new(int32(math.Ceil(number))), err
}

func decodeOffer(decision *Decision, answers map[string]ast.Value) (err error) {
	decision.Offer, err = readPatch(answers, offerFields)
	return err
}

func decodePod(decision *Decision, answers map[string]ast.Value) (err error) {
	decision.Pod, err = readPatch(answers, podFields)
	return err
}

// readPatch returns nil if the rules change nothing.
func readPatch[P any](answers map[string]ast.Value, fieldsOf func(*P) map[string]reader) (*P, error) {
	value, found := answers[rulePatch]
	if !found {
		return nil, nil
	}
	patch := new(P)
	count, err := readFields(value, fieldsOf(patch))
	if count == 0 {
		patch = nil
	}
	return patch, within(rulePatch, err)
}

func decodeRanking(decision *Decision, answers map[string]ast.Value) error {
	ranking := &Ranking{}
	decision.Ranking = ranking
	return readAnswers(answers, map[string]reader{
		ruleExclude: into(&ranking.Exclude, byPeer(exclusion)),
		ruleScore:   into(&ranking.Scores, byPeer(score)),
		ruleStrict:  into(&ranking.Strict, boolean),
	})
}

// readAnswers reads the rules that have an answer.
func readAnswers(answers map[string]ast.Value, rules map[string]reader) error {
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		if value, found := answers[rule]; found {
			if err := rules[rule](value); err != nil {
				return within(rule, err)
			}
		}
	}
	return nil
}

// outcome adds up deny, pend and allow: the strictest wins.
func outcome(answers map[string]ast.Value) (Decision, error) {
	var denied, pending string
	allowed := true
	err := readAnswers(answers, map[string]reader{
		ruleDeny: into(&denied, reasons), rulePend: into(&pending, reasons), ruleAllow: into(&allowed, boolean),
	})
	if err != nil {
		return Decision{}, err
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

// reasons joins the elements of the set, which OPA keeps sorted.
func reasons(value ast.Value) (string, error) {
	set, err := as[ast.Set](value, "a set of reasons")
	if err != nil {
		return "", err
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

// byPeer reads an object whose keys are names of peers. It is nil if there are none.
func byPeer[V any](read func(ast.Value) (V, error)) func(ast.Value) (map[string]V, error) {
	return func(value ast.Value) (map[string]V, error) {
		values, err := entries[string](value, maxRanked, func(peer string, value ast.Value) (none V, err error) {
			if len(peer) > maxPeerName || len(validation.IsDNS1123Label(peer)) > 0 {
				return none, errors.New("is not the name of a peer")
			}
			return read(value)
		})
		if len(values) == 0 {
			return nil, err
		}
		return values, err
	}
}

func exclusion(value ast.Value) (string, error) {
	reason, err := as[ast.String](value, "a reason, which is a text")
	return printable(string(reason), maxReason), err
}

func score(value ast.Value) (float64, error) {
	number, err := as[ast.Number](value, "a number")
	if err != nil {
		return 0, err
	}
	f, finite := number.Float64()
	if !finite {
		return 0, errors.New("is too large a number")
	}
	return f, nil
}
