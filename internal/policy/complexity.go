package policy

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Bounds of how rules are written. The time that OPA needs to compile them grows with the square of the depth of an
// expression and the cube of the length of a body, and doubles with each comprehension within another.
const (
	maxDepth    = 400 // of nodes in the syntax tree: some 100 operators in one expression
	maxClosures = 6   // comprehensions and the like within each other
	maxElse     = 64  // branches of one rule
	maxBody     = 200 // expressions of one rule or closure
)

// checkComplexity refuses modules that would take OPA long to compile.
func checkComplexity(name string, module *ast.Module) error {
	depth := &depth{}
	visitor := ast.NewBeforeAfterVisitor(depth.enter, depth.leave)
	for _, rule := range module.Rules {
		branches := 0
		for branch := rule; branch != nil; branch = branch.Else {
			branches++
			visitor.Walk(branch.Body)
			visitor.Walk(branch.Head)
			if branch.Head.Key != nil { // which the visitor leaves out
				visitor.Walk(branch.Head.Key)
			}
		}
		if depth.exceeded || branches > maxElse {
			return fmt.Errorf("%s:%d: it is too long or nested too deeply: split it into several rules: %w", name, rule.Location.Row, ErrTooLarge)
		}
	}
	return nil
}

// A depth is where a visitor is in a syntax tree.
type depth struct {
	nodes, closures int
	exceeded        bool
}

func (d *depth) enter(node any) (stop bool) {
	d.nodes++
	d.closures += closure(node)
	body, _ := node.(ast.Body)
	d.exceeded = d.exceeded || d.nodes > maxDepth || d.closures > maxClosures || len(body) > maxBody
	return d.exceeded
}

func (d *depth) leave(node any) {
	d.nodes--
	d.closures -= closure(node)
}

// closure is 1 for what has a body of its own.
func closure(node any) int {
	switch node.(type) {
	case *ast.ArrayComprehension, *ast.ObjectComprehension, *ast.SetComprehension,
		*ast.Every, *ast.Not, *ast.LogicalAnd, *ast.LogicalOr, *ast.TemplateString:
		return 1
	default:
		return 0
	}
}
