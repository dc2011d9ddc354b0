// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
)

const widgetDefinition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": {"name": "widgets.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
	"names": {"kind": "Widget", "plural": "widgets"}, "versions": [{"name": "v1", "served": true, "storage": true}]}}`

func keptDefinition(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: "widgets"}, Data: map[string]string{"widgets": text}}
}

func definition() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("apiextensions.k8s.io/v1")
	object.SetKind("CustomResourceDefinition")
	object.SetName("widgets.example.org")
	return object
}

// withoutWidgets is a world without a definition of widgets, in which an administrator may keep one.
func withoutWidgets(t *testing.T, p *v1alpha1.Peer, objects ...client.Object) *objectWorld {
	t.Helper()
	w := newObjectWorld(t, p, append(objects, shadowObject(widgetKind, `{}`))...)
	w.r.mapper = meta.NewDefaultRESTMapper(nil)
	kept := widgetKind
	kept.Definition = "widgets"
	w.r.allowed = []reflection.ListedKind{kept}
	return w
}

func TestADefinitionIsInstalledWhenAPeerAsksForAnObject(t *testing.T) {
	w := withoutWidgets(t, lent(), keptDefinition(widgetDefinition))
	if again := w.look(); again != local.DefinitionDelay {
		t.Errorf("it is looked at again after %s", again)
	}
	w.expectApplied(v1alpha1.ReasonDefinitionMissing, "being installed")
	made := definition()
	if !w.Home.Find(made, "", "widgets.example.org") {
		t.Fatal("there is no definition")
	}
	w.look()
	w.expectApplied(v1alpha1.ReasonDefinitionMissing, "being installed") // until the API server knows it
	defined := meta.NewDefaultRESTMapper(nil)
	defined.Add(widgetKind.GroupVersionKind(), meta.RESTScopeNamespace)
	w.r.mapper = defined
	w.look()
	w.expectApplied("", "")
}

func TestADefinitionThatIsGoneIsInstalledAgain(t *testing.T) {
	w := newObjectWorld(t, lent(), keptDefinition(widgetDefinition), shadowObject(widgetKind, `{}`)) // its mapper remembers the kind
	w.r.allowed[0].Definition = "widgets"
	w.Home.Refuse("create Widget", apierrors.NewNotFound(schema.GroupResource{Group: widgetKind.Group, Resource: "widgets"}, ""))
	w.look()
	w.expectApplied(v1alpha1.ReasonDefinitionMissing, "being installed")
	if !w.Home.Find(definition(), "", "widgets.example.org") {
		t.Error("there is no definition")
	}
}

func TestADefinitionThatIsThereIsLeftAsItIs(t *testing.T) {
	theirs := definition()
	theirs.SetLabels(map[string]string{"of": "the provider"})
	w := withoutWidgets(t, lent(), keptDefinition(widgetDefinition), theirs)
	w.look()
	w.expectApplied(v1alpha1.ReasonDefinitionMissing, "left as it is")
	found := definition()
	w.Home.Get(found, "", "widgets.example.org")
	if found.GetLabels()["of"] != "the provider" || found.Object["spec"] != nil {
		t.Errorf("it is %v", found.Object)
	}
}

func TestWhyADefinitionIsNotInstalled(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "widgets.example.org", errors.New("no right"))
	for name, test := range map[string]struct {
		peer    *v1alpha1.Peer
		kept    *corev1.ConfigMap
		refusal error
		reason  string
		want    string
	}{
		"the peer may have no such objects": {peer(), keptDefinition(widgetDefinition), nil, v1alpha1.ReasonKindNotAllowed, "spec.objects"},
		"there is no ConfigMap":             {lent(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: "other"}}, nil, v1alpha1.ReasonDefinitionMissing, `ConfigMap "widgets"`},
		"it is of another kind": {
			lent(), keptDefinition(strings.Replace(widgetDefinition, "Widget", "Gadget", 1)), nil, v1alpha1.ReasonDefinitionMissing, "Gadget.example.org",
		},
		"Hanse may not": {lent(), keptDefinition(widgetDefinition), forbidden, v1alpha1.ReasonDefinitionMissing, "no right"},
	} {
		t.Run(name, func(t *testing.T) {
			w := withoutWidgets(t, test.peer, test.kept)
			if test.refusal != nil {
				w.Home.Refuse("create CustomResourceDefinition", test.refusal)
			}
			w.look()
			w.expectApplied(test.reason, test.want)
			if w.Home.Find(definition(), "", "widgets.example.org") {
				t.Error("it is installed")
			}
		})
	}
}

// A thousand objects may wait for one definition.
func TestADefinitionIsTriedOnceInAWhile(t *testing.T) {
	w := withoutWidgets(t, lent(), keptDefinition("{"))
	w.look()
	w.Home.Put(keptDefinition(widgetDefinition))
	w.look()
	w.expectApplied(v1alpha1.ReasonDefinitionMissing, "cannot be installed")
	w.Clock.Step(local.DefinitionDelay)
	w.look()
	w.expectApplied(v1alpha1.ReasonDefinitionMissing, "being installed")
}
