package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

func newOffloadCommand(global *globalFlags) *cobra.Command {
	strategy, selector, timeout := "", "", time.Duration(0)
	wish := &placementFlags{}
	command := &cobra.Command{
		Use:   "offload NAMESPACE",
		Short: "Let the pods of a namespace run in other clusters",
		Long: "Lets new pods of the namespace run on virtual nodes. Pods that run already stay where they are. Doing it again changes\n" +
			"what is wanted: a flag that is left out then means its default.",
		Example: `  # At home while there is room, then in other clusters
  kubectl hanse offload shop

  # Only in other clusters, and only in some of them
  kubectl hanse offload shop --strategy Remote --cluster-selector 'region in (south,west)'

  # In the cheapest one, if that is not too dear
  kubectl hanse offload shop --prefer price --max-price '0.05 EUR'

  # Nowhere but in the nearest one that has room
  kubectl hanse offload shop --strategy Remote --prefer latency --strict --exclude bremen`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			clusters, err := parseSelector(selector)
			if err != nil {
				return err
			}
			placement, err := wish.placement()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			c, err := global.cluster.connect()
			if err != nil {
				return err
			}
			spec := v1alpha1.NamespaceOffloadingSpec{
				Strategy: v1alpha1.OffloadingStrategy(strategy), ClusterSelector: clusters, Placement: placement,
			}
			if err := offload(ctx, c.cluster(command), args[0], spec); err != nil {
				return explain(err, c.name)
			}
			if err := say(command, "Namespace %s is offloaded with strategy %s.\n", args[0], strategy); err != nil {
				return err
			}
			return explain(tellUnplaced(ctx, command, c.client, args[0]), c.name)
		},
	}
	flags := command.Flags()
	flags.StringVar(&strategy, "strategy", string(v1alpha1.StrategyLocalAndRemote), "where new pods may run: Local, Remote or LocalAndRemote")
	flags.StringVar(&selector, "cluster-selector", "", "labels of the virtual nodes to use, as in kubectl get -l; by default all")
	wish.bind(flags)
	flags.DurationVar(&timeout, "timeout", time.Minute, "how long to wait until it holds for new pods")
	return command
}

// parseSelector translates a selector as kubectl writes it.
func parseSelector(text string) (*v1alpha1.ClusterSelector, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no selector is a selector of everything
	}
	parsed, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read --cluster-selector: %w", err)
	}
	requirements, _ := parsed.Requirements()
	selector := &v1alpha1.ClusterSelector{}
	for _, r := range requirements {
		translated, err := translateRequirement(r)
		if err != nil {
			return nil, err
		}
		selector.MatchExpressions = append(selector.MatchExpressions, translated)
	}
	return selector, nil
}

func translateRequirement(r labels.Requirement) (v1alpha1.ClusterSelectorRequirement, error) {
	operators := map[selection.Operator]metav1.LabelSelectorOperator{
		selection.In: metav1.LabelSelectorOpIn, selection.Equals: metav1.LabelSelectorOpIn,
		selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
		selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.Exists: metav1.LabelSelectorOpExists,
		selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
	}
	operator, known := operators[r.Operator()]
	if !known {
		return v1alpha1.ClusterSelectorRequirement{}, fmt.Errorf(
			"read --cluster-selector: %q: only =, !=, in, notin, exists and does-not-exist are possible", r.String())
	}
	translated := v1alpha1.ClusterSelectorRequirement{Key: r.Key(), Operator: operator}
	for _, value := range slices.Sorted(slices.Values(r.ValuesUnsorted())) {
		translated.Values = append(translated.Values, v1alpha1.LabelValue(value))
	}
	return translated, nil
}

// offload writes what the user wants and waits until the API server acts on it, so that the next pod is placed by it.
func offload(ctx context.Context, cluster install.Cluster, namespace string, spec v1alpha1.NamespaceOffloadingSpec) error {
	c := cluster.Client
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); err != nil {
		return fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	offloading := &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName},
	}
	_, err := controllerutil.CreateOrUpdate(ctx, c, offloading, func() error {
		offloading.Spec = spec
		return nil
	})
	if err != nil {
		return fmt.Errorf("write NamespaceOffloading in namespace %s: %w", namespace, err)
	}
	return cluster.WaitOffloaded(ctx, namespace, spec)
}

// tellUnplaced tells the user if there is no cluster for what is wanted.
func tellUnplaced(ctx context.Context, command *cobra.Command, c client.Client, namespace string) error {
	offloading := &v1alpha1.NamespaceOffloading{}
	key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}
	if err := c.Get(ctx, key, offloading); err != nil {
		return fmt.Errorf("read NamespaceOffloading %s: %w", key, err)
	}
	if why := unplaced(offloading); why != "" {
		reporter(command)("%s", printable(why))
	}
	return nil
}
