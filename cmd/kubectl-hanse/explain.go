package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
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
				found := explainPod(seen, now)
				if output != "" {
					return encode(command.OutOrStdout(), found, output)
				}
				return printExplained(command.OutOrStdout(), found, now)
			})
		},
	}
	// It hides the flag of the same name by which other verbs find Hanse.
	command.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the pod; by default that of the context")
	command.Flags().StringVarP(&output, "output", "o", "", "json or yaml; by default text")
	return command
}

// podFacts is what there is to explain a pod by. What does not exist, or must not be seen, is nil.
type podFacts struct {
	pod        *corev1.Pod
	node       *corev1.Node
	offloading *v1alpha1.NamespaceOffloading
	nodes      []corev1.Node // virtual ones
	peers      []v1alpha1.Peer
	offers     exchange.Table
	events     []eventsv1.Event // of the pod, the newest last
	hidden     []string         // what the user may not see
}

func observePod(ctx context.Context, c client.Client, key client.ObjectKey, now time.Time) (podFacts, error) {
	seen := podFacts{pod: &corev1.Pod{}}
	if err := c.Get(ctx, key, seen.pod); err != nil {
		return seen, fmt.Errorf("read pod %s: %w", key, err)
	}
	offloading := offloadingOf(key.Namespace)
	found, err := seen.look(ctx, "the namespace's offloading", func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKeyFromObject(offloading), offloading)
	})
	if found {
		seen.offloading = offloading
	}
	if err != nil {
		return seen, err
	}
	if err := seen.observeNodes(ctx, c); err != nil {
		return seen, err
	}
	return seen, seen.observeRest(ctx, c, now)
}

func (f *podFacts) observeNodes(ctx context.Context, c client.Client) error {
	nodes := &corev1.NodeList{}
	if _, err := f.look(ctx, "nodes", func(ctx context.Context) error {
		return c.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode})
	}); err != nil {
		return err
	}
	f.nodes = nodes.Items
	slices.SortFunc(f.nodes, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	if f.pod.Spec.NodeName == "" {
		return nil
	}
	node := &corev1.Node{}
	found, err := f.look(ctx, "nodes", func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Name: f.pod.Spec.NodeName}, node)
	})
	if found {
		f.node = node
	}
	return err
}

func (f *podFacts) observeRest(ctx context.Context, c client.Client, now time.Time) error {
	peers, offers, events := &v1alpha1.PeerList{}, &v1alpha1.AdvertisementList{}, &eventsv1.EventList{}
	for _, list := range []struct {
		what    string
		into    client.ObjectList
		options []client.ListOption
	}{
		{"peers", peers, nil},
		{"offers", offers, nil},
		{"events", events, []client.ListOption{client.InNamespace(f.pod.Namespace), client.MatchingFields{"regarding.name": f.pod.Name}}},
	} {
		if _, err := f.look(ctx, list.what, func(ctx context.Context) error { return c.List(ctx, list.into, list.options...) }); err != nil {
			return err
		}
	}
	f.peers = peers.Items
	f.offers = exchange.NewTable(offers.Items, now)
	f.events = slices.DeleteFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.UID != f.pod.UID })
	slices.SortFunc(f.events, func(a, b eventsv1.Event) int {
		return cmp.Or(timeOf(&a).Compare(timeOf(&b)), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

// look reads something that may not exist, or that the user may not see: users of a namespace see little of the cluster.
func (f *podFacts) look(ctx context.Context, what string, read func(context.Context) error) (bool, error) {
	switch err := read(ctx); {
	case err == nil:
		return true, nil
	case apierrors.IsForbidden(err):
		if !slices.Contains(f.hidden, what) {
			f.hidden = append(f.hidden, what)
		}
		return false, nil
	case apierrors.IsNotFound(err):
		return false, nil
	default:
		return false, fmt.Errorf("read %s: %w", what, err)
	}
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
