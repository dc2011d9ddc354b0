// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var widgetKind = reflection.ListedKind{Group: "example.org", Version: "v1", Kind: "Widget"}

// lent is a Peer that may have widgets, and hosts below example.org.
func lent() *v1alpha1.Peer {
	p := peer()
	p.Spec.Ingress = &v1alpha1.PeerIngress{Hosts: []string{"*.example.org"}}
	p.Spec.Objects = []v1alpha1.AllowedKind{{Group: "example.org", Kind: "Widget"}}
	return p
}

func shadowObject(kind reflection.ListedKind, object string) *v1alpha1.ShadowObject {
	return &v1alpha1.ShadowObject{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: lubeck.name(), Name: "one-1", UID: "u-1", Generation: 1, Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{v1alpha1.AnnotationOriginUID: "u-home"},
		},
		Spec: v1alpha1.ShadowObjectSpec{Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Name: "one", Object: object, StatusBack: true},
	}
}

func shadowIngress(t *testing.T, host string) *v1alpha1.ShadowObject {
	t.Helper()
	text, err := json.Marshal(map[string]any{"spec": networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host}}}})
	if err != nil {
		t.Fatal(err)
	}
	return shadowObject(reflection.ListedKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}, string(text))
}

// objectWorld is a provider with one ShadowObject, in which widgets are defined.
type objectWorld struct {
	*world
	r *objectReconciler
}

func newObjectWorld(t *testing.T, p *v1alpha1.Peer, objects ...client.Object) *objectWorld {
	t.Helper()
	w := newWorld(t, append(objects, p, lubeck.namespace(""))...)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(widgetKind.GroupVersionKind(), meta.RESTScopeNamespace)
	mapper.Add(networkingv1.SchemeGroupVersion.WithKind("Ingress"), meta.RESTScopeNamespace)
	return &objectWorld{w, &objectReconciler{
		client: w.Home.Client, live: w.Home.Client, mapper: mapper, allowed: []reflection.ListedKind{widgetKind}, clock: w.Clock,
		reports:     newEventBudgets(1, 2),
		definitions: &definitions{client: w.Home.Client, namespace: "hanse-system", clock: w.Clock},
	}}
}

func (w *objectWorld) look() time.Duration {
	w.Helper()
	result, err := w.r.Reconcile(w.Context(), requestFor(lubeck.name(), "one-1")[0])
	if err != nil {
		w.Fatal(err)
	}
	return result.RequeueAfter
}

func (w *objectWorld) told() v1alpha1.ShadowObjectStatus {
	w.Helper()
	return testkit.Get[v1alpha1.ShadowObject](w.Home, lubeck.name(), "one-1").Status
}

// expectApplied checks what the consumer is told: "" is that all is well.
func (w *objectWorld) expectApplied(reason, message string) {
	w.Helper()
	c := meta.FindStatusCondition(w.told().Conditions, v1alpha1.ConditionApplied)
	if c == nil || (reason == "") != (c.Status == metav1.ConditionTrue) || reason != "" && (c.Reason != reason || !strings.Contains(c.Message, message)) {
		w.Fatalf("the status says %v, want %s %q", c, reason, message)
	}
}

func (w *objectWorld) widget() *unstructured.Unstructured {
	w.Helper()
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(widgetKind.GroupVersionKind())
	if !w.Home.Find(found, lubeck.name(), "one") {
		return nil
	}
	return found
}

func (w *objectWorld) ingress() *networkingv1.Ingress {
	w.Helper()
	found := &networkingv1.Ingress{}
	if !w.Home.Find(found, lubeck.name(), "one") {
		return nil
	}
	return found
}

// change changes what the peer asks for, as the API server counts it.
func (w *objectWorld) change(object string) {
	w.Helper()
	testkit.Change(w.Home, lubeck.name(), "one-1", func(s *v1alpha1.ShadowObject) {
		s.Spec.Object, s.Generation = object, s.Generation+1
	})
}

func TestObjectsOfAPeerFollowWhatItAsksFor(t *testing.T) {
	w := newObjectWorld(t, lent(), shadowObject(widgetKind, `{"spec": {"size": 3, "old": true}}`))
	w.look()
	w.expectApplied("", "")
	made := w.widget()
	if owner := metav1.GetControllerOf(made); owner == nil || owner.UID != "u-1" || made.GetLabels()["app"] != "web" {
		t.Fatalf("made %v", made.Object["metadata"])
	}
	made.SetFinalizers([]string{"example.org/hold"})
	made.Object["status"] = map[string]any{"phase": "Running"}
	w.Home.Put(made)
	w.look()
	if got := w.told().Object; got != `{"phase":"Running"}` {
		t.Errorf("its status is told as %s", got)
	}

	w.change(`{"spec": {"size": 4}}`)
	w.look()
	changed := w.widget()
	want := map[string]any{"size": int64(4)}
	if diff := cmp.Diff(want, changed.Object["spec"]); diff != "" || len(changed.GetFinalizers()) != 1 || changed.Object["status"] == nil {
		t.Errorf("it is %v (-want +got):\n%s", changed.Object, diff)
	}
	w.Home.Writes()
	w.look()
	w.Home.ExpectWrites()
}

func TestObjectsThatAPeerMayNotHave(t *testing.T) {
	theirs := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "spec": map[string]any{"size": int64(9)}}}
	theirs.SetNamespace(lubeck.name())
	theirs.SetName("one")
	gadget := reflection.ListedKind{Group: "example.org", Version: "v2", Kind: "Widget"}
	cordoned := lent()
	cordoned.Spec.Access = v1alpha1.AccessCordoned
	for name, test := range map[string]struct {
		peer         *v1alpha1.Peer
		shadow       *v1alpha1.ShadowObject
		there        client.Object
		reason, want string
		again        bool
	}{
		"of a kind that its Peer does not name": {peer(), shadowObject(widgetKind, `{}`), nil, v1alpha1.ReasonKindNotAllowed, "spec.objects", false},
		"of a version that is not defined":      {lent(), shadowObject(gadget, `{}`), nil, v1alpha1.ReasonDefinitionMissing, "install it", true},
		"of a name that is taken":               {lent(), shadowObject(widgetKind, `{}`), theirs, v1alpha1.ReasonNameTaken, "left alone", true},
		"for a host that it may not have":       {lent(), shadowIngress(t, "www.bank.com"), nil, v1alpha1.ReasonHostNotAllowed, "www.bank.com", false},
		"while it is cordoned":                  {cordoned, shadowObject(widgetKind, `{}`), nil, v1alpha1.ReasonPeerCordoned, "nothing more", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newObjectWorld(t, test.peer, test.shadow)
			if test.there != nil {
				w.Home.Put(test.there.DeepCopyObject().(client.Object))
			}
			if again := w.look() > 0; again != test.again {
				t.Errorf("it is looked at again: %t", again)
			}
			w.expectApplied(test.reason, test.want)
			if found := w.widget(); (found != nil) != (test.there != nil) || found != nil && metav1.GetControllerOf(found) != nil {
				t.Errorf("there is %v", found)
			}
		})
	}
}

func TestObjectsGoWhenTheyAreNotAllowedAnyMore(t *testing.T) {
	w := newObjectWorld(t, lent(), shadowObject(widgetKind, `{}`))
	w.look()
	testkit.Change(w.Home, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.Objects = nil })
	w.look()
	w.expectApplied(v1alpha1.ReasonKindNotAllowed, "spec.objects")
	if found := w.widget(); found != nil {
		t.Errorf("there is %v", found.Object)
	}
	if diff := cmp.Diff(requestFor(lubeck.name(), "one-1"), w.r.objectsOf(t.Context(), peer())); diff != "" {
		t.Errorf("of the Peer (-want +got):\n%s", diff)
	}
}

func TestAHostHasOneNamespace(t *testing.T) {
	other := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a-shop", Name: "web", UID: types.UID("u-2"), CreationTimestamp: metav1.NewTime(time.Unix(60, 0))},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "www.example.org"}}},
	}
	w := newObjectWorld(t, lent(), shadowIngress(t, "www.example.org"), other)
	w.look()
	w.expectApplied(v1alpha1.ReasonHostTaken, "www.example.org")
	if found := w.ingress(); found != nil {
		t.Fatalf("there is %v", found)
	}
	waiting := requestFor(lubeck.name(), "one-1")
	if diff := cmp.Diff(waiting, w.r.besides(t.Context(), []client.Object{other})); diff != "" {
		t.Errorf("who waits for it (-want +got):\n%s", diff)
	}
	w.Home.Remove(other)
	w.look()
	w.expectApplied("", "")
	made := w.ingress()
	made.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}, {Hostname: "lb.example.org"}}
	w.Home.Put(made)
	w.look()
	if diff := cmp.Diff([]string{"192.0.2.1", "lb.example.org"}, w.told().Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(waiting, w.r.besides(t.Context(), []client.Object{other})); diff != "" {
		t.Errorf("who has it too (-want +got):\n%s", diff)
	}
}

func TestAStatusThatChangesAllTheTimeIsToldLessOften(t *testing.T) {
	w := newObjectWorld(t, lent(), shadowObject(widgetKind, `{}`))
	w.look()
	var waits []bool
	for i := range 4 {
		made := w.widget()
		made.Object["status"] = map[string]any{"turn": int64(i)}
		w.Home.Put(made)
		waits = append(waits, w.look() > 0)
	}
	if diff := cmp.Diff([]bool{false, false, true, true}, waits); diff != "" {
		t.Errorf("which waits (-want +got):\n%s", diff)
	}
	w.Clock.Step(2 * time.Second)
	if w.look() > 0 || w.told().Object != `{"turn":3}` {
		t.Errorf("told is %s", w.told().Object)
	}
}

func TestAStatusThatIsTooLargeStaysHere(t *testing.T) {
	w := newObjectWorld(t, lent(), shadowObject(widgetKind, `{}`))
	w.look()
	made := w.widget()
	made.Object["status"] = map[string]any{"text": strings.Repeat("a", v1alpha1.MaxShadowStatusBytes)}
	w.Home.Put(made)
	w.look()
	c := meta.FindStatusCondition(w.told().Conditions, v1alpha1.ConditionApplied)
	if w.told().Object != "" || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "left out") {
		t.Errorf("told is %v", c)
	}
}
