// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/hanse-dev/hanse/internal/offload"
)

// offloadFlags are those of `offload`. They are read into what they are about.
type offloadFlags struct {
	dryRunFlags
	waitFlags
	wanted    v1alpha1.NamespaceOffloadingSpec
	placement v1alpha1.Placement
	sameName  bool
}

func newOffloadCommand(global *globalFlags) *cobra.Command {
	flags := &offloadFlags{}
	command := &cobra.Command{
		Use:   "offload NAMESPACE",
		Short: "Let the pods of a namespace run in other clusters",
		Long: "Lets new pods of the namespace run on virtual nodes, and waits until each selected peer is ready for it and new pods\n" +
			"are placed: the exit code is 1 if that does not come. Pods that run already stay where they are, unless --on-change\n" +
			"says otherwise. Doing it again changes what is wanted: a flag that is left out then means its default. What no flag\n" +
			"says (overrides, and classes of pods) stays as it is.",
		Example: `  # At home while there is room, then in other clusters
  kubectl hanse offload shop

  # Only in the nearest one of some clusters that has room
  kubectl hanse offload shop --strategy Remote --cluster-selector 'region in (south,west)' --prefer latency --strict

  # In the cheapest one, if that is not too dear
  kubectl hanse offload shop --prefer price --max-price '0.05 EUR'

  # Others take over when a provider is cut off for two minutes
  kubectl hanse offload shop --on-disconnect replace --replace-after 2m`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			spec, err := flags.spec()
			if err != nil {
				return err
			}
			namespace, err := global.namespaceOf(command, args)
			if err != nil {
				return err
			}
			offloading := offloadingOf(namespace)
			offloading.Spec = spec
			if flags.dry() {
				return printObjects(command.OutOrStdout(), offloading)
			}
			return global.withHanse(command, flags.timeout, func(ctx context.Context, c *connection, system string) error {
				if err := checkHope(ctx, c.client, system, offloading); err != nil {
					return err
				}
				return runOffload(ctx, command, c.cluster(command), offloading, flags.wait)
			})
		},
	}
	flags.bind(command.Flags())
	command.MarkFlagsMutuallyExclusive("twin-name", "same-name")
	return command
}

func (f *offloadFlags) bind(flags *pflag.FlagSet) {
	spec, placement := &f.wanted, &f.placement
	*spec = v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyLocalAndRemote, OnDisconnect: v1alpha1.DisconnectionWait, OnChange: v1alpha1.ChangeKeep,
		Twin: &v1alpha1.TwinNaming{},
	}
	flags.Var(oneOf(&spec.Strategy, v1alpha1.StrategyLocal, v1alpha1.StrategyRemote, v1alpha1.StrategyLocalAndRemote), "strategy",
		"where new pods may run: Local, Remote or LocalAndRemote")
	flags.Func("cluster-selector", "`labels` of the virtual nodes to use, as in kubectl get -l; by default all", parseInto(&spec.ClusterSelector, parseSelector))
	flags.Var(oneOf(&spec.OnDisconnect, v1alpha1.DisconnectionWait, v1alpha1.DisconnectionReplace), "on-disconnect",
		"what becomes of pods whose provider is cut off: wait or replace")
	flags.Func("replace-after", "`duration` after which they are replaced; by default 5m", parseInto(&spec.ReplaceAfter, parseDuration))
	flags.Func("placement-timeout", "`duration` for which a provider may look for room for a pod; by default 30s",
		parseInto(&spec.PlacementTimeout, parseDuration))
	flags.Func("scale-up-timeout", "the same `duration` while the provider's autoscaler makes room; by default 10m",
		parseInto(&spec.ScaleUpTimeout, parseDuration))
	flags.StringVar(&spec.Twin.Name, "twin-name", "", "what the namespace is called at providers, where they let us choose")
	flags.BoolVar(&f.sameName, "same-name", false, "call it there as it is called here, where they let us choose")
	flags.Var(oneOf(&spec.OnChange, v1alpha1.ChangeKeep, v1alpha1.ChangeEvict), "on-change",
		"what becomes of pods that run where new ones may not: keep or evict")
	flags.Var(oneOf(&placement.Prefer, v1alpha1.PreferPrice, v1alpha1.PreferLatency, v1alpha1.PreferSpread), "prefer",
		"what makes a cluster better than another: price, latency or spread; by default home is preferred")
	flags.Func("max-price", "the highest `price` of a pod of 1 core and 1Gi for an hour, such as '0.05 EUR'", parseInto(&placement.MaxPrice, parsePrice))
	flags.Func("max-latency", "the longest round trip to a cluster, a `duration` such as 50ms", parseInto(&placement.MaxLatency, parseDuration))
	flags.Func("min-bandwidth", "the lowest `bandwidth` to a cluster in bytes per second, such as 10M", parseInto(&placement.MinBandwidth, parseQuantity))
	flags.StringSliceVar(&placement.Exclude, "exclude", nil, "peers that pods must not run in")
	flags.BoolVar(&placement.Strict, "strict", false, "use the best cluster that such a pod fits in, and no other")
	f.dryRunFlags.bind(flags)
	f.waitFlags.bind(flags, time.Minute, "each selected peer is ready for the namespace, and its new pods are placed")
}

// spec is what the flags mean. The API server knows the bounds of what they say.
func (f *offloadFlags) spec() (v1alpha1.NamespaceOffloadingSpec, error) {
	spec := f.wanted
	switch {
	case f.sameName:
		spec.Twin = &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName}
	case spec.Twin.Name != "":
		spec.Twin.Naming = v1alpha1.TwinChosen
	default:
		spec.Twin = nil
	}
	if !equality.Semantic.DeepEqual(f.placement, v1alpha1.Placement{}) {
		spec.Placement = &v1alpha1.NamespacePlacement{Placement: f.placement}
	}
	for _, peer := range f.placement.Exclude {
		if problems := validation.IsDNS1123Label(peer); len(problems) > 0 {
			return spec, fmt.Errorf("--exclude: %q is no name of a peer", peer)
		}
	}
	if spec.ReplaceAfter != nil && spec.OnDisconnect != v1alpha1.DisconnectionReplace {
		return spec, errors.New("--replace-after is for --on-disconnect replace")
	}
	return spec, f.validate()
}

// parseInto has the text of a flag read into a field, which is nil without the flag.
func parseInto[T any](field **T, parse func(string) (*T, error)) func(string) error {
	return func(text string) (err error) {
		*field, err = parse(text)
		return err
	}
}

func parseDuration(text string) (*metav1.Duration, error) {
	d, err := time.ParseDuration(text)
	return &metav1.Duration{Duration: d}, err
}

func parseQuantity(text string) (*resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	return &q, err
}

// parsePrice reads an amount and its currency, such as 0.05 EUR.
func parsePrice(text string) (*v1alpha1.Price, error) {
	number, currency, found := strings.Cut(strings.TrimSpace(text), " ")
	amount, err := resource.ParseQuantity(number)
	if err != nil || !found {
		return nil, fmt.Errorf("%q is no amount with a currency, such as '0.05 EUR'", text)
	}
	return &v1alpha1.Price{Amount: amount, Currency: strings.TrimSpace(currency)}, nil
}

// operators are those of kubectl's selectors, as a ClusterSelector has them.
var operators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.In: metav1.LabelSelectorOpIn, selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn,
	selection.NotIn: metav1.LabelSelectorOpNotIn, selection.NotEquals: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// parseSelector reads a selector as kubectl writes it.
func parseSelector(text string) (*v1alpha1.ClusterSelector, error) {
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return nil, err
	}
	selector := &v1alpha1.ClusterSelector{}
	for _, r := range requirements {
		operator, known := operators[r.Operator()]
		if !known {
			return nil, fmt.Errorf("%q: only =, !=, in, notin, exists and does-not-exist are possible", r.String())
		}
		translated := v1alpha1.ClusterSelectorRequirement{Key: r.Key(), Operator: operator}
		for _, value := range r.Values().List() {
			translated.Values = append(translated.Values, v1alpha1.LabelValue(value))
		}
		selector.MatchExpressions = append(selector.MatchExpressions, translated)
	}
	return selector, nil
}

// runOffload writes what the user wants of a namespace.
func runOffload(ctx context.Context, command *cobra.Command, cluster install.Cluster, wanted *v1alpha1.NamespaceOffloading, wait bool) error {
	if err := cluster.Client.Get(ctx, client.ObjectKey{Name: wanted.Namespace}, &corev1.Namespace{}); err != nil {
		return fmt.Errorf("read namespace %s: %w", wanted.Namespace, err)
	}
	offloading, wasKept := offloadingOf(wanted.Namespace), false
	err := write(ctx, cluster.Client, offloading, func() error {
		wasKept = disown(offloading)
		keepWhatNoFlagSays(&wanted.Spec, &offloading.Spec)
		offloading.Spec = wanted.Spec
		return nil
	})
	if err != nil {
		return err
	}
	if wasKept {
		cluster.Report("The namespace was offloaded by default. From now on its NamespaceOffloading is yours.")
	}
	if !wait {
		return say(command, "Namespace %s is to be offloaded with strategy %s: see `kubectl hanse status -n %[1]s`.\n", wanted.Namespace, wanted.Spec.Strategy)
	}
	if err := awaitOffloaded(ctx, cluster, wanted.Namespace); err != nil {
		return err
	}
	if err := cluster.WaitPlaced(ctx, wanted.Namespace); err != nil {
		return err
	}
	sayWhatServicesMiss(ctx, cluster, wanted)
	return say(command, "Namespace %s is offloaded with strategy %s.\n", wanted.Namespace, wanted.Spec.Strategy)
}

// sayWhatServicesMiss says that Services of the namespace will not reach the pods that leave. Who may not see Services or peers
// is told by their events.
func sayWhatServicesMiss(ctx context.Context, cluster install.Cluster, wanted *v1alpha1.NamespaceOffloading) {
	if wanted.Spec.Strategy == v1alpha1.StrategyLocal {
		return
	}
	seen := take(ctx, cluster.Client, scope{namespace: wanted.Namespace}, time.Time{}, partPeers, partServices)
	apart := namesOf(seen.peers.Items, func(peer *v1alpha1.Peer) string {
		if !peer.HasRole(v1alpha1.RoleProvider) || peer.HasNetwork() {
			return ""
		}
		return peer.Name
	})
	services := namesOf(seen.services.Items, func(service *corev1.Service) string {
		if len(service.Spec.Selector) == 0 {
			return ""
		}
		return service.Name
	})
	if len(apart) > 0 && len(services) > 0 {
		cluster.Report("No network connects this cluster to %s: pods that run there are no endpoints of the Services %s.",
			some(apart), some(services))
	}
}

// disown makes an offloading the user's that Hanse has kept, and reports whether it was.
func disown(offloading *v1alpha1.NamespaceOffloading) bool {
	_, kept := offloading.Annotations[v1alpha1.AnnotationKeptOffloading]
	delete(offloading.Annotations, v1alpha1.AnnotationKeptOffloading)
	return kept
}

// keepWhatNoFlagSays keeps what users can write only into the object itself.
func keepWhatNoFlagSays(spec, before *v1alpha1.NamespaceOffloadingSpec) {
	spec.Overrides = before.Overrides
	if before.Placement == nil || len(before.Placement.Classes)+len(before.Placement.Request) == 0 {
		return
	}
	if spec.Placement == nil {
		spec.Placement = &v1alpha1.NamespacePlacement{}
	}
	spec.Placement.Classes, spec.Placement.Request = before.Placement.Classes, before.Placement.Request
}

type unoffloadFlags struct {
	waitFlags
	evict      bool
	deleteData bool
}

func newUnoffloadCommand(global *globalFlags) *cobra.Command {
	flags := &unoffloadFlags{}
	command := &cobra.Command{
		Use:   "unoffload NAMESPACE",
		Short: "Let the pods of a namespace run at home only",
		Long: "Ends the offloading of the namespace: new pods stay at home. Then it waits until those that run in other clusters\n" +
			"have gone, and says which they are. They go when they end or are deleted, such as by `kubectl rollout restart`, or\n" +
			"with --evict. The twin namespaces at providers go with the last of them, but not while claims have volumes there: these\n" +
			"stay until the claims are deleted, as --delete-data does, and pods with them wait until the namespace is offloaded again.",
		Example: `  kubectl hanse unoffload shop --wait=false
  kubectl hanse unoffload shop --evict`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			namespace, err := global.namespaceOf(command, args)
			if err != nil {
				return err
			}
			return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
				return runUnoffload(ctx, command, c.cluster(command), flags, namespace)
			})
		},
	}
	f := command.Flags()
	f.BoolVar(&flags.evict, "evict", false, "move the pods that run in other clusters home, as their PodDisruptionBudgets allow")
	f.BoolVar(&flags.deleteData, "delete-data", false, "delete the claims whose volumes are in other clusters, with their data")
	flags.bind(f, 10*time.Minute, "no pod runs in another cluster any more")
	return command
}

func runUnoffload(ctx context.Context, command *cobra.Command, cluster install.Cluster, flags *unoffloadFlags, name string) error {
	c := cluster.Client
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); err != nil {
		return fmt.Errorf("read namespace %s: %w", name, err)
	}
	// One that Hanse keeps by default would come back if it was deleted.
	offloading := offloadingOf(name)
	if _, err := read(ctx, c, name, offloading.Name, offloading); err != nil {
		return err
	}
	kept := offloading.Annotations[v1alpha1.AnnotationKeptOffloading] == "true"
	if err := tellData(ctx, cluster, flags, name); err != nil {
		return err
	}
	if flags.evict {
		left, err := moveHome(ctx, cluster, name, flags.wait)
		if err != nil {
			return err
		}
		if left {
			return say(command, "The pods of namespace %s are moved home: its NamespaceOffloading has strategy Local.\n", name)
		}
	}
	if err := endOffloading(ctx, c, name, kept); err != nil {
		return err
	}
	if flags.wait {
		if err := errors.Join(cluster.WaitPlaced(ctx, name), awaitHome(ctx, cluster, name)); err != nil {
			return err
		}
	}
	if kept {
		return say(command, "Namespace %s was offloaded by default. Its NamespaceOffloading is yours now, with strategy Local: to have "+
			"the default again, delete it.\n", name)
	}
	return say(command, "Namespace %s is no longer offloaded.\n", name)
}

// moveHome has Hanse evict what runs elsewhere, and reports whether something is left of it, for which nobody waits.
func moveHome(ctx context.Context, cluster install.Cluster, namespace string, wait bool) (left bool, err error) {
	away, err := podsAway(ctx, cluster.Client, namespace)
	if err != nil || len(away) == 0 {
		return false, err
	}
	if err := stayHome(ctx, cluster.Client, namespace, v1alpha1.ChangeEvict); err != nil || !wait {
		return true, err
	}
	return false, awaitHome(ctx, cluster, namespace)
}

// endOffloading has new pods stay at home.
func endOffloading(ctx context.Context, c client.Client, namespace string, kept bool) error {
	if kept {
		return stayHome(ctx, c, namespace, v1alpha1.ChangeKeep)
	}
	if err := client.IgnoreNotFound(c.Delete(ctx, offloadingOf(namespace))); err != nil {
		return fmt.Errorf("delete NamespaceOffloading in namespace %s: %w", namespace, err)
	}
	return nil
}

// stayHome makes the offloading of the namespace the user's, with strategy Local.
func stayHome(ctx context.Context, c client.Client, namespace string, onChange v1alpha1.ChangeMode) error {
	offloading := offloadingOf(namespace)
	return write(ctx, c, offloading, func() error {
		disown(offloading)
		offloading.Spec.Strategy, offloading.Spec.OnChange = v1alpha1.StrategyLocal, onChange
		return nil
	})
}

// awaitHome waits until no pod of the namespace runs elsewhere, and tells which do.
func awaitHome(ctx context.Context, cluster install.Cluster, namespace string) error {
	told := &progress{report: cluster.Report}
	var away []string
	err := install.Until(ctx, "pods of namespace "+namespace+" to leave other clusters", func(ctx context.Context) (done bool, err error) {
		away, err = podsAway(ctx, cluster.Client, namespace)
		if len(away) > 0 {
			told.tell("Waiting for pods that run in other clusters: " + some(away))
		}
		return err == nil && len(away) == 0, err
	})
	if err == nil || len(away) == 0 {
		return err
	}
	return errors.Join(err, fmt.Errorf("these still run in other clusters: %s. Delete or restart them, or have them moved: kubectl "+
		"hanse unoffload %s --evict. Why one stays: kubectl get events -n %s --field-selector reason=%s",
		some(away), namespace, namespace, v1alpha1.ReasonOffloadingChanged))
}

// podsAway names the pods of the namespace that run on virtual nodes, with their nodes. Pods that have ended, and those of
// DaemonSets, do not come home.
func podsAway(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	seen := take(ctx, c, scope{namespace: namespace}, time.Time{}, partVirtualNodes, partPodsAway)
	if _, err := seen.errButHidden(partVirtualNodes); err != nil {
		return nil, err
	}
	return namesOf(seen.podsAway, func(pod *corev1.Pod) string {
		if hasEnded(pod) || isOfDaemonSet(pod) {
			return ""
		}
		return pod.Name + " on " + pod.Spec.NodeName
	}), seen.err(partPodsAway)
}

func hasEnded(pod *corev1.Pod) bool {
	return offload.Terminal(pod.Status.Phase)
}

// isOfDaemonSet reports whether the pod belongs to its node: it does not come home, wherever the namespace's pods run.
func isOfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}
