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

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

// offloadFlags are those of `offload`.
type offloadFlags struct {
	dryRunFlags
	waitFlags
	strategy string
	selector string
	wish     placementFlags
	care     careFlags
}

func newOffloadCommand(global *globalFlags) *cobra.Command {
	flags := &offloadFlags{}
	command := &cobra.Command{
		Use:   "offload NAMESPACE",
		Short: "Let the pods of a namespace run in other clusters",
		Long: "Lets new pods of the namespace run on virtual nodes. Pods that run already stay where they are, unless --on-change\n" +
			"says otherwise. Doing it again changes what is wanted: a flag that is left out then means its default. What no flag\n" +
			"says (overrides, and classes of pods) stays as it is.",
		Example: `  # At home while there is room, then in other clusters
  kubectl hanse offload shop

  # Only in other clusters, and only in some of them
  kubectl hanse offload shop --strategy Remote --cluster-selector 'region in (south,west)'

  # In the cheapest one, if that is not too dear
  kubectl hanse offload shop --prefer price --max-price '0.05 EUR'

  # Nowhere but in the nearest one that has room
  kubectl hanse offload shop --strategy Remote --prefer latency --strict --exclude bremen

  # Others take over when a provider is cut off for two minutes
  kubectl hanse offload shop --on-disconnect replace --replace-after 2m

  # See what would be written
  kubectl hanse offload shop --strategy Remote --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			spec, err := flags.spec()
			if err != nil {
				return err
			}
			if flags.dry() {
				offloading := offloadingOf(args[0])
				offloading.Spec = spec
				return printObjects(command.OutOrStdout(), offloading)
			}
			return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
				return runOffload(ctx, command, c, offloadOrder{namespace: args[0], spec: spec, wait: flags.wait})
			})
		},
	}
	f := command.Flags()
	f.StringVar(&flags.strategy, "strategy", string(v1alpha1.StrategyLocalAndRemote), "where new pods may run: Local, Remote or LocalAndRemote")
	f.StringVar(&flags.selector, "cluster-selector", "", "labels of the virtual nodes to use, as in kubectl get -l; by default all")
	flags.wish.bind(f)
	flags.care.bind(f)
	flags.dryRunFlags.bind(f)
	flags.waitFlags.bind(f, time.Minute, "it holds for new pods")
	return command
}

// spec is what the flags mean.
func (f *offloadFlags) spec() (v1alpha1.NamespaceOffloadingSpec, error) {
	spec := v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.OffloadingStrategy(f.strategy)}
	if err := f.validate(); err != nil {
		return spec, err
	}
	var err error
	if spec.ClusterSelector, err = parseSelector(f.selector); err != nil {
		return spec, err
	}
	if spec.Placement, err = f.wish.placement(); err != nil {
		return spec, err
	}
	return spec, f.care.fill(&spec)
}

// offloadOrder is what the user wants of a namespace, and whether to wait for it.
type offloadOrder struct {
	namespace string
	spec      v1alpha1.NamespaceOffloadingSpec
	wait      bool
}

func runOffload(ctx context.Context, command *cobra.Command, c *connection, order offloadOrder) error {
	cluster := c.cluster(command)
	written, err := offload(ctx, cluster, order.namespace, order.spec)
	if err != nil {
		return err
	}
	if order.wait {
		if err := cluster.WaitOffloaded(ctx, order.namespace, written); err != nil {
			return err
		}
	}
	if err := say(command, "Namespace %s is offloaded with strategy %s.\n", order.namespace, order.spec.Strategy); err != nil {
		return err
	}
	return tellUnplaced(ctx, command, c.client, order.namespace)
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

// offload writes what the user wants, and returns all that is wanted now.
func offload(
	ctx context.Context, cluster install.Cluster, namespace string, spec v1alpha1.NamespaceOffloadingSpec,
) (v1alpha1.NamespaceOffloadingSpec, error) {
	c := cluster.Client
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); err != nil {
		return spec, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	offloading := offloadingOf(namespace)
	wasKept := false
	err := write(ctx, c, offloading, func() error {
		wasKept = disown(offloading)
		offloading.Spec = withWhatNoFlagSays(spec, &offloading.Spec)
		return nil
	})
	if err != nil {
		return spec, err
	}
	if wasKept {
		cluster.Report("The namespace was offloaded by default. From now on its NamespaceOffloading is yours.")
	}
	return offloading.Spec, nil
}

// disown makes an offloading the user's that Hanse has kept, and reports whether it was.
func disown(offloading *v1alpha1.NamespaceOffloading) bool {
	_, kept := offloading.Annotations[v1alpha1.AnnotationKeptOffloading]
	delete(offloading.Annotations, v1alpha1.AnnotationKeptOffloading)
	return kept
}

// withWhatNoFlagSays keeps what users can write only into the object itself.
func withWhatNoFlagSays(spec v1alpha1.NamespaceOffloadingSpec, before *v1alpha1.NamespaceOffloadingSpec) v1alpha1.NamespaceOffloadingSpec {
	spec.Overrides = before.Overrides
	if before.Placement == nil || len(before.Placement.Classes) == 0 && len(before.Placement.Request) == 0 {
		return spec
	}
	placement := v1alpha1.NamespacePlacement{}
	if spec.Placement != nil {
		placement = *spec.Placement
	}
	placement.Classes, placement.Request = before.Placement.Classes, before.Placement.Request
	spec.Placement = &placement
	return spec
}

// tellUnplaced tells the user if there is no cluster for what is wanted.
func tellUnplaced(ctx context.Context, command *cobra.Command, c client.Client, namespace string) error {
	offloading := offloadingOf(namespace)
	if _, err := read(ctx, c, namespace, offloading.Name, offloading); err != nil {
		return err
	}
	if why := unplaced(offloading); why != "" {
		reporter(command)("%s", printable(why))
	}
	return nil
}
