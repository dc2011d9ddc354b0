// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// placedShop is an Application of ours with a cluster that is cut off, one that has not answered, and one that has refused.
func placedShop() *v1alpha1.Application {
	since := metav1.NewTime(now.Add(-5 * time.Minute))
	eur := func(amount string) *v1alpha1.Price {
		return &v1alpha1.Price{Amount: resource.MustParse(amount), Currency: "EUR"}
	}
	return &v1alpha1.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Status: v1alpha1.ApplicationStatus{
			Phase: v1alpha1.ApplicationRequested, Where: "front at hamburg, back at bremen, queue here", Price: eur("250m"),
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRequested,
				Message: "Waiting for the answer of bremen\x1b[31m", LastTransitionTime: since,
			}},
			Components: []v1alpha1.PlacedComponent{
				{Name: "front", Peer: "hamburg", Replicas: 2, ReadyReplicas: 1, Acknowledged: true, Price: eur("0.2"), Since: since, LostSince: &since},
				{Name: "back", Peer: "bremen", Replicas: 1, Price: eur("0.05"), Since: since},
				{Name: "queue", Replicas: 1, ReadyReplicas: 1, Acknowledged: true, Since: since},
			},
			Refusals:   []v1alpha1.ApplicationRefusal{{Peer: "riga", Message: "It refuses: closed", Until: metav1.NewTime(now.Add(40 * time.Second))}},
			Unsuitable: []v1alpha1.UnsuitableCluster{{Component: "back", Peer: "wismar", Message: "It has less than 4 of cpu free"}},
		},
	}
}

func TestApplications(t *testing.T) {
	theirs := &v1alpha1.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("stade"), Name: "app-1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec: v1alpha1.RequestSpec{
			Application: v1alpha1.RequestedApplication{UID: "u-1", Name: "games/chess"},
			Components:  []v1alpha1.RequestedComponent{{Name: "engine", Replicas: 3}, {Name: "ui", Replicas: 1}},
		},
		Status: v1alpha1.RequestStatus{Phase: v1alpha1.RequestAcknowledged, ValidUntil: ptr.To(metav1.NewTime(now.Add(50 * time.Minute)))},
	}
	member := theirs.DeepCopy()
	member.Name, member.Labels = "wismar.app-2", map[string]string{v1alpha1.LabelFrom: "wismar"}
	member.Spec.Application = v1alpha1.RequestedApplication{UID: "u-2", Name: "games/go"}
	c := newWorld(t, placedShop(), theirs, member).client
	for file, test := range map[string]struct{ namespace, output string }{
		"applications.txt":         {},
		"applications.json":        {output: "json"},
		"applications-of-shop.txt": {namespace: "shop"},
		"applications-none.txt":    {namespace: "other"},
	} {
		t.Run(file, func(t *testing.T) {
			view, err := viewApplications(soon(t), c, test.namespace)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			if err := show(&text, view, test.output, func(d *document) { view.print(d, now) }); err != nil {
				t.Fatal(err)
			}
			golden(t, file, text.String())
		})
	}
	d := &document{}
	explainApplication(d, placedShop(), now)
	golden(t, "explain-application.txt", d.String())
}

const wantedApplication = `
apiVersion: hanse.dev/v1alpha1
kind: Application
metadata: {name: web, labels: {team: a}}
spec: {components: [{name: front, podLabels: {app: front}}]}
`

func TestRequest(t *testing.T) {
	there := placedShop()
	there.Labels = map[string]string{"kept": "yes"}
	offloading := offloadingOf("shop")
	offloading.Status.Placement = &v1alpha1.NamespacePlacementStatus{Classes: []v1alpha1.PlacementClassStatus{{Name: "web/front"}}}
	w := newWorld(t, there, offloading)
	for name, test := range map[string]struct{ text, want string }{
		"another kind":    {"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n", "kind Pod of v1, and only kind Application"},
		"no kind":         {"metadata: {name: x}\n", "only kind Application"},
		"nothing":         {"---\n---\n", "there is no Application"},
		"a field unknown": {strings.ReplaceAll(wantedApplication, "podLabels", "labels"), `unknown field "labels"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readApplications(&cobra.Command{}, written(t, test.text), "shop"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	apps, err := readApplications(&cobra.Command{}, written(t, wantedApplication), "shop")
	if err != nil {
		t.Fatal(err)
	}
	command := &cobra.Command{}
	var said bytes.Buffer
	command.SetOut(&said)
	command.SetErr(&said)
	if err := runRequest(soon(t), command, w.client, apps, false); err != nil {
		t.Fatal(err)
	}
	expectRequested(t, w.client, command, &said)
}

// expectRequested expects the application to be what was wanted of it, and that it is said when it is placed.
func expectRequested(t *testing.T, c client.Client, command *cobra.Command, said *bytes.Buffer) {
	t.Helper()
	app := &v1alpha1.Application{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, app); err != nil {
		t.Fatal(err)
	}
	if app.Labels["kept"] != "yes" || app.Labels["team"] != "a" || len(app.Spec.Components) != 1 {
		t.Errorf("it is %+v", app)
	}
	app.Status.Phase = v1alpha1.ApplicationPlaced
	if err := c.Update(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	if err := awaitPlaced(soon(t), command, c, app); err != nil || !strings.Contains(said.String(), "web is placed: front at hamburg, back at bremen, queue here, for 0.25 EUR an hour") {
		t.Errorf("%v: it says %q", err, said.String())
	}
}

func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
