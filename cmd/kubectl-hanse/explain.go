package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func newExplainCommand(global *globalFlags) *cobra.Command {
	command := &cobra.Command{
		Use:     "explain",
		Short:   "Say where a pod runs, why there, and what is wrong if something is",
		Long:    "Says of one pod where it runs, why there, how it is, and what to do if something is wrong.",
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
			"the placement say, how the pod is over there, and what to do if something is wrong.",
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
	node       *corev1.Node
	offloading *v1alpha1.NamespaceOffloading
	hidden     []string // what the user may not see
}

// hiddenOffloading stands in podFacts.hidden for the NamespaceOffloading.
const hiddenOffloading = "the namespace's offloading"

// observePod reads what there is about a pod. Users of a namespace see little of the cluster around it.
func observePod(ctx context.Context, c client.Client, key client.ObjectKey, now time.Time) (podFacts, error) {
	seen := podFacts{pod: &corev1.Pod{}}
	if err := c.Get(ctx, key, seen.pod); err != nil {
		return seen, fmt.Errorf("read pod %s: %w", key, err)
	}
	parts := []part{partVirtualNodes, partPeers, partOffers, partEvents}
	seen.snapshot = take(ctx, c, scope{namespace: key.Namespace, pod: key.Name}, now, parts...)
	hidden, err := seen.errButHidden(parts...)
	if err != nil {
		return seen, err
	}
	offloading := offloadingOf(key.Namespace)
	found, err := read(ctx, c, offloading.Namespace, offloading.Name, offloading)
	if apierrors.IsForbidden(err) {
		hidden, err = append([]string{hiddenOffloading}, hidden...), nil
	}
	if found {
		seen.offloading = offloading
	}
	seen.hidden = hidden
	seen.orderEvents()
	if err == nil {
		err = seen.observeNode(ctx, c)
	}
	return seen, err
}

// observeNode reads the node that the pod is bound to, as far as the user may see it. Most are not virtual.
func (f *podFacts) observeNode(ctx context.Context, c client.Client) error {
	name := f.pod.Spec.NodeName
	f.node = f.snapshot.node(name)
	if name == "" || f.node != nil {
		return nil
	}
	node := &corev1.Node{}
	found, err := read(ctx, c, "", name, node)
	if found {
		f.node = node
	}
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// orderEvents keeps the events of this pod, the newest last.
func (f *podFacts) orderEvents() {
	events := &f.events
	events.Items = slices.DeleteFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.UID != f.pod.UID })
	slices.SortFunc(events.Items, func(a, b eventsv1.Event) int {
		return cmp.Or(timeOf(&a).Compare(timeOf(&b)), cmp.Compare(a.Name, b.Name))
	})
}

// timeOf is when an event happened last.
func timeOf(e *eventsv1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	case !e.DeprecatedLastTimestamp.IsZero():
		return e.DeprecatedLastTimestamp.Time
	default:
		return e.CreationTimestamp.Time
	}
}

func printExplained(to io.Writer, found podExplained, output string, now time.Time) error {
	return show(to, found, output, func(d *document) {
		line := func(title, text string) { d.printf("%-10s %s\n", title, printable(text)) }
		line("Pod:", found.Namespace+"/"+found.Name)
		line("Where:", placeText(found.Where, now))
		title := "Why:"
		for _, reason := range choiceLines(found.Why) {
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

// choiceLines say why a pod is where it is.
func choiceLines(why podChoice) []string {
	if why.Strategy == "" {
		return why.Reasons
	}
	return append([]string{fmt.Sprintf("the namespace is offloaded with strategy %s", why.Strategy)}, why.Reasons...)
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

func printCandidates(d *document, candidates []podCandidate) {
	if len(candidates) == 0 {
		return
	}
	d.printf("\nVirtual nodes, as they are judged now:\n")
	rows := [][]string{{"NODE", "WEIGHT", "PRICE", "EXCLUDED"}}
	for _, c := range candidates {
		weight := none
		if c.Weight > 0 {
			weight = fmt.Sprint(c.Weight)
		}
		rows = append(rows, []string{c.Node, weight, orElse(c.Price, none), printable(orElse(c.Excluded, none))})
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
