// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/docs/markdown"
	"github.com/hanse-dev/hanse/internal/advertisement"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// A metric is what the page states of it: `name{label,label}` and its type.
type metric struct {
	labels []string
	kind   string // counter, gauge or histogram
}

const metricsPage = "docs/reference/metrics.md"

// TestReferenceDescribesEachMetric compares docs/reference/metrics.md with the registry of this process, in which all
// packages have registered their metrics: names, types and labels.
func TestReferenceDescribesEachMetric(t *testing.T) {
	described := map[string]metric{}
	for _, row := range metricRows(t) {
		for _, name := range markdown.Codes(row.Cells[0]) {
			name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			described[name] = metric{labels: strings.FieldsFunc(labels, func(r rune) bool { return r == ',' }), kind: row.Cells[2]}
		}
	}
	registered := registeredMetrics(t)
	for _, name := range slices.Sorted(maps.Keys(registered)) {
		found, isDescribed := described[name]
		if !isDescribed {
			t.Errorf("%s does not describe %s: add a row", metricsPage, name)
			continue
		}
		if diff := cmp.Diff(fmt.Sprint(registered[name]), fmt.Sprint(found)); diff != "" {
			t.Errorf("%s: labels or type of %s are others: correct the row (-process +page)\n%s", metricsPage, name, diff)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(described)) {
		if _, isRegistered := registered[name]; !isRegistered {
			t.Errorf("%s describes %s, which no process has: remove the row", metricsPage, name)
		}
	}
}

func metricRows(t *testing.T) []markdown.Row {
	t.Helper()
	tables := markdown.Parse(metricsPage, readFileOf(t, metricsPage)).Tables
	if len(tables) != 1 || len(tables[0].Rows) < 20 {
		t.Fatalf("%s has another table than that of the metrics", metricsPage)
	}
	return tables[0].Rows
}

var descriptor = regexp.MustCompile(`^Desc\{fqName: "(hanse_[^"]*)", help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{\}, variableLabels: \{([^}]*)\}`)

// registeredMetrics describes the metrics of Hanse in the registry, and those that need a running manager.
func registeredMetrics(t *testing.T) map[string]metric {
	t.Helper()
	registry, isCollector := metrics.Registry.(prometheus.Collector)
	if !isCollector {
		t.Fatal("the registry does not describe itself")
	}
	found := map[string]metric{}
	for _, text := range descriptions(registry) {
		parts := descriptor.FindStringSubmatch(text)
		if parts == nil {
			continue // of a library
		}
		help, err := strconv.Unquote(parts[2])
		if err != nil {
			t.Fatal(err)
		}
		labels := strings.FieldsFunc(parts[3], func(r rune) bool { return r == ',' })
		found[parts[1]] = metric{labels: labels, kind: kindOf(t, parts[1], help, labels)}
	}
	// These compute gauges when they are scraped.
	for _, collector := range []prometheus.Collector{&advertisement.Publisher{}, &advertisement.Receiver{}} {
		for _, text := range descriptions(collector) {
			parts := descriptor.FindStringSubmatch(text)
			found[parts[1]] = metric{labels: strings.Split(parts[3], ","), kind: "gauge"}
		}
	}
	if len(found) < 30 {
		t.Errorf("only %d metrics found", len(found))
	}
	return found
}

func descriptions(collector prometheus.Collector) []string {
	all := make(chan *prometheus.Desc, 1000)
	collector.Describe(all)
	close(all)
	var texts []string
	for description := range all {
		texts = append(texts, description.String())
	}
	return texts
}

// kindOf finds out the type of a registered metric: the registry returns the collector when another one of that name is
// registered.
func kindOf(t *testing.T, name, help string, labels []string) string {
	t.Helper()
	var double prometheus.Collector = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	if len(labels) == 0 {
		double = prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	already := prometheus.AlreadyRegisteredError{}
	if err := metrics.Registry.Register(double); !errors.As(err, &already) {
		t.Fatalf("%s is not registered: %v", name, err)
	}
	switch already.ExistingCollector.(type) {
	case prometheus.Gauge, *prometheus.GaugeVec:
		return "gauge"
	case prometheus.Counter, *prometheus.CounterVec:
		return "counter"
	case prometheus.Histogram, *prometheus.HistogramVec:
		return "histogram"
	}
	t.Fatalf("%s is a %T", name, already.ExistingCollector)
	return ""
}

// TestReferenceNamesTheValuesOfLabels checks that the page names the values of labels that have few: those that the code
// spells out where it counts, and the enumerations of our packages.
func TestReferenceNamesTheValuesOfLabels(t *testing.T) {
	values := map[string][]string{}
	for _, kind := range reflection.Kinds(true) {
		values["hanse_reflection_writes_total"] = append(values["hanse_reflection_writes_total"], string(kind))
	}
	for _, outcome := range []policy.Outcome{policy.Allow, policy.Deny, policy.Pend} {
		values["hanse_policy_decisions_total"] = append(values["hanse_policy_decisions_total"], string(outcome))
	}
	for name, literals := range spelledValues(t) {
		values[name] = append(values[name], literals...)
	}
	if len(values) < 6 {
		t.Errorf("values of only %d metrics found", len(values))
	}
	for _, row := range metricRows(t) {
		for _, name := range markdown.Codes(row.Cells[0]) {
			name, _, _ := strings.Cut(name, "{")
			stated := strings.Join(markdown.Codes(row.Cells[3]), " ")
			for _, value := range values[name] {
				if !slices.Contains(strings.Fields(stated), value) {
					t.Errorf("%s:%d: a label of %s has the value `%s`, too: add it", metricsPage, row.Line, name, value)
				}
			}
		}
	}
}

// spelledValues reads the source: metric → the texts that calls of WithLabelValues have as arguments.
func spelledValues(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(filepath.Join("..", "..", "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil {
			return err
		}
		metricOf, called := map[string]string{}, map[string][]string{} // by the variable that holds the metric
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				return err
			}
			readMetrics(source, metricOf, called)
		}
		for variable, values := range called {
			found[metricOf[variable]] = append(found[metricOf[variable]], values...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// readMetrics collects the names of metrics that variables hold, and the label values that a file spells out.
func readMetrics(source *ast.File, metricOf map[string]string, called map[string][]string) {
	ast.Inspect(source, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ValueSpec:
			for i, value := range node.Values {
				if name := metricName(value); name != "" {
					metricOf[node.Names[i].Name] = name
				}
			}
		case *ast.CallExpr:
			selector, isMethod := node.Fun.(*ast.SelectorExpr)
			if !isMethod || selector.Sel.Name != "WithLabelValues" {
				return true
			}
			if variable, isName := selector.X.(*ast.Ident); isName {
				for _, arg := range node.Args {
					if text := literal(arg); text != "" {
						called[variable.Name] = append(called[variable.Name], text)
					}
				}
			}
		}
		return true
	})
}

// metricName returns the field Name of the options in a call such as prometheus.NewCounterVec.
func metricName(value ast.Expr) string {
	name := ""
	ast.Inspect(value, func(node ast.Node) bool {
		if pair, isPair := node.(*ast.KeyValueExpr); isPair {
			if key, isName := pair.Key.(*ast.Ident); isName && key.Name == "Name" && strings.HasPrefix(literal(pair.Value), "hanse_") {
				name = literal(pair.Value)
			}
		}
		return name == ""
	})
	return name
}

func literal(value ast.Expr) string {
	basic, isLiteral := value.(*ast.BasicLit)
	if !isLiteral || basic.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(basic.Value)
	return text
}
