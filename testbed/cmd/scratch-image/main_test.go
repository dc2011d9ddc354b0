// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/testbed/internal/image"
)

func TestFlags(t *testing.T) {
	got, output, err := parse([]string{
		"-o", "x.tar", "--tag=a.b/c:d", "-file", "p=/q", "-file", "r=/s", "-entrypoint", "/q", "-entrypoint", "-v",
		"-cmd", "serve", "-env", "A=b", "-user", "65532", "-workdir", "/w",
	})
	if err != nil || output != "x.tar" {
		t.Fatalf("output %q, %v", output, err)
	}
	want := image.Spec{
		Tag: "a.b/c:d", Files: []image.File{{Source: "p", Path: "/q"}, {Source: "r", Path: "/s"}},
		Entrypoint: []string{"/q", "-v"}, Cmd: []string{"serve"}, Env: []string{"A=b"}, User: "65532", WorkDir: "/w",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWrongFlagsWriteNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	for _, args := range [][]string{
		{},
		{"-tag", "a.b/c:d"},
		{"-o", path},
		{"-o", path, "-tag", "a.b/c:d"},
		{"-o", path, "-file", "x"},
		{"-o", path, "-no-such-flag"},
		{"-o", path, "stray"},
	} {
		if err := run(args); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an archive was written")
	}
}
