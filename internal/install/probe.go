package install

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// WaitOffloaded waits until new pods of the namespace are placed as its offloading says. Policies and their parameters
// take a moment to be acted on.
func (c Cluster) WaitOffloaded(ctx context.Context, namespace string, spec v1alpha1.NamespaceOffloadingSpec) error {
	return c.until(ctx, "new pods of namespace "+namespace+" to be placed by it", func(ctx context.Context) (bool, error) {
		return c.tryPod(ctx, namespace, func(pod *corev1.Pod) bool { return isPlaced(pod, spec) })
	})
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

// isPlaced reports whether the pod was changed as the strategy and the selector mean.
func isPlaced(pod *corev1.Pod, spec v1alpha1.NamespaceOffloadingSpec) bool {
	terms := requiredTerms(pod)
	if spec.Strategy == v1alpha1.StrategyLocal {
		return !toleratesVirtualNodes(pod) && speakOfVirtualNodes(terms)
	}
	return toleratesAs(pod, spec.Strategy) && sameRequirements(lastTerm(terms), spec.ClusterSelector)
}

func speakOfVirtualNodes(terms []corev1.NodeSelectorTerm) bool {
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == v1alpha1.LabelType
		})
	})
}

func toleratesVirtualNodes(pod *corev1.Pod) bool {
	return toleratesAs(pod, v1alpha1.StrategyRemote) || toleratesAs(pod, v1alpha1.StrategyLocalAndRemote)
}

func toleratesAs(pod *corev1.Pod, strategy v1alpha1.OffloadingStrategy) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		anyEffect := t.Effect == ""
		return t.Key == v1alpha1.TaintVirtualNode && anyEffect == (strategy == v1alpha1.StrategyRemote)
	})
}

func requiredTerms(pod *corev1.Pod) []corev1.NodeSelectorTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// lastTerm is the one that speaks of virtual nodes, as text, without the requirement that they are such.
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
	return found
}

func sameRequirements(got []string, selector *v1alpha1.ClusterSelector) bool {
	var want []string
	if selector != nil {
		for _, e := range selector.MatchExpressions {
			values := make([]string, 0, len(e.Values))
			for _, v := range e.Values {
				values = append(values, string(v))
			}
			want = append(want, requirementText(e.Key, string(e.Operator), values))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	return slices.Equal(got, want)
}

func requirementText(key, operator string, values []string) string {
	return key + " " + operator + " " + strings.Join(slices.Sorted(slices.Values(values)), ",")
}
