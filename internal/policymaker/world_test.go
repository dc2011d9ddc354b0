package policymaker

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

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

// A world is a cluster with a Maker.
type world struct {
	*Maker

	t        *testing.T
	api      client.WithWatch
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	writes   int
	failing  error // what every write ends with
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, clock: clocktesting.NewFakeClock(start), api: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
	w.restart()
	return w
}

// restart is a new process: nothing is known but what API objects say.
func (w *world) restart() {
	w.recorder = events.NewFakeRecorder(100)
	counting := interceptor.NewClient(w.api, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			w.writes++
			if w.failing != nil {
				return w.failing
			}
			return c.Apply(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			w.writes++
			return c.Patch(ctx, o, p, options...)
		},
	})
	w.Maker = New(Config{Deadline: time.Second}, counting, w.api, w.clock, w.recorder)
}

// look has the Maker look at every question, as it does when it starts.
func (w *world) look() {
	w.t.Helper()
	for _, request := range everything() {
		if _, err := w.Reconcile(w.t.Context(), request); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) lookFails() {
	w.t.Helper()
	if _, err := w.Reconcile(w.t.Context(), requestFor(string(policy.Incoming))); err == nil {
		w.t.Fatal("no error")
	}
}

// policies are ConfigMaps: name → its modules of question incoming.
func (w *world) policies(name string, modules map[string]string) {
	w.t.Helper()
	made := configMap(name, v1alpha1.LabelPolicy, string(policy.Incoming), modules)
	err := w.api.Create(w.t.Context(), made)
	if err != nil {
		err = w.api.Update(w.t.Context(), made)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(), configMap(name, "", "", nil)); err != nil {
		w.t.Fatal(err)
	}
}

func configMap(name, label, value string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name, Labels: map[string]string{label: value}},
		Data:       data,
	}
}

// expect asks about an offer.
func (w *world) expect(input string, outcome policy.Outcome, reason string) {
	w.t.Helper()
	got, err := w.Decide(w.t.Context(), policy.Incoming, parsed(w.t, input))
	if err != nil {
		w.t.Fatal(err)
	}
	if got.Outcome != outcome || got.Reason != reason {
		w.t.Errorf("%s gets %s (%s), want %s (%s)", input, got.Outcome, got.Reason, outcome, reason)
	}
}

func parsed(t *testing.T, input string) policy.Input {
	t.Helper()
	in, err := policy.ParseInput([]byte(input))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// status is what the status says of a question.
func (w *world) status(question string) questionStatus {
	w.t.Helper()
	status, found := &corev1.ConfigMap{}, questionStatus{}
	w.get(v1alpha1.PolicyStatus, status)
	if err := json.Unmarshal([]byte(status.Data[question]), &found); err != nil {
		w.t.Fatalf("%s: %v in %v", question, err, status.Data)
	}
	return found
}

func (w *world) get(name string, object client.Object) {
	w.t.Helper()
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: name}, object); err != nil {
		w.t.Fatal(err)
	}
}

// expectBroken looks at what the status says is broken.
func (w *world) expectBroken(question string, names ...string) {
	w.t.Helper()
	var got []string
	for name, why := range w.status(question).Broken {
		got = append(got, name)
		if why == "" {
			w.t.Errorf("%s is broken without a reason", name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		w.t.Errorf("%q is broken, want %q", got, names)
	}
}

func (w *world) expectEvents(want int) {
	w.t.Helper()
	if got := len(w.recorder.Events); got != want {
		w.t.Errorf("%d events, want %d", got, want)
	}
	for len(w.recorder.Events) > 0 {
		w.t.Log(<-w.recorder.Events)
	}
}
