// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// Modules of package hanse.incoming.
const (
	head       = "package hanse.incoming\n"
	denyDear   = head + `deny contains "too dear" if input.price > 2` + "\n"
	denyDearer = head + `deny contains "far too dear" if input.price > 20` + "\n"
	denyFar    = head + `deny contains "too far" if input.distance > 100` + "\n"
	noRego     = head + "deny contains := 3\n"
	limit      = head + "limit := 5\n"
	useLimit   = head + `deny contains "above the limit" if input.price > limit` + "\n"
)

// A world is a cluster with a Maker, which is a reconciler itself and so cannot lie beside an embedded testkit.World.
type world struct {
	*Maker
	kit *testkit.World
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{kit: testkit.NewWorld(t, objects...)}
	w.restart()
	return w
}

// restart is a new process: nothing is known but what API objects say.
func (w *world) restart() {
	w.Maker = New(Config{Deadline: time.Second}, w.kit.Home.Client, w.kit.Home.Server, w.kit.Clock, w.kit.Events)
}

// look has the Maker look at every question, as it does when it starts.
func (w *world) look() {
	w.kit.Helper()
	for _, request := range everything() {
		w.kit.Reconcile(w, request.Namespace, request.Name)
	}
}

func (w *world) lookFails() {
	w.kit.Helper()
	if _, err := w.Reconcile(w.kit.Context(), requestFor(string(policy.Incoming))); err == nil {
		w.kit.Fatal("no error")
	}
}

// policies are ConfigMaps: name → its modules of question incoming.
func (w *world) policies(name string, modules map[string]string) {
	w.kit.Helper()
	w.kit.Home.Put(configMap(name, v1alpha1.LabelPolicy, string(policy.Incoming), modules))
}

func (w *world) remove(name string) {
	w.kit.Helper()
	w.kit.Home.Remove(configMap(name, "", "", nil))
}

func configMap(name, label, value string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name, Labels: map[string]string{label: value}},
		Data:       data,
	}
}

// expect asks about an offer.
func (w *world) expect(input string, outcome policy.Outcome, reason string) {
	w.kit.Helper()
	got, err := w.Decide(w.kit.Context(), policy.Incoming, parsed(w.kit, input))
	if err != nil {
		w.kit.Fatal(err)
	}
	if got.Outcome != outcome || got.Reason != reason {
		w.kit.Errorf("%s gets %s (%s), want %s (%s)", input, got.Outcome, got.Reason, outcome, reason)
	}
}

func parsed(t testing.TB, input string) policy.Input {
	t.Helper()
	in, err := policy.ParseInput([]byte(input))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// status is what the status says of a question.
func (w *world) status(question string) questionStatus {
	w.kit.Helper()
	found, stored := questionStatus{}, w.stored()
	if err := json.Unmarshal([]byte(stored[question]), &found); err != nil {
		w.kit.Fatalf("%s: %v in %v", question, err, stored)
	}
	return found
}

// stored returns the status of all questions.
func (w *world) stored() map[string]string {
	w.kit.Helper()
	return testkit.Get[corev1.ConfigMap](w.kit.Home, v1alpha1.SystemNamespace, v1alpha1.PolicyStatus).Data
}

// expectBroken looks at what the status says is broken.
func (w *world) expectBroken(question string, names ...string) {
	w.kit.Helper()
	var got []string
	for name, why := range w.status(question).Broken {
		got = append(got, name)
		if why == "" {
			w.kit.Errorf("%s is broken without a reason", name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		w.kit.Errorf("%q is broken, want %q", got, names)
	}
}
