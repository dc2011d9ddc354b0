// SPDX-License-Identifier: Apache-2.0

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
)

func newExplainCommand(global *globalFlags) *cobra.Command {
	command := &cobra.Command{
		Use:     "explain",
		Short:   "Say where a pod or an application runs, why there, and what is wrong if something is",
		Example: "  kubectl hanse explain pod web-1 -n shop\n  kubectl hanse explain application shop -n shop",
		Args:    cobra.NoArgs,
	}
	command.AddCommand(newExplainPodCommand(global), newExplainApplicationCommand(global))
	return command
}

func newExplainPodCommand(global *globalFlags) *cobra.Command {
	output := ""
	command := &cobra.Command{
		Use:   "pod NAME",
		Short: "Say where a pod runs, why there, and what is wrong if something is",
		Long: "Puts together what this cluster knows of the pod: its node and the peer behind it, what the namespace's offloading and\n" +
			"the placement say, how the remote pod is, and what to do if something is wrong.",
		Example: `  kubectl hanse explain pod web-1 -n shop
  kubectl hanse explain pod web-1 -n shop -o json | jq .problems`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return global.withHanse(command, 30*time.Second, func(ctx context.Context, c *connection, system string) error {
				now := clock.RealClock{}.Now()
				seen, err := observePod(ctx, c.client, system, client.ObjectKey{Namespace: c.namespace, Name: args[0]}, now)
				if err != nil {
					return err
				}
				return printExplained(command.OutOrStdout(), explainPod(seen), output, now)
			})
		},
	}
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
func observePod(ctx context.Context, c client.Client, system string, key client.ObjectKey, now time.Time) (f podFacts, err error) {
	f.pod = &corev1.Pod{}
	if err := c.Get(ctx, key, f.pod); err != nil {
		return f, fmt.Errorf("read pod %s: %w", key, err)
	}
	parts := []part{partOffloadings, partVirtualNodes, partPeers, partOffers, partServices, partEvents, partWarnings}
	f.snapshot = take(ctx, c, scope{system: system, namespace: key.Namespace, pod: f.pod.UID}, now, parts...)
	f.node = f.snapshot.node(f.pod.Spec.NodeName)
	if len(f.offloadings.Items) > 0 {
		f.offloading = &f.offloadings.Items[0]
	}
	f.hidden, err = f.errButHidden(parts...)
	return f, err
}

func printExplained(to io.Writer, found podExplained, output string, now time.Time) error {
	return show(to, found, output, func(d *document) {
		line := func(title, text string) { d.printf("%-10s %s\n", title, printable(text)) }
		line("Pod:", found.Namespace+"/"+found.Name)
		line("Where:", placeText(found.Where, now))
		title, reasons := "Why:", found.Why.Reasons
		if found.Why.Strategy != "" {
			reasons = append([]string{"The namespace is offloaded with strategy " + string(found.Why.Strategy)}, reasons...)
		}
		for _, reason := range reasons {
			line(title, reason)
			title = ""
		}
		state := found.State
		line("State:", fmt.Sprintf("%s, %s%s, %s", orElse(string(state.Phase), "unknown"), readyOrNot(state.Ready), inBrackets(state.Reason),
			count(int(state.Restarts), "restart")))
		for _, c := range state.Containers {
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

func printCandidates(d *document, candidates []podCandidate) {
	rows := [][]string{{"NODE", "WEIGHT", "PRICE", "EXCLUDED"}}
	for _, c := range candidates {
		weight := strings.TrimPrefix(fmt.Sprint(c.Weight), "0")
		rows = append(rows, []string{c.Node, orElse(weight, none), orElse(c.Price, none), orElse(c.Excluded, none)})
	}
	d.section("Virtual nodes, as they are judged now:\n", rows...)
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

// podExplained is what `explain pod` shows. Its JSON is for scripts: fields are added, never renamed.
type podExplained struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Where     podPlace     `json:"where"`
	Why       podChoice    `json:"why"`
	State     podState     `json:"state"`
	Problems  []podProblem `json:"problems"`
	Hidden    []string     `json:"hidden,omitempty"` // what the user may not see
}

// Values of podPlace.Kind.
const (
	placeNone    = "None"
	placeHome    = "Home"
	placeVirtual = "VirtualNode"
)

// podPlace is where the pod runs.
type podPlace struct {
	Kind          string       `json:"kind"`
	Node          string       `json:"node,omitempty"`
	Peer          string       `json:"peer,omitempty"`
	ClusterID     string       `json:"clusterID,omitempty"`
	TwinNamespace string       `json:"twinNamespace,omitempty"`
	Since         *metav1.Time `json:"since,omitempty"`
}

// podChoice is why the pod runs there: what the user and the placement say now.
type podChoice struct {
	Strategy   v1alpha1.OffloadingStrategy `json:"strategy,omitempty"`
	Reasons    []string                    `json:"reasons"`
	Candidates []podCandidate              `json:"candidates,omitempty"`
}

// podCandidate is a virtual node that the pod could be on, or why it could not.
type podCandidate struct {
	Node     string `json:"node"`
	Weight   int32  `json:"weight"`
	Price    string `json:"price,omitempty"` // of one core with 1Gi, for an hour
	Excluded string `json:"excluded,omitempty"`
}

// podState is how the pod is, as its status here says. Of a remote pod that is what the provider says.
type podState struct {
	Phase      corev1.PodPhase  `json:"phase"`
	Ready      bool             `json:"ready"`
	Reason     string           `json:"reason,omitempty"`
	Message    string           `json:"message,omitempty"`
	Restarts   int32            `json:"restarts"`
	Containers []containerState `json:"containers,omitempty"`
}

type containerState struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
	Restarts int32  `json:"restarts"`
}

// explainPod says all that the facts say. Equal facts give an equal answer.
func explainPod(f podFacts) podExplained {
	where := placeOf(f)
	return podExplained{
		Namespace: f.pod.Namespace, Name: f.pod.Name, Where: where, Why: choiceOf(f, where), State: stateOfPod(f.pod),
		Problems: append([]podProblem{}, problemsOf(f, where)...), Hidden: f.hidden,
	}
}

func placeOf(f podFacts) podPlace {
	place := podPlace{Kind: placeNone, Node: f.pod.Spec.NodeName}
	if place.Node == "" {
		return place
	}
	place.Kind, place.Since = placeHome, f.pod.Status.StartTime
	if bound := offload.PodCondition(&f.pod.Status, corev1.PodScheduled); bound != nil && bound.Status == corev1.ConditionTrue && !bound.LastTransitionTime.IsZero() {
		place.Since = &bound.LastTransitionTime
	}
	if !f.isVirtual(place.Node) {
		return place
	}
	place.Kind, place.Peer = placeVirtual, strings.TrimPrefix(place.Node, v1alpha1.VirtualNodePrefix)
	if f.node != nil {
		place.ClusterID = f.node.Labels[v1alpha1.LabelClusterID]
	} else if peer := f.peer(place.Peer); peer != nil {
		place.ClusterID = peer.Spec.ClusterID
	}
	if cluster := clusterOf(f.offloading, place.Peer); cluster != nil {
		place.TwinNamespace = cluster.Twin
	}
	return place
}

func isPodReady(pod *corev1.Pod) bool {
	ready := offload.PodCondition(&pod.Status, corev1.PodReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

func choiceOf(f podFacts, where podPlace) podChoice {
	switch {
	case f.errs[partOffloadings] != nil:
		return podChoice{Reasons: []string{"You may not see whether the namespace is offloaded"}}
	case f.offloading == nil && where.Kind == placeVirtual:
		return podChoice{Reasons: []string{"It was placed while the namespace was offloaded, or chose its node itself: the namespace is not offloaded now"}}
	case f.offloading == nil:
		return podChoice{Reasons: []string{"The namespace is not offloaded, so the pod is placed as if there were no Hanse"}}
	}
	placement, err := offload.NewPlacement(f.offloading)
	if err != nil {
		return podChoice{Reasons: []string{"The cluster selector of the namespace makes no sense: " + err.Error()}}
	}
	choice := podChoice{Strategy: placement.Strategy(), Reasons: reasonsOf(f, where, placement)}
	if f.leaves() {
		choice.Candidates = f.candidates(placement)
	}
	return choice
}

func reasonsOf(f podFacts, where podPlace, placement offload.Placement) []string {
	var reasons []string
	if isOfDaemonSet(f.pod) {
		reasons = append(reasons, "It belongs to a DaemonSet, whose pods stay on the nodes that they are made for")
	}
	if cause, kept := offload.KeptHome(f.pod); kept {
		return append(reasons, "It cannot run in another cluster: "+cause)
	}
	reasons = append(reasons, strategyReason(f, where, placement))
	if class := placement.ClassOf(f.pod); class != nil {
		reasons = append(reasons, "It belongs to the class "+class.Name)
	}
	if prefer := f.pod.Annotations[v1alpha1.AnnotationPrefer]; prefer != "" {
		reasons = append(reasons, "Its annotation prefers "+prefer)
	}
	if decided := placement.Decided(f.pod); decided.Strict {
		reasons = append(reasons, "Placement is strict: only "+orElse(strings.Join(decided.Only, ", "), "a cluster that fits, and none does"))
	}
	return reasons
}

// strategyReason says how the strategy and the place of the pod go together.
func strategyReason(f podFacts, where podPlace, placement offload.Placement) string {
	older := "and onChange is " + string(cmp.Or(f.offloading.Spec.OnChange, v1alpha1.ChangeKeep))
	switch strategy := placement.Strategy(); {
	case strategy == v1alpha1.StrategyLocal && where.Kind == placeVirtual:
		return "Strategy Local keeps new pods at home; this one was placed before that, " + older
	case strategy == v1alpha1.StrategyLocal:
		return "Strategy Local keeps pods at home"
	case strategy == v1alpha1.StrategyRemote && where.Kind == placeHome:
		return "Strategy Remote sends new pods away; this one was placed before that, or chose its node itself, " + older
	case strategy == v1alpha1.StrategyRemote:
		return "Strategy Remote sends pods to virtual nodes alone"
	case !placement.PrefersHome(f.pod):
		return "Virtual nodes come by their weights, and are not behind the nodes of home"
	case where.Kind == placeVirtual:
		return "Home comes first: it had no room for the pod when it was placed, or the pod itself chooses its nodes"
	default:
		return "Home comes first, then virtual nodes"
	}
}

// candidates are all virtual nodes, with what was decided about them.
func (f podFacts) candidates(placement offload.Placement) []podCandidate {
	prices := map[string]string{} // Peer → what it asks for one core with 1Gi and an hour
	for _, row := range f.table().Rows {
		prices[row.Peer] = viewCost(row.PricePerHour(exchange.DefaultRequest())).String()
	}
	var found []podCandidate
	for i := range f.nodes.Items {
		node := &f.nodes.Items[i]
		excluded := placement.Excludes(f.pod, node)
		if closed := f.nodeFactsOf(node.Name).closed(); excluded == "" && closed != nil {
			excluded = closed.Message
		}
		found = append(found, podCandidate{
			Node: node.Name, Price: prices[node.Labels[v1alpha1.LabelPeer]], Weight: placement.Weight(f.pod, node), Excluded: excluded,
		})
	}
	return found
}

func stateOfPod(pod *corev1.Pod) podState {
	state := podState{Phase: pod.Status.Phase, Ready: isPodReady(pod), Reason: pod.Status.Reason, Message: pod.Status.Message}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		state.Restarts += c.RestartCount
		one := containerState{Name: c.Name, State: "waiting", Restarts: c.RestartCount}
		switch {
		case c.State.Running != nil:
			one.State = "running"
		case c.State.Terminated != nil:
			one.State, one.Reason = "terminated", c.State.Terminated.Reason
		case c.State.Waiting != nil:
			one.Reason = c.State.Waiting.Reason
		}
		state.Containers = append(state.Containers, one)
	}
	return state
}
