package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
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
	place    placementFlags
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
	flags.place.bind(f)
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
	if spec.Placement, err = f.place.placement(); err != nil {
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
	written, err := writeOffloading(ctx, cluster, order.namespace, order.spec)
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

// writeOffloading writes what the user wants, and returns all that is wanted now.
func writeOffloading(
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

// careFlags say what becomes of pods when something happens, and what their namespaces are called elsewhere.
type careFlags struct {
	onDisconnect     string
	replaceAfter     time.Duration
	placementTimeout time.Duration
	scaleUpTimeout   time.Duration
	twinName         string
	sameName         bool
	onChange         string
}

func (f *careFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.onDisconnect, "on-disconnect", "wait", "what becomes of pods whose provider is cut off: wait or replace")
	flags.DurationVar(&f.replaceAfter, "replace-after", 0, "after how long they are replaced; by default 5m")
	flags.DurationVar(&f.placementTimeout, "placement-timeout", 0, "how long a provider may look for room for a pod; by default 30s")
	flags.DurationVar(&f.scaleUpTimeout, "scale-up-timeout", 0, "the same while the provider's autoscaler makes room; by default 10m")
	flags.StringVar(&f.twinName, "twin-name", "", "what the namespace is called at providers, where they let us choose")
	flags.BoolVar(&f.sameName, "same-name", false, "call it there as it is called here, where they let us choose")
	flags.StringVar(&f.onChange, "on-change", "keep", "what becomes of pods that run where new ones may not: keep or evict")
}

// fill puts what the flags mean into the spec.
func (f *careFlags) fill(spec *v1alpha1.NamespaceOffloadingSpec) error {
	modes := map[string]v1alpha1.DisconnectionMode{"wait": v1alpha1.DisconnectionWait, "replace": v1alpha1.DisconnectionReplace}
	changes := map[string]v1alpha1.ChangeMode{"keep": v1alpha1.ChangeKeep, "evict": v1alpha1.ChangeEvict}
	var known bool
	if spec.OnDisconnect, known = modes[strings.ToLower(f.onDisconnect)]; !known {
		return fmt.Errorf("--on-disconnect is wait or replace, not %q", f.onDisconnect)
	}
	if spec.OnChange, known = changes[strings.ToLower(f.onChange)]; !known {
		return fmt.Errorf("--on-change is keep or evict, not %q", f.onChange)
	}
	if f.replaceAfter != 0 && spec.OnDisconnect != v1alpha1.DisconnectionReplace {
		return errors.New("--replace-after is for --on-disconnect replace")
	}
	if err := f.times(spec); err != nil {
		return err
	}
	return f.naming(spec)
}

func (f *careFlags) times(spec *v1alpha1.NamespaceOffloadingSpec) error {
	for _, flag := range []struct {
		name  string
		value time.Duration
		most  time.Duration
		field **metav1.Duration
	}{
		{"replace-after", f.replaceAfter, 720 * time.Hour, &spec.ReplaceAfter},
		{"placement-timeout", f.placementTimeout, 24 * time.Hour, &spec.PlacementTimeout},
		{"scale-up-timeout", f.scaleUpTimeout, 24 * time.Hour, &spec.ScaleUpTimeout},
	} {
		if flag.value == 0 {
			continue
		}
		if flag.value < time.Second || flag.value > flag.most {
			return fmt.Errorf("--%s is at least 1s and at most %s, not %s", flag.name, flag.most, flag.value)
		}
		*flag.field = &metav1.Duration{Duration: flag.value}
	}
	return nil
}

func (f *careFlags) naming(spec *v1alpha1.NamespaceOffloadingSpec) error {
	switch {
	case f.twinName != "" && f.sameName:
		return errors.New("say --twin-name or --same-name")
	case f.sameName:
		spec.Twin = &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName}
	case f.twinName != "":
		if problems := validation.IsDNS1123Label(f.twinName); len(problems) > 0 {
			return fmt.Errorf("--twin-name: %q is no name of a namespace: %s", f.twinName, problems[0])
		}
		spec.Twin = &v1alpha1.TwinNaming{Naming: v1alpha1.TwinChosen, Name: f.twinName}
	}
	return nil
}

// placementFlags say which clusters a namespace prefers.
type placementFlags struct {
	prefer     string
	maxPrice   string
	maxLatency time.Duration
	exclude    []string
	strict     bool
}

func (f *placementFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.prefer, "prefer", "", "what makes a cluster better than another: price, latency or spread; by default home is preferred")
	flags.StringVar(&f.maxPrice, "max-price", "", "the most that a pod of 1 core and 1Gi may cost for an hour, such as '0.05 EUR'")
	flags.DurationVar(&f.maxLatency, "max-latency", 0, "the longest round trip to a cluster, such as 50ms")
	flags.StringSliceVar(&f.exclude, "exclude", nil, "peers that pods must not run in")
	flags.BoolVar(&f.strict, "strict", false, "use the best cluster that such a pod fits in, and no other")
}

// placement translates the flags; nil if there are none.
func (f *placementFlags) placement() (*v1alpha1.NamespacePlacement, error) {
	prefer, err := parsePreference(f.prefer)
	if err != nil {
		return nil, err
	}
	wanted := v1alpha1.Placement{Prefer: prefer, Exclude: f.exclude, Strict: f.strict}
	for _, peer := range f.exclude {
		if problems := validation.IsDNS1123Label(peer); len(problems) > 0 {
			return nil, fmt.Errorf("--exclude: %q is no name of a peer", peer)
		}
	}
	if err := f.bounds(&wanted); err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(wanted, v1alpha1.Placement{}) {
		return nil, nil //nolint:nilnil // nothing said is the default
	}
	return &v1alpha1.NamespacePlacement{Placement: wanted}, nil
}

// bounds puts the highest price and latency into the placement.
func (f *placementFlags) bounds(wanted *v1alpha1.Placement) error {
	if f.maxLatency < 0 || f.maxLatency > time.Hour {
		return fmt.Errorf("--max-latency is at most 1h, such as 50ms, and not %s", f.maxLatency)
	}
	if f.maxLatency > 0 {
		wanted.MaxLatency = &metav1.Duration{Duration: f.maxLatency}
	}
	if f.maxPrice == "" {
		return nil
	}
	price, err := parsePrice(f.maxPrice)
	if err != nil {
		return fmt.Errorf("read --max-price: %w", err)
	}
	wanted.MaxPrice = price
	return nil
}

func parsePreference(text string) (v1alpha1.PlacementPreference, error) {
	preferences := map[string]v1alpha1.PlacementPreference{
		"": "", "price": v1alpha1.PreferPrice, "latency": v1alpha1.PreferLatency, "spread": v1alpha1.PreferSpread,
	}
	prefer, known := preferences[strings.ToLower(text)]
	if !known {
		return "", fmt.Errorf("--prefer is price, latency or spread, not %q", text)
	}
	return prefer, nil
}

// parsePrice reads an amount and its currency, such as 0.05 EUR.
func parsePrice(text string) (*v1alpha1.Price, error) {
	words := strings.Fields(text)
	if len(words) != 2 || !isCurrency(words[1]) {
		return nil, fmt.Errorf("%q is no amount with a currency, such as '0.05 EUR'", text)
	}
	amount, err := resource.ParseQuantity(words[0])
	if err != nil || amount.Sign() < 0 {
		return nil, fmt.Errorf("%q is no amount, such as 0.05", words[0])
	}
	return &v1alpha1.Price{Amount: amount, Currency: words[1]}, nil
}

func isCurrency(code string) bool {
	return len(code) == 3 && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
