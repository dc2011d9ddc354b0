// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hanse-dev/hanse/"

// layers lists our packages from the bottom up. A package may import those of lower layers, and none of its own.
var layers = []struct {
	name     string
	packages []string
}{
	{"api", []string{"api/v1alpha1"}},
	{"leaf", []string{"internal/version", "internal/sanitize", "internal/fault", "internal/unread", "charts", "policies"}},
	{"domain", []string{"internal/clusterset", "internal/exchange", "internal/move", "internal/offload", "internal/overlay", "internal/policy", "internal/reflection", "internal/trust"}},
	{"I/O", []string{"internal/kernel", "internal/local", "internal/netprobe", "internal/peers", "internal/relay", "internal/remoteevents", "internal/topology", "internal/trace"}},
	{"edge", []string{
		"internal/accounts", "internal/advertisement", "internal/agentless", "internal/broker", "internal/discovery", "internal/fabric", "internal/gateway", "internal/kubelet", "internal/market", "internal/mover", "internal/multicluster", "internal/namespaces", "internal/peering", "internal/tenant",
		"internal/install", "internal/policymaker", "internal/reflector", "internal/volumes",
	}},
	{"pages", []string{"docs/markdown"}},
	{"test", []string{"docs/commands", "internal/architecture", "internal/testkit", "test/harness", "test/hostile", "test/report"}},
	{"cmd", []string{"cmd/hanse", "cmd/kubectl-hanse", "test/e2e", "test/faults", "test/integration", "bench"}},
}

// forbidden are imports that a whole layer must do without, and why.
var forbidden = map[string]map[string]string{
	"api": {
		"k8s.io/client-go":               "the API is data",
		"sigs.k8s.io/controller-runtime": "the API is data",
	},
	"domain": {
		"k8s.io/client-go":               "domain code decides; it does no I/O",
		"sigs.k8s.io/controller-runtime": "domain code decides; it does no I/O",
		"net/http":                       "domain code decides; it does no I/O",
		"os":                             "domain code decides; it does no I/O",
		"log":                            "domain code decides; it does no I/O",
		"log/slog":                       "domain code decides; it does no I/O",
	},
}

func TestImportsPointDown(t *testing.T) {
	rank, layerOf := ranks()
	for dir, files := range sources(t) {
		pkg := owner(dir, rank)
		if pkg == "" {
			t.Errorf("%s is in no layer: add it to layers in this test", dir)
			continue
		}
		for file, imports := range files {
			for _, path := range imports {
				checkForbidden(t, file, layerOf[pkg], path)
				checkRank(t, file, pkg, path, rank)
			}
		}
	}
}

func checkForbidden(t *testing.T, file, layer, path string) {
	t.Helper()
	for banned, why := range forbidden[layer] {
		if path == banned || strings.HasPrefix(path, banned+"/") {
			t.Errorf("%s imports %s: %s", file, path, why)
		}
	}
}

func checkRank(t *testing.T, file, pkg, path string, rank map[string]int) {
	t.Helper()
	local, ours := strings.CutPrefix(path, module)
	if !ours {
		return
	}
	other := owner(local, rank)
	if other == "" {
		t.Errorf("%s imports %s, which is in no layer", file, path)
		return
	}
	if other != pkg && rank[other] >= rank[pkg] {
		t.Errorf("%s imports %s: imports point down, and packages of one layer do not know each other", file, path)
	}
}

func ranks() (rank map[string]int, layerOf map[string]string) {
	rank, layerOf = map[string]int{}, map[string]string{}
	for i, layer := range layers {
		for _, pkg := range layer.packages {
			rank[pkg], layerOf[pkg] = i, layer.name
		}
	}
	return rank, layerOf
}

// owner finds the package of the layers that the folder is, or lies in.
func owner(dir string, rank map[string]int) string {
	for d := dir; d != "."; d = filepath.ToSlash(filepath.Dir(d)) {
		if _, ok := rank[d]; ok {
			return d
		}
	}
	return ""
}

// sources returns the imports of every Go file that is not a test, by folder and file. Nested modules are left out.
func sources(t *testing.T) map[string]map[string][]string {
	t.Helper()
	root := filepath.Join("..", "..")
	found := map[string]map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipNested(root, path, entry.Name())
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		if found[dir] == nil {
			found[dir] = map[string][]string{}
		}
		for _, spec := range file.Imports {
			value, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[dir][path] = append(found[dir][path], value)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func skipNested(root, path, name string) error {
	nested, err := filepath.Glob(filepath.Join(path, "go.mod"))
	if err != nil {
		return err
	}
	hidden := strings.HasPrefix(name, ".") && path != root
	if hidden || name == "bin" || (path != root && len(nested) > 0) {
		return filepath.SkipDir
	}
	return nil
}
