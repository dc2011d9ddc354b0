package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

type unoffloadFlags struct {
	waitFlags
	evict bool
}

func newUnoffloadCommand(global *globalFlags) *cobra.Command {
	flags := &unoffloadFlags{}
	command := &cobra.Command{
		Use:   "unoffload NAMESPACE",
		Short: "Let the pods of a namespace run at home only",
		Long: "Ends the offloading of the namespace: new pods stay at home. Then it waits until those that run in other clusters\n" +
			"have gone, and says which they are. They go when they end or are deleted, such as by `kubectl rollout restart`, or\n" +
			"with --evict. The twin namespaces at providers go with the last of them.",
		Example: `  # New pods stay at home
  kubectl hanse unoffload shop --wait=false

  # And those that run elsewhere come home
  kubectl hanse unoffload shop --evict`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
				return runUnoffload(ctx, command, c.cluster(command), flags, args[0])
			})
		},
	}
	f := command.Flags()
	f.BoolVar(&flags.evict, "evict", false, "move the pods that run in other clusters home, as their PodDisruptionBudgets allow")
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
	err := install.Until(ctx, "pods of namespace "+namespace+" to leave other clusters", func(ctx context.Context) (bool, error) {
		var err error
		if away, err = podsAway(ctx, cluster.Client, namespace); err != nil {
			return false, err
		}
		if len(away) > 0 {
			told.tell("Waiting for pods that run in other clusters: " + some(away))
		}
		return len(away) == 0, nil
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
	var away []string
	for i := range seen.podsAway {
		pod := &seen.podsAway[i]
		if !hasEnded(pod) && !isOfDaemonSet(pod) {
			away = append(away, fmt.Sprintf("%s on %s", pod.Name, pod.Spec.NodeName))
		}
	}
	slices.Sort(away)
	return away, seen.err(partPodsAway)
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// isOfDaemonSet reports whether the pod belongs to its node: it does not come home, wherever the namespace's pods run.
func isOfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}
