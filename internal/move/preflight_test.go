package move

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return Node{Node: node, Asked: amounts("2", "3")}
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
		want   []string // the reasons
	}{
		"nothing stands against it": {change: func(*trip) {}},
		"there is no such pod":      {func(p *trip) { p.original = nil }, []string{v1alpha1.ReasonPodNotFound}},
		"the pod is pending":        {func(p *trip) { pending(p.original) }, []string{v1alpha1.ReasonPodNotRunning}},
		"the pod is going":          {func(p *trip) { ending(p.original) }, []string{v1alpha1.ReasonPodNotRunning}},
		"a mirror pod":              {func(p *trip) { p.original.Annotations[corev1.MirrorPodAnnotationKey] = "x" }, []string{v1alpha1.ReasonUnsupportedOwner}},
		"a pod of a DaemonSet":      {func(p *trip) { p.controlledBy("apps/v1", "DaemonSet") }, []string{v1alpha1.ReasonUnsupportedOwner}},
		"a pod of a StatefulSet":    {func(p *trip) { p.controlledBy("apps/v1", "StatefulSet") }, []string{v1alpha1.ReasonUnsupportedOwner}},
		"another's ReplicaSet":      {func(p *trip) { p.controlledBy("example.org/v1", "ReplicaSet") }, []string{v1alpha1.ReasonUnsupportedOwner}},
		"a ReplicationController":   {change: func(p *trip) { p.controlledBy("v1", "ReplicationController") }},
		"a rollout":                 {func(p *trip) { p.owner.Busy = "Deployment web rolls out" }, []string{v1alpha1.ReasonRolloutUnderWay}},
		"a selector without labels": {func(p *trip) { p.owner.Selector = selector(t, "!gone") }, []string{v1alpha1.ReasonUnsupportedOwner}},

		"there is no such node":                    {func(p *trip) { p.place.Nodes = nil }, []string{v1alpha1.ReasonNodeNotFound}},
		"the pod is there already":                 {func(p *trip) { p.original.Spec.NodeName = "there" }, []string{v1alpha1.ReasonAlreadyThere}},
		"a node that is not Ready":                 {func(p *trip) { p.node().Status.Conditions = nil }, []string{v1alpha1.ReasonNodeNotReady}},
		"a cordoned node":                          {func(p *trip) { p.node().Spec.Unschedulable = true }, []string{v1alpha1.ReasonNodeClosed}},
		"past the scheduler, which would not care": {change: func(p *trip) { p.node().Spec.Unschedulable, p.move.Spec.Bind = true, v1alpha1.BindAtCreation }},
		"a tainted node": {func(p *trip) {
			p.node().Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, []string{v1alpha1.ReasonNodeClosed}},
		"one whose taint would evict it": {func(p *trip) {
			p.node().Spec.Taints, p.move.Spec.Bind = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoExecute}}, v1alpha1.BindAtCreation
		}, []string{v1alpha1.ReasonNodeClosed}},
		"a taint that the pod tolerates": {change: func(p *trip) {
			p.node().Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			p.owner.Template.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		}},
		"a full node":               {func(p *trip) { p.place.Nodes[0].Asked = amounts("3500m", "3") }, []string{v1alpha1.ReasonNodeFull}},
		"a node with too many pods": {func(p *trip) { p.place.Nodes[0].Asked = amounts("1", "10") }, []string{v1alpha1.ReasonNodeFull}},
		"one of two nodes is enough": {change: func(p *trip) {
			p.place.Nodes = append(p.place.Nodes, readyNode("other"))
			p.node().Spec.Unschedulable = true
		}},
		"one of them has it already": {func(p *trip) {
			p.place.Nodes = append([]Node{readyNode("here")}, p.place.Nodes...)
			p.original.Spec.NodeName = "here"
		}, []string{v1alpha1.ReasonAlreadyThere}},
		"all nodes have their causes": {func(p *trip) {
			p.place.Nodes = append(p.place.Nodes, readyNode("other"))
			p.node().Spec.Unschedulable = true
			p.place.Nodes[1].Status.Conditions = nil
		}, []string{v1alpha1.ReasonNodeClosed, v1alpha1.ReasonNodeNotReady}},

		"to a peer from a namespace that is not offloaded": {func(p *trip) { p.becomesVirtual() }, []string{v1alpha1.ReasonNotOffloaded}},
		"to a peer from one that stays at home":            {func(p *trip) { p.becomesVirtual(); p.offloads(v1alpha1.StrategyLocal) }, []string{v1alpha1.ReasonNotOffloaded}},
		"to a peer from one that may leave":                {change: func(p *trip) { p.becomesVirtual(); p.offloads(v1alpha1.StrategyLocalAndRemote) }},
		"home from one that must leave":                    {func(p *trip) { p.offloads(v1alpha1.StrategyRemote) }, []string{v1alpha1.ReasonNotOffloaded}},

		"a volume for one node": {func(p *trip) { p.claims(corev1.ReadWriteOnce) }, []string{v1alpha1.ReasonVolumeStays}},
		"a volume for all":      {change: func(p *trip) { p.claims(corev1.ReadWriteOnce, corev1.ReadWriteMany) }},
		"a volume of another zone": {func(p *trip) {
			p.claims(corev1.ReadWriteMany).Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}},
			}}}}
		}, []string{v1alpha1.ReasonVolumeStays}},
		"a volume that the scheduler would make": {func(p *trip) {
			p.claims(corev1.ReadWriteMany)
			p.place.Claims[0].Volume, p.move.Spec.Bind = nil, v1alpha1.BindAtCreation
		}, []string{v1alpha1.ReasonVolumeStays}},

		"no quota for one more pod": {func(p *trip) { p.quota("pods", "5", "5") }, []string{v1alpha1.ReasonQuotaExceeded}},
		"no quota for its requests": {func(p *trip) { p.quota("requests.cpu", "5", "4500m") }, []string{v1alpha1.ReasonQuotaExceeded}},
		"quota enough":              {change: func(p *trip) { p.quota("cpu", "5", "4") }},
		"a quota of something else": {change: func(p *trip) { p.quota("services", "5", "5") }},
		"a quota of some pods alone": {change: func(p *trip) {
			p.quota("pods", "5", "5")
			p.place.Quotas[0].Spec.Scopes = []corev1.ResourceQuotaScope{"BestEffort"}
		}},
		"everything at once": {func(p *trip) {
			p.owner.Busy = "Deployment web rolls out"
			p.node().Spec.Unschedulable = true
			p.quota("pods", "5", "5")
		}, []string{v1alpha1.ReasonRolloutUnderWay, v1alpha1.ReasonNodeClosed, v1alpha1.ReasonQuotaExceeded}},
	} {
		t.Run(name, func(t *testing.T) {
			original := runningPod("original")
			original.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
			template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: *original.Spec.DeepCopy()}
			template.Spec.NodeName = ""
			p := &trip{
				move: moving(""), original: &original, place: Place{Nodes: []Node{readyNode("there")}},
				owner: &Owner{MoveOwner: setOwner, Replicas: 1, Template: template, Selector: selector(t, "app=web")},
			}
			test.change(p)
			var got []string
			for _, cause := range Preflight(p.move, p.original, p.owner, p.place) {
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
