// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A story is one test of a package of test/e2e.
type story struct {
	name       string
	capability string // its package
	needs      framework.Needs
}

// declaration finds the tests of a file.
var declaration = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// discover returns the selected stories, sorted by capability and name. It builds the test binaries of their packages.
func discover(ctx context.Context, opts options) ([]story, error) {
	names, err := declared()
	if err != nil {
		return nil, err
	}
	var packages []string
	for capability, tests := range names {
		if slices.ContainsFunc(tests, func(name string) bool { return opts.run == nil || opts.run.MatchString(name) }) {
			packages = append(packages, capability)
		}
	}
	slices.Sort(packages)
	if err := buildPackages(ctx, packages); err != nil {
		return nil, err
	}
	var stories []story
	for _, capability := range packages {
		needs, err := needsOf(ctx, capability)
		if err != nil {
			return nil, err
		}
		if err := compare(capability, names[capability], needs); err != nil {
			return nil, err
		}
		for name, n := range needs {
			stories = append(stories, story{name, capability, n})
		}
	}
	return selected(stories, opts), nil
}

// declared returns the tests of each package of test/e2e: capability → names.
func declared() (map[string][]string, error) {
	files, err := filepath.Glob(filepath.Join(framework.Root, "test", "e2e", "*", "*_test.go"))
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	for _, file := range files {
		capability := filepath.Base(filepath.Dir(file))
		if capability == "runner" || capability == "framework" { // their tests need no clusters
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, match := range declaration.FindAllStringSubmatch(string(source), -1) {
			names[capability] = append(names[capability], match[1])
		}
	}
	return names, nil
}

// compare returns an error unless exactly the tests of the package are in its table of stories.
func compare(capability string, tests []string, needs framework.Stories) error {
	var errs []error
	for _, name := range tests {
		if _, ok := needs[name]; !ok {
			errs = append(errs, fmt.Errorf("test/e2e/%s/stories_test.go lacks %s", capability, name))
		}
	}
	for name := range needs {
		if !slices.Contains(tests, name) {
			errs = append(errs, fmt.Errorf("test/e2e/%s/stories_test.go has %s, which is no test", capability, name))
		}
	}
	return errors.Join(errs...)
}

// selected returns the stories that the options ask for.
func selected(stories []story, opts options) []story {
	stories = slices.DeleteFunc(stories, func(s story) bool {
		switch {
		case opts.run != nil && !opts.run.MatchString(s.name):
			return true
		case opts.core:
			return !s.needs.Core
		case opts.rest:
			return s.needs.Core || s.needs.OnRequest
		default:
			return s.needs.OnRequest && opts.run == nil
		}
	})
	slices.SortFunc(stories, func(a, b story) int {
		return cmp.Or(cmp.Compare(a.capability, b.capability), cmp.Compare(a.name, b.name))
	})
	return stories
}

// binary returns the test binary of a capability.
func binary(capability string) (string, error) {
	return filepath.Abs(filepath.Join(framework.Root, "bin", "e2e-tests", capability+".test"))
}

// buildPackages builds the test binaries, all at once: the linker uses one core.
func buildPackages(ctx context.Context, capabilities []string) error {
	args := []string{"test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join("bin", "e2e-tests") + string(filepath.Separator)}
	for _, capability := range capabilities {
		args = append(args, "./test/e2e/"+capability)
	}
	command := exec.CommandContext(ctx, filepath.Join("testbed", "progress"), append([]string{"the stories", "3 min", "go"}, args...)...)
	command.Dir, command.Stdout, command.Stderr = framework.Root, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := os.MkdirAll(filepath.Join(framework.Root, "bin", "e2e-tests"), 0o755); err != nil {
		return err
	}
	if err := command.Run(); err != nil {
		return fmt.Errorf("build the stories: %w", err)
	}
	return nil
}

// needsOf asks a test binary what its stories need.
func needsOf(ctx context.Context, capability string) (framework.Stories, error) {
	path, err := binary(capability)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, path, "-needs").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its stories: %w", capability, err)
	}
	needs := framework.Stories{}
	if err := json.Unmarshal(out, &needs); err != nil {
		return nil, fmt.Errorf("read the stories of %s: %w", capability, err)
	}
	return needs, nil
}

// targets are what make builds for an extra, by the folder of the Makefile.
var targets = map[framework.Extra][]string{
	framework.Metrics:             {"testbed", "bin/metrics-server"},
	framework.Storage:             {"testbed", "bin/provisioner"},
	framework.Snapshots:           {"testbed", "bin/provisioner", "bin/snapshot-controller"},
	framework.IngressController:   {"testbed", "bin/traefik"},
	framework.OrdersImage:         {".", "bin/images/orders.tar"},
	framework.OtherVersions:       {".", "skew-images"},
	framework.VirtualKubeletSuite: {".", "virtual-kubelet-suite"},
}

// buildExtras builds what the stories need besides Hanse and the usual clusters.
func buildExtras(ctx context.Context, stories []story) error {
	byFolder := map[string][]string{".": {"bin/images/kubectl.tar"}}
	for _, extra := range extrasOf(stories) {
		if target := targets[extra]; len(target) > 0 {
			byFolder[target[0]] = append(byFolder[target[0]], target[1:]...)
		}
	}
	root, err := filepath.Abs(framework.Root)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for folder, goals := range byFolder {
		args := []string{"--no-print-directory", "-C", filepath.Join(root, folder)}
		for _, goal := range goals {
			if strings.HasPrefix(goal, "bin/") && folder != "." { // the testbed's Makefile names programs by their full paths
				goal = filepath.Join(root, goal)
			}
			args = append(args, goal)
		}
		group.Go(func() error {
			command := exec.CommandContext(ctx, "make", args...)
			command.Stdout, command.Stderr = os.Stdout, os.Stderr
			if err := command.Run(); err != nil {
				return fmt.Errorf("make %s: %w", strings.Join(goals, " "), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// extrasOf returns what the stories need besides the usual clusters, sorted and each once.
func extrasOf(stories []story) []framework.Extra {
	all := framework.Stories{}
	for _, s := range stories {
		all[s.name] = s.needs
	}
	return all.Extras()
}

// printPlan prints the stories with their clusters.
func printPlan(out io.Writer, stories []story) {
	for _, s := range stories {
		mode := "beside others"
		if s.needs.Alone {
			mode = "alone"
		}
		_, _ = fmt.Fprintf(out, "%-14s %-8s %-13s %s %v\n", s.capability, s.needs.Shape(), mode, s.name, s.needs.With)
	}
	_, _ = fmt.Fprintf(out, "%d stories\n", len(stories))
}
