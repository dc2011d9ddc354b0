// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hanse-dev/hanse/testbed/internal/component"
	"github.com/hanse-dev/hanse/testbed/internal/network"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/process"
)

// endTimeout is how long a component that is stopped has before it is killed.
const endTimeout = 10 * time.Second

// logTail is how many lines of a component's log are shown when it fails.
const logTail = 20

// Cluster acts on one cluster.
type Cluster struct {
	*plan.Cluster
	Now func() time.Time
	// Say tells the user about progress.
	Say func(format string, args ...any)
}

// say tells about progress of this cluster.
func (c Cluster) say(format string, args ...any) {
	c.Say("%s: %s", c.Name, fmt.Sprintf(format, args...))
}

// environment is what components get of the environment: none of the user's, who may have set a proxy.
func environment(c *plan.Cluster) []string {
	return []string{
		"PATH=" + c.Bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + c.Dir,
	}
}

// start starts a component unless it runs already just as it should.
func (c Cluster) start(ctx context.Context, part component.Component) (started bool, err error) {
	hash, err := process.Hash([]any{part.FullCommand(), part.Files})
	if err != nil {
		return false, err
	}
	record, err := process.Read(part.PIDFile())
	if err != nil {
		return false, err
	}
	if record.Alive() {
		if record.Hash == hash {
			return false, nil
		}
		c.say("%s has other settings than before, it is restarted", part.Name)
		if err := record.End(ctx, endTimeout); err != nil {
			return false, fmt.Errorf("stop %s: %w", part.Name, err)
		}
	}
	for _, file := range part.Files {
		if err := writeFile(file.Path, []byte(file.Text)); err != nil {
			return false, err
		}
	}
	if err := c.launch(ctx, part, hash); err != nil {
		return false, fmt.Errorf("start %s: %w", part.Name, err)
	}
	return true, nil
}

func (c Cluster) launch(ctx context.Context, part component.Component, hash string) error {
	spec := process.Spec{
		Command: part.FullCommand(), Env: environment(c.Cluster), Log: part.LogFile(), PIDFile: part.PIDFile(), Hash: hash,
	}
	if part.Cable {
		var err error
		if spec.Files, err = network.OpenCable(ctx, c.Cluster); err != nil {
			return err
		}
		defer func() {
			for _, end := range spec.Files {
				_ = end.Close()
			}
		}()
	}
	_, err := process.Start(spec)
	return err
}

// Start starts the component of that name, and does not wait for it to be ready.
func (c Cluster) Start(ctx context.Context, name string) error {
	part, err := component.Find(c.Cluster, name)
	if err != nil {
		return err
	}
	started, err := c.start(ctx, part)
	if err == nil && !started {
		c.say("%s runs already", part.Name)
	}
	return err
}

// Stop asks the component of that name to end, and waits until it has.
func (c Cluster) Stop(ctx context.Context, name string) error {
	return c.end(name, func(record process.Record) error { return record.End(ctx, endTimeout) })
}

// Kill kills the component of that name.
func (c Cluster) Kill(ctx context.Context, name string) error {
	return c.end(name, func(record process.Record) error { return record.Kill(ctx) })
}

func (c Cluster) end(name string, end func(process.Record) error) error {
	part, err := component.Find(c.Cluster, name)
	if err != nil {
		return err
	}
	record, err := process.Read(part.PIDFile())
	if err != nil {
		return err
	}
	if !record.Alive() {
		c.say("%s does not run", part.Name)
		return nil
	}
	return end(record)
}

// dead is the error of a component that ended by itself.
type dead struct {
	component.Component
}

func (d dead) Error() string {
	return d.Name + " has ended"
}

// alive tells whether the components run.
func alive(parts []component.Component) error {
	for _, part := range parts {
		record, err := process.Read(part.PIDFile())
		if err != nil {
			return err
		}
		if !record.Alive() {
			return dead{part}
		}
	}
	return nil
}

// explain adds the end of the log of the component that failed: the one that has ended, or else the first of those that
// the condition depends on.
func explain(err error, parts []component.Component) error {
	if len(parts) == 0 {
		return err
	}
	culprit := parts[0]
	if ended := (dead{}); errors.As(err, &ended) {
		culprit = ended.Component
	}
	text, readErr := os.ReadFile(culprit.LogFile())
	if readErr != nil {
		return err
	}
	return fmt.Errorf("%w\n--- end of the log of %s (%s)\n%s", err, culprit.Name, culprit.LogFile(), tail(text, logTail))
}

func tail(text []byte, lines int) string {
	all := strings.Split(string(bytes.TrimRight(text, "\n")), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// writeFile writes a file, if it is not the same already, as a whole or not at all.
func writeFile(path string, text []byte) error {
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, text) { //nolint:gosec // a file of the testbed's own
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // containers' files are beneath
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
