// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// storyLimit is how long a story may take, so that one that hangs fails and tells where it hung. Go's test binary ends itself then.
const storyLimit = 40 * time.Minute

// A result is how a story went.
type result struct {
	story    story
	failed   bool
	duration time.Duration
	output   string
}

// runStory runs one story on the bed, as a process of its own.
func runStory(ctx context.Context, b *bed, s story, folder string) result {
	begin := time.Now()
	output, err := s.run(ctx, b, folder)
	if err != nil {
		output += "\n" + err.Error() + "\n"
	}
	return result{story: s, failed: err != nil, duration: time.Since(begin), output: output}
}

func (s story) run(ctx context.Context, b *bed, folder string) (string, error) {
	program, err := binary(s.capability)
	if err != nil {
		return "", err
	}
	details := filepath.Join(folder, "failed", s.name)
	if err := os.RemoveAll(details); err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, program, "-test.run", "^"+s.name+"$", "-test.v", "-test.timeout", storyLimit.String())
	command.Dir = filepath.Join(framework.Root, "test", "e2e", s.capability)
	command.Env = append(os.Environ(), "HANSE_TESTBED_STATE="+b.state, framework.DetailsVariable+"="+details)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	inOwnGroup(command)
	err = command.Run()
	text := output.String()
	if err == nil && !strings.Contains(text, "--- PASS: "+s.name+" ") {
		err = fmt.Errorf("%s did not say that it passed", s.name)
	}
	return text, err
}

// lastLines returns the last lines of a text.
func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
