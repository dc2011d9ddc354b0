package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// verdict is an error if a check has failed.
func verdict(findings []finding) error {
	failed := len(slices.DeleteFunc(slices.Clone(findings), func(f finding) bool { return f.State != stateFailed }))
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%s failed", count(failed, "check"))
}

// firstFailed names one that has failed.
func firstFailed(findings []finding) string {
	for _, f := range findings {
		if f.State == stateFailed {
			return f.Name + ": " + f.Found
		}
	}
	return ""
}

func printFindings(to io.Writer, findings []finding, output string) error {
	var text bytes.Buffer
	switch output {
	case "json":
		return encode(to, findings, output)
	case "short":
		printShort(&text, findings)
	default:
		printGroups(&text, findings)
	}
	text.WriteString(sum(findings) + "\n")
	_, err := text.WriteTo(to)
	return err
}

// printShort prints only what is amiss.
func printShort(to *bytes.Buffer, findings []finding) {
	for _, f := range findings {
		if f.State == stateFailed || f.State == stateWarning {
			fmt.Fprintf(to, "%s: %s: %s (%s)\n", f.State, f.Name, f.Found, f.Link)
		}
	}
}

func printGroups(to *bytes.Buffer, findings []finding) {
	width, group := 0, ""
	for _, f := range findings {
		width = max(width, len(f.Name))
	}
	for _, f := range findings {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(to, "%s\n", group)
		}
		fmt.Fprintf(to, "  %-7s  %-*s  %s\n", f.State, width, f.Name, f.Found)
		if f.Fix != "" {
			indent := strings.Repeat(" ", 2+7+2+width+2)
			fmt.Fprintf(to, "%sfix: %s\n%ssee: %s\n", indent, f.Fix, indent, f.Link)
		}
	}
	to.WriteString("\n")
}

// sum counts the findings of each state.
func sum(findings []finding) string {
	var words []string
	for _, s := range []state{stateOK, stateWarning, stateFailed, stateSkipped} {
		n := 0
		for _, f := range findings {
			if f.State == s {
				n++
			}
		}
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s))
		}
	}
	return orElse(strings.Join(words, ", "), "nothing to check")
}
