// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// RealNodes returns the nodes of the cluster that are not virtual.
func (c *Cluster) RealNodes(ctx context.Context) ([]corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	var real []corev1.Node
	for _, node := range list.Items {
		if node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
			real = append(real, node)
		}
	}
	return real, nil
}

var columnGap = regexp.MustCompile(` {2,}`)

// OfferTable parses the output of kubectl hanse table: peer → column → cell.
func (c *Cluster) OfferTable(ctx context.Context) (map[string]map[string]string, error) {
	out, err := c.Hanse(ctx, "table", "-o", "wide")
	if err != nil {
		return nil, err
	}
	header, body, _ := strings.Cut(out, "\n")
	columns := columnGap.Split(header, -1)
	table := map[string]map[string]string{}
	for line := range strings.Lines(body) {
		cells := columnGap.Split(strings.TrimSpace(line), -1)
		if strings.HasPrefix(line, " ") || len(cells) != len(columns) {
			continue // a remark below the rows
		}
		row := map[string]string{}
		for i, column := range columns {
			row[column] = cells[i]
		}
		table[cells[0]] = row
	}
	return table, nil
}

// PreferredNodes returns the nodes that affinity and tolerations of the pod allow and that its affinity prefers to all others. A
// virtual node that is full for the pod is not among them.
func (c *Cluster) PreferredNodes(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil, errors.New("the pod has no affinity to nodes")
	}
	preferred, err := nodeaffinity.NewPreferredSchedulingTerms(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil {
		return nil, err
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, err
	}
	var best []string
	most := int64(math.MinInt64)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if suits, err := required.Match(node); err != nil || !suits || !toleratesNode(pod, node) {
			continue
		}
		switch score := preferred.Score(node); {
		case score > most:
			best, most = []string{node.Name}, score
		case score == most:
			best = append(best, node.Name)
		}
	}
	return best, nil
}

// toleratesNode reports whether the pod tolerates all taints of the node, except those that only make the node less preferred.
func toleratesNode(pod *corev1.Pod, node *corev1.Node) bool {
	isBinding := func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }
	_, untolerated := schedulinghelpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, isBinding, false)
	return !untolerated
}
