// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/docs/markdown"
)

// TestRolesOfUsersAreThoseOfTheChart compares the table of how-to/give-users-rights.md with the golden file of all rights: the
// page names exactly the kinds that each role is about, and the verbs of a row hold for all of them.
func TestRolesOfUsersAreThoseOfTheChart(t *testing.T) {
	const page = "how-to/give-users-rights.md"
	text, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		t.Fatal(err)
	}
	kinds := kindsByResource(t)
	given := rightsOf(t)
	count := 0
	for _, table := range markdown.Parse(page, string(text)).Tables {
		if table.Columns[0] != "ClusterRole" {
			continue
		}
		for _, row := range table.Rows {
			count++
			role := strings.Trim(row.Cells[0], "`")
			var actual []string
			for resource := range given[role] {
				kind, isOurs := kinds[resource]
				if !isOurs {
					t.Errorf("%s: ClusterRole %s gives rights to %s, and the page describes kinds of hanse.dev only", page, role, resource)
				}
				actual = append(actual, kind)
				for _, verb := range statedVerbs(row.Cells[2]) {
					if !slices.Contains(given[role][resource], verb) {
						t.Errorf("%s:%d: ClusterRole %s does not give %s for %s: correct the verbs", page, row.Line, role, verb, kind)
					}
				}
			}
			slices.Sort(actual)
			if diff := cmp.Diff(actual, statedKinds(row.Cells[2], kinds)); diff != "" {
				t.Errorf("%s:%d: the kinds of ClusterRole %s are others: correct the row (-chart +page)\n%s", page, row.Line, role, diff)
			}
		}
	}
	if count != 2 {
		t.Errorf("%s describes %d roles, not hanse-view and hanse-edit", page, count)
	}
}

// kindsByResource returns the kinds of our API: "peers.hanse.dev" → "Peer".
func kindsByResource(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "charts", "hanse", "crds", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, file := range files {
		crd := readCRD(t, file)
		kinds[crd.Name] = crd.Spec.Names.Kind
	}
	return kinds
}

// rightsOf reads the golden file: ClusterRole → resource → verbs.
func rightsOf(t *testing.T) map[string]map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "internal", "install", "testdata", "rights.txt"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string][]string{}
	for line := range strings.Lines(string(text)) {
		rest, isRole := strings.CutPrefix(line, "ClusterRole ")
		role, right, _ := strings.Cut(rest, ": ")
		words := strings.Fields(right)
		if !isRole || len(words) < 2 {
			continue
		}
		if found[role] == nil {
			found[role] = map[string][]string{}
		}
		found[role][words[1]] = append(found[role][words[1]], words[0])
	}
	if len(found) < 5 {
		t.Fatalf("only %d ClusterRoles found", len(found))
	}
	return found
}

// sentence returns the first sentence, which states verbs and kinds. Others explain.
func sentence(text string) string {
	first, _, _ := strings.Cut(text, ". ")
	return first
}

func wordsOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,.:;()`", r) })
}

func statedKinds(text string, kinds map[string]string) []string {
	var stated []string
	for _, word := range wordsOf(sentence(text)) {
		for resource, kind := range kinds {
			plural, _, _ := strings.Cut(resource, ".")
			if word == kind || strings.EqualFold(word, plural) && word != plural {
				stated = append(stated, kind)
			}
		}
	}
	slices.Sort(stated)
	return stated
}

func statedVerbs(text string) []string {
	var stated []string
	for _, word := range wordsOf(sentence(text)) {
		switch word {
		case "get", "list", "watch", "create", "delete":
			stated = append(stated, word)
		case "change":
			stated = append(stated, "update", "patch")
		}
	}
	return stated
}
