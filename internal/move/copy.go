// SPDX-License-Identifier: Apache-2.0

package move

import (
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// maxBase is how much of a name is kept before what tells copies apart, as where the API server makes names.
const maxBase = 54

// CopyName returns the name of the copy. It depends on the move alone, so that no second copy is made by mistake.
func CopyName(m *v1alpha1.PodMove, owner *v1alpha1.MoveOwner) string {
	if m.Status.Method == v1alpha1.MoveDeleteFirst {
		return m.Spec.Pod.Name
	}
	base := m.Spec.Pod.Name
	if owner != nil {
		base = owner.Name
	}
	sum := sha256.Sum256([]byte(m.UID))
	suffix := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
	return strings.TrimRight(base[:min(len(base), maxBase)], "-.") + "-" + suffix
}

// Copy returns the pod that is to take the place of the original. For an owner it is what the owner itself would make, without
// the label of HiddenLabel, so that the owner does not count it yet; what was resized keeps its size. Without an owner it is what
// somebody would have to create to get the original once more.
func Copy(m *v1alpha1.PodMove, original *corev1.Pod, owner *Owner, services []corev1.Service) *corev1.Pod {
	pod := again(original)
	if owner != nil {
		template := owner.Template.DeepCopy()
		pod.Labels, pod.Annotations, pod.Finalizers, pod.Spec = template.Labels, template.Annotations, template.Finalizers, template.Spec
		keepSizes(pod.Spec.Containers, original.Spec.Containers)
		delete(pod.Labels, HiddenLabel(owner.Selector, pod.Labels, services))
		pod.Name = CopyName(m, &owner.MoveOwner)
	} else {
		pod.Name = CopyName(m, nil)
	}
	belong(pod, m)
	direct(&pod.Spec, m, original.Spec.NodeName)
	return pod
}

// again returns what somebody would have to create to get the pod once more.
func again(original *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: original.Name, Labels: metadataOf(original.Labels), Annotations: metadataOf(original.Annotations)},
		Spec:       *specOf(&original.Spec),
	}
}

// belong has the pod be the PodMove's.
func belong(pod *corev1.Pod, m *v1alpha1.PodMove) {
	pod.Namespace = m.Namespace
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationMove, string(m.UID))
	// The PodMove is no controller of the pod: PodDisruptionBudgets know only some kinds of those.
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodMove", Name: m.Name, UID: m.UID,
	}}
}

// keepSizes gives containers the resources of those of the same name, which may have been resized.
func keepSizes(containers, of []corev1.Container) {
	for i := range containers {
		at := slices.IndexFunc(of, func(c corev1.Container) bool { return c.Name == containers[i].Name })
		if at >= 0 {
			containers[i].Resources = *of[at].Resources.DeepCopy()
		}
	}
}

// metadataOf leaves out what is Hanse's own, and what only holds for the one pod.
func metadataOf(entries map[string]string) map[string]string {
	kept := maps.Clone(entries)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		ownWord := key == v1alpha1.AnnotationPrefer || key == v1alpha1.AnnotationExclude || key == v1alpha1.AnnotationSkipToken
		return v1alpha1.IsOwn(key) && !ownWord || key == corev1.LastAppliedConfigAnnotation || key == corev1.PodDeletionCost ||
			strings.HasSuffix(key, ".cni.cncf.io/network-status") || strings.HasPrefix(key, "cni.projectcalico.org/")
	})
	return kept
}

// specOf leaves out what the API server and the scheduler have added.
func specOf(original *corev1.PodSpec) *corev1.PodSpec {
	spec := original.DeepCopy()
	spec.NodeName, spec.EphemeralContainers, spec.SchedulingGates = "", nil, nil
	spec.Priority, spec.PreemptionPolicy, spec.Overhead = nil, nil, nil // admission works them out from the classes
	tokens := generatedTokens(spec.Volumes)
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return tokens[v.Name] })
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return tokens[m.Name] })
		}
	}
	spec.Tolerations = slices.DeleteFunc(spec.Tolerations, func(t corev1.Toleration) bool {
		ofTheSystem := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		return ofTheSystem && t.Operator == corev1.TolerationOpExists && t.Effect == corev1.TaintEffectNoExecute
	})
	forgetNode(spec.Affinity)
	return spec
}

// generatedTokens are the volumes that admission adds to every pod that does not decline.
func generatedTokens(volumes []corev1.Volume) map[string]bool {
	tokens := map[string]bool{}
	for i := range volumes {
		if volumes[i].Projected != nil && strings.HasPrefix(volumes[i].Name, "kube-api-access-") {
			tokens[volumes[i].Name] = true
		}
	}
	return tokens
}

// forgetNode takes off what an earlier move has asked for, and what is in a list twice: each time admission adds the preferences of the
// namespace, and multiplies the alternatives of the pod by those of the namespace, which may be others by now.
func forgetNode(affinity *corev1.Affinity) {
	if affinity == nil || affinity.NodeAffinity == nil {
		return
	}
	preferred := &affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	*preferred = distinct(slices.DeleteFunc(*preferred, func(t corev1.PreferredSchedulingTerm) bool {
		return slices.ContainsFunc(t.Preference.MatchFields, isNodeName)
	}))
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return
	}
	var terms []corev1.NodeSelectorTerm
	for _, term := range required.NodeSelectorTerms {
		term.MatchFields = slices.DeleteFunc(term.MatchFields, isNodeName)
		term.MatchExpressions = distinct(slices.DeleteFunc(term.MatchExpressions, isOfStrategy))
		if len(term.MatchFields)+len(term.MatchExpressions) == 0 { // any node will do
			affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			return
		}
		terms = append(terms, term)
	}
	required.NodeSelectorTerms = distinct(terms)
}

// isOfStrategy says whether admission has added the requirement because the pod was to run at a peer. It adds what holds now once more.
func isOfStrategy(r corev1.NodeSelectorRequirement) bool {
	return r.Key == v1alpha1.LabelType && r.Operator == corev1.NodeSelectorOpIn || r.Key == v1alpha1.LabelPeer && r.Operator == corev1.NodeSelectorOpNotIn
}

func isNodeName(r corev1.NodeSelectorRequirement) bool { return r.Key == metav1.ObjectNameField }

// nodeName is met by the node of that name alone, or, with NotIn, by any other.
func nodeName(is corev1.NodeSelectorOperator, name string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: is, Values: []string{name}}
}

func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	return spec.Affinity.NodeAffinity
}

// direct sends the pod from its node to its destination.
func direct(spec *corev1.PodSpec, m *v1alpha1.PodMove, from string) {
	node := m.Spec.Destination.NodeName()
	if m.Spec.Bind == v1alpha1.BindAtCreation {
		spec.NodeName = node
		return
	}
	required := &nodeAffinity(spec).RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil || len((*required).NodeSelectorTerms) == 0 {
		*required = &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 1)}
	}
	for i := range (*required).NodeSelectorTerms {
		term := &(*required).NodeSelectorTerms[i]
		if node != "" {
			term.MatchFields = append(term.MatchFields, nodeName(corev1.NodeSelectorOpIn, node))
		}
		if m.Spec.Destination.Elsewhere != "" {
			term.MatchFields = append(term.MatchFields, nodeName(corev1.NodeSelectorOpNotIn, from))
		}
		for _, key := range slices.Sorted(maps.Keys(m.Spec.Destination.NodeSelector)) {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{string(m.Spec.Destination.NodeSelector[key])},
			})
		}
	}
}

// distinct returns the items without those that are in the list before.
func distinct[T any](items []T) []T {
	var kept []T
	for i := range items {
		if !slices.ContainsFunc(kept, func(k T) bool { return equality.Semantic.DeepEqual(k, items[i]) }) {
			kept = append(kept, items[i])
		}
	}
	return kept
}
