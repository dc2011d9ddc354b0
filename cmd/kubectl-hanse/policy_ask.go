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
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Keys of a ConfigMap that has the manager ask policies.
const (
	policyModuleKey        = "module.rego"
	policyInputKey         = "input.json"
	policyAdvertisementKey = "advertisement"
	policyNamespaceKey     = "namespace"
	policyAnswerKey        = "answer.json"
)

const (
	// maxPolicyFile is more than the manager takes, and less than the API server takes.
	maxPolicyFile = 900 << 10
	// tidyTime is how long it may take to remove what was made, also when the user has lost patience.
	tidyTime = 10 * time.Second
)

// A policyQuestion is what the manager is to ask.
type policyQuestion struct {
	question string
	data     map[string]string
}

func (q policyQuestion) readFile(key, file string) error {
	data, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	if len(data) > maxPolicyFile {
		return fmt.Errorf("%s has more than %d KiB", file, maxPolicyFile>>10)
	}
	q.data[key] = string(data)
	return nil
}

// A policyAnswer is what the manager writes into the ConfigMap.
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

// ask has the manager ask, and prints the answer.
func ask(command *cobra.Command, global *globalFlags, flags askFlags, asked policyQuestion) error {
	return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
		answer, err := c.askPolicies(ctx, global.namespace, asked)
		if err != nil {
			return err
		}
		if err := printAnswer(command.OutOrStdout(), asked.question, answer, flags.output); err != nil {
			return err
		}
		if answer.Error != "" {
			return errors.New(printable(answer.Error))
		}
		return nil
	})
}

// askPolicies makes a ConfigMap for the manager, waits for its answer, and removes the ConfigMap.
func (c *connection) askPolicies(ctx context.Context, namespace string, asked policyQuestion) (answer policyAnswer, err error) {
	made := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: "hanse-policy-test-", Labels: map[string]string{v1alpha1.LabelPolicyTest: asked.question},
		},
		Data: asked.data,
	}
	if err := c.client.Create(ctx, made); err != nil {
		return answer, fmt.Errorf("create a ConfigMap in namespace %s: %w", namespace, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
		defer cancel()
		if gone := client.IgnoreNotFound(c.client.Delete(ctx, made)); gone != nil {
			err = errors.Join(err, fmt.Errorf("delete ConfigMap %s: %w", made.Name, gone))
		}
	}()
	text, err := c.awaitAnswer(ctx, client.ObjectKeyFromObject(made))
	if err != nil {
		return answer, fmt.Errorf("wait for the manager to answer (does it run? see `kubectl hanse check`): %w", err)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return answer, fmt.Errorf("read the manager's answer: %w", err)
	}
	return answer, nil
}

// awaitAnswer watches the ConfigMap until there is an answer in it. The API server may end a watch at any time.
func (c *connection) awaitAnswer(ctx context.Context, key client.ObjectKey) (string, error) {
	for {
		watcher, err := c.client.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(key.Namespace),
			client.MatchingFields{metav1.ObjectNameField: key.Name})
		if err != nil {
			return "", err
		}
		text, err := c.firstAnswer(ctx, watcher, key)
		watcher.Stop()
		if text != "" || err != nil {
			return text, err
		}
	}
}

// firstAnswer returns the answer that there is or that comes, and nothing if the watch ends before.
func (c *connection) firstAnswer(ctx context.Context, watcher watch.Interface, key client.ObjectKey) (string, error) {
	now := &corev1.ConfigMap{}
	if err := c.client.Get(ctx, key, now); err != nil {
		return "", err
	}
	if text := now.Data[policyAnswerKey]; text != "" {
		return text, nil
	}
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case event, open := <-watcher.ResultChan():
			if !open || event.Type == watch.Error {
				return "", nil
			}
			changed, ok := event.Object.(*corev1.ConfigMap)
			if !ok || changed.Name != key.Name {
				continue
			}
			if event.Type == watch.Deleted {
				return "", errors.New("somebody has deleted the question")
			}
			if text := changed.Data[policyAnswerKey]; text != "" {
				return text, nil
			}
		}
	}
}

func printAnswer(to io.Writer, question string, answer policyAnswer, output string) error {
	if output != "" {
		return encode(to, answer, output)
	}
	if answer.Error != "" {
		return nil // the user is told as of any other error
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s: %s\n", question, printable(answer.Decision))
	if answer.Reason != "" {
		fmt.Fprintf(&text, "Reason: %s\n", printable(answer.Reason))
	}
	if len(answer.Patch) > 0 {
		data, err := yaml.Marshal(answer.Patch)
		if err != nil {
			return fmt.Errorf("encode the patch: %w", err)
		}
		fmt.Fprintf(&text, "Changes:\n%s", indented(string(data)))
	}
	if err := printSteps(&text, answer.Steps); err != nil {
		return err
	}
	_, err := text.WriteTo(to)
	return err
}

func printSteps(to *bytes.Buffer, steps []policyStep) error {
	if len(steps) == 0 {
		to.WriteString("\nNo rule had anything to say.\n")
		return nil
	}
	to.WriteString("\n")
	table := newTable("RULE", "PLACE", "TEXT")
	for _, step := range steps {
		first, _, more := strings.Cut(step.Text, "\n")
		if more {
			first += " ..."
		}
		table.row(printable(step.Rule), printable(step.Location), orElse(printable(first), none))
	}
	return table.print(to, nil)
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
