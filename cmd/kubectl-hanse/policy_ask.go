package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/yaml"
)

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
	return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
		answer, err := c.askPolicies(ctx, global.namespace, asked)
		if err != nil {
			return err
		}
		if err := printAnswer(command.OutOrStdout(), asked.Question, answer, flags.output); err != nil {
			return err
		}
		if answer.Error != "" {
			return errors.New(printable(answer.Error))
		}
		return nil
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
	said, err := c.exec(ctx, namespace, *lease.Spec.HolderIdentity, text)
	if err != nil {
		return answer, fmt.Errorf("run %s in pod %s: %w", strings.Join(askCommand, " "), *lease.Spec.HolderIdentity, err)
	}
	if err := json.Unmarshal(said, &answer); err != nil {
		return answer, fmt.Errorf("read the answer: %w", err)
	}
	return answer, nil
}

// execIn runs askCommand in a pod.
func (c *connection) execIn(ctx context.Context, namespace, pod string, input []byte) ([]byte, error) {
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	request := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: askCommand, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.config, "GET", request.URL().String())
	if err != nil {
		return nil, err
	}
	var out, complaints bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &out, Stderr: &complaints})
	if text := strings.TrimSpace(complaints.String()); err != nil && text != "" {
		return nil, fmt.Errorf("%w: %s", err, printable(text))
	}
	return out.Bytes(), err
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
		return
	}
	d.printf("\n")
	rows := [][]string{{"RULE", "PLACE", "TEXT"}}
	for _, step := range steps {
		first, _, more := strings.Cut(step.Text, "\n")
		if more {
			first += " ..."
		}
		rows = append(rows, []string{printable(step.Rule), printable(step.Location), orElse(printable(first), none)})
	}
	d.table(rows...)
}
