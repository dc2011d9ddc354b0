// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// paths is the program of Go's benchmarks in internal/kernel, which have a network of their own in this machine.
const paths = "bench-paths"

// benchmarks are those of the program that are asked for.
const benchmarks = "^Benchmark(Throughput|RoundTrip|Tunnels)$"

// Figures are what the benchmarks say: benchmark, such as Throughput/streams=4 → way, such as bare → unit → value.
type Figures map[string]map[string]map[string]float64

// measurePaths has each way measured so many times in turn.
func (e *experiment) measurePaths(ctx context.Context) (Figures, error) {
	e.Say("paths through two gateways: %d rounds", e.Rounds)
	//nolint:gosec // our own program
	cmd := exec.CommandContext(ctx, filepath.Join(e.Bed.Bin, paths), "-test.run", "^$", "-test.bench", benchmarks,
		"-test.benchtime", strconv.Itoa(e.Rounds)+"x")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("measure paths: %w\n%s", err, out)
	}
	return parseFigures(out)
}

// parseFigures reads what Go's benchmarks print, of whose figures those are taken that are named way:unit.
func parseFigures(out []byte) (Figures, error) {
	found := Figures{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name, _, _ := cutLast(strings.TrimPrefix(fields[0], "Benchmark"), "-") // how many processors there are
		for pair := range slices.Chunk(fields[2:], 2) {
			if err := found.add(name, pair); err != nil {
				return nil, fmt.Errorf("read %q: %w", lines.Text(), err)
			}
		}
	}
	return found, lines.Err()
}

func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):], true
	}
	return text, "", false
}

// add takes a value and its unit.
func (f Figures) add(benchmark string, pair []string) error {
	if len(pair) < 2 {
		return fmt.Errorf("a value without a unit: %q", pair)
	}
	way, unit, ok := strings.Cut(pair[1], ":")
	if !ok {
		return nil
	}
	value, err := strconv.ParseFloat(pair[0], 64)
	if err != nil {
		return err
	}
	if f[benchmark] == nil {
		f[benchmark] = map[string]map[string]float64{}
	}
	if f[benchmark][way] == nil {
		f[benchmark][way] = map[string]float64{}
	}
	f[benchmark][way][unit] = value
	return nil
}

// of returns the benchmarks whose name begins so, sorted.
func (f Figures) of(prefix string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f)), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}
