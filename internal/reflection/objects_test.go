// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func ingress(name string, change func(*networkingv1.Ingress)) networkingv1.Ingress {
	made := networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u-1"}, Spec: wholeIngress()}
	change(&made)
	return made
}

func TestWhichIngressesGo(t *testing.T) {
	annotated := func(key string) func(*networkingv1.Ingress) {
		return func(i *networkingv1.Ingress) { i.Annotations = map[string]string{key: "true"} }
	}
	all := []networkingv1.Ingress{
		ingress("plain", func(*networkingv1.Ingress) {}), ingress("annotated", annotated(v1alpha1.AnnotationReflect)),
		ingress("skipped", annotated(v1alpha1.LabelSkipReflection)),
		ingress("ending", func(i *networkingv1.Ingress) { i.DeletionTimestamp = &metav1.Time{} }),
		ingress("to-a-bucket", func(i *networkingv1.Ingress) {
			i.Spec.DefaultBackend = &networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}
		}),
		ingress("large", func(i *networkingv1.Ingress) {
			i.Spec.Rules[0].HTTP.Paths[0].Path = "/" + strings.Repeat("a", v1alpha1.MaxShadowObjectBytes)
		}),
	}
	const skipped, goes = "its label or annotation hanse.dev/skip-reflection keeps it at home", ""
	const large = "it has 262431 bytes, and at most 262144 are taken to another cluster"
	for reach, want := range map[Reach]map[string]string{
		ReachAll:       {"plain": goes, "annotated": goes, "skipped": skipped, "to-a-bucket": "one of its backends is no Service", "large": large},
		ReachAnnotated: {"annotated": goes, "skipped": skipped},
		ReachNone:      {"skipped": skipped},
	} {
		got := map[string]string{}
		for name, copied := range Ingresses(all, reach) {
			if name != ShadowName(Ingress, copied.Source.Name) || (copied.Object != nil) != (copied.Source.Stays == "") {
				t.Errorf("%s: copy %s of %v", reach, name, copied.Source)
			}
			got[copied.Source.Name] = string(copied.Source.Stays)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reach, diff)
		}
	}
	if diff := cmp.Diff([]string{"certificate"}, TLSSecrets(all, ReachAll)); diff != "" {
		t.Errorf("Secrets (-want +got):\n%s", diff)
	}
	if got := TLSSecrets(all, ReachNone); len(got) > 0 {
		t.Errorf("of no Ingress: %v", got)
	}
}

// answered is a ShadowObject with what the provider says of it.
func answered(status metav1.ConditionStatus, generation int64) *v1alpha1.ShadowObject {
	shadow := askingWidget(`{}`)
	shadow.Generation = 2
	shadow.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionApplied, Status: status, Reason: "HostTaken", Message: "another has it", ObservedGeneration: generation,
	}}
	shadow.Status.Addresses = []string{"192.0.2.2", "lb.example.org", "<script>", "192.0.2.1", "192.0.2.1"}
	shadow.Status.Object = `{"ready": true}`
	return shadow
}

func TestWhatAProviderAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		shadow    *v1alpha1.ShadowObject
		objection string
		addresses string
		status    bool
	}{
		"nothing yet":              {askingWidget(`{}`), "", "", false},
		"it is there":              {answered(metav1.ConditionTrue, 2), "", "192.0.2.1,192.0.2.2,lb.example.org", true},
		"it is refused":            {answered(metav1.ConditionFalse, 2), "HostTaken: another has it", "", false},
		"what is past was refused": {answered(metav1.ConditionFalse, 1), "", "", false},
	} {
		if got := Objection(test.shadow); got != test.objection {
			t.Errorf("%s: objection %q", name, got)
		}
		if got := AddressesAt(test.shadow, "u-1"); got != test.addresses {
			t.Errorf("%s: addresses %q", name, got)
		}
		if got := StatusAt(test.shadow, "u-1"); (got != nil) != test.status {
			t.Errorf("%s: status %v", name, got)
		}
		if AddressesAt(test.shadow, "u-9") != "" || StatusAt(test.shadow, "u-9") != nil {
			t.Errorf("%s: it speaks of another object", name)
		}
	}
	if got := AddressesAt(nil, "u-1"); got != "" {
		t.Errorf("without a copy: %q", got)
	}
}

// FuzzStatusAt looks for a status that harms home.
func FuzzStatusAt(f *testing.F) {
	f.Add(`{"ready": true}`, "192.0.2.1")
	f.Add(`[`, "a b")
	f.Fuzz(func(t *testing.T, text, address string) {
		shadow := answered(metav1.ConditionTrue, 2)
		shadow.Status.Object, shadow.Status.Addresses = text, []string{address, address, address}
		StatusAt(shadow, "u-1")
		if got := AddressesAt(shadow, "u-1"); len(got) > 253 || strings.ContainsAny(got, " \n<,") {
			t.Errorf("%q becomes %q", address, got)
		}
	})
}
