package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// printExplained prints for people.
func printExplained(to io.Writer, found podExplained, now time.Time) error {
	var text bytes.Buffer
	line := func(title, format string, args ...any) {
		fmt.Fprintf(&text, "%-10s %s\n", title, printable(fmt.Sprintf(format, args...)))
	}
	line("Pod:", "%s/%s", found.Namespace, found.Name)
	line("Where:", "%s", placeText(found.Where, now))
	printChoice(line, found.Why)
	line("State:", "%s", stateText(found.State))
	for _, c := range found.State.Containers {
		line("", "container %s: %s%s, %s", c.Name, c.State, inBrackets(c.Reason), count(int(c.Restarts), "restart"))
	}
	if len(found.Hidden) > 0 {
		line("Hidden:", "your rights do not suffice to see %s", strings.Join(found.Hidden, ", "))
	}
	if err := printCandidates(&text, found.Why.Candidates); err != nil {
		return err
	}
	printProblems(&text, found.Problems)
	_, err := text.WriteTo(to)
	return err
}

func placeText(where podPlace, now time.Time) string {
	text := "nowhere yet"
	switch where.Kind {
	case placeHome:
		text = "at home, on node " + where.Node
	case placeVirtual:
		text = fmt.Sprintf("at peer %s (cluster %s), on virtual node %s", where.Peer, orElse(where.ClusterID, "unknown"), where.Node)
		if where.TwinNamespace != "" {
			text += ", in namespace " + where.TwinNamespace + " there"
		}
	}
	if where.Since != nil {
		text += ", for " + duration.HumanDuration(now.Sub(where.Since.Time))
	}
	return text
}

func printChoice(line func(title, format string, args ...any), why podChoice) {
	title := "Why:"
	if why.Strategy != "" {
		line(title, "the namespace is offloaded with strategy %s", why.Strategy)
		title = ""
	}
	for _, reason := range why.Reasons {
		line(title, "%s", reason)
		title = ""
	}
}

func stateText(state podState) string {
	text := orElse(string(state.Phase), "unknown")
	if state.Ready {
		text += ", ready"
	} else {
		text += ", not ready"
	}
	return text + inBrackets(state.Reason) + ", " + count(int(state.Restarts), "restart")
}

func inBrackets(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

func printCandidates(text *bytes.Buffer, candidates []podCandidate) error {
	if len(candidates) == 0 {
		return nil
	}
	text.WriteString("\nVirtual nodes, as they are judged now:\n")
	shown := newTable("NODE", "WEIGHT", "PRICE", "EXCLUDED")
	for _, c := range candidates {
		weight := none
		if c.Weight > 0 {
			weight = fmt.Sprint(c.Weight)
		}
		shown.row(c.Node, weight, orElse(c.Price, none), printable(orElse(c.Excluded, none)))
	}
	return shown.print(text, nil)
}

func printProblems(text *bytes.Buffer, problems []podProblem) {
	if len(problems) == 0 {
		text.WriteString("\nNothing is wrong.\n")
		return
	}
	text.WriteString("\nWhat is wrong:\n")
	for _, p := range problems {
		fmt.Fprintf(text, "  %s: %s\n", printable(p.Reason), printable(p.Message))
		if p.Fix != "" {
			fmt.Fprintf(text, "    fix: %s\n", printable(p.Fix))
		}
		if p.Link != "" {
			fmt.Fprintf(text, "    see: %s\n", p.Link)
		}
	}
}
