// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/policies"
)

// What policies are asked, as the labels of their ConfigMaps have it.
const (
	questionIncoming  = "incoming"
	questionOutgoing  = "outgoing"
	questionShadowPod = "shadowpod"
	questionRequest   = "request"
	questionQuote     = "quote"
	questionPlacement = "placement"
)

// questions are all of them, in the order in which they are shown.
var questions = []string{questionIncoming, questionOutgoing, questionShadowPod, questionRequest, questionQuote, questionPlacement}

func newPolicyCommand(global *globalFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Show the policies in force, try one, or ask why they decide as they do",
		Long: "Policies are Rego modules in ConfigMaps of Hanse's own namespace that are labelled hanse.dev/policy=QUESTION. The\n" +
			"questions are incoming (use this offer?), outgoing (offer what to whom?), shadowpod (run this pod?), request (reserve this?), quote\n" +
			"(offer what for this?) and placement (prefer which clusters?).",
		Example: `  kubectl hanse policy show incoming
  kubectl hanse policy test max-price.rego --question incoming --advertisement hamburg
  kubectl hanse policy explain advertisement hamburg`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newPolicyShowCommand(global), newPolicyTestCommand(global), newPolicyExplainCommand(global))
	return command
}

// askFlags are those of verbs that have the manager ask policies.
type askFlags struct {
	output  string
	timeout time.Duration
}

func (f *askFlags) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.VarP(oneOf(&f.output, "json", "yaml"), "output", "o", "json or yaml; by default text")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait for the answer")
}

func newPolicyTestCommand(global *globalFlags) *cobra.Command {
	flags, trial := &askFlags{}, &policyTrial{}
	command := &cobra.Command{
		Use:   "test FILE.rego --question QUESTION (--input FILE | --advertisement NAME | --for-namespace NAME)",
		Short: "Try a policy before it is in force",
		Long: "Asks the module alone, with an input of your own or with what the cluster knows now, and shows the answer. It runs\n" +
			"`hanse policy test` in the pod of the manager, for which you need the right to exec there. With an input of your own\n" +
			"you can run that in the server's image without a cluster as well. Nothing changes by it. The exit code is 1 if the\n" +
			"module cannot be asked.",
		Example: `  kubectl hanse policy test max-price.rego --question incoming --advertisement hamburg
  kubectl hanse policy test nearest.rego --question placement --for-namespace shop
  kubectl hanse policy test gpus.rego --question outgoing --input input.json -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) (err error) {
			if trial.Module, err = readPolicyFile(args[0]); err != nil {
				return err
			}
			if command.Flags().Changed("advertisement") && trial.Question != questionIncoming && trial.Question != questionOutgoing {
				return errors.New("--advertisement is for incoming and outgoing: say --for-namespace for placement, and --input for shadowpod, request and quote")
			}
			if command.Flags().Changed("for-namespace") && trial.Question != questionPlacement {
				return errors.New("--for-namespace is for the question placement")
			}
			return ask(command, global, *flags, *trial)
		},
	}
	f := command.Flags()
	f.Var(oneOf(&trial.Question, questions...), "question", "what the module answers: "+strings.Join(questions, ", "))
	f.Func("input", "`file` with the input, as JSON", parseInto(&trial.Input, readPolicyFile))
	f.StringVar(&trial.About, "advertisement", "", "Peer or cluster id whose advertisement to ask about")
	f.StringVar(&trial.About, "for-namespace", "", "namespace whose placement to ask about, or NAMESPACE/CLASS for a class of its pods")
	command.MarkFlagsOneRequired("question")
	command.MarkFlagsOneRequired("input", "advertisement", "for-namespace")
	command.MarkFlagsMutuallyExclusive("input", "advertisement", "for-namespace")
	flags.bind(command)
	return command
}

func newPolicyExplainCommand(global *globalFlags) *cobra.Command {
	flags, outgoing := &askFlags{}, false
	command := &cobra.Command{
		Use:   "explain (advertisement PEER | placement NAMESPACE[/CLASS])",
		Short: "Ask the policies in force, and show which rules decide",
		Long:  "Has the manager ask the policies in force about what the cluster knows now, and shows the answer and the rules behind it.",
		Example: `  # Why is the offer of hamburg refused, and why is hamburg offered so little?
  kubectl hanse policy explain advertisement hamburg
  kubectl hanse policy explain advertisement hamburg --outgoing

  # Why do the pods of a namespace, and those of its class gold, prefer other clusters?
  kubectl hanse policy explain placement shop
  kubectl hanse policy explain placement shop/gold`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			about := map[string]string{"advertisement": questionIncoming, "placement": questionPlacement}
			asked := policyTrial{Question: about[args[0]], About: args[1]}
			switch {
			case outgoing && asked.Question == questionIncoming:
				asked.Question = questionOutgoing
			case outgoing || asked.Question == "":
				return fmt.Errorf("an advertisement, also an outgoing one, or a placement can be explained, not %q", args[0])
			}
			return ask(command, global, *flags, asked)
		},
	}
	command.Flags().BoolVar(&outgoing, "outgoing", false, "ask about what this cluster offers the peer")
	flags.bind(command)
	return command
}

const (
	// maxPolicyFile is more than the server takes.
	maxPolicyFile = 900 << 10
	// managerLease is held by the pod of the manager that acts: the others do not know what the cluster knows.
	managerLease = "hanse-manager"
)

// askCommand answers a policyTrial from standard input, in the server's image.
var askCommand = []string{"/hanse", "policy", "test", "--request"}

// A policyTrial is what policies are asked. Without a module those in force are asked, and without an input it is asked
// about what the cluster knows of a peer or a namespace.
type policyTrial struct {
	Question string  `json:"question"`
	Module   *string `json:"module,omitempty"`
	Input    *string `json:"input,omitempty"`
	About    string  `json:"about,omitempty"`
}

// A policyAnswer is what the server answers.
type policyAnswer struct {
	Decision string         `json:"decision,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Patch    map[string]any `json:"patch,omitempty"`
	Steps    []policyStep   `json:"steps,omitempty"`
	Error    string         `json:"error,omitempty"`
}

type policyStep struct {
	Rule     string `json:"rule"`
	Location string `json:"location"`
	Text     string `json:"text,omitempty"`
}

func readPolicyFile(file string) (*string, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	if len(data) > maxPolicyFile {
		return nil, fmt.Errorf("%s has more than %d KiB", file, maxPolicyFile>>10)
	}
	text := string(data)
	return &text, nil
}

// ask has policies asked in the pod of the manager, and prints the answer.
func ask(command *cobra.Command, global *globalFlags, flags askFlags, asked policyTrial) error {
	return global.withHanse(command, flags.timeout, func(ctx context.Context, c *connection, system string) error {
		answer, err := c.askPolicies(ctx, system, asked)
		if err == nil {
			err = printAnswer(command.OutOrStdout(), asked.Question, answer, flags.output)
		}
		if err == nil && answer.Error != "" {
			err = errors.New(printable(answer.Error))
		}
		return err
	})
}

func (c *connection) askPolicies(ctx context.Context, namespace string, asked policyTrial) (policyAnswer, error) {
	answer := policyAnswer{}
	lease := &coordinationv1.Lease{}
	if _, err := read(ctx, c.client, namespace, managerLease, lease); err != nil {
		return answer, err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return answer, errors.New("the manager does not run, which knows and asks the policies: see `kubectl hanse check`. " +
			"A module with an input of your own can be tried with `hanse policy test` in the server's image")
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return answer, err
	}
	said, err := c.exec(ctx, client.ObjectKey{Namespace: namespace, Name: *lease.Spec.HolderIdentity}, askCommand, text)
	if err == nil {
		err = json.Unmarshal(said, &answer)
	}
	if err != nil {
		return answer, fmt.Errorf("run %s in pod %s: %w", strings.Join(askCommand, " "), *lease.Spec.HolderIdentity, err)
	}
	return answer, nil
}

func printAnswer(to io.Writer, question string, answer policyAnswer, output string) error {
	if output == "" && answer.Error != "" {
		return nil // the user is told as of any other error
	}
	changes, err := yaml.Marshal(answer.Patch)
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	return show(to, answer, output, func(d *document) {
		d.printf("%s: %s\n", question, printable(answer.Decision))
		if answer.Reason != "" {
			d.printf("Reason: %s\n", printable(answer.Reason))
		}
		if len(answer.Patch) > 0 {
			d.printf("Changes:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(string(changes)), "\n", "\n  "))
		}
		printSteps(d, answer.Steps)
	})
}

func printSteps(d *document, steps []policyStep) {
	if len(steps) == 0 {
		d.printf("\nNo rule had anything to say.\n")
	}
	rows := [][]string{{"RULE", "PLACE", "TEXT"}}
	for _, step := range steps {
		first, rest, _ := strings.Cut(step.Text, "\n")
		if rest != "" {
			first += " ..."
		}
		rows = append(rows, []string{step.Rule, step.Location, orElse(first, none)})
	}
	d.section("", rows...)
}

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
			return global.withHanse(command, 30*time.Second, func(ctx context.Context, c *connection, system string) error {
				seen := take(ctx, c.client, scope{system: system}, time.Time{}, partPolicies)
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
	if s.Default {
		name := "default/" + question + ".rego"
		source, err := policies.Files.ReadFile(name)
		s.Modules, s.Sources = []string{name}, map[string]string{name: string(source)}
		if err != nil {
			return shown, fmt.Errorf("read the built-in default: %w", err)
		}
	}
	for _, name := range s.Modules {
		shown.Modules = append(shown.Modules, policyModule{name, s.Sources[name]})
	}
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
	rows := [][]string{{"POLICY", "QUESTION", "STATE", "WHY"}}
	for _, b := range broken {
		rows = append(rows, []string{b.Name, b.Question, b.state(), b.Message})
	}
	d.section("", rows...)
}
