// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func file(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func spec(t *testing.T) Spec {
	t.Helper()
	return Spec{
		Tag: "hanse.dev/test/x:v1", Entrypoint: []string{"/usr/bin/x"}, Cmd: []string{"serve"},
		Env: []string{"A=b"}, User: "65532", WorkDir: "/tmp",
		Files: []File{
			{Path: "/usr/bin/x", Source: file(t, "program", 0o700)},
			{Path: "/usr/bin/y", Link: "x"},
			{Path: "/etc/x.conf", Source: file(t, "text", 0o600)},
			{Path: "/tmp", Folder: true, Mode: 0o1777},
		},
	}
}

func TestArchiveHoldsWhatWasAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar")
	if err := Write(spec(t), path); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr/bin/x"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint, -want +got:\n%s", diff)
	}
	if config.Config.User != "65532" || config.Config.WorkingDir != "/tmp" || config.OS != "linux" {
		t.Errorf("configuration: %+v", config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"drwxr-xr-x etc/ ", "-rw-r--r-- etc/x.conf text", "dtrwxrwxrwx tmp/ ", "drwxr-xr-x usr/ ", "drwxr-xr-x usr/bin/ ",
		"-rwxr-xr-x usr/bin/x program", "Lrwxrwxrwx usr/bin/y -> x ",
	}
	if diff := cmp.Diff(want, entries(t, content)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func entries(t *testing.T, layer io.Reader) []string {
	t.Helper()
	var found []string
	for archive := tar.NewReader(layer); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name := header.Name
		if header.Linkname != "" {
			name += " -> " + header.Linkname
		}
		found = append(found, header.FileInfo().Mode().String()+" "+name+" "+string(content))
	}
}

func TestEqualInputMakesEqualArchives(t *testing.T) {
	var archives [][]byte
	for age := range 2 {
		wanted := spec(t)
		past := time.Now().Add(-time.Duration(age) * time.Hour)
		if err := os.Chtimes(wanted.Files[0].Source, past, past); err != nil {
			t.Fatal(err)
		}
		if age == 1 {
			wanted.Files[0], wanted.Files[2] = wanted.Files[2], wanted.Files[0]
		}
		path := filepath.Join(t.TempDir(), "x.tar")
		if err := Write(wanted, path); err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, archive)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the age and the order of files make a difference")
	}
}

func TestWhatCannotBeAnImageIsRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*Spec)
		wantErr string
	}{
		{"no tag", func(s *Spec) { s.Tag = "" }, "tag"},
		{"a name without a tag", func(s *Spec) { s.Tag = "hanse.dev/test/x" }, "tag"},
		{"no files", func(s *Spec) { s.Files = nil }, "without files"},
		{"nothing to run", func(s *Spec) { s.Entrypoint, s.Cmd = nil, nil }, "neither an entrypoint"},
		{"an environment without a value", func(s *Spec) { s.Env = []string{"A"} }, "want NAME=VALUE"},
		{"a file that does not exist", func(s *Spec) { s.Files[0].Source += ".missing" }, "no such file"},
		{"two files in one place", func(s *Spec) { s.Files = append(s.Files, s.Files[0]) }, "/usr/bin/x is there twice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wanted := spec(t)
			test.change(&wanted)
			path := filepath.Join(t.TempDir(), "x.tar")
			if err := Write(wanted, path); err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("got error %v, want one with %q", err, test.wantErr)
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("an archive was written")
			}
		})
	}
}

func TestParseFile(t *testing.T) {
	if got, err := ParseFile("bin/hanse=/hanse"); err != nil || got.Source != "bin/hanse" || got.Path != "/hanse" {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{"", "bin/hanse", "=/hanse", "bin/hanse=", "bin/hanse=hanse", "bin/hanse=/../hanse", "bin/hanse=/a/"} {
		if got, err := ParseFile(text); err == nil {
			t.Errorf("%q became %+v", text, got)
		}
	}
}
