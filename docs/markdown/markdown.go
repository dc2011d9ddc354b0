// SPDX-License-Identifier: Apache-2.0

// Package markdown reads the tables, code blocks and shell commands of this repository's Markdown pages. Tests use the
// package to compare the pages with the code.
package markdown

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A Page is what tests compare with the code.
type Page struct {
	File     string // slash-separated path from the root of the repository
	Headings []Heading
	Blocks   []Block
	Tables   []Table
	Spans    []Span
}

// A Heading is the title of a section.
type Heading struct {
	Line int
	Text string
}

// A Block is a fenced or indented block of code.
type Block struct {
	Line     int // of its first line of code, counted from 1
	Language string
	Text     string
	Sample   string // the file that the block is a copy of: from a comment above the block, <!-- sample: FILE -->
}

// A Table is a table of a page with the heading above it.
type Table struct {
	Line    int // of its header
	Heading string
	Columns []string
	Rows    []Row
}

// A Row is one line of a table.
type Row struct {
	Line  int
	Cells []string
}

// A Span is a piece of code within a sentence.
type Span struct {
	Line int
	Text string
}

var (
	fence     = regexp.MustCompile("^(\\s*)(```+|~~~+)\\s*(\\S*)")
	listItem  = regexp.MustCompile(`^\s*([-*]|\d+\.)\s`)
	separator = regexp.MustCompile(`^\s*\|(\s*:?-+:?\s*\|)+\s*$`)
	sample    = regexp.MustCompile(`^<!-- sample: (\S+) -->$`)
	codeSpan  = regexp.MustCompile("`([^`]+)`")
)

// Read reads every Markdown page below the root of the repository. Hidden directories and bin hold no pages.
func Read(root string) ([]Page, error) {
	var pages []Page
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // the tree of the repository
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		pages = append(pages, Parse(filepath.ToSlash(name), string(text)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the pages below %s: %w", root, err)
	}
	return pages, nil
}

// Parse reads one page.
func Parse(file, text string) Page {
	r := reader{page: Page{File: file}, lines: strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")}
	for r.at < len(r.lines) {
		r.next()
	}
	return r.page
}

// A reader goes through the lines of a page.
type reader struct {
	page    Page
	lines   []string
	at      int // index of the next line
	heading string
	sample  string // of the next block
	list    bool   // the paragraph belongs to a list, whose own text may be indented by four columns
	text    bool   // the line before is part of a paragraph
}

// next consumes one line, or a whole block or table.
func (r *reader) next() {
	line := r.lines[r.at]
	switch {
	case strings.TrimSpace(line) == "":
		r.text = false
		r.at++
	case sample.MatchString(line):
		r.sample, r.text = sample.FindStringSubmatch(line)[1], false
		r.at++
	case fence.MatchString(line):
		r.fenced()
	case r.isIndentedCode(line):
		r.indented()
	case strings.HasPrefix(strings.TrimSpace(line), "|") && r.at+1 < len(r.lines) && separator.MatchString(r.lines[r.at+1]):
		r.table()
	default:
		r.prose(line)
	}
}

// isIndentedCode reports whether a block of code starts here. Code in a list is indented by at least seven columns.
func (r *reader) isIndentedCode(line string) bool {
	if r.text {
		return false
	}
	least := "    "
	if r.list {
		least = "      "
	}
	return strings.HasPrefix(line, least)
}

func (r *reader) prose(line string) {
	if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
		r.heading, r.list, r.text = strings.TrimSpace(title), false, false
		r.page.Headings = append(r.page.Headings, Heading{Line: r.at + 1, Text: r.heading})
	} else {
		r.list = listItem.MatchString(line) || r.list && strings.HasPrefix(line, " ")
		r.text = true
	}
	r.spans(line)
	r.at++
}

func (r *reader) spans(line string) {
	for _, found := range codeSpan.FindAllStringSubmatch(line, -1) {
		r.page.Spans = append(r.page.Spans, Span{Line: r.at + 1, Text: found[1]})
	}
}

func (r *reader) fenced() {
	found := fence.FindStringSubmatch(r.lines[r.at])
	indent, mark, language := found[1], found[2], found[3]
	block := Block{Line: r.at + 2, Language: language, Sample: r.sample}
	r.sample = ""
	for r.at++; r.at < len(r.lines) && strings.TrimSpace(r.lines[r.at]) != mark; r.at++ {
		block.Text += strings.TrimPrefix(r.lines[r.at], indent) + "\n"
	}
	r.at++
	r.page.Blocks = append(r.page.Blocks, block)
}

func (r *reader) indented() {
	line := r.lines[r.at]
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	block := Block{Line: r.at + 1, Sample: r.sample}
	r.sample = ""
	for ; r.at < len(r.lines); r.at++ {
		rest, isCode := strings.CutPrefix(r.lines[r.at], indent)
		if !isCode && strings.TrimSpace(rest) != "" {
			break
		}
		block.Text += strings.TrimLeft(rest, map[bool]string{true: "", false: " "}[isCode]) + "\n"
	}
	block.Text = strings.TrimRight(block.Text, "\n") + "\n"
	r.page.Blocks = append(r.page.Blocks, block)
}

func (r *reader) table() {
	table := Table{Line: r.at + 1, Heading: r.heading, Columns: cells(r.lines[r.at])}
	r.spans(r.lines[r.at])
	for r.at += 2; r.at < len(r.lines) && strings.HasPrefix(strings.TrimSpace(r.lines[r.at]), "|"); r.at++ {
		table.Rows = append(table.Rows, Row{Line: r.at + 1, Cells: cells(r.lines[r.at])})
		r.spans(r.lines[r.at])
	}
	r.page.Tables = append(r.page.Tables, table)
}

// cells splits a line of a table. A bar that is escaped, or is part of a code span, is text.
func cells(line string) []string {
	line = strings.TrimSpace(line)
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	var all []string
	cell, inCode := "", false
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\' && i+1 < len(line) && line[i+1] == '|':
			cell += "|"
			i++
		case line[i] == '|' && !inCode:
			all = append(all, strings.TrimSpace(cell))
			cell = ""
		default:
			if line[i] == '`' {
				inCode = !inCode
			}
			cell += string(line[i])
		}
	}
	return append(all, strings.TrimSpace(cell))
}

// Codes returns the pieces of code in a text.
func Codes(text string) []string {
	var all []string
	for _, found := range codeSpan.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// TablesUnder returns the tables of a section whose first column has this name.
func (p Page) TablesUnder(heading, column string) []Table {
	var found []Table
	for _, table := range p.Tables {
		if table.Heading == heading && table.Columns[0] == column {
			found = append(found, table)
		}
	}
	return found
}
