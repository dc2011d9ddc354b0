// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestAdministratorsSayWhichObjectsLeave(t *testing.T) {
	plain, annotated, skipped := &metav1.ObjectMeta{}, &metav1.ObjectMeta{}, &metav1.ObjectMeta{}
	annotated.Annotations = map[string]string{v1alpha1.AnnotationReflect: "true"}
	skipped.Annotations = map[string]string{v1alpha1.AnnotationReflect: "true", v1alpha1.LabelSkipReflection: "true"}
	for name, test := range map[string]struct {
		reach  Reach
		object *metav1.ObjectMeta
		wants  bool   // although no pod refers to it
		stays  string // although one does
	}{
		"all, a plain one":            {ReachAll, plain, true, ""},
		"all, a skipped one":          {ReachAll, skipped, true, "skip-reflection"},
		"referenced, a plain one":     {ReachReferenced, plain, false, ""},
		"referenced, a skipped one":   {ReachReferenced, skipped, false, "skip-reflection"},
		"annotated, a plain one":      {ReachAnnotated, plain, false, "without the annotation"},
		"annotated, an annotated one": {ReachAnnotated, annotated, true, ""},
		"annotated, a skipped one":    {ReachAnnotated, skipped, true, "skip-reflection"},
		"none, an annotated one":      {ReachNone, annotated, false, "administrators"},
		"all, what each cluster has":  {ReachAll, &metav1.ObjectMeta{Name: RootCertificates}, false, ""},
	} {
		stays := string(test.reach.Stays(test.object))
		if got := test.reach.Wants(test.object); got != test.wants || (stays == "") != (test.stays == "") || !strings.Contains(stays, test.stays) {
			t.Errorf("%s: wants %t, stays because %q", name, got, stays)
		}
	}
}

func TestReachesAreRead(t *testing.T) {
	got, err := ParseReaches(map[string]string{"Secret": "Annotated", "Service": "None", "Widget.example.org": "None"}, widgets)
	if err != nil {
		t.Fatal(err)
	}
	all := map[Kind]Reach{}
	for _, kind := range Kinds(true) {
		all[kind] = got.Of(kind)
	}
	want := map[Kind]Reach{ConfigMap: ReachReferenced, Secret: ReachAnnotated, Service: ReachNone, EndpointSlice: ReachNone, Ingress: ReachAll}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Reaches(nil).Of(Service); got != ReachAll {
		t.Errorf("Services go by %s", got)
	}
	for kind, reach := range map[string]string{"Pod": "All", "Secret": "all", "Service": "Referenced", "EndpointSlice": "All", "": "", "Gadget.example.org": "All", "Ingress": "Referenced"} {
		if got, err := ParseReaches(map[string]string{kind: reach}, widgets); err == nil {
			t.Errorf("%s=%s is %v", kind, reach, got)
		}
	}
}

func TestServicesGoByTheirReach(t *testing.T) {
	annotated := service("annotated")
	annotated.Annotations = map[string]string{v1alpha1.AnnotationReflect: "true"}
	for reach, want := range map[Reach]string{ReachAll: "annotated plain", ReachAnnotated: "annotated", ReachNone: ""} {
		view := view
		view.Reach = reach
		var got []string
		copies := Services([]corev1.Service{annotated, service("plain")}, []discoveryv1.EndpointSlice{slice("1", "plain", endpoint("worker", "10.0.1.2"))}, view)
		for _, name := range []string{"annotated", "plain"} {
			if copies.Services[name].Object != nil {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want || len(copies.Slices) > 0 != (reach == ReachAll) {
			t.Errorf("%s: %v and slices %v", reach, got, copies.Slices)
		}
	}
}
