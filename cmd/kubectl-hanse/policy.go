package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// What policies are asked, as the labels of their ConfigMaps have it.
const (
	questionIncoming  = "incoming"
	questionOutgoing  = "outgoing"
	questionShadowPod = "shadowpod"
	questionPlacement = "placement"
)

// questions are all of them, in the order in which they are shown.
var questions = []string{questionIncoming, questionOutgoing, questionShadowPod, questionPlacement}

func isQuestion(question string) error {
	if !slices.Contains(questions, question) {
		return fmt.Errorf("%q is no question to policies: they are %s", question, strings.Join(questions, ", "))
	}
	return nil
}

func newPolicyCommand(global *globalFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Show the policies in force, try one, or ask why they decide as they do",
		Long: "Policies are Rego modules in ConfigMaps of Hanse's own namespace that are labelled hanse.dev/policy=QUESTION. The\n" +
			"questions are incoming (use this offer?), outgoing (offer what to whom?), shadowpod (run this pod?) and placement\n" +
			"(prefer which clusters?).",
		Example: `  # What is in force about the offers of others
  kubectl hanse policy show incoming

  # Would this module let the offer of hamburg in?
  kubectl hanse policy test max-price.rego --question incoming --advertisement hamburg

  # Why is the offer of hamburg refused?
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
	flags.StringVarP(&f.output, "output", "o", "", "json or yaml; by default text")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait for the answer")
}

func checkOutput(output string) error {
	if output != "" && output != "json" && output != "yaml" {
		return fmt.Errorf("--output is json or yaml, not %q", output)
	}
	return nil
}

// policyTestFlags are those of `policy test`.
type policyTestFlags struct {
	ask           askFlags
	question      string
	input         string
	advertisement string
	forNamespace  string
}

func newPolicyTestCommand(global *globalFlags) *cobra.Command {
	flags := &policyTestFlags{}
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
		RunE: func(command *cobra.Command, args []string) error {
			asked, err := flags.asked(args[0])
			if err != nil {
				return err
			}
			return ask(command, global, flags.ask, asked)
		},
	}
	f := command.Flags()
	f.StringVar(&flags.question, "question", "", "what the module answers: "+strings.Join(questions, ", "))
	f.StringVar(&flags.input, "input", "", "file with the input, as JSON")
	f.StringVar(&flags.advertisement, "advertisement", "", "Peer or cluster id whose advertisement to ask about")
	f.StringVar(&flags.forNamespace, "for-namespace", "", "namespace whose placement to ask about, or NAMESPACE/CLASS for a class of its pods")
	flags.ask.bind(command)
	return command
}

// asked is what the flags ask.
func (f *policyTestFlags) asked(file string) (policyTrial, error) {
	asked := policyTrial{Question: f.question, About: f.advertisement + f.forNamespace}
	if err := errors.Join(isQuestion(f.question), checkOutput(f.ask.output), f.subject()); err != nil {
		return asked, err
	}
	var err error
	if asked.Module, err = readPolicyFile(file); err != nil || f.input == "" {
		return asked, err
	}
	asked.Input, err = readPolicyFile(f.input)
	return asked, err
}

// subject reports whether the flags say what to ask about, and only once.
func (f *policyTestFlags) subject() error {
	given := 0
	for _, flag := range []string{f.input, f.advertisement, f.forNamespace} {
		if flag != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("say what to ask about: one of --input, --advertisement and --for-namespace")
	case f.advertisement != "" && f.question == questionPlacement:
		return errors.New("placement is asked about a namespace: say --for-namespace, or --input")
	case f.advertisement != "" && f.question == questionShadowPod:
		return errors.New("shadowpod is asked about a pod: say --input")
	case f.forNamespace != "" && f.question != questionPlacement:
		return errors.New("--for-namespace is for the question placement")
	default:
		return nil
	}
}

func newPolicyExplainCommand(global *globalFlags) *cobra.Command {
	flags, outgoing := &askFlags{}, false
	command := &cobra.Command{
		Use:   "explain (advertisement PEER | placement NAMESPACE[/CLASS])",
		Short: "Ask the policies in force, and show which rules decide",
		Long:  "Has the manager ask the policies in force about what the cluster knows now, and shows the answer and the rules behind it.",
		Example: `  # Why is the offer of hamburg refused?
  kubectl hanse policy explain advertisement hamburg

  # Why is hamburg offered so little?
  kubectl hanse policy explain advertisement hamburg --outgoing

  # Why do the pods of a namespace prefer other clusters?
  kubectl hanse policy explain placement shop

  # And those of its class gold?
  kubectl hanse policy explain placement shop/gold`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			asked, err := explained(args[0], args[1], outgoing)
			if err = errors.Join(err, checkOutput(flags.output)); err != nil {
				return err
			}
			return ask(command, global, *flags, asked)
		},
	}
	command.Flags().BoolVar(&outgoing, "outgoing", false, "ask about what this cluster offers the peer")
	flags.bind(command)
	return command
}

// explained is what is asked about the thing of that name.
func explained(thing, name string, outgoing bool) (policyTrial, error) {
	switch {
	case thing == "advertisement" && outgoing:
		return policyTrial{Question: questionOutgoing, About: name}, nil
	case thing == "advertisement":
		return policyTrial{Question: questionIncoming, About: name}, nil
	case thing == "placement" && !outgoing:
		return policyTrial{Question: questionPlacement, About: name}, nil
	default:
		return policyTrial{}, fmt.Errorf("an advertisement or a placement can be explained, not %q", thing)
	}
}
