// SPDX-License-Identifier: Apache-2.0

// Package docs holds documentation, and the test that its links lead somewhere.
package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

const root = ".."

var (
	inlineLink    = regexp.MustCompile(`\]\(<?([^)>\s]*)>?(?:\s+"[^"]*")?\)`)
	referenceLink = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s*<?([^>\s]+)>?`)
	linkText      = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	codeSpan      = regexp.MustCompile("`[^`]*`")
	heading       = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	fence         = regexp.MustCompile("^\\s*(```|~~~)")
)

// A page is a Markdown file: where its links lead, and which anchors others may link to.
type page struct {
	links   []string
	anchors map[string]bool
}

func TestLinksLeadSomewhere(t *testing.T) {
	pages := readPages(t)
	if len(pages) < 10 {
		t.Fatalf("only %d pages found", len(pages))
	}
	for file, p := range pages {
		for _, link := range p.links {
			if problem := follow(pages, file, link); problem != "" {
				t.Errorf("%s links to %q: %s", file, link, problem)
			}
		}
	}
}

// TestReadmeLinksEachPage checks that a reader finds each page of the documentation from the README.
func TestReadmeLinksEachPage(t *testing.T) {
	pages := readPages(t)
	linked := map[string]bool{}
	for _, link := range pages["README.md"].links {
		linked[filepath.Clean(link)] = true
	}
	for file := range pages {
		isNote := strings.HasPrefix(file, filepath.Join("docs", "design")) // which its own README lists
		if strings.HasPrefix(file, "docs") && !isNote && !linked[file] {
			t.Errorf("README.md does not link %s", file)
		}
	}
}

var sourceFile = regexp.MustCompile("`((?:api|charts|cmd|internal)/[a-z0-9_./-]+\\.[a-z]+)`")

// TestArchitectureNamesFilesThatExist checks the file names by which the page shows the ways through the code.
func TestArchitectureNamesFilesThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := sourceFile.FindAllStringSubmatch(string(text), -1)
	if len(named) < 20 {
		t.Errorf("ARCHITECTURE.md names only %d files", len(named))
	}
	for _, match := range named {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(match[1]))); err != nil {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", match[1])
		}
	}
}

// follow says what is wrong with a link on a page, if anything. Links to other hosts are not followed.
func follow(pages map[string]page, file, link string) string {
	target, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if target.IsAbs() {
		return ""
	}
	path := file
	if target.Path != "" {
		path = filepath.Join(filepath.Dir(file), filepath.FromSlash(target.Path))
	}
	if filepath.IsAbs(target.Path) || strings.HasPrefix(path, "..") {
		return "it leaves the repository"
	}
	if _, isPage := pages[path]; !isPage {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			return "no such file"
		}
	}
	if target.Fragment != "" && !pages[path].anchors[target.Fragment] {
		return "no such heading"
	}
	return ""
}

// readPages reads every Markdown file of the repository, by its path from the root.
func readPages(t *testing.T) map[string]page {
	t.Helper()
	pages := map[string]page{}
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
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		pages[name] = parse(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func parse(text string) page {
	p := page{anchors: map[string]bool{}}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if fence.MatchString(line) {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		if found := heading.FindStringSubmatch(line); found != nil {
			p.addAnchor(found[1])
		}
		line = codeSpan.ReplaceAllString(line, "")
		if found := referenceLink.FindStringSubmatch(line); found != nil {
			p.links = append(p.links, found[1])
		}
		for _, found := range inlineLink.FindAllStringSubmatch(line, -1) {
			p.links = append(p.links, found[1])
		}
	}
	return p
}

// addAnchor makes a heading's anchor as code hosts do: a second one of the same text gets a number.
func (p *page) addAnchor(title string) {
	name := anchor(title)
	for n := 1; p.anchors[name]; n++ {
		name = anchor(title) + "-" + strconv.Itoa(n)
	}
	p.anchors[name] = true
}

func anchor(title string) string {
	title = linkText.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, title)
}

func TestParse(t *testing.T) {
	got := parse("# The `hanse` kubelet, and more\n" +
		"See [here](a.md#x \"title\") and `[not](here.md)`, ![picture](p.svg).\n" +
		"```\n# no heading\n[no](link.md)\n```\n" +
		"## Twice\n## Twice\n## [Linked](b.md) text\n" +
		"[ref]: c.md\n")
	want := page{
		links:   []string{"a.md#x", "p.svg", "b.md", "c.md"},
		anchors: map[string]bool{"the-hanse-kubelet-and-more": true, "twice": true, "twice-1": true, "linked-text": true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(page{})); diff != "" {
		t.Error(diff)
	}
}

func TestFollow(t *testing.T) {
	pages := map[string]page{
		filepath.Join("docs", "a.md"): {anchors: map[string]bool{"here": true}},
		"README.md":                   {anchors: map[string]bool{"status": true}},
	}
	for name, test := range map[string]struct{ link, want string }{
		"another host":               {"https://kubernetes.io/nowhere", ""},
		"a file above":               {"../README.md", ""},
		"a heading of it":            {"../README.md#status", ""},
		"a heading that it lacks":    {"../README.md#nothing", "no such heading"},
		"a heading of the same page": {"#here", ""},
		"one that the page lacks":    {"#there", "no such heading"},
		"a file that does not exist": {"missing.md", "no such file"},
		"a folder":                   {"../docs", ""},
		"a file outside":             {"../../x.md", "it leaves the repository"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := follow(pages, filepath.Join("docs", "a.md"), test.link); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestLinesDoNotEndInBlanks checks all pages: editors remove such blanks, or show them as line breaks.
func TestLinesDoNotEndInBlanks(t *testing.T) {
	for file := range readPages(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if strings.TrimRight(line, " \t") != line {
				t.Errorf("%s:%d: the line ends in a blank: remove it", file, i+1)
			}
		}
	}
}
