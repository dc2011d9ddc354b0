package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// rangeDelay is how long it may take until a new node has its range.
const rangeDelay = time.Minute

// nodes checks virtual nodes, and what comes to them and should not.
func (c *checker) nodes(ctx context.Context) []finding {
	nodes := &corev1.NodeList{}
	err := c.client.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode})
	if err != nil {
		return []finding{topicNode.unknown("virtual nodes", err)}
	}
	var findings []finding
	for i := range nodes.Items {
		findings = append(findings, nodeFinding(&nodes.Items[i]))
	}
	if len(findings) == 0 {
		findings = append(findings, topicNode.ok("virtual nodes", "there are none"))
	}
	slices.SortFunc(findings, func(a, b finding) int { return strings.Compare(a.Name, b.Name) })
	return append(findings, c.daemonSets(ctx))
}

// nodeOf checks the virtual node of one peer.
func (c *checker) nodeOf(ctx context.Context, peer *v1alpha1.Peer) []finding {
	if !peer.HasRole(v1alpha1.RoleProvider) {
		return nil
	}
	node := &corev1.Node{}
	name := v1alpha1.VirtualNodeName(peer.Name)
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return []finding{topicNode.warning("Node "+name, "there is none", "it comes with the peer's first accepted offer: see condition Advertised")}
	case err != nil:
		return []finding{topicNode.unknown("Node "+name, err)}
	default:
		return []finding{nodeFinding(node)}
	}
}

func nodeFinding(node *corev1.Node) finding {
	name := "Node " + node.Name
	withdrawn := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintWithdrawn })
	switch {
	case !isNodeReady(node):
		return topicNode.failed(name, "it is not ready", "see the conditions of its Peer, and whether hanse-kubelet runs")
	case withdrawn:
		return topicNode.warning(name, "it takes no more pods, since its offer has ended or was withdrawn", "see the conditions of its Peer")
	default:
		return topicNode.ok(name, "ready")
	}
}

// daemonSets looks for those that would have a pod for every virtual node, where it cannot run. A policy keeps new ones
// away; one that is older than the installation is changed by it with its next update.
func (c *checker) daemonSets(ctx context.Context) finding {
	const name = "DaemonSets"
	list := &appsv1.DaemonSetList{}
	if err := c.client.List(ctx, list); err != nil {
		return topicDaemonSets.unknown(name, err)
	}
	var found []string
	for i := range list.Items {
		if comesToVirtualNodes(&list.Items[i]) {
			found = append(found, client.ObjectKeyFromObject(&list.Items[i]).String())
		}
	}
	if len(found) == 0 {
		return topicDaemonSets.ok(name, "none comes to virtual nodes unasked")
	}
	slices.Sort(found)
	return topicDaemonSets.warning(name, "they tolerate every taint, and come to virtual nodes: "+some(found),
		"kubectl rollout restart daemonset -n NAMESPACE NAME, by which the policy of Hanse keeps them away")
}

func comesToVirtualNodes(set *appsv1.DaemonSet) bool {
	if set.Annotations[v1alpha1.AnnotationAllowOnVirtualNodes] == "true" {
		return false // somebody wants that
	}
	pod := &set.Spec.Template.Spec
	if _, chosen := pod.NodeSelector[v1alpha1.LabelType]; chosen {
		return false
	}
	return toleratesVirtualNodes(pod) && !avoidsVirtualNodes(pod)
}

func toleratesVirtualNodes(pod *corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		everyKey := t.Key == "" && t.Operator == corev1.TolerationOpExists
		return (everyKey || t.Key == v1alpha1.TaintVirtualNode) && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	})
}

// avoidsVirtualNodes reports whether the affinity keeps the pod away: every term must, since one is enough to get in.
func avoidsVirtualNodes(pod *corev1.PodSpec) bool {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil ||
		pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return !slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == v1alpha1.LabelType && (e.Operator == corev1.NodeSelectorOpDoesNotExist ||
				e.Operator == corev1.NodeSelectorOpNotIn && slices.Contains(e.Values, v1alpha1.TypeVirtualNode))
		})
	})
}

// ranges checks that Kubernetes still has a range of pod addresses for each node: a virtual one takes one as well.
func (c *checker) ranges(ctx context.Context) finding {
	const name = "pod ranges of nodes"
	nodes := &corev1.NodeList{}
	if err := c.client.List(ctx, nodes); err != nil {
		return topicRanges.unknown(name, err)
	}
	taken, virtual := 0, 0
	var without []string
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if node.Spec.PodCIDR == "" {
			if c.now().Sub(node.CreationTimestamp.Time) > rangeDelay {
				without = append(without, node.Name)
			}
			continue
		}
		taken++
		if node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			virtual++
		}
	}
	switch {
	case taken == 0:
		return topicRanges.skipped(name, "Kubernetes gives nodes no ranges here: the network plugin does that")
	case len(without) > 0:
		slices.Sort(without)
		return topicRanges.failed(name, "these have none, so the cluster's range is used up: "+some(without),
			"part from peers, or give kube-controller-manager a larger --cluster-cidr or a longer --node-cidr-mask-size")
	default:
		return topicRanges.ok(name, "%s", fmt.Sprintf("%s, of which virtual nodes take %d", count(taken, "range"), virtual))
	}
}
