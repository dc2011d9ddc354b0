// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page names every package, so that a newcomer finds each of them there.
func TestPageNamesEveryPackage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		for _, pkg := range layer.packages {
			ours := strings.HasPrefix(pkg, "internal/") || strings.HasPrefix(pkg, "cmd/") || strings.HasPrefix(pkg, "api/")
			if ours && !strings.Contains(string(page), "`"+pkg+"`") {
				t.Errorf("ARCHITECTURE.md does not name %s", pkg)
			}
		}
	}
}
