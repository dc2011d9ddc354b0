// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/move"
	"github.com/hanse-dev/hanse/internal/mover"
	"github.com/hanse-dev/hanse/internal/offload"
)

// moveFlags are those of `move`.
type moveFlags struct {
	writeFlags
	to, from, method string
	deadline         time.Duration
	all              bool
	maxUnavailable   int // how many pods move at a time; 0: as many as there are
}

func newMoveCommand(global *globalFlags) *cobra.Command {
	flags := &moveFlags{}
	command := &cobra.Command{
		Use:   "move [POD...] [KIND/NAME...] --to NODE|PEER",
		Short: "Move running pods to another node or cluster",
		Long: "Creates a PodMove for each pod, and waits until the pods have moved. By method Surge, a copy starts at the destination, and\n" +
			"when it is Ready the original goes. By method Steer, the original is evicted, and the pod that its owner makes in its place\n" +
			"is sent to the destination. By method DeleteFirst, for pods without a controller, the original is evicted, and made again at\n" +
			"the destination under the same name. The first of these that fits is taken. Pods of one owner move one after another; the owner\n" +
			"itself can be named: a deployment, replicaset, statefulset or job. With --all, all pods of the namespace move that can be\n" +
			"moved, and those that cannot are named. With --from, only pods on that node move, of those named or of all. A pod that moves\n" +
			"by method Steer or DeleteFirst is unavailable for a while: --max-unavailable has no more than so many move at a time. Pods that\n" +
			"are at the destination already are left alone. The exit code is 1 if a pod has not moved.",
		Example: `  # To another cluster, and home again
  kubectl hanse move web-5d9c7b6f4-x2x7k --to hamburg
  kubectl hanse move deployment/web statefulset/database --to worker-1

  # A pod that was created by hand, and that keeps its name
  kubectl hanse move toolbox --to hamburg --method DeleteFirst

  # What of the namespace runs on a node, and all of it, two pods at a time
  kubectl hanse move -n shop --from worker-1 --to worker-2
  kubectl hanse move -n shop --all --max-unavailable 2 --to hamburg`,
		RunE: func(command *cobra.Command, args []string) error {
			if err := flags.validate(args); err != nil {
				return err
			}
			return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
				return runMove(ctx, command, c, flags, args)
			})
		},
	}
	f := command.Flags()
	f.StringVar(&flags.to, "to", "", "the node or the peer to move to; node/NAME and peer/NAME where one name is both")
	f.StringVar(&flags.from, "from", "", "move only what is on this node")
	f.BoolVar(&flags.all, "all", false, "move all pods of the namespace")
	f.IntVar(&flags.maxUnavailable, "max-unavailable", 0, "how many pods may move at a time; by default those of different owners all move at once")
	f.StringVar(&flags.method, "method", "", "Surge, Steer or DeleteFirst; by default the first that fits")
	f.DurationVar(&flags.deadline, "deadline", move.DefaultDeadline, "how long each copy may take to be Ready")
	flags.bind(f, 15*time.Minute, "the pods have moved")
	return command
}

func (f *moveFlags) validate(args []string) error {
	if f.to == "" {
		return errors.New("--to is needed: the node or the peer to move to")
	}
	if !slices.Contains([]v1alpha1.MoveMethod{"", v1alpha1.MoveSurge, v1alpha1.MoveSteer, v1alpha1.MoveDeleteFirst}, v1alpha1.MoveMethod(f.method)) {
		return fmt.Errorf("--method: %s is none of Surge, Steer and DeleteFirst", f.method)
	}
	switch {
	case len(args) == 0 && f.from == "" && !f.all:
		return errors.New("name pods, or what makes them as in deployment/NAME, or say --all or --from NODE")
	case len(args) > 0 && f.all:
		return errors.New("--all: pods are named, too: say one of the two")
	case f.maxUnavailable < 0:
		return errors.New("--max-unavailable: it must be at least 1, or 0 for no limit")
	case f.maxUnavailable > 0 && !f.wait && !f.dry():
		return errors.New("--max-unavailable: only a command that waits can keep to it: leave out --wait=false")
	}
	return f.writeFlags.validate()
}

func runMove(ctx context.Context, command *cobra.Command, c *connection, flags *moveFlags, args []string) error {
	to, err := destination(ctx, c.client, flags.to)
	if err != nil {
		return err
	}
	pods, err := podsToMove(ctx, c, flags, args)
	if err != nil {
		return err
	}
	var moves []*v1alpha1.PodMove
	for i := range pods {
		pod, wanted := &pods[i], podMoveOf(&pods[i], to, flags)
		if pod.Spec.NodeName == to.NodeName() {
			reporter(command)("Pod %s is there already", pod.Name)
			continue
		}
		// Of pods that were named, the PodMove itself says what stands against it.
		if cause := move.CheckPod(wanted, pod); cause != nil && len(args) == 0 {
			reporter(command)("Left out: %s", cause.Message)
			continue
		}
		moves = append(moves, wanted)
	}
	if flags.dry() {
		return printMoves(ctx, command, c.client, moves)
	}
	if err := begin(ctx, c.client, moves, flags.maxUnavailable); err != nil {
		return err
	}
	if !flags.wait {
		return say(command, "%d pods are to move: see `kubectl get podmoves -n %s`.\n", len(moves), c.namespace)
	}
	return awaitMoves(ctx, command, c.client, moves, flags.maxUnavailable)
}

// begin creates PodMoves that are not there yet, as long as no more than so many are not over. 0 is no limit.
func begin(ctx context.Context, c client.Client, moves []*v1alpha1.PodMove, limit int) error {
	under := 0
	for _, m := range moves {
		if m.Name != "" && !m.Status.Phase.IsOver() {
			under++
		}
	}
	for _, m := range moves {
		if m.Name != "" || limit > 0 && under >= limit {
			continue
		}
		if err := c.Create(ctx, m); err != nil {
			return fmt.Errorf("move pod %s: %w", m.Spec.Pod.Name, err)
		}
		under++
	}
	return nil
}

// printMoves prints the PodMoves, each behind a comment that says what stands against it.
func printMoves(ctx context.Context, command *cobra.Command, c client.Client, moves []*v1alpha1.PodMove) error {
	for _, m := range moves {
		method, causes, err := mover.Check(ctx, c, m)
		comment := fmt.Sprintf("nothing stands against method %s", method)
		switch {
		case err != nil:
			comment = "what stands against it cannot be seen: " + err.Error()
		case len(causes) > 0:
			texts := make([]string, len(causes))
			for i := range causes {
				texts[i] = causes[i].Message
			}
			comment = "it would fail: " + strings.Join(texts, "; ")
		}
		if err := say(command, "# %s to %s: %s\n", m.Spec.Pod.Name, m.Spec.Destination.NodeName(), strings.ReplaceAll(comment, "\n", " ")); err != nil {
			return err
		}
		if err := printObjects(command.OutOrStdout(), m); err != nil {
			return err
		}
	}
	return nil
}

// destination finds out what the name is of. Who may not see nodes or peers says it.
func destination(ctx context.Context, c client.Client, name string) (v1alpha1.MoveDestination, error) {
	if bare, found := strings.CutPrefix(name, "node/"); found {
		return v1alpha1.MoveDestination{Node: bare}, nil
	}
	if bare, found := strings.CutPrefix(name, "peer/"); found {
		return v1alpha1.MoveDestination{Peer: bare}, nil
	}
	nodeErr := c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})
	peerErr := c.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.Peer{})
	switch {
	case nodeErr == nil && peerErr == nil:
		return v1alpha1.MoveDestination{}, fmt.Errorf("--to: %s is a node and a peer: say node/%[1]s or peer/%[1]s", name)
	case nodeErr == nil:
		return v1alpha1.MoveDestination{Node: name}, nil
	case peerErr == nil:
		return v1alpha1.MoveDestination{Peer: name}, nil
	case apierrors.IsNotFound(nodeErr) && apierrors.IsNotFound(peerErr):
		return v1alpha1.MoveDestination{}, fmt.Errorf("--to: there is no node and no peer %s", name)
	default:
		return v1alpha1.MoveDestination{}, fmt.Errorf("--to: say node/%s or peer/%[1]s, since it cannot be seen which it is: %w", name, errors.Join(nodeErr, peerErr))
	}
}

func podMoveOf(pod *corev1.Pod, to v1alpha1.MoveDestination, flags *moveFlags) *v1alpha1.PodMove {
	const most = 58 // as the API server keeps of it
	return &v1alpha1.PodMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: pod.Name[:min(len(pod.Name), most-1)] + "-"},
		Spec: v1alpha1.PodMoveSpec{
			Pod: v1alpha1.MovedPod{Name: pod.Name, UID: pod.UID}, Destination: to,
			Method: v1alpha1.MoveMethod(flags.method), Deadline: &metav1.Duration{Duration: flags.deadline},
		},
	}
}

// podsToMove are those that are named, and are on the node that is named.
func podsToMove(ctx context.Context, c *connection, flags *moveFlags, args []string) ([]corev1.Pod, error) {
	var found []corev1.Pod
	if len(args) == 0 {
		list := &corev1.PodList{}
		if err := c.client.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		found = list.Items
	}
	for _, arg := range args {
		pods, err := podsNamed(ctx, c, arg)
		if err != nil {
			return nil, err
		}
		found = append(found, pods...)
	}
	return slices.DeleteFunc(found, func(pod corev1.Pod) bool {
		return flags.from != "" && pod.Spec.NodeName != flags.from && pod.Spec.NodeName != v1alpha1.VirtualNodeName(flags.from)
	}), nil
}

// podsNamed are the pod of that name, or those of what makes pods that run or are to run.
func podsNamed(ctx context.Context, c *connection, name string) ([]corev1.Pod, error) {
	kind, bare, qualified := strings.Cut(name, "/")
	if !qualified {
		kind, bare = "pod", name
	}
	key := client.ObjectKey{Namespace: c.namespace, Name: bare}
	if slices.Contains([]string{"pod", "pods", "po"}, strings.ToLower(kind)) {
		pod := &corev1.Pod{}
		if err := c.client.Get(ctx, key, pod); err != nil {
			return nil, fmt.Errorf("read pod %s: %w", bare, err)
		}
		return []corev1.Pod{*pod}, nil
	}
	owner, selects := ownerOfKind(strings.ToLower(kind))
	if owner == nil {
		return nil, fmt.Errorf("%s: only pods, Deployments, ReplicaSets, StatefulSets and Jobs can be named", name)
	}
	if err := c.client.Get(ctx, key, owner); err != nil {
		return nil, fmt.Errorf("read %s: %w", bare, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(*selects)
	if err != nil {
		return nil, fmt.Errorf("read the selector of %s: %w", bare, err)
	}
	pods := &corev1.PodList{}
	if err := c.client.List(ctx, pods, client.InNamespace(c.namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", bare, err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil || offload.Terminal(p.Status.Phase) }), nil
}

// ownerOfKind returns an object of the kind to read into, and where its selector will be, or nil if it makes no pods.
func ownerOfKind(kind string) (client.Object, **metav1.LabelSelector) {
	switch kind {
	case "deployment", "deployments", "deploy", "deployment.apps":
		o := &appsv1.Deployment{}
		return o, &o.Spec.Selector
	case "replicaset", "replicasets", "rs", "replicaset.apps":
		o := &appsv1.ReplicaSet{}
		return o, &o.Spec.Selector
	case "statefulset", "statefulsets", "sts", "statefulset.apps":
		o := &appsv1.StatefulSet{}
		return o, &o.Spec.Selector
	case "job", "jobs", "job.batch":
		o := &batchv1.Job{}
		return o, &o.Spec.Selector
	default:
		return nil, nil
	}
}

// awaitMoves tells of each move what it comes to, begins those that are left as others end, and fails if one has failed.
func awaitMoves(ctx context.Context, command *cobra.Command, c client.Client, moves []*v1alpha1.PodMove, limit int) error {
	said, failed := map[string]string{}, 0 // name → message
	err := install.Until(ctx, "the pods to move", func(ctx context.Context) (bool, error) {
		left := 0
		for _, m := range moves {
			if m.Status.Phase.IsOver() {
				continue
			}
			if m.Name == "" {
				left++
				continue
			}
			switch err := c.Get(ctx, client.ObjectKeyFromObject(m), m); {
			case apierrors.IsNotFound(err):
				reporter(command)("%s: the PodMove was deleted", m.Spec.Pod.Name)
				m.Status.Phase, failed = v1alpha1.MoveFailed, failed+1
				continue
			case err != nil:
				return false, fmt.Errorf("read PodMove %s: %w", m.Name, err)
			}
			complete := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionComplete)
			if complete != nil && said[m.Name] != complete.Message {
				said[m.Name] = complete.Message
				reporter(command)("%s: %s: %s", m.Spec.Pod.Name, m.Status.Phase, complete.Message)
			}
			switch m.Status.Phase {
			case v1alpha1.MoveFailed:
				failed++
			case v1alpha1.MoveSucceeded:
			default:
				left++
			}
		}
		return left == 0, begin(ctx, c, moves, limit)
	})
	if err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d pods have not moved", failed, len(moves))
	}
	return say(command, "%d pods have moved.\n", len(moves))
}
