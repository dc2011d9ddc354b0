package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// WaitOffloaded waits until new pods of the namespace are placed as its offloading says, and as the manager has decided if
// there is something to decide. Policies and their parameters take a moment to be acted on.
func (c Cluster) WaitOffloaded(ctx context.Context, namespace string, spec v1alpha1.NamespaceOffloadingSpec) error {
	return c.until(ctx, "new pods of namespace "+namespace+" to be placed by it", func(ctx context.Context) (bool, error) {
		offloading := &v1alpha1.NamespaceOffloading{}
		key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}
		if err := c.Client.Get(ctx, key, offloading); err != nil {
			return false, fmt.Errorf("read NamespaceOffloading %s: %w", key, err)
		}
		wishes := spec.Placement != nil && spec.Strategy != v1alpha1.StrategyLocal
		if wishes && !isDecided(offloading) {
			return false, nil
		}
		return c.tryPod(ctx, namespace, func(pod *corev1.Pod) bool { return isPlaced(pod, spec, offloading.Status.Placement) })
	})
}

// isDecided reports whether somebody has looked at the wishes as they are now. That no cluster fits is a decision too.
func isDecided(offloading *v1alpha1.NamespaceOffloading) bool {
	placed := meta.FindStatusCondition(offloading.Status.Conditions, v1alpha1.ConditionPlaced)
	return placed != nil && placed.ObservedGeneration >= offloading.Generation
}

// WaitAtHome waits until new pods of the namespace are placed as if there were no Hanse.
func (c Cluster) WaitAtHome(ctx context.Context, namespace string) error {
	return c.until(ctx, "new pods of namespace "+namespace+" to stay at home", func(ctx context.Context) (bool, error) {
		return c.tryPod(ctx, namespace, func(pod *corev1.Pod) bool {
			return !speakOfVirtualNodes(requiredTerms(pod)) && !toleratesVirtualNodes(pod)
		})
	})
}

// tryPod asks what would become of a pod, which is not made. Whoever may not make pods there, or such ones, cannot ask
// and need not wait.
func (c Cluster) tryPod(ctx context.Context, namespace string, isRight func(*corev1.Pod) bool) (bool, error) {
	probe := probePod(namespace)
	err := c.Client.Create(ctx, probe, client.DryRunAll)
	if refusesPods(err) {
		return true, nil
	}
	return err == nil && isRight(probe), err
}

func refusesPods(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}

// probePod is a pod that any namespace takes. It is never made.
func probePod(namespace string) *corev1.Pod {
	no, yes := false, true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "hanse-probe-"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   &yes,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:  "probe",
				Image: "probe",
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no,
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// isPlaced reports whether the pod was changed as the strategy, the selector and what was decided mean.
func isPlaced(pod *corev1.Pod, spec v1alpha1.NamespaceOffloadingSpec, decided *v1alpha1.NamespacePlacementStatus) bool {
	if decided == nil {
		decided = &v1alpha1.NamespacePlacementStatus{}
	}
	terms := requiredTerms(pod)
	if spec.Strategy == v1alpha1.StrategyLocal {
		return !toleratesVirtualNodes(pod) && speakOfVirtualNodes(terms)
	}
	mustLeave := spec.Strategy == v1alpha1.StrategyRemote
	return toleratesAs(pod, !mustLeave && !decided.PrefersRemote) && mustLeave == areAllAway(terms) &&
		slices.Equal(lastTerm(terms), requirements(spec, &decided.PlacementStatus))
}

// areAllAway reports whether none of the terms matches a node of this cluster.
func areAllAway(terms []corev1.NodeSelectorTerm) bool {
	away := func(e corev1.NodeSelectorRequirement) bool {
		return e.Key == v1alpha1.LabelType && e.Operator == corev1.NodeSelectorOpIn
	}
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, away)
	})
}

func speakOfVirtualNodes(terms []corev1.NodeSelectorTerm) bool {
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == v1alpha1.LabelType
		})
	})
}

func toleratesVirtualNodes(pod *corev1.Pod) bool {
	return toleratesAs(pod, true) || toleratesAs(pod, false)
}

// toleratesAs reports whether the pod may go to virtual nodes: only behind real ones, or as to any node.
func toleratesAs(pod *corev1.Pod, homeFirst bool) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == v1alpha1.TaintVirtualNode && homeFirst == (t.Effect == corev1.TaintEffectNoSchedule)
	})
}

func requiredTerms(pod *corev1.Pod) []corev1.NodeSelectorTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// lastTerm is the one that speaks of virtual nodes, as sorted text, without the requirement that they are such.
func lastTerm(terms []corev1.NodeSelectorTerm) []string {
	if len(terms) == 0 {
		return nil
	}
	var found []string
	for _, e := range terms[len(terms)-1].MatchExpressions {
		if e.Key != v1alpha1.LabelType {
			found = append(found, requirementText(e.Key, string(e.Operator), e.Values))
		}
	}
	slices.Sort(found)
	return found
}

// requirements are what a virtual node has to meet, as sorted text.
func requirements(spec v1alpha1.NamespaceOffloadingSpec, decided *v1alpha1.PlacementStatus) []string {
	var want []string
	if spec.ClusterSelector != nil {
		for _, e := range spec.ClusterSelector.MatchExpressions {
			values := make([]string, 0, len(e.Values))
			for _, v := range e.Values {
				values = append(values, string(v))
			}
			want = append(want, requirementText(e.Key, string(e.Operator), values))
		}
	}
	if excluded := excludedPeers(spec.Placement, decided); len(excluded) > 0 {
		want = append(want, requirementText(v1alpha1.LabelPeer, string(corev1.NodeSelectorOpNotIn), excluded))
	}
	if decided.Strict {
		only := []string{v1alpha1.ReasonNoClusterFits} // which no label has
		if len(decided.Only) > 0 {
			only = peersOf(decided.Only)
		}
		want = append(want, requirementText(v1alpha1.LabelPeer, string(corev1.NodeSelectorOpIn), only))
	}
	slices.Sort(want)
	return want
}

func excludedPeers(wish *v1alpha1.NamespacePlacement, decided *v1alpha1.PlacementStatus) []string {
	var nodes []string
	for _, node := range decided.Nodes {
		if node.Excluded != "" {
			nodes = append(nodes, node.Name)
		}
	}
	excluded := peersOf(nodes)
	if wish != nil {
		excluded = append(excluded, wish.Exclude...)
	}
	slices.Sort(excluded)
	return slices.Compact(excluded)
}

// peersOf are the names of the Peers that virtual nodes stand for.
func peersOf(nodes []string) []string {
	var peers []string
	for _, node := range nodes {
		peers = append(peers, strings.TrimPrefix(node, v1alpha1.VirtualNodePrefix))
	}
	return peers
}

func requirementText(key, operator string, values []string) string {
	return key + " " + operator + " " + strings.Join(slices.Sorted(slices.Values(values)), ",")
}
