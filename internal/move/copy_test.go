// SPDX-License-Identifier: Apache-2.0

package move

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func selector(t *testing.T, text string) labels.Selector {
	t.Helper()
	parsed, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func service(pairs map[string]string) corev1.Service {
	return corev1.Service{Spec: corev1.ServiceSpec{Selector: pairs}}
}

func TestHiddenLabel(t *testing.T) {
	pod := map[string]string{"app": "web", "tier": "front", "pod-template-hash": "1"}
	for name, test := range map[string]struct {
		selector string
		services []corev1.Service
		want     string
	}{
		"what no Service selects by":             {"app=web,pod-template-hash=1", []corev1.Service{service(map[string]string{"app": "web"})}, "pod-template-hash"},
		"what the fewest Services select by":     {"app=web,tier=front", []corev1.Service{service(map[string]string{"app": "web"}), service(map[string]string{"app": "web", "tier": "front"})}, "tier"},
		"Services of other pods do not count":    {"app=web,tier=front", []corev1.Service{service(map[string]string{"app": "db"}), service(map[string]string{"tier": "front"})}, "app"},
		"the only one, though a Service selects": {"app=web", []corev1.Service{service(map[string]string{"app": "web"})}, "app"},
		"that it exists":                         {"app", nil, "app"},
		"one of several values":                  {"app in (web, shop)", nil, "app"},
		"none where none is needed":              {"!gone,app!=db", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := HiddenLabel(selector(t, test.selector), pod, test.services); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func toNode(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
	}}}}
}

func TestCopyOfAnOwnedPod(t *testing.T) {
	m := moving(v1alpha1.MoveCopying)
	original := runningPod("original", func(p *corev1.Pod) { p.Finalizers = []string{"example.org/of-one"} })
	original.Spec.Containers = []corev1.Container{{Name: "main", Image: "web:1", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}, // resized in place
	}}}
	template := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"app": "web", "pod-template-hash": "1"}, Annotations: map[string]string{"note": "x"}, Finalizers: []string{"example.org/each"},
		},
		Spec: corev1.PodSpec{SchedulerName: "mine", Containers: []corev1.Container{{Name: "main", Image: "web:1"}}},
	}
	owner := &Owner{MoveOwner: setOwner, Template: template, Selector: selector(t, "app=web,pod-template-hash=1")}
	before := template.DeepCopy()
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: CopyName(m, &setOwner),
			Labels:          map[string]string{"app": "web"},
			Annotations:     map[string]string{"note": "x", v1alpha1.AnnotationMove: "move"},
			Finalizers:      []string{"example.org/each"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "hanse.dev/v1alpha1", Kind: "PodMove", Name: "away", UID: "move"}},
		},
		Spec: corev1.PodSpec{
			SchedulerName: "mine", Containers: original.Spec.Containers,
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: toNode("there")}},
		},
	}
	if diff := cmp.Diff(want, Copy(m, &original, owner, []corev1.Service{service(map[string]string{"app": "web"})})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, template); diff != "" {
		t.Errorf("the template of the owner was changed: %s", diff)
	}
}

func TestCopyOfABarePod(t *testing.T) {
	m := moving(v1alpha1.MoveCopying)
	m.Status.Owner, m.Spec.Destination = nil, v1alpha1.MoveDestination{Peer: "hamburg"}
	inZone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	preferred := corev1.PreferredSchedulingTerm{Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{inZone}}}
	original := runningPod("original", func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "tool"}
		p.Annotations = map[string]string{
			"note": "x", v1alpha1.AnnotationPrefer: "Price", v1alpha1.AnnotationRunsAtHome: "because", corev1.LastAppliedConfigAnnotation: "{}", corev1.PodDeletionCost: "7",
		}
		p.Spec.Priority, p.Spec.PriorityClassName = ptr.To[int32](5), "high"
		p.Spec.Volumes = []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "kube-api-access-x7f2k", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
		}
		p.Spec.Containers = []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "kube-api-access-x7f2k", MountPath: "/token"}}}}
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
		p.Spec.Tolerations = []corev1.Toleration{
			{Key: "gpu", Operator: corev1.TolerationOpExists},
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
		}
		// It has moved before, and admission has multiplied the alternatives.
		terms := toNode("here").NodeSelectorTerms
		terms[0].MatchExpressions = []corev1.NodeSelectorRequirement{inZone, inZone}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: append(terms, terms...)},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{preferred, preferred},
		}}
	})
	wanted := toNode("hanse-hamburg")
	wanted.NodeSelectorTerms[0].MatchExpressions = []corev1.NodeSelectorRequirement{inZone}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: CopyName(m, nil), Labels: map[string]string{"app": "tool"},
			Annotations:     map[string]string{"note": "x", v1alpha1.AnnotationPrefer: "Price", v1alpha1.AnnotationMove: "move"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "hanse.dev/v1alpha1", Kind: "PodMove", Name: "away", UID: "move"}},
		},
		Spec: corev1.PodSpec{
			PriorityClassName: "high",
			Volumes:           []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Containers:        []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Tolerations:       []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution:  wanted,
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{preferred},
			}},
		},
	}
	before := original.DeepCopy()
	if diff := cmp.Diff(want, Copy(m, &original, nil, nil)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, &original); diff != "" {
		t.Errorf("the original was changed: %s", diff)
	}
}

// What admission has added since the pod was to run at a peer does not keep it there.
func TestStrategyOfYesterdayIsForgotten(t *testing.T) {
	away := corev1.NodeSelectorRequirement{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.TypeVirtualNode}}
	atHome := corev1.NodeSelectorRequirement{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpNotIn, Values: []string{v1alpha1.TypeVirtualNode}}
	notTurin := corev1.NodeSelectorRequirement{Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"turin"}}
	south := corev1.NodeSelectorRequirement{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: []string{"south"}}
	for name, test := range map[string]struct {
		terms, want [][]corev1.NodeSelectorRequirement
	}{
		"at peers alone":           {[][]corev1.NodeSelectorRequirement{{away, notTurin}}, nil},
		"at home or at some peers": {[][]corev1.NodeSelectorRequirement{{atHome}, {away, notTurin}}, nil},
		"what users say stays":     {[][]corev1.NodeSelectorRequirement{{south, atHome}, {south, away}}, [][]corev1.NodeSelectorRequirement{{south, atHome}, {south}}},
	} {
		t.Run(name, func(t *testing.T) {
			var terms []corev1.NodeSelectorTerm
			for _, requirements := range test.terms {
				terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: requirements})
			}
			affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
			forgetNode(affinity)
			var got [][]corev1.NodeSelectorRequirement
			if required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
				for _, term := range required.NodeSelectorTerms {
					got = append(got, term.MatchExpressions)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCopyGoesWhereItIsSent(t *testing.T) {
	original := runningPod("original")
	m := moving(v1alpha1.MoveCopying)
	m.Spec.Bind = v1alpha1.BindAtCreation
	if got := Copy(m, &original, nil, nil).Spec; got.NodeName != "there" || got.Affinity != nil {
		t.Errorf("bound at creation: node %q, affinity %v", got.NodeName, got.Affinity)
	}
	m.Spec.Bind, m.Spec.Destination = "", v1alpha1.MoveDestination{NodeSelector: map[string]v1alpha1.LabelValue{"zone": "b", "disk": "fast"}}
	want := []corev1.NodeSelectorRequirement{
		{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"fast"}}, {Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}},
	}
	terms := func() corev1.NodeSelectorTerm {
		return Copy(m, &original, nil, nil).Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	}
	if diff := cmp.Diff(want, terms().MatchExpressions); diff != "" {
		t.Error(diff)
	}
	m.Spec.Destination = v1alpha1.MoveDestination{Elsewhere: v1alpha1.ElsewhereAnyNode}
	want = []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"node-of-original"}}}
	if diff := cmp.Diff(want, terms().MatchFields); diff != "" {
		t.Error(diff)
	}
}

func TestCopyNameIsTheMovesOwn(t *testing.T) {
	one, other := moving(""), moving("")
	other.UID = "other"
	long := moving("")
	long.Spec.Pod.Name = "a-name-that-is-so-long-that-nothing-would-fit-behind-it-in-a-label"
	if a, b := CopyName(one, nil), CopyName(other, nil); a == b || a != CopyName(one, nil) {
		t.Errorf("%s and %s", a, b)
	}
	if name := CopyName(long, nil); len(name) > 63 {
		t.Errorf("%s has %d characters", name, len(name))
	}
}
