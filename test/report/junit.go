// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The elements of JUnit's format that CI systems read.
type (
	testSuites struct {
		XMLName xml.Name    `xml:"testsuites"`
		Suites  []testSuite `xml:"testsuite"`
	}
	testSuite struct {
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Time     string     `xml:"time,attr"`
		Cases    []testCase `xml:"testcase"`
	}
	testCase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Time    string   `xml:"time,attr"`
		Failure *message `xml:"failure"`
		Skipped *message `xml:"skipped"`
	}
	message struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteFile writes the results as JUnit XML, and makes the folder.
func (r *Report) WriteFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = r.WriteJUnit(file)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// WriteJUnit writes the results as JUnit XML, with a suite for each package.
func (r *Report) WriteJUnit(w io.Writer) error {
	all := testSuites{}
	for _, result := range r.Results {
		name := short(result.Package)
		index := slices.IndexFunc(all.Suites, func(suite testSuite) bool { return suite.Name == name })
		if index < 0 {
			all.Suites, index = append(all.Suites, testSuite{Name: name}), len(all.Suites)
		}
		all.Suites[index].add(result)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	return encoder.Encode(all)
}

func (s *testSuite) add(result *Result) {
	c := testCase{Class: s.Name, Name: result.Test, Time: seconds(result.Elapsed.Seconds())}
	switch result.Action {
	case "fail":
		s.Failures++
		c.Failure = &message{Message: "failed", Text: clean(result.Output)}
	case "skip":
		s.Skipped++
		c.Skipped = &message{Message: "skipped", Text: clean(result.Output)}
	}
	s.Tests++
	s.Cases = append(s.Cases, c)
	if !strings.Contains(result.Test, "/") { // a subtest's time is part of its test's
		var sum float64
		_, _ = fmt.Sscanf(s.Time, "%f", &sum) // empty at first
		s.Time = seconds(sum + result.Elapsed.Seconds())
	}
}

func seconds(of float64) string { return fmt.Sprintf("%.3f", of) }

// clean leaves out what XML cannot hold.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
