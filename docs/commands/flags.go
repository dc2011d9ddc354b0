// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hanse-dev/hanse/docs/markdown"
)

// A Reference is the page that describes all commands of a program. Each command has a section, whose heading is the command
// as a user types it. A section may describe several commands: "kubectl hanse accept, refuse PEER". Flags are in tables with
// the columns flag, default and meaning. A meaning that begins with "`drain` only: " limits the flag to that command. The
// section of the program itself describes flags that several commands have.
type Reference struct {
	Page    markdown.Page
	Program string // how users call the program, such as "kubectl hanse"
	Root    *cobra.Command
	// Choices returns the values that a flag accepts, or nil if they are not an enumeration.
	Choices func(*pflag.Flag) []string
}

// An entry is a documented flag.
type entry struct {
	line                 int
	shorthand, name      string
	defaultCell, meaning string
	only                 []string // the names of the commands that have the flag; empty means all commands of the section
	used                 bool
}

// Problems compares the page with the commands, in both directions.
func (r Reference) Problems() []string {
	described, problems := r.read()
	common := described[r.Root]
	for _, command := range visible(r.Root) {
		own, hasSection := described[command]
		if command != r.Root && !hasSection {
			problems = append(problems, fmt.Sprintf("%s has no section ### %s: add one", r.Page.File, r.call(command)))
		}
		if command == r.Root && !command.HasPersistentFlags() {
			continue // the table is about the flags of other commands
		}
		problems = append(problems, r.compare(command, own, common)...)
	}
	return append(problems, r.unused(described)...)
}

// read reads the sections of the page: command → its flags. A command that is not in the map has no section.
func (r Reference) read() (described map[*cobra.Command][]*entry, problems []string) {
	described = map[*cobra.Command][]*entry{}
	for _, heading := range r.Page.Headings {
		if heading.Text != r.Program && !strings.HasPrefix(heading.Text, r.Program+" ") {
			continue
		}
		found := r.commandsOf(heading.Text)
		if heading.Text != r.Program && found[0] == r.Root {
			problems = append(problems, r.at(heading.Line, "there is no command %q: remove its section", heading.Text))
			continue
		}
		entries, bad := r.entries(heading.Text)
		problems = append(problems, bad...)
		for _, command := range found {
			described[command] = append(described[command], entries...)
			if entries == nil {
				described[command] = []*entry{}
			}
		}
	}
	return described, problems
}

// commandsOf returns the commands that a heading names, or the root if it names none.
func (r Reference) commandsOf(heading string) []*cobra.Command {
	var found []*cobra.Command
	current := r.Root
	for _, word := range strings.Fields(strings.TrimPrefix(heading, r.Program)) {
		name, isOneOfSeveral := strings.CutSuffix(word, ",")
		child := childOf(current, name)
		if child == nil {
			break
		}
		if isOneOfSeveral {
			found = append(found, child)
			continue
		}
		current = child
	}
	return append(found, current)
}

func childOf(command *cobra.Command, name string) *cobra.Command {
	for _, child := range command.Commands() {
		if child.Name() == name {
			return child
		}
	}
	return nil
}

// visible returns the root and all commands below it that users run.
func visible(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, child := range root.Commands() {
		if child.Hidden || child.Name() == "help" || child.Name() == "completion" {
			continue
		}
		below := visible(child)
		if child.HasAvailableSubCommands() { // alone it prints help
			below = below[1:]
		}
		all = append(all, below...)
	}
	return all
}

// call is how a user calls the command.
func (r Reference) call(command *cobra.Command) string {
	path := strings.Fields(command.CommandPath())
	return strings.Join(append([]string{r.Program}, path[len(strings.Fields(r.Root.CommandPath())):]...), " ")
}

func (r Reference) at(line int, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", r.Page.File, line) + fmt.Sprintf(format, args...)
}

// entries reads the tables of flags below a heading.
func (r Reference) entries(heading string) ([]*entry, []string) {
	var all []*entry
	var problems []string
	for _, table := range r.Page.TablesUnder(heading, "flag") {
		if !slices.Equal(table.Columns, []string{"flag", "default", "meaning"}) {
			problems = append(problems, r.at(table.Line, "the columns of a table of flags are flag, default and meaning"))
			continue
		}
		for _, row := range table.Rows {
			if len(row.Cells) != len(table.Columns) {
				problems = append(problems, r.at(row.Line, "the row has %d cells, not %d", len(row.Cells), len(table.Columns)))
				continue
			}
			all = append(all, entriesOf(row)...)
		}
	}
	return all, problems
}

// entriesOf reads a row, which may describe several flags: their defaults are then in the same order.
func entriesOf(row markdown.Row) []*entry {
	var all []*entry
	shorthand := ""
	for _, name := range markdown.Codes(row.Cells[0]) {
		long, isLong := strings.CutPrefix(name, "--")
		if !isLong {
			shorthand = strings.TrimPrefix(name, "-")
			continue
		}
		only, meaning := limit(row.Cells[2])
		all = append(all, &entry{line: row.Line, shorthand: shorthand, name: long, defaultCell: row.Cells[1], meaning: meaning, only: only})
		shorthand = ""
	}
	defaults := strings.Split(row.Cells[1], ", ")
	for i, e := range all {
		if len(all) > 1 && len(defaults) == len(all) {
			e.defaultCell = defaults[i]
		}
	}
	return all
}

var listOfNames = regexp.MustCompile("^`[a-z]+`((, | and )`[a-z]+`)*$")

// limit splits the names of commands off a meaning: "`drain` only: how long to wait".
func limit(meaning string) (only []string, rest string) {
	names, rest, found := strings.Cut(meaning, " only: ")
	if !found || !listOfNames.MatchString(names) {
		return nil, meaning
	}
	return markdown.Codes(names), rest
}

// compare compares the flags of a command with those that the page describes: in the section of the command, and in common.
func (r Reference) compare(command *cobra.Command, own, common []*entry) []string {
	flags := flagsOf(command, command == r.Root)
	var problems []string
	isCommon := false // the command has the common flags
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		flag := flags[name]
		e := lookup(own, name, command.Name())
		if e == nil {
			e = lookup(common, name, command.Name())
			isCommon = isCommon || e != nil
		}
		if e == nil {
			problems = append(problems, fmt.Sprintf("%s does not describe %s --%s: add a row to the table of flags, or hide the flag (%s)",
				r.Page.File, r.call(command), name, flag.Usage))
			continue
		}
		e.used = true
		problems = append(problems, r.compareFlag(command, flag, e)...)
	}
	expected := own
	if isCommon {
		expected = slices.Concat(own, common)
	}
	for _, e := range expected {
		if appliesTo(e, command.Name()) && flags[e.name] == nil {
			problems = append(problems, r.at(e.line, "%s has no flag --%s: remove the row, or limit it to other commands", r.call(command), e.name))
		}
	}
	return problems
}

func appliesTo(e *entry, command string) bool {
	return len(e.only) == 0 || slices.Contains(e.only, command)
}

func lookup(entries []*entry, name, command string) *entry {
	for _, e := range entries {
		if e.name == name && appliesTo(e, command) {
			return e
		}
	}
	return nil
}

// flagsOf returns the visible flags that the command itself defines.
func flagsOf(command *cobra.Command, persistent bool) map[string]*pflag.Flag {
	found := map[string]*pflag.Flag{}
	set := command.LocalNonPersistentFlags()
	if persistent {
		set = command.PersistentFlags()
	}
	set.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden && flag.Name != "help" && flag.Name != "version" {
			found[flag.Name] = flag
		}
	})
	return found
}

// compareFlag compares one flag with its description.
func (r Reference) compareFlag(command *cobra.Command, flag *pflag.Flag, e *entry) []string {
	var problems []string
	about := r.call(command) + " --" + flag.Name
	if flag.Shorthand != e.shorthand {
		problems = append(problems, r.at(e.line, "the short form of %s is %q, not %q", about, flag.Shorthand, e.shorthand))
	}
	choices := r.Choices(flag)
	if problem := CheckDefault(flag, choices, e.defaultCell); problem != "" {
		problems = append(problems, r.at(e.line, "%s: %s", about, problem))
	}
	named := markdown.Codes(e.defaultCell + " " + e.meaning)
	for _, choice := range choices {
		if !slices.ContainsFunc(named, func(name string) bool { return strings.EqualFold(name, choice) }) {
			problems = append(problems, r.at(e.line, "%s accepts `%s`, too: add it", about, choice))
		}
	}
	return problems
}

// zeros are defaults by which a program does nothing, or finds a value itself.
var zeros = []string{"", "[]", "0", "0s", "false", "<nil>"}

// CheckDefault compares the default of a flag with the cell of a table that states it: as code, or in words. It
// returns what is wrong, or nothing.
func CheckDefault(flag *pflag.Flag, choices []string, cell string) string {
	codes := markdown.Codes(cell)
	if len(codes) != 1 || cell != "`"+codes[0]+"`" {
		return checkWords(flag, cell)
	}
	stated := codes[0]
	expected := []string{"{}", "[]"} // of flags without a default of their own
	if len(choices) > 0 {
		expected = append(expected, choices[0])
	}
	switch {
	case sameValue(stated, flag.DefValue):
		return ""
	case flag.DefValue == "" && (slices.Contains(expected, stated) || strings.Contains(flag.Usage, "by default "+stated)):
		return ""
	case flag.DefValue == "":
		return fmt.Sprintf("the page says that the default is `%s`; the flag has no default, and its help does not say \"by default %s\"", stated, stated)
	}
	return fmt.Sprintf("the default is `%s`, and the page says `%s`", flag.DefValue, stated)
}

// checkWords checks a default that the page describes in words: the program finds the value itself, or it is a list.
func checkWords(flag *pflag.Flag, cell string) string {
	isList := strings.HasPrefix(flag.DefValue, "[")
	if slices.Contains(zeros, flag.DefValue) || isList && cell != "" {
		return ""
	}
	return fmt.Sprintf("the default is `%s`, and the page says %q", flag.DefValue, cell)
}

func sameValue(stated, actual string) bool {
	if strings.EqualFold(stated, actual) || "["+stated+"]" == actual {
		return true
	}
	a, err := time.ParseDuration(stated)
	if err != nil {
		a = -1
	}
	if b, err := time.ParseDuration(actual); err == nil && a == b {
		return true
	}
	x, errX := strconv.ParseFloat(stated, 64)
	y, errY := strconv.ParseFloat(actual, 64)
	return errX == nil && errY == nil && x == y
}

// unused reports descriptions of flags that no command has.
func (r Reference) unused(described map[*cobra.Command][]*entry) []string {
	lines := map[int]string{}
	for _, e := range described[r.Root] {
		if !e.used {
			lines[e.line] = e.name
		}
	}
	var problems []string
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		problems = append(problems, r.at(line, "no command has a flag --%s: remove the row", lines[line]))
	}
	return problems
}
