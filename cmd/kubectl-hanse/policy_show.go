package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hanse-dev/hanse/policies"
)

// A policyStanding is how the policies about one question stand, as the manager writes it.
type policyStanding struct {
	Modules []string          `json:"modules"`
	Default bool              `json:"default"`
	Broken  map[string]string `json:"broken"`
	Sources map[string]string `json:"sources"`
}

// policiesShown is what `policy show` shows of one question. Its JSON is for scripts: fields are added, never renamed.
type policiesShown struct {
	Question string         `json:"question"`
	Default  bool           `json:"default"`
	Modules  []policyModule `json:"modules"`
	Broken   []brokenPolicy `json:"broken,omitempty"`
}

// policyModule is one in force.
type policyModule struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// brokenPolicy is a module, or a whole ConfigMap, that cannot be used as it is. Kept tells whether its last good version
// is in force.
type brokenPolicy struct {
	Question string `json:"question"`
	Name     string `json:"name"`
	Kept     bool   `json:"kept"`
	Message  string `json:"message"`
}

func newPolicyShowCommand(global *globalFlags) *cobra.Command {
	output := ""
	command := &cobra.Command{
		Use:   "show [QUESTION]",
		Short: "Show the policies in force, and which are broken",
		Long: "Shows the Rego that answers each question, or one of them: the modules of ConfigMaps, or the built-in default where\n" +
			"there are none. Modules that cannot be used say why.",
		Example: `  kubectl hanse policy show
  kubectl hanse policy show incoming -o yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			about := questions
			if len(args) == 1 {
				about = args
			}
			if !slices.Contains(questions, about[0]) {
				return fmt.Errorf("%q is no question to policies: they are %s", about[0], strings.Join(questions, ", "))
			}
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				seen := take(ctx, c.client, scope{system: global.namespace}, time.Time{}, partPolicies)
				if err := seen.err(partPolicies); err != nil {
					return err
				}
				return showPolicies(command.OutOrStdout(), seen.policies, about, output)
			})
		},
	}
	command.Flags().VarP(oneOf(&output, "json", "yaml"), "output", "o", "json or yaml; by default Rego, with comments")
	return command
}

// showPolicies prints the policies about some questions.
func showPolicies(to io.Writer, standings map[string]policyStanding, about []string, output string) error {
	var shown []policiesShown
	for _, question := range about {
		standing, known := standings[question]
		if !known {
			return fmt.Errorf("the manager has not said yet which policies about %s are in force: does it run? See `kubectl hanse check`", question)
		}
		one, err := standing.show(question)
		if err != nil {
			return err
		}
		shown = append(shown, one)
	}
	strays := brokenPolicies(map[string]policyStanding{unknownQuestion: standings[unknownQuestion]})
	return show(to, shown, output, func(d *document) { printPolicies(d, shown, strays) })
}

// unknownQuestion is where the manager tells of ConfigMaps whose label names no question.
const unknownQuestion = "unknown"

func (s policyStanding) show(question string) (policiesShown, error) {
	shown := policiesShown{
		Question: question, Default: s.Default, Modules: []policyModule{},
		Broken: brokenPolicies(map[string]policyStanding{question: s}),
	}
	if !s.Default {
		for _, name := range s.Modules {
			shown.Modules = append(shown.Modules, policyModule{name, s.Sources[name]})
		}
		return shown, nil
	}
	name := "default/" + question + ".rego"
	source, err := policies.Files.ReadFile(name)
	if err != nil {
		return shown, fmt.Errorf("read the built-in default: %w", err)
	}
	shown.Modules = []policyModule{{name, string(source)}}
	return shown, nil
}

// brokenPolicies returns all that is broken, by question and name.
func brokenPolicies(standings map[string]policyStanding) []brokenPolicy {
	var broken []brokenPolicy
	for _, question := range slices.Sorted(maps.Keys(standings)) {
		standing := standings[question]
		for _, name := range slices.Sorted(maps.Keys(standing.Broken)) {
			broken = append(broken, brokenPolicy{
				Question: question, Name: name, Kept: slices.Contains(standing.Modules, name), Message: standing.Broken[name],
			})
		}
	}
	return broken
}

// state says in a few words what has become of it.
func (b brokenPolicy) state() string {
	if b.Kept {
		return "broken: its last good version is in force"
	}
	return "broken: not in force"
}

// printPolicies prints Rego. What is not Rego is in comments.
func printPolicies(d *document, shown []policiesShown, strays []brokenPolicy) {
	for i := range shown {
		for _, b := range shown[i].Broken {
			d.printf("# %s: %s: %s: %s\n", b.Question, b.Name, b.state(), printable(b.Message))
		}
		for _, module := range shown[i].Modules {
			name := module.Name
			if shown[i].Default {
				name = "the built-in default"
			}
			d.printf("# %s: %s\n%s\n", shown[i].Question, name, module.Source)
		}
	}
	for _, b := range strays {
		d.printf("# %s: %s: %s\n", b.Name, b.state(), printable(b.Message))
	}
}

// printBroken prints what is broken below the rest of a status.
func printBroken(d *document, broken []brokenPolicy) {
	if len(broken) == 0 {
		return
	}
	d.printf("\n")
	rows := [][]string{{"POLICY", "QUESTION", "STATE", "WHY"}}
	for _, b := range broken {
		rows = append(rows, []string{b.Name, b.Question, b.state(), b.Message})
	}
	d.table(rows...)
}
