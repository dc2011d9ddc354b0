package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	maxReasons   = 16
	maxReason    = 256  // bytes of one
	maxReasonAll = 1000 // bytes of all that lead to an outcome
	maxRanked    = 10000
	maxPeerName  = 40

	reasonNotAllowed = "no rule of the policy allows it"
)

// decode makes a decision of what the rules said.
func decode(question Question, answers map[string]ast.Value) (Decision, error) {
	decision, err := outcome(answers)
	if err != nil {
		return Decision{}, err
	}
	if question == Placement {
		decision.Ranking, err = ranking(answers)
		return decision, err
	}
	patch, found := answers[rulePatch]
	if !found {
		return decision, nil
	}
	fields, err := object(patch, maxEntries)
	if err != nil || fields.Len() == 0 {
		return decision, within(rulePatch, err)
	}
	if question == ShadowPod {
		decision.Pod, err = podPatch(fields)
	} else {
		decision.Offer, err = offerPatch(fields)
	}
	return decision, within(rulePatch, err)
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

func ranking(answers map[string]ast.Value) (*Ranking, error) {
	excluded, err := byPeer(answers[ruleExclude], exclusion)
	if err != nil {
		return nil, within(ruleExclude, err)
	}
	scores, err := byPeer(answers[ruleScore], score)
	if err != nil {
		return nil, within(ruleScore, err)
	}
	strict := false
	if value, found := answers[ruleStrict]; found {
		if strict, err = boolean(value); err != nil {
			return nil, within(ruleStrict, err)
		}
	}
	return &Ranking{Exclude: excluded, Scores: scores, Strict: strict}, nil
}

// byPeer reads an object whose keys are names of peers. It is nil if there are none.
func byPeer[V any](value ast.Value, read func(ast.Value) (V, error)) (map[string]V, error) {
	if value == nil {
		return nil, nil
	}
	peers, err := object(value, maxRanked)
	if err != nil || peers.Len() == 0 {
		return nil, err
	}
	values := make(map[string]V, peers.Len())
	err = eachEntry(peers, func(peer string, value ast.Value) (err error) {
		if len(peer) > maxPeerName || len(validation.IsDNS1123Label(peer)) > 0 {
			return errors.New("is not the name of a peer")
		}
		values[peer], err = read(value)
		return err
	})
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
