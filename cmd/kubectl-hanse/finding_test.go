// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestFindingsForPeopleAndScripts(t *testing.T) {
	findings := slices.Concat(
		subject{topicKubernetes, "Kubernetes version"}.ok("v1.37.1"),
		subject{topicPeer, "hamburg: Reachable"}.failed("no answer\x1b[31m", "look at the network"),
		subject{topicSession, "hamburg: session"}.warning("it ends", "wait"),
		subject{topicRanges, "pod ranges of nodes"}.skipped("none"),
	)
	for output, file := range map[string]string{"table": "findings.txt", "short": "findings-short.txt", "json": "findings.json"} {
		var text bytes.Buffer
		if err := printFindings(&text, findings, output); err != nil {
			t.Fatal(err)
		}
		golden(t, file, text.String())
	}
}

// TestEveryTopicIsExplained checks that each link of a finding leads to a heading.
func TestEveryTopicIsExplained(t *testing.T) {
	anchors := anchorsOf(t, troubleshooting)
	topics := topicsOf(t)
	if len(topics) < 10 {
		t.Fatalf("only %d topics found", len(topics))
	}
	for name, value := range topics {
		if !anchors[value] {
			t.Errorf("%s has no heading of %s", troubleshooting, name)
		}
	}
}

// anchorsOf are the headings of a page.
func anchorsOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for _, title := range regexp.MustCompile(`(?m)^#+ +(.*)$`).FindAllStringSubmatch(string(text), -1) {
		anchors[anchor(title[1])] = true
	}
	return anchors
}

// leads reports whether there is what a link names.
func leads(t *testing.T, link string) bool {
	t.Helper()
	file, heading, deep := strings.Cut(link, "#")
	anchors := anchorsOf(t, file)
	return !deep || anchors[heading]
}

// anchor is what code hosts make of a heading.
func anchor(title string) string {
	kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(title), "")
	return strings.ReplaceAll(kept, " ", "-")
}

// topicsOf are the topics that check.go declares, by the name of the constant.
func topicsOf(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "check.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "topic") || len(spec.Values) != 1 {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.CompositeLit); ok {
			value, err := strconv.Unquote(literal.Elts[1].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found[spec.Names[0].Name] = value
		}
		return true
	})
	return found
}

func TestCheckThatRunsOutOfTimeTellsWhatItSaw(t *testing.T) {
	testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
		peer := newPeer("hamburg", v1alpha1.RoleConsumer)
		setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "no answer")
		findings, err := newChecker(t, peer).repeat(ctx, &checkFlags{peer: "hamburg", wait: true}, &progress{report: t.Logf})
		if err != nil || stateOf(findings, "hamburg: Ready") != stateFailed {
			t.Errorf("%v, %v", findings, err)
		}
	})
}
