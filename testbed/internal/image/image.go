// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Spec says what is in an image.
type Spec struct {
	Tag        string
	Files      []File
	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string
	WorkDir    string
}

// File is a file of an image: a copy of one of this machine, or a symbolic link, or a folder.
type File struct {
	Path   string // in the image
	Source string // on this machine
	Link   string // what a symbolic link leads to
	Folder bool
	Mode   int64 // of a folder; by default 0755
}

// ParseFile reads SOURCE=/PATH.
func ParseFile(text string) (File, error) {
	source, target, ok := strings.Cut(text, "=")
	if !ok || source == "" || !path.IsAbs(target) || path.Clean(target) != target {
		return File{}, fmt.Errorf("%q: want SOURCE=/PATH", text)
	}
	return File{Path: target, Source: source}, nil
}

// Validate tells what is wrong with the image that was asked for.
func (s Spec) Validate() error {
	var errs []error
	if _, err := name.NewTag(s.Tag, name.StrictValidation); err != nil {
		errs = append(errs, fmt.Errorf("tag: %w", err))
	}
	if len(s.Files) == 0 {
		errs = append(errs, errors.New("an image without files can do nothing"))
	}
	if len(s.Entrypoint)+len(s.Cmd) == 0 {
		errs = append(errs, errors.New("neither an entrypoint nor a command"))
	}
	for _, variable := range s.Env {
		if key, _, ok := strings.Cut(variable, "="); !ok || key == "" {
			errs = append(errs, fmt.Errorf("environment variable %q: want NAME=VALUE", variable))
		}
	}
	return errors.Join(errs...)
}

// Write writes the image's archive to a file, which is there either as a whole or not at all.
func Write(spec Spec, to string) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	tag, err := name.NewTag(spec.Tag, name.StrictValidation)
	if err != nil {
		return err
	}
	image, err := spec.image()
	if err != nil {
		return fmt.Errorf("make image %s: %w", spec.Tag, err)
	}
	if err := replace(to, func(file io.Writer) error { return tarball.Write(tag, image, file) }); err != nil {
		return fmt.Errorf("write image %s: %w", spec.Tag, err)
	}
	return nil
}

// replace writes a file beside the one that is meant, and puts it in its place: several may do so at a time.
func replace(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	err = errors.Join(write(file), file.Chmod(0o644), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func (s Spec) image() (v1.Image, error) {
	archive, err := s.layer()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	})
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config = v1.Config{
		Entrypoint: s.Entrypoint, Cmd: s.Cmd, Env: s.Env, User: s.User, WorkingDir: s.WorkDir,
	}
	return mutate.ConfigFile(image, config)
}

// epoch is when everything in an image was made: an image says what it holds, not when that came to be.
var epoch = time.Unix(0, 0).UTC()

// layer packs the files, and each folder that they are in before them.
func (s Spec) layer() ([]byte, error) {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	made := map[string]bool{"/": true}
	files := slices.SortedFunc(slices.Values(s.Files), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	for _, file := range files {
		for _, folder := range parents(file.Path) {
			if made[folder] {
				continue
			}
			made[folder] = true
			if err := add(archive, File{Path: folder, Folder: true}); err != nil {
				return nil, err
			}
		}
		if made[file.Path] {
			return nil, fmt.Errorf("%s is there twice", file.Path)
		}
		made[file.Path] = true
		if err := add(archive, file); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// parents lists the folders that lead to a file, the topmost first.
func parents(file string) []string {
	var folders []string
	for folder := path.Dir(file); folder != "/" && folder != "."; folder = path.Dir(folder) {
		folders = append(folders, folder)
	}
	slices.Reverse(folders)
	return folders
}

func add(archive *tar.Writer, file File) error {
	header := &tar.Header{Name: strings.TrimPrefix(file.Path, "/"), ModTime: epoch, Mode: 0o755, Format: tar.FormatPAX}
	var content []byte
	switch {
	case file.Folder:
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		if file.Mode != 0 {
			header.Mode = file.Mode
		}
	case file.Link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, file.Link, 0o777
	default:
		info, err := os.Stat(file.Source)
		if err != nil {
			return err
		}
		if content, err = os.ReadFile(file.Source); err != nil {
			return err
		}
		header.Typeflag, header.Size = tar.TypeReg, int64(len(content))
		header.Mode = 0o644
		if info.Mode()&0o100 != 0 {
			header.Mode = 0o755
		}
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}
