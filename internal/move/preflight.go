// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	helpers "k8s.io/component-helpers/resource"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Cause is why something is so: a reason of conditions, and a text that says what to do about it.
type Cause struct{ Reason, Message string }

// Place is what there is at the destination and around it.
type Place struct {
	// Nodes are those that the destination allows.
	Nodes []Node
	// Asks is what the pod asks for, and itself, counted as for the nodes.
	Asks corev1.ResourceList
	// Offloading is that of the namespace, nil if there is none.
	Offloading *v1alpha1.NamespaceOffloading
	// Claims are the claims of the pod that have volumes, with these.
	Claims []Claim
	// Quotas and Budgets are those of the namespace.
	Quotas  []corev1.ResourceQuota
	Budgets []policyv1.PodDisruptionBudget

	allows nodeaffinity.RequiredNodeAffinity // what the pod itself says about nodes; as it is, it allows all
}

// Node is a node, with what pods there ask for together.
type Node struct {
	*corev1.Node
	Ready bool
	Asked corev1.ResourceList
}

// Claim is a claim of the pod, with its volume.
type Claim struct {
	Name        string
	AccessModes []corev1.PersistentVolumeAccessMode
	Volume      *corev1.PersistentVolume // nil if it has none yet
}

// CheckPod says why the pod itself cannot be moved, or returns nil.
func CheckPod(m *v1alpha1.PodMove, original *corev1.Pod) *Cause {
	switch {
	case original == nil:
		return &Cause{v1alpha1.ReasonPodNotFound, fmt.Sprintf("There is no pod %s with UID %s", m.Spec.Pod.Name, m.Spec.Pod.UID)}
	case !isActive(original) || original.Spec.NodeName == "" || original.Status.Phase != corev1.PodRunning:
		return &Cause{v1alpha1.ReasonPodNotRunning, fmt.Sprintf("Pod %s does not run, so there is nothing to move", original.Name)}
	case original.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return &Cause{v1alpha1.ReasonUnsupportedOwner, fmt.Sprintf("Pod %s is a mirror of a file on its node, and cannot leave that", original.Name)}
	}
	switch owner := metav1.GetControllerOf(original); {
	case owner != nil && owner.Kind == "DaemonSet":
		return &Cause{v1alpha1.ReasonUnsupportedOwner, "Pods of a DaemonSet cannot be moved, since each belongs to its node"}
	case len(methods(m, owner)) > 0:
		return nil
	case owner == nil:
		return &Cause{v1alpha1.ReasonUnsupportedOwner, fmt.Sprintf("Pod %s has no controller that would make another one when it is evicted: only methods Surge and DeleteFirst move it", original.Name)}
	case m.Spec.Method == v1alpha1.MoveDeleteFirst:
		return &Cause{v1alpha1.ReasonUnsupportedOwner, fmt.Sprintf(
			"The %s of pod %s makes another pod in its place at once: use method Steer, which sends that one to the destination, or Surge", owner.Kind, original.Name)}
	default:
		return &Cause{v1alpha1.ReasonUnsupportedOwner, fmt.Sprintf(
			"Pods of a %s cannot have a copy that runs beside the original: only method Steer moves them, with bind Scheduler", owner.Kind)}
	}
}

// Preflight returns the first method that fits. If none does, it says what stands against the move, the weightiest first. The owner
// is nil for a pod without one.
func Preflight(m *v1alpha1.PodMove, original *corev1.Pod, owner *Owner, place Place) (v1alpha1.MoveMethod, []Cause) {
	if cause := CheckPod(m, original); cause != nil {
		return "", []Cause{*cause}
	}
	var all []Cause
	for _, method := range methods(m, metav1.GetControllerOf(original)) {
		found := checks[method](m, original, owner, place)
		if len(found) == 0 {
			return method, nil
		}
		all = append(all, found...)
	}
	return "", distinct(all)
}

// checks are what each method needs.
var checks = map[v1alpha1.MoveMethod]func(*v1alpha1.PodMove, *corev1.Pod, *Owner, Place) []Cause{
	v1alpha1.MoveSurge: checkSurge, v1alpha1.MoveSteer: checkSteer, v1alpha1.MoveDeleteFirst: checkDeleteFirst,
}

// checkSurge says what stands against a copy beside the original.
func checkSurge(m *v1alpha1.PodMove, original *corev1.Pod, owner *Owner, place Place) []Cause {
	found := checkOwner(owner)
	if owner != nil && HiddenLabel(owner.Selector, owner.Template.Labels, nil) == "" {
		found = append(found, Cause{v1alpha1.ReasonUnsupportedOwner, fmt.Sprintf(
			"The selector of %s %s matches pods without any label, so that no copy can be kept out of its sight", owner.Kind, owner.Name)})
	}
	found = append(found, checkPlace(m, original, Copy(m, original, owner, nil), place)...)
	for _, claim := range place.Claims {
		if !isShared(claim) {
			found = append(found, Cause{v1alpha1.ReasonVolumeStays, fmt.Sprintf(
				"Claim %s can be used on one node at a time, so that no copy can start while the original runs", claim.Name)})
		}
	}
	return append(found, checkQuotas(original, nil, place.Quotas)...)
}

// checkSteer says what stands against the eviction of the original, and against another pod like it at the destination.
func checkSteer(m *v1alpha1.PodMove, original *corev1.Pod, owner *Owner, place Place) []Cause {
	found := checkOwner(owner)
	if owner.Unforgiving != "" {
		found = append(found, Cause{v1alpha1.ReasonUnsupportedOwner, owner.Unforgiving})
	}
	found = append(found, checkPlace(m, original, original, place)...)
	return append(found, checkBudgets(original, place.Budgets)...)
}

// checkDeleteFirst says what stands against a pod like the original that is made when that is gone.
func checkDeleteFirst(m *v1alpha1.PodMove, original *corev1.Pod, _ *Owner, place Place) []Cause {
	wanted := again(original)
	place.allows = nodeaffinity.GetRequiredNodeAffinity(wanted)
	found := checkPlace(m, original, wanted, place)
	if size := len(Record(original)); size > MaxRecord {
		found = append(found, Cause{v1alpha1.ReasonPodTooLarge, fmt.Sprintf(
			"Pod %s has %d bytes, and the PodMove keeps at most %d of a pod while there is none", original.Name, size, MaxRecord)})
	}
	found = append(found, checkQuotas(original, original, place.Quotas)...)
	return append(found, checkBudgets(original, place.Budgets)...)
}

func checkOwner(owner *Owner) []Cause {
	if owner == nil || owner.Busy == "" {
		return nil
	}
	return []Cause{{v1alpha1.ReasonRolloutUnderWay, owner.Busy}}
}

// checkPlace says nothing if the pod can run on one of the nodes.
func checkPlace(m *v1alpha1.PodMove, original, pod *corev1.Pod, place Place) []Cause {
	var found []Cause
	for _, node := range place.Nodes {
		if node.Name == original.Spec.NodeName && m.Spec.Destination.Elsewhere != "" {
			continue
		}
		if node.Name == original.Spec.NodeName {
			found = append(found, Cause{v1alpha1.ReasonAlreadyThere, fmt.Sprintf("Pod %s runs on node %s already", original.Name, node.Name)})
			continue
		}
		causes := checkNode(m, pod, node, place)
		if len(causes) == 0 && !slices.ContainsFunc(found, func(c Cause) bool { return c.Reason == v1alpha1.ReasonAlreadyThere }) {
			return nil
		}
		found = append(found, causes...)
	}
	if len(found) == 0 {
		return []Cause{{v1alpha1.ReasonNodeNotFound, fmt.Sprintf("There is no node %s", describe(m.Spec.Destination))}}
	}
	// Where there are many nodes, what is wrong with the first of them is enough.
	slices.SortStableFunc(found, func(a, b Cause) int {
		return falseFirst(a.Reason != v1alpha1.ReasonAlreadyThere, b.Reason != v1alpha1.ReasonAlreadyThere)
	})
	const most = 3
	return found[:min(len(found), most)]
}

func describe(to v1alpha1.MoveDestination) string {
	if name := to.NodeName(); name != "" {
		return name
	}
	if to.Elsewhere != "" {
		return "but its own"
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(to.NodeSelector)) {
		pairs = append(pairs, key+"="+string(to.NodeSelector[key]))
	}
	return "with " + strings.Join(pairs, ",")
}

// checkNode says what stands against the copy on that node.
func checkNode(m *v1alpha1.PodMove, pod *corev1.Pod, node Node, place Place) []Cause {
	var found []Cause
	add := func(reason, format string, values ...any) {
		found = append(found, Cause{reason, fmt.Sprintf(format, values...)})
	}
	if !node.Ready {
		add(v1alpha1.ReasonNodeNotReady, "Node %s is not Ready", node.Name)
	}
	byScheduler := m.Spec.Bind != v1alpha1.BindAtCreation
	if node.Spec.Unschedulable && byScheduler {
		add(v1alpha1.ReasonNodeClosed, "Node %s is cordoned: kubectl uncordon %s", node.Name, node.Name)
	}
	isVirtual := node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
	if why := notOffloaded(m.Namespace, isVirtual, place.Offloading); why != "" && (byScheduler || isVirtual) {
		add(v1alpha1.ReasonNotOffloaded, "%s", why)
	}
	if fits, err := place.allows.Match(node.Node); !fits || err != nil {
		add(v1alpha1.ReasonNodeClosed, "The node selector or the affinity of the pod does not allow node %s", node.Name)
	}
	if taint := repels(node.Node, pod, byScheduler); taint != nil {
		add(v1alpha1.ReasonNodeClosed, "Node %s has taint %s, which the pod does not tolerate", node.Name, taint.ToString())
	}
	if short := shortOf(place.Asks, node); short != "" {
		add(v1alpha1.ReasonNodeFull, "Node %s has no room for the pod: too little %s", node.Name, short)
	}
	return append(found, checkClaims(m, node.Node, place.Claims)...)
}

// repels returns a taint that the pod does not tolerate, nil if there is none. Past the scheduler those alone count that would evict
// the pod.
func repels(node *corev1.Node, pod *corev1.Pod, byScheduler bool) *corev1.Taint {
	taint, found := schedulinghelpers.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		if t.Key == v1alpha1.TaintVirtualNode || t.Key == v1alpha1.TaintFull || t.Key == corev1.TaintNodeUnschedulable {
			return false // admission has the copy tolerate the first two, and the third is said elsewhere
		}
		return t.Effect == corev1.TaintEffectNoExecute || byScheduler && t.Effect == corev1.TaintEffectNoSchedule
	}, false)
	if !found {
		return nil
	}
	return &taint
}

// notOffloaded says why new pods of the namespace do not get onto a node of that kind.
func notOffloaded(namespace string, isVirtual bool, offloading *v1alpha1.NamespaceOffloading) string {
	strategy := v1alpha1.StrategyLocal
	if offloading != nil {
		strategy = offloading.Spec.Strategy
	}
	switch {
	case isVirtual && offloading == nil:
		return fmt.Sprintf("Namespace %s is not offloaded: kubectl hanse offload %s", namespace, namespace)
	case isVirtual && strategy == v1alpha1.StrategyLocal:
		return fmt.Sprintf("Namespace %s keeps its pods at home (strategy Local)", namespace)
	case !isVirtual && strategy == v1alpha1.StrategyRemote:
		return fmt.Sprintf("Namespace %s has its pods run in other clusters alone (strategy Remote)", namespace)
	}
	return ""
}

// shortOf names the first resource of which the node has too little left.
func shortOf(asked corev1.ResourceList, node Node) string {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		need := asked[name].DeepCopy() // a large one shares its digits
		wanted := !need.IsZero()
		need.Add(node.Asked[name])
		if wanted && need.Cmp(node.Status.Allocatable[name]) > 0 {
			return string(name)
		}
	}
	return ""
}

// isShared says whether pods on several nodes can use the claim at once.
func isShared(claim Claim) bool {
	return slices.ContainsFunc(claim.AccessModes, func(mode corev1.PersistentVolumeAccessMode) bool {
		return mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany
	})
}

// checkClaims says which volumes the copy cannot have there.
func checkClaims(m *v1alpha1.PodMove, node *corev1.Node, claims []Claim) []Cause {
	var found []Cause
	for _, claim := range claims {
		switch {
		case claim.Volume == nil && m.Spec.Bind == v1alpha1.BindAtCreation:
			found = append(found, Cause{v1alpha1.ReasonVolumeStays, fmt.Sprintf("Claim %s gets its volume from the scheduler, so bind must be Scheduler", claim.Name)})
		case claim.Volume != nil && !reaches(claim.Volume, node):
			found = append(found, Cause{v1alpha1.ReasonVolumeStays, fmt.Sprintf("The volume of claim %s is not reached from node %s", claim.Name, node.Name)})
		}
	}
	return found
}

// reaches says whether the volume may be used on the node. Those that are at a peer say so.
func reaches(volume *corev1.PersistentVolume, node *corev1.Node) bool {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode
	}
	selector, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
	return err == nil && selector.Match(node)
}

// counted is what quotas count of the pod.
func counted(pod *corev1.Pod) corev1.ResourceList {
	all := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1"), "count/pods": resource.MustParse("1")}
	for name, amount := range helpers.PodRequests(pod, helpers.PodResourcesOptions{}) {
		all["requests."+name] = amount
		all[name] = amount
	}
	for name, amount := range helpers.PodLimits(pod, helpers.PodResourcesOptions{}) {
		all["limits."+name] = amount
	}
	return all
}

// checkQuotas says which quota leaves no room for one more such pod, when the other one, nil without one, is gone.
func checkQuotas(pod, gone *corev1.Pod, quotas []corev1.ResourceQuota) []Cause {
	more, less := counted(pod), corev1.ResourceList{}
	if gone != nil {
		less = counted(gone)
	}
	var found []Cause
	for i := range quotas {
		if len(quotas[i].Spec.Scopes) > 0 || quotas[i].Spec.ScopeSelector != nil {
			continue // the API server knows whether it is for this pod
		}
		for _, name := range slices.Sorted(maps.Keys(quotas[i].Status.Hard)) {
			amount, asked := more[name]
			amount.Add(quotas[i].Status.Used[name])
			amount.Sub(less[name])
			if hard := quotas[i].Status.Hard[name]; asked && amount.Cmp(hard) > 0 {
				found = append(found, Cause{v1alpha1.ReasonQuotaExceeded, fmt.Sprintf(
					"ResourceQuota %s leaves no room for one more such pod: too little %s", quotas[i].Name, name)})
			}
		}
	}
	return found
}

// checkBudgets says which budgets never let the pod be evicted. One that does not right now is waited for.
func checkBudgets(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) []Cause {
	var found []Cause
	var names []string
	for i := range budgets {
		budget := &budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		names = append(names, budget.Name)
		if budget.Status.ExpectedPods > 0 && budget.Status.DesiredHealthy >= budget.Status.ExpectedPods {
			found = append(found, Cause{v1alpha1.ReasonEvictionBlocked, fmt.Sprintf("PodDisruptionBudget %s wants all its pods, and lets none be evicted", budget.Name)})
		}
	}
	if len(names) > 1 {
		slices.Sort(names)
		found = append(found, Cause{v1alpha1.ReasonEvictionBlocked, fmt.Sprintf("Kubernetes evicts no pod that several PodDisruptionBudgets select: %s", strings.Join(names, ", "))})
	}
	return found
}

// Selects says whether the destination allows the node.
func Selects(to v1alpha1.MoveDestination, node *corev1.Node) bool {
	if name := to.NodeName(); name != "" {
		return node.Name == name
	}
	for key, value := range to.NodeSelector {
		if has, found := node.Labels[key]; !found || has != string(value) {
			return false
		}
	}
	return true
}
