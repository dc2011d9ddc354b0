// SPDX-License-Identifier: Apache-2.0

package move

import (
	stdcmp "cmp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func amounts(cpu, pods string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse(pods)}
}

func readyNode(name string) Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a"}}}
	node.Status.Allocatable = amounts("4", "10")
	return Node{Node: node, Ready: true, Asked: amounts("2", "3")}
}

// trip is a move to node there, against which nothing stands.
type trip struct {
	move     *v1alpha1.PodMove
	original *corev1.Pod
	owner    *Owner
	place    Place
}

func (p *trip) node() *corev1.Node { return p.place.Nodes[0].Node }

func (p *trip) becomesVirtual() {
	p.node().Labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode
	p.node().Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintVirtualNode, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
}

func (p *trip) offloads(strategy v1alpha1.OffloadingStrategy) {
	p.place.Offloading = &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: strategy}}
}

func (p *trip) claims(modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{}
	p.place.Claims = []Claim{{Name: "data", AccessModes: modes, Volume: volume}}
	return volume
}

func (p *trip) controlledBy(version, kind string) {
	p.original.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Controller: ptr.To(true)}}
}

func TestPreflight(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*trip)
		want   []string            // the reasons
		method v1alpha1.MoveMethod // Surge if it is ""
	}{
		"nothing stands against it": {change: func(*trip) {}},
		"there is no such pod":      {change: func(p *trip) { p.original = nil }, want: []string{v1alpha1.ReasonPodNotFound}},
		"the pod is pending":        {change: func(p *trip) { pending(p.original) }, want: []string{v1alpha1.ReasonPodNotRunning}},
		"the pod is going":          {change: func(p *trip) { ending(p.original) }, want: []string{v1alpha1.ReasonPodNotRunning}},
		"a mirror pod":              {change: func(p *trip) { p.original.Annotations[corev1.MirrorPodAnnotationKey] = "x" }, want: []string{v1alpha1.ReasonUnsupportedOwner}},
		"a pod of a DaemonSet":      {change: func(p *trip) { p.controlledBy("apps/v1", "DaemonSet") }, want: []string{v1alpha1.ReasonUnsupportedOwner}},
		"a pod of a StatefulSet":    {change: func(p *trip) { p.controlledBy("apps/v1", "StatefulSet") }, method: v1alpha1.MoveSteer},
		"another's ReplicaSet":      {change: func(p *trip) { p.controlledBy("example.org/v1", "ReplicaSet") }, method: v1alpha1.MoveSteer},
		"a StatefulSet's pod past the scheduler": {change: func(p *trip) {
			p.controlledBy("apps/v1", "StatefulSet")
			p.move.Spec.Bind = v1alpha1.BindAtCreation
		}, want: []string{v1alpha1.ReasonUnsupportedOwner}},
		"a StatefulSet's pod with a copy": {change: func(p *trip) {
			p.controlledBy("apps/v1", "StatefulSet")
			p.move.Spec.Method = v1alpha1.MoveSurge
		}, want: []string{v1alpha1.ReasonUnsupportedOwner}},
		"a pod that nobody would make again": {change: func(p *trip) { p.move.Spec.Method = v1alpha1.MoveSteer }, want: []string{v1alpha1.ReasonUnsupportedOwner}},
		"a Job without retries": {change: func(p *trip) {
			p.controlledBy("batch/v1", "Job")
			p.owner.Unforgiving = "Job x has no retry left"
		}, want: []string{v1alpha1.ReasonUnsupportedOwner}},
		"a ReplicaSet's pod as it is asked for": {change: func(p *trip) {
			p.controlledBy("apps/v1", "ReplicaSet")
			p.move.Spec.Method = v1alpha1.MoveSteer
		}, method: v1alpha1.MoveSteer},
		"a ReplicaSet's volume for one node": {change: func(p *trip) {
			p.controlledBy("apps/v1", "ReplicaSet")
			p.claims(corev1.ReadWriteOnce)
		}, method: v1alpha1.MoveSteer},
		"a volume for one node that is not at the peer": {change: func(p *trip) {
			p.controlledBy("apps/v1", "StatefulSet")
			p.becomesVirtual()
			p.offloads(v1alpha1.StrategyLocalAndRemote)
			p.claims(corev1.ReadWriteOnce)
		}, want: []string{v1alpha1.ReasonVolumeStays}},
		"a ReplicaSet without quota for one more": {change: func(p *trip) {
			p.controlledBy("apps/v1", "ReplicaSet")
			p.quota("pods", "5", "5")
		}, method: v1alpha1.MoveSteer},
		"one whose pods must stay": {change: func(p *trip) {
			p.controlledBy("apps/v1", "ReplicaSet")
			p.quota("pods", "5", "5")
			p.budget(2, 2)
		}, want: []string{v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonEvictionBlocked}},
		"one with two budgets": {change: func(p *trip) {
			p.controlledBy("apps/v1", "StatefulSet")
			p.budget(2, 1)
			p.budget(2, 1)
		}, want: []string{v1alpha1.ReasonEvictionBlocked}},
		"a budget that lets one go": {change: func(p *trip) {
			p.controlledBy("apps/v1", "StatefulSet")
			p.budget(2, 1)
		}, method: v1alpha1.MoveSteer},
		"a closed node is said once for both methods": {change: func(p *trip) {
			p.controlledBy("apps/v1", "ReplicaSet")
			p.node().Spec.Unschedulable = true
		}, want: []string{v1alpha1.ReasonNodeClosed}},
		"a ReplicationController":             {change: func(p *trip) { p.controlledBy("v1", "ReplicationController") }},
		"a rollout":                           {change: func(p *trip) { p.controlledBy("apps/v1", "ReplicaSet"); p.owner.Busy = "Deployment web rolls out" }, want: []string{v1alpha1.ReasonRolloutUnderWay}},
		"a selector without labels":           {change: func(p *trip) { p.move.Spec.Method = v1alpha1.MoveSurge; p.owner.Selector = selector(t, "!gone") }, want: []string{v1alpha1.ReasonUnsupportedOwner}},
		"a bare pod that is to keep its name": {change: func(p *trip) { p.move.Spec.Method = v1alpha1.MoveDeleteFirst }, method: v1alpha1.MoveDeleteFirst},
		"one past the scheduler": {change: func(p *trip) {
			p.move.Spec.Method, p.move.Spec.Bind = v1alpha1.MoveDeleteFirst, v1alpha1.BindAtCreation
		}, method: v1alpha1.MoveDeleteFirst},
		"one with another node in its affinity": {change: func(p *trip) {
			p.move.Spec.Method = v1alpha1.MoveDeleteFirst
			p.original.Spec.NodeSelector = map[string]string{"zone": "b"}
		}, want: []string{v1alpha1.ReasonNodeClosed}},
		"one that an earlier move has sent elsewhere": {change: func(p *trip) {
			p.move.Spec.Method = v1alpha1.MoveDeleteFirst
			p.original.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: toNode("here")}}
		}, method: v1alpha1.MoveDeleteFirst},
		"one that must stay": {change: func(p *trip) {
			p.move.Spec.Method = v1alpha1.MoveDeleteFirst
			p.budget(1, 1)
		}, want: []string{v1alpha1.ReasonEvictionBlocked}},
		"one that is too large": {change: func(p *trip) {
			p.move.Spec.Method = v1alpha1.MoveDeleteFirst
			p.original.Annotations["note"] = strings.Repeat("x", MaxRecord)
		}, want: []string{v1alpha1.ReasonPodTooLarge}},
		"a pod that its owner would make again elsewhere": {change: func(p *trip) {
			p.controlledBy("apps/v1", "ReplicaSet")
			p.move.Spec.Method = v1alpha1.MoveDeleteFirst
		}, want: []string{v1alpha1.ReasonUnsupportedOwner}},

		"there is no such node":                    {change: func(p *trip) { p.place.Nodes = nil }, want: []string{v1alpha1.ReasonNodeNotFound}},
		"the pod is there already":                 {change: func(p *trip) { p.original.Spec.NodeName = "there" }, want: []string{v1alpha1.ReasonAlreadyThere}},
		"a node that is not Ready":                 {change: func(p *trip) { p.place.Nodes[0].Ready = false }, want: []string{v1alpha1.ReasonNodeNotReady}},
		"a cordoned node":                          {change: func(p *trip) { p.node().Spec.Unschedulable = true }, want: []string{v1alpha1.ReasonNodeClosed}},
		"past the scheduler, which would not care": {change: func(p *trip) { p.node().Spec.Unschedulable, p.move.Spec.Bind = true, v1alpha1.BindAtCreation }},
		"a tainted node": {change: func(p *trip) {
			p.node().Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, want: []string{v1alpha1.ReasonNodeClosed}},
		"one whose taint would evict it": {change: func(p *trip) {
			p.node().Spec.Taints, p.move.Spec.Bind = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoExecute}}, v1alpha1.BindAtCreation
		}, want: []string{v1alpha1.ReasonNodeClosed}},
		"a taint that the pod tolerates": {change: func(p *trip) {
			p.node().Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			p.owner.Template.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		}},
		"a full node":               {change: func(p *trip) { p.place.Nodes[0].Asked = amounts("3500m", "3") }, want: []string{v1alpha1.ReasonNodeFull}},
		"a node with too many pods": {change: func(p *trip) { p.place.Nodes[0].Asked = amounts("1", "10") }, want: []string{v1alpha1.ReasonNodeFull}},
		"one of two nodes is enough": {change: func(p *trip) {
			p.place.Nodes = append(p.place.Nodes, readyNode("other"))
			p.node().Spec.Unschedulable = true
		}},
		"one of them has it already": {change: func(p *trip) {
			p.place.Nodes = append([]Node{readyNode("here")}, p.place.Nodes...)
			p.original.Spec.NodeName = "here"
		}, want: []string{v1alpha1.ReasonAlreadyThere}},
		"any other node":          {change: func(p *trip) { p.goesElsewhere() }},
		"there is no other one":   {change: func(p *trip) { p.goesElsewhere(); p.place.Nodes = p.place.Nodes[:1] }, want: []string{v1alpha1.ReasonNodeNotFound}},
		"the other one is closed": {change: func(p *trip) { p.goesElsewhere(); p.place.Nodes[1].Spec.Unschedulable = true }, want: []string{v1alpha1.ReasonNodeClosed}},
		"all nodes have their causes": {change: func(p *trip) {
			p.place.Nodes = append(p.place.Nodes, readyNode("other"))
			p.node().Spec.Unschedulable = true
			p.place.Nodes[1].Ready = false
		}, want: []string{v1alpha1.ReasonNodeClosed, v1alpha1.ReasonNodeNotReady}},

		"to a peer from a namespace that is not offloaded": {change: func(p *trip) { p.becomesVirtual() }, want: []string{v1alpha1.ReasonNotOffloaded}},
		"to a peer from one that stays at home":            {change: func(p *trip) { p.becomesVirtual(); p.offloads(v1alpha1.StrategyLocal) }, want: []string{v1alpha1.ReasonNotOffloaded}},
		"to a peer from one that may leave":                {change: func(p *trip) { p.becomesVirtual(); p.offloads(v1alpha1.StrategyLocalAndRemote) }},
		"home from one that must leave":                    {change: func(p *trip) { p.offloads(v1alpha1.StrategyRemote) }, want: []string{v1alpha1.ReasonNotOffloaded}},

		"a volume for one node": {change: func(p *trip) { p.claims(corev1.ReadWriteOnce) }, method: v1alpha1.MoveDeleteFirst},
		"one that the copy would need": {change: func(p *trip) {
			p.claims(corev1.ReadWriteOnce)
			p.move.Spec.Method = v1alpha1.MoveSurge
		}, want: []string{v1alpha1.ReasonVolumeStays}},
		"a volume for all": {change: func(p *trip) { p.claims(corev1.ReadWriteOnce, corev1.ReadWriteMany) }},
		"a volume of another zone": {change: func(p *trip) {
			p.claims(corev1.ReadWriteMany).Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}},
			}}}}
		}, want: []string{v1alpha1.ReasonVolumeStays}},
		"a volume that the scheduler would make": {change: func(p *trip) {
			p.claims(corev1.ReadWriteMany)
			p.place.Claims[0].Volume, p.move.Spec.Bind = nil, v1alpha1.BindAtCreation
		}, want: []string{v1alpha1.ReasonVolumeStays}},

		"no quota for one more pod": {change: func(p *trip) { p.quota("pods", "5", "5") }, method: v1alpha1.MoveDeleteFirst},
		"no quota for its requests": {change: func(p *trip) { p.quota("requests.cpu", "5", "4500m") }, method: v1alpha1.MoveDeleteFirst},
		"none for what is there":    {change: func(p *trip) { p.quota("requests.cpu", "4", "4500m") }, want: []string{v1alpha1.ReasonQuotaExceeded}},
		"quota enough":              {change: func(p *trip) { p.quota("cpu", "5", "4") }},
		"a quota of something else": {change: func(p *trip) { p.quota("services", "5", "5") }},
		"a quota of some pods alone": {change: func(p *trip) {
			p.quota("pods", "5", "5")
			p.place.Quotas[0].Spec.Scopes = []corev1.ResourceQuotaScope{"BestEffort"}
		}},
		"everything at once": {change: func(p *trip) {
			p.controlledBy("apps/v1", "ReplicaSet")
			p.owner.Busy = "Deployment web rolls out"
			p.node().Spec.Unschedulable = true
			p.quota("pods", "5", "5")
		}, want: []string{v1alpha1.ReasonRolloutUnderWay, v1alpha1.ReasonNodeClosed, v1alpha1.ReasonQuotaExceeded}},
	} {
		t.Run(name, func(t *testing.T) {
			original := runningPod("original")
			original.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
			template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: *original.Spec.DeepCopy()}
			template.Spec.NodeName = ""
			p := &trip{
				move: moving(""), original: &original, place: Place{Nodes: []Node{readyNode("there")}, Asks: amounts("1", "1")},
				owner: &Owner{MoveOwner: setOwner, Replicas: 1, Template: template, Selector: selector(t, "app=web")},
			}
			test.change(p)
			var got []string
			method, found := Preflight(p.move, p.original, p.owner, p.place)
			if want := stdcmp.Or(test.method, v1alpha1.MoveSurge); len(test.want) == 0 && method != want || len(test.want) > 0 && method != "" {
				t.Errorf("by method %q", method)
			}
			for _, cause := range found {
				got = append(got, cause.Reason)
				if len(cause.Message) < 20 {
					t.Errorf("message %q", cause.Message)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// goesElsewhere has the pod leave its node, the first of two.
func (p *trip) goesElsewhere() {
	p.move.Spec.Destination = v1alpha1.MoveDestination{Elsewhere: v1alpha1.ElsewhereAnyNode}
	p.place.Nodes = append([]Node{readyNode("here")}, p.place.Nodes...)
	p.original.Spec.NodeName = "here"
}

func (p *trip) budget(pods, wanted int32) {
	budget := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "budget"}}
	budget.Spec.Selector = &metav1.LabelSelector{}
	budget.Status.ExpectedPods, budget.Status.DesiredHealthy = pods, wanted
	p.place.Budgets = append(p.place.Budgets, budget)
}

func (p *trip) quota(name corev1.ResourceName, hard, used string) {
	quota := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "tight"}}
	quota.Status.Hard = corev1.ResourceList{name: resource.MustParse(hard)}
	quota.Status.Used = corev1.ResourceList{name: resource.MustParse(used)}
	p.place.Quotas = append(p.place.Quotas, quota)
}

func TestSelects(t *testing.T) {
	node := readyNode("hanse-hamburg").Node
	for name, test := range map[string]struct {
		to   v1alpha1.MoveDestination
		want bool
	}{
		"by name":       {v1alpha1.MoveDestination{Node: "hanse-hamburg"}, true},
		"by peer":       {v1alpha1.MoveDestination{Peer: "hamburg"}, true},
		"another":       {v1alpha1.MoveDestination{Node: "worker"}, false},
		"by label":      {v1alpha1.MoveDestination{NodeSelector: map[string]v1alpha1.LabelValue{"zone": "a"}}, true},
		"another label": {v1alpha1.MoveDestination{NodeSelector: map[string]v1alpha1.LabelValue{"zone": "a", "disk": ""}}, false},
	} {
		if got := Selects(test.to, node); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
