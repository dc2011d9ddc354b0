// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func operation(op, path, value string) v1alpha1.PatchOperation {
	out := v1alpha1.PatchOperation{Op: op, Path: path}
	if value != "" {
		out.Value = &runtime.RawExtension{Raw: []byte(value)}
	}
	return out
}

func overrideIn(region string, patch ...v1alpha1.PatchOperation) v1alpha1.ClusterOverride {
	return v1alpha1.ClusterOverride{
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{"region": v1alpha1.LabelValue(region)}},
		Patch:           patch,
	}
}

var south = labels.Set{"region": "south"}

func TestOverrideChangesThePod(t *testing.T) {
	container := func(change func(*corev1.Container)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { change(&pod.Spec.Containers[0]) }
	}
	for name, test := range map[string]struct {
		patch []v1alpha1.PatchOperation
		want  func(*corev1.Pod)
	}{
		"the image": {
			[]v1alpha1.PatchOperation{operation("replace", "/spec/containers/0/image", `"mirror/i"`)},
			container(func(c *corev1.Container) { c.Image = "mirror/i" }),
		},
		"a label with a slash": {
			[]v1alpha1.PatchOperation{operation("add", "/metadata/labels/example.com~1tier", `"a"`)},
			func(pod *corev1.Pod) { pod.Labels["example.com/tier"] = "a" },
		},
		"a label less": {
			[]v1alpha1.PatchOperation{operation("remove", "/metadata/labels/app", "")},
			func(pod *corev1.Pod) { delete(pod.Labels, "app") },
		},
		"all annotations": {
			[]v1alpha1.PatchOperation{operation("replace", "/metadata/annotations", `{"a":"b"}`)},
			func(pod *corev1.Pod) { pod.Annotations = map[string]string{"a": "b"} },
		},
		"the first variable of all": {
			[]v1alpha1.PatchOperation{
				operation("add", "/spec/containers/0/env/-", `{"name":"A","value":"x"}`),
				operation("add", "/spec/containers/0/env/0", `{"name":"B","value":"y"}`),
			},
			container(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "B", Value: "y"}, {Name: "A", Value: "x"}} }),
		},
		"the command": {
			[]v1alpha1.PatchOperation{
				operation("add", "/spec/containers/0/command", `["sh","-c"]`), operation("add", "/spec/containers/0/args/-", `"true"`),
			},
			container(func(c *corev1.Container) { c.Command, c.Args = []string{"sh", "-c"}, []string{"true"} }),
		},
		"a limit where there was none": {
			[]v1alpha1.PatchOperation{operation("add", "/spec/containers/0/resources/limits/cpu", `"2"`)},
			container(func(c *corev1.Container) {
				c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("2")}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := homePod()
			got, err := Override(pod, []v1alpha1.ClusterOverride{
				overrideIn("north", operation("replace", "/spec/containers/0/image", `"north"`)), overrideIn("south", test.patch...),
			}, south)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(homePod(), pod); diff != "" {
				t.Errorf("the pod itself was changed:\n%s", diff)
			}
			want := homePod()
			test.want(want)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestOverrideMakesMissingLabels(t *testing.T) {
	pod := homePod()
	pod.Labels, pod.Annotations = nil, nil
	got, err := Override(pod, []v1alpha1.ClusterOverride{{Patch: []v1alpha1.PatchOperation{
		operation("add", "/metadata/labels/a", `"b"`), operation("add", "/metadata/annotations/c", `"d"`),
	}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Labels["a"] != "b" || got.Annotations["c"] != "d" {
		t.Errorf("got %v, %v", got.Labels, got.Annotations)
	}
}

func TestOverridesApplyInOrderWhereTheyAreSelected(t *testing.T) {
	image := func(value string) v1alpha1.PatchOperation {
		return operation("replace", "/spec/containers/0/image", value)
	}
	overrides := []v1alpha1.ClusterOverride{{Patch: []v1alpha1.PatchOperation{image(`"all"`)}}, overrideIn("south", image(`"south"`))}
	for region, want := range map[string]string{"south": "south", "north": "all"} {
		got, err := Override(homePod(), overrides, labels.Set{"region": region})
		if err != nil {
			t.Fatal(err)
		}
		if got.Spec.Containers[0].Image != want {
			t.Errorf("%s: got image %q, want %q", region, got.Spec.Containers[0].Image, want)
		}
	}
	pod := homePod()
	if got, err := Override(pod, overrides[1:], labels.Set{"region": "north"}); err != nil || got != pod {
		t.Errorf("without an override for the cluster: got another pod (%v)", err)
	}
}

func TestOverrideThatDoesNotFitNamesItself(t *testing.T) {
	for name, test := range map[string]struct {
		patch v1alpha1.PatchOperation
		want  string
	}{
		"host network":          {operation("add", "/spec/hostNetwork", "true"), "only labels"},
		"security context":      {operation("add", "/spec/containers/0/securityContext", `{"privileged":true}`), "only labels"},
		"a field with a prefix": {operation("replace", "/spec/containers/0/imagePullPolicy", `"Never"`), "only labels"},
		"the whole pod":         {operation("replace", "", "{}"), "only labels"},
		"the name":              {operation("replace", "/metadata/name", `"x"`), "only labels"},
		"a move":                {operation("move", "/metadata/labels/a", `"x"`), "missing from"},
		"no value":              {operation("add", "/metadata/labels/a", ""), "missing value"},
		"a huge value":          {operation("add", "/metadata/labels/a", `"`+strings.Repeat("x", 4096)+`"`), "4098 bytes, at most 4096"},
		"no JSON":               {operation("add", "/metadata/labels/a", `{`), "patch[0]"},
		"no such container":     {operation("replace", "/spec/containers/1/image", `"x"`), "patch[0]: replace /spec/containers/1/image"},
		"no such container yet": {operation("add", "/spec/initContainers/0/image", `"x"`), "missing path"},
		"no such label":         {operation("remove", "/metadata/labels/none", ""), "patch[0]: remove"},
		"a negative index":      {operation("add", "/spec/containers/0/args/-1", `"x"`), "patch[0]: add"},
		"beyond the end":        {operation("add", "/spec/containers/0/args/1000000000", `"x"`), "patch[0]: add"},
		"of another type":       {operation("replace", "/spec/containers/0/image", `{"a":1}`), "the changed pod is none"},
		"an unknown field":      {operation("add", "/spec/containers/0/resources/limit", `{"cpu":"1"}`), `unknown field "spec.containers[0].resources.limit"`},
		"no quantity":           {operation("add", "/spec/containers/0/resources/limits/cpu", `"much"`), "the changed pod is none"},
		"an endless quantity":   {operation("add", "/spec/containers/0/resources/limits/cpu", `"1e1000000000"`), "exponent"},
		"no label":              {operation("add", "/metadata/labels/app", `"a b"`), "metadata.labels"},
		"no image":              {operation("remove", "/spec/containers/0/image", ""), "spec.containers[c].image"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Override(homePod(), []v1alpha1.ClusterOverride{overrideIn("north"), overrideIn("south", test.patch)}, south)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "spec.overrides") {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
	broken := []v1alpha1.ClusterOverride{overrideIn("a b")}
	if _, err := Override(homePod(), broken, south); err == nil || !strings.HasPrefix(err.Error(), "spec.overrides[0].") {
		t.Errorf("a selector that is none: got %v", err)
	}
}
