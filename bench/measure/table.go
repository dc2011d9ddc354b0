// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// A Table is a table of text, with words around it.
type Table struct {
	Title   string
	Intro   string // what was done
	Columns []string
	Rows    [][]string
	Notes   []string // what to know when reading it
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Distribution appends a row with a sample's number, median, p99 and maximum, and a bound on its p99 (0: none).
func (t *Table) Distribution(what string, s Sample, bound time.Duration) {
	text, verdict := "", ""
	if bound > 0 {
		text, verdict = "p99 ≤ "+Duration(bound), Verdict(s.P99().Seconds(), bound.Seconds())
	}
	t.Add(what, fmt.Sprint(len(s)), Duration(s.Median()), Duration(s.P99()), Duration(s.Max()), text, verdict)
}

// DistributionColumns are the columns that Distribution fills.
var DistributionColumns = []string{"what", "n", "p50", "p99", "max", "bound", ""}

// FigureColumns are the columns of a table of single figures.
var FigureColumns = []string{"what", "measured", "bound", ""}

// Figure appends a row with one number and a bound on it (0: none).
func (t *Table) Figure(what string, value float64, unit string, bound float64) {
	text, verdict := "", ""
	if bound > 0 {
		text, verdict = "≤ "+Number(bound, unit), Verdict(value, bound)
	}
	t.Add(what, Number(value, unit), text, verdict)
}

// Count appends a row with how many there were, and the most that there may be.
func (t *Table) Count(what string, count, most int) {
	t.Add(what, fmt.Sprint(count), fmt.Sprint("≤ ", most), Verdict(float64(count), float64(most)))
}

// Verdict says whether a value is within a bound, to the thousandth of it: 10.004 writes are 10.
func Verdict(value, bound float64) string {
	if value <= bound*1.001 {
		return "within"
	}
	return "OVER"
}

// Duration renders a duration with three digits that matter.
func Duration(d time.Duration) string {
	switch seconds := d.Seconds(); {
	case d == 0:
		return "0"
	case seconds < 1 && seconds > -1:
		return digits(seconds*1000) + " ms"
	default:
		return digits(seconds) + " s"
	}
}

// Number renders a number with three digits that matter, and its unit.
func Number(value float64, unit string) string {
	if unit == "s" {
		return Duration(time.Duration(value * float64(time.Second)))
	}
	return strings.TrimSpace(digits(value) + " " + unit)
}

func digits(value float64) string {
	switch size := max(value, -value); {
	case size >= 100:
		return fmt.Sprintf("%.0f", value)
	case size >= 10:
		return fmt.Sprintf("%.1f", value)
	case size >= 0.1 || size == 0:
		return fmt.Sprintf("%.2f", value)
	default:
		return fmt.Sprintf("%.4f", value)
	}
}

// Write renders the table as Markdown that can be read as it is.
func (t *Table) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", t.Title)
	if t.Intro != "" {
		fmt.Fprintf(&b, "%s\n\n", t.Intro)
	}
	widths := t.widths()
	line(&b, widths, t.Columns)
	dashes := make([]string, len(t.Columns))
	for i := range dashes {
		dashes[i] = strings.Repeat("-", widths[i])
	}
	line(&b, widths, dashes)
	for _, row := range t.Rows {
		line(&b, widths, row)
	}
	b.WriteString("\n")
	for _, note := range t.Notes {
		fmt.Fprintf(&b, "* %s\n", note)
	}
	if len(t.Notes) > 0 {
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) widths() []int {
	widths := make([]int, len(t.Columns))
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func line(b *strings.Builder, widths []int, cells []string) {
	for i, cell := range cells {
		fmt.Fprintf(b, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
	}
	b.WriteString("|\n")
}
