package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/hanse-dev/hanse/internal/sanitize"
)

var (
	// ErrAnswer means that the answer of the modules is not what the question asks for: a field that it does not have, a
	// value of a wrong type or out of bounds, or two answers that contradict each other.
	ErrAnswer = errors.New("the answer is wrong")
	// ErrTooSlow means that the modules did not answer before the deadline.
	ErrTooSlow = errors.New("no answer before the deadline")
	// errInternal means that OPA has a mistake.
	errInternal = errors.New("internal error of the policy engine")
)

const maxErrorText = 512

// located writes errors of OPA as file:line: what is wrong.
func located(err error) error {
	var many ast.Errors
	if !errors.As(err, &many) {
		return err
	}
	texts := []string{}
	for i, one := range many {
		if i == maxProblems {
			texts = append(texts, "and more")
			break
		}
		texts = append(texts, at(one.Location)+one.Message)
	}
	return errors.New(bounded(strings.Join(texts, "; "), maxErrorText))
}

// evaluationError says what kept the modules from answering.
func evaluationError(err error, late bool) error {
	var problem *topdown.Error
	switch {
	case topdown.IsCancel(err) && late:
		return ErrTooSlow
	case !errors.As(err, &problem):
		return fmt.Errorf("evaluate: %w", err)
	case problem.Code == topdown.ConflictErr:
		return fmt.Errorf("%w: %s%s", ErrAnswer, at(problem.Location), bounded(problem.Message, maxErrorText))
	default:
		return fmt.Errorf("evaluate: %s%s", at(problem.Location), bounded(problem.Message, maxErrorText))
	}
}

func at(location *ast.Location) string {
	if location == nil || location.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", location.File, location.Row)
}

// recovered turns a panic into an error: a mistake of OPA must end neither the process nor the other questions.
func recovered(err *error) {
	if problem := recover(); problem != nil {
		*err = fmt.Errorf("%w: %.200v", errInternal, problem)
	}
}

// bounded keeps a text within a number of bytes, and whole characters.
func bounded(text string, most int) string {
	return strings.ToValidUTF8(sanitize.Text(text, most), "?")
}
