// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hanse-dev/hanse/bench/measure"
)

// numbers is a flag with numbers separated by commas.
type numbers []int

// String implements flag.Value.
func (n *numbers) String() string {
	texts := make([]string, len(*n))
	for i, number := range *n {
		texts[i] = strconv.Itoa(number)
	}
	return strings.Join(texts, ",")
}

// Set implements flag.Value.
func (n *numbers) Set(text string) error {
	*n = nil
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		number, err := strconv.Atoi(part)
		if err != nil || number < 1 {
			return fmt.Errorf("%q is not a number from 1", part)
		}
		*n = append(*n, number)
	}
	return nil
}

// A report is what a run prints.
type report struct {
	begun  time.Time
	facts  []string
	tables []measure.Table
}

func (r *report) add(tables ...measure.Table) { r.tables = append(r.tables, tables...) }

// write prints the report, and puts it into a file of the folder if there is one.
func (r *report) write(folder string) error {
	if len(r.tables) == 0 {
		return nil
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "# Benchmarks of %s UTC\n\n", r.begun.Format("2 January 2006, 15:04"))
	for _, fact := range r.facts {
		fmt.Fprintf(&text, "* %s\n", fact)
	}
	text.WriteString("\n")
	for _, table := range r.tables {
		if err := table.Write(&text); err != nil {
			return err
		}
	}
	if _, err := os.Stdout.Write(text.Bytes()); err != nil || folder == "" {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // results are for everyone
		return err
	}
	file := filepath.Join(folder, r.begun.Format("2006-01-02-1504")+".md")
	return os.WriteFile(file, text.Bytes(), 0o644) //nolint:gosec // results are for everyone
}
