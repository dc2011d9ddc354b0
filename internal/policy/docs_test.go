package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var regoBlock = regexp.MustCompile("(?s)```rego\n(package hanse\\.([a-z]+)\n.*?)```")

// What the documentation shows compiles.
func TestRegoOfTheDocumentationCompiles(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regoBlock.FindAllStringSubmatch(string(text), -1) {
			found++
			name := strings.TrimPrefix(page, "../../")
			if _, err := Compile(Question(block[2]), []Module{{Name: name, Source: block[1]}}); err != nil {
				t.Error(err)
			}
		}
	}
	if found == 0 {
		t.Error("no page shows a policy")
	}
}
