package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func newExplainCommand(global *globalFlags) *cobra.Command {
	command := &cobra.Command{
		Use:     "explain",
		Short:   "Say where a pod runs, why there, and what is wrong if something is",
		Example: `  kubectl hanse explain pod web-1 -n shop`,
		Args:    cobra.NoArgs,
	}
	command.AddCommand(newExplainPodCommand(global))
	return command
}

func newExplainPodCommand(global *globalFlags) *cobra.Command {
	namespace, output := "", ""
	command := &cobra.Command{
		Use:   "pod NAME",
		Short: "Say where a pod runs, why there, and what is wrong if something is",
		Long: "Puts together what this cluster knows of the pod: its node and the peer behind it, what the namespace's offloading and\n" +
			"the placement say, how the remote pod is, and what to do if something is wrong.",
		Example: `  kubectl hanse explain pod web-1 -n shop
  kubectl hanse explain pod web-1 -n shop -o json | jq .problems`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				now := clock.RealClock{}.Now()
				seen, err := observePod(ctx, c.client, client.ObjectKey{Namespace: orElse(namespace, c.namespace), Name: args[0]}, now)
				if err != nil {
					return err
				}
				return printExplained(command.OutOrStdout(), explainPod(seen), output, now)
			})
		},
	}
	// It hides the flag of the same name by which other verbs find Hanse.
	command.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the pod; by default that of the context")
	command.Flags().VarP(oneOf(&output, "json", "yaml"), "output", "o", "json or yaml; by default text")
	return command
}

// podFacts is what there is to explain a pod by. What does not exist, or must not be seen, is nil.
type podFacts struct {
	*snapshot
	pod        *corev1.Pod
	node       *corev1.Node // if it is virtual
	offloading *v1alpha1.NamespaceOffloading
	hidden     []string // what the user may not see
}

// observePod reads what there is about a pod. Users of a namespace see little of the cluster around it.
func observePod(ctx context.Context, c client.Client, key client.ObjectKey, now time.Time) (podFacts, error) {
	f := podFacts{pod: &corev1.Pod{}}
	if err := c.Get(ctx, key, f.pod); err != nil {
		return f, fmt.Errorf("read pod %s: %w", key, err)
	}
	parts := []part{partOffloadings, partVirtualNodes, partPeers, partOffers, partEvents}
	f.snapshot = take(ctx, c, scope{namespace: key.Namespace, pod: f.pod.UID}, now, parts...)
	f.node = f.snapshot.node(f.pod.Spec.NodeName)
	if len(f.offloadings.Items) > 0 {
		f.offloading = &f.offloadings.Items[0]
	}
	var err error
	f.hidden, err = f.errButHidden(parts...)
	return f, err
}

func printExplained(to io.Writer, found podExplained, output string, now time.Time) error {
	return show(to, found, output, func(d *document) {
		line := func(title, text string) { d.printf("%-10s %s\n", title, printable(text)) }
		line("Pod:", found.Namespace+"/"+found.Name)
		line("Where:", placeText(found.Where, now))
		title := "Why:"
		if found.Why.Strategy != "" {
			line(title, fmt.Sprintf("the namespace is offloaded with strategy %s", found.Why.Strategy))
			title = ""
		}
		for _, reason := range found.Why.Reasons {
			line(title, reason)
			title = ""
		}
		line("State:", stateText(found.State))
		for _, c := range found.State.Containers {
			line("", fmt.Sprintf("container %s: %s%s, %s", c.Name, c.State, inBrackets(c.Reason), count(int(c.Restarts), "restart")))
		}
		if len(found.Hidden) > 0 {
			line("Hidden:", "your rights do not suffice to see "+strings.Join(found.Hidden, ", "))
		}
		printCandidates(d, found.Why.Candidates)
		printProblems(d, found.Problems)
	})
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

func stateText(state podState) string {
	return fmt.Sprintf("%s, %s%s, %s", orElse(string(state.Phase), "unknown"), readyOrNot(state.Ready), inBrackets(state.Reason),
		count(int(state.Restarts), "restart"))
}

func printCandidates(d *document, candidates []podCandidate) {
	if len(candidates) == 0 {
		return
	}
	d.printf("\nVirtual nodes, as they are judged now:\n")
	rows := [][]string{{"NODE", "WEIGHT", "PRICE", "EXCLUDED"}}
	for _, c := range candidates {
		weight := strings.TrimPrefix(fmt.Sprint(c.Weight), "0")
		rows = append(rows, []string{c.Node, orElse(weight, none), orElse(c.Price, none), orElse(c.Excluded, none)})
	}
	d.table(rows...)
}

func printProblems(d *document, problems []podProblem) {
	if len(problems) == 0 {
		d.printf("\nNothing is wrong.\n")
		return
	}
	d.printf("\nWhat is wrong:\n")
	for _, p := range problems {
		d.printf("  %s: %s\n", printable(p.Reason), printable(p.Message))
		if p.Fix != "" {
			d.printf("    fix: %s\n", printable(p.Fix))
		}
		if p.Link != "" {
			d.printf("    see: %s\n", p.Link)
		}
	}
}
