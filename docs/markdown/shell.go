// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"regexp"
	"slices"
	"strings"
)

// A Command is a simple command of a shell, without its redirections.
type Command struct {
	Line  int // of the page
	Words []string
}

// shells are the languages of blocks that hold commands. A block without a language may hold them, too.
var shells = []string{"", "sh", "bash", "shell", "console"}

// prefixes are words before a command that are no part of it.
var prefixes = []string{"$", "!", "if", "then", "else", "while", "until", "do", "time", "sudo"}

// Commands returns the commands in the page's blocks of code. Blocks of output look like commands, too: callers select the
// commands by their first words.
func (p Page) Commands() []Command {
	var all []Command
	for _, block := range p.Blocks {
		if !slices.Contains(shells, block.Language) {
			continue
		}
		all = append(all, ParseShell(block.Line, block.Text)...)
	}
	return all
}

// ParseShell splits lines of a shell into simple commands. It knows quotes, comments, continued lines, pipes, lists and
// redirections. A variable becomes its own name in lower case, and a command substitution becomes the word "output".
func ParseShell(first int, text string) []Command {
	var all []Command
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		start, line := first+i, lines[i]
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + " " + lines[i]
		}
		all = append(all, parseLine(start, line)...)
	}
	return all
}

var redirection = regexp.MustCompile(`^[0-9]?(<|>|>>|>&)$`)

func parseLine(number int, line string) []Command {
	var all []Command
	var words []string
	end := func() {
		for len(words) > 0 && slices.Contains(prefixes, words[0]) {
			words = words[1:]
		}
		if len(words) > 0 {
			all = append(all, Command{Line: number, Words: words})
		}
		words = nil
	}
	skip := false // the word is the file of a redirection
	for _, t := range tokens(line) {
		switch {
		case t.operator && redirection.MatchString(t.text):
			skip = true
		case t.operator:
			end()
		case skip:
			skip = false
		default:
			words = append(words, t.text)
		}
	}
	end()
	return all
}

type token struct {
	text     string
	operator bool
}

var (
	operators    = regexp.MustCompile(`^([0-9]?(>>|>&|>|<)|\|\||&&|[|&;()])`)
	substitution = regexp.MustCompile(`^\$\([^()]*\)`)
	variable     = regexp.MustCompile(`^\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?`)
)

// tokens splits a line into words and operators.
func tokens(line string) []token {
	var all []token
	word, inWord := "", false
	end := func() {
		if inWord {
			all = append(all, token{text: word})
		}
		word, inWord = "", false
	}
	for len(line) > 0 {
		if !inWord && line[0] == '#' {
			break
		}
		if operator := operators.FindString(line); operator != "" && (!inWord || operator[0] < '0' || operator[0] > '9') {
			end()
			all = append(all, token{text: operator, operator: true})
			line = line[len(operator):]
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			end()
			line = line[1:]
			continue
		}
		text, length := piece(line)
		word, inWord = word+text, true
		line = line[length:]
	}
	end()
	return all
}

// piece reads the next part of a word, and returns its text and its length in the line.
func piece(line string) (text string, length int) {
	switch line[0] {
	case '\'':
		if end := strings.IndexByte(line[1:], '\''); end >= 0 {
			return line[1 : 1+end], end + 2
		}
	case '"':
		if end := strings.IndexByte(line[1:], '"'); end >= 0 {
			return expand(line[1 : 1+end]), end + 2
		}
	case '\\':
		if len(line) > 1 {
			return line[1:2], 2
		}
	case '$':
		if found := substitution.FindString(line); found != "" {
			return "output", len(found)
		}
		if found := variable.FindStringSubmatch(line); found != nil {
			return strings.ToLower(found[1]), len(found[0])
		}
	}
	return line[:1], 1
}

// expand replaces what a shell replaces in double quotes.
func expand(text string) string {
	result := ""
	for len(text) > 0 {
		length := 1
		replaced := text[:1]
		if text[0] == '$' {
			replaced, length = piece(text)
		}
		result += replaced
		text = text[length:]
	}
	return result
}

// Invocations returns the arguments of each invocation of a program in the page: by one of its names, such as "hanse" or
// "kubectl hanse", or by a path to the program.
func (p Page) Invocations(names ...string) []Command {
	var all []Command
	for _, command := range p.Commands() {
		if args, isCalled := Arguments(command.Words, names...); isCalled {
			all = append(all, Command{Line: command.Line, Words: args})
		}
	}
	return all
}

// Arguments returns what follows the name of the program in a command.
func Arguments(words []string, names ...string) ([]string, bool) {
	for _, name := range names {
		parts := strings.Fields(name)
		if len(words) < len(parts) {
			continue
		}
		called := slices.Clone(words[:len(parts)])
		called[0] = called[0][strings.LastIndex(called[0], "/")+1:]
		if slices.Equal(called, parts) {
			return words[len(parts):], true
		}
	}
	return nil, false
}
