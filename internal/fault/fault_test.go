// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

func TestPointGoesOffOnceWhenItIsDue(t *testing.T) {
	for name, test := range map[string]struct {
		armed string
		want  []bool // whether each pass of PodCreated ends the process
	}{
		"nothing armed":         {"", []bool{false, false, false}},
		"the first time":        {PodCreated, []bool{true, false, false}},
		"the second time":       {PodCreated + ":2", []bool{false, true, false}},
		"another point":         {Recorded, []bool{false, false, false}},
		"the first time, named": {PodCreated + ":1", []bool{true, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			ended := false
			if err := Arm(test.armed, func() { ended = true }); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { armed.Store(nil) })
			for i, want := range test.want {
				ended = false
				if Point(PodCreated); ended != want {
					t.Errorf("pass %d ended the process: %t, want %t", i+1, ended, want)
				}
			}
		})
	}
}

func TestArmRefusesWhatCannotGoOff(t *testing.T) {
	for _, text := range []string{"manager/nowhere", PodCreated + ":0", PodCreated + ":-1", PodCreated + ":x", PodCreated + ":", ":1"} {
		if err := Arm(text, func() {}); err == nil {
			t.Errorf("%q was armed", text)
		}
	}
	if armed.Load() != nil {
		t.Error("something is armed")
	}
}

// A point that nobody passes tests nothing.
func TestEachPointIsPassed(t *testing.T) {
	passed := map[string]bool{}
	for _, folder := range []string{"kubelet", "mover", "tenant"} {
		err := filepath.WalkDir(filepath.Join("..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if call, ok := node.(*ast.CallExpr); ok && isPoint(call) {
					passed[call.Args[0].(*ast.SelectorExpr).Sel.Name] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(passed) != len(points) {
		t.Errorf("%d points are passed, and there are %d: %v", len(passed), len(points), passed)
	}
}

// isPoint tells whether it is fault.Point(fault.X).
func isPoint(call *ast.CallExpr) bool {
	callee, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || callee.Sel.Name != "Point" || len(call.Args) != 1 {
		return false
	}
	pkg, ok := callee.X.(*ast.Ident)
	if !ok || pkg.Name != "fault" {
		return false
	}
	_, named := call.Args[0].(*ast.SelectorExpr)
	return named
}

func BenchmarkPointUnarmed(b *testing.B) {
	for b.Loop() {
		Point(PodCreated)
	}
}
