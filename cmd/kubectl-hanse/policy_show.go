package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
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
			if err := errors.Join(isQuestion(about[0]), checkOutput(output)); err != nil {
				return err
			}
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				standings, err := readPolicies(ctx, c.client, global.namespace)
				if err != nil {
					return err
				}
				return showPolicies(command.OutOrStdout(), standings, about, output)
			})
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json or yaml; by default Rego, with comments")
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
	if output != "" {
		return encode(to, shown, output)
	}
	return printPolicies(to, shown, brokenPolicies(map[string]policyStanding{unknownQuestion: standings[unknownQuestion]}))
}

// readPolicies returns how the policies stand: question → standing. There is nothing of questions that the manager has not
// told about.
func readPolicies(ctx context.Context, c client.Client, namespace string) (map[string]policyStanding, error) {
	status := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.PolicyStatus}
	if err := client.IgnoreNotFound(c.Get(ctx, key, status)); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	standings := map[string]policyStanding{}
	for question, text := range status.Data {
		var standing policyStanding
		if err := json.Unmarshal([]byte(text), &standing); err != nil {
			return nil, fmt.Errorf("read %s in ConfigMap %s: %w", question, key, err)
		}
		standings[question] = standing
	}
	return standings, nil
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
func printPolicies(to io.Writer, shown []policiesShown, strays []brokenPolicy) error {
	var text bytes.Buffer
	for i := range shown {
		for _, b := range shown[i].Broken {
			fmt.Fprintf(&text, "# %s: %s: %s: %s\n", b.Question, b.Name, b.state(), printable(b.Message))
		}
		for _, module := range shown[i].Modules {
			name := module.Name
			if shown[i].Default {
				name = "the built-in default"
			}
			fmt.Fprintf(&text, "# %s: %s\n%s\n", shown[i].Question, name, module.Source)
		}
	}
	for _, b := range strays {
		fmt.Fprintf(&text, "# %s: %s: %s\n", b.Name, b.state(), printable(b.Message))
	}
	_, err := text.WriteTo(to)
	return err
}

// printBroken prints what is broken below the rest of a status.
func printBroken(to *bytes.Buffer, broken []brokenPolicy) error {
	if len(broken) == 0 {
		return nil
	}
	to.WriteString("\n")
	table := newTable("POLICY", "QUESTION", "STATE", "WHY")
	for _, b := range broken {
		table.row(b.Name, b.Question, b.state(), printable(b.Message))
	}
	return table.print(to, nil)
}

// policies checks that all policies of the administrator can be used.
func (c *checker) policies(ctx context.Context) finding {
	const name = "policies of yours"
	standings, err := readPolicies(ctx, c.client, c.namespace)
	if err != nil {
		return topicModules.unknown(name, err)
	}
	if len(standings) == 0 {
		return topicModules.skipped(name, "the manager has not said yet which are in force")
	}
	broken, modules := brokenPolicies(standings), 0
	for _, standing := range standings {
		modules += len(standing.Modules)
	}
	if len(broken) == 0 {
		return topicModules.ok(name, "%s in force", count(modules, "module"))
	}
	var names []string
	for _, b := range broken {
		names = append(names, b.Name+" ("+b.Message+")")
	}
	return topicModules.warning(name, "broken: "+some(names), "mend them: what was good before is in force meanwhile")
}
