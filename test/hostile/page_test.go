// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func threatModel(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "explanation", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestPageHasEachAttack(t *testing.T) {
	page := threatModel(t)
	attacks, err := Attacks(scene())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, attack := range attacks {
		if seen[attack.Name] {
			t.Errorf("two attacks are called %q", attack.Name)
		}
		seen[attack.Name] = true
		if !strings.Contains(page, "\n| "+attack.Name) {
			t.Errorf("the threat model has no row for %q", attack.Name)
		}
	}
}

var (
	named    = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`")
	declared = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]+)\(`)
)

func TestPageNamesTestsThatExist(t *testing.T) {
	exist := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(source, -1) {
			exist[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range named.FindAllStringSubmatch(threatModel(t), -1) {
		if !exist[match[1]] {
			t.Errorf("the threat model names %s, which does not exist", match[1])
		}
	}
}
