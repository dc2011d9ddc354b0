// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

func TestWhatTakesMuchMoreWhenDecodedIsRefused(t *testing.T) {
	many := func(part string) string { return strings.TrimSuffix(strings.Repeat(part+",", 100_000), ",") }
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"empty items":          {`{"items":[` + many("{}") + `]}`, ErrTooLarge},
		"empty fields":         {`{"metadata":{"managedFields":[` + many("{}") + `]}}`, ErrTooLarge},
		"empty lists":          {`{"spec":{"x":[` + many("[]") + `]}}`, ErrTooLarge},
		"empty texts":          {`{"metadata":{"finalizers":[` + many(`""`) + `]}}`, nil},
		"a text of such":       {`{"data":{"x":"` + many(`{\"\\\"`) + `"}}`, nil},
		"many objects in text": {`{"items":["` + many("{}") + `"]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkDecoded([]byte(test.text), mostOfObject); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// What a peer may choose to send takes no more than a few times of what is estimated, and about half of that at once: lists
// are copied while they grow.
func TestWhatDecodingTakesIsNotFarFromTheEstimate(t *testing.T) {
	const count = 20_000
	list := func(part string) string { return strings.TrimSuffix(strings.Repeat(part+",", count), ",") }
	for name, test := range map[string]struct {
		text string
		into any
	}{
		"records":    {`{"items":[` + list("{}") + `]}`, &v1alpha1.ShadowPodList{}},
		"pods":       {`{"items":[` + list("{}") + `]}`, &corev1.PodList{}},
		"fields":     {`{"metadata":{"managedFields":[` + list("{}") + `]}}`, &v1alpha1.ShadowPod{}},
		"owners":     {`{"metadata":{"ownerReferences":[` + list("{}") + `]}}`, &v1alpha1.ShadowPod{}},
		"conditions": {`{"status":{"conditions":[` + list("{}") + `]}}`, &v1alpha1.ShadowPod{}},
		"containers": {`{"spec":{"containers":[` + list("{}") + `]}}`, &corev1.Pod{}},
		"volumes":    {`{"spec":{"volumes":[` + list("{}") + `]}}`, &corev1.Pod{}},
		"maps":       {`{"spec":{"x":[` + list(`{"":0}`) + `]}}`, &map[string]any{}},
		"lists":      {`{"spec":{"x":[` + list(`[0]`) + `]}}`, &map[string]any{}},
		"numbers":    {`{"spec":{"x":[` + list(`0`) + `]}}`, &map[string]any{}},
		"texts":      {`{"metadata":{"finalizers":[` + list(`""`) + `]}}`, &v1alpha1.ShadowPod{}},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := json.Unmarshal([]byte(test.text), test.into); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			took, estimated := int(after.TotalAlloc-before.TotalAlloc), decodedSize([]byte(test.text))+2*len(test.text)
			t.Logf("%d bytes took %d KiB, %d KiB were estimated", len(test.text), took>>10, estimated>>10)
			if took > 8*estimated {
				t.Errorf("that is more than 8 times")
			}
		})
	}
}

// A page of pods as clusters have them takes far less than is refused.
func TestOrdinaryPageMayBeDecoded(t *testing.T) {
	fields := `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{` + strings.TrimSuffix(strings.Repeat(`"f:x":{"f:y":{}},`, 60), ",") + `}}`
	container := corev1.Container{Name: "main", Image: "registry.example/app:1", Env: make([]corev1.EnvVar, 20), VolumeMounts: make([]corev1.VolumeMount, 5)}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app-0", Labels: map[string]string{"app": "app"}}}
	for range 2 {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{Manager: "m", FieldsV1: metav1.NewFieldsV1(fields)})
		pod.Spec.Containers = append(pod.Spec.Containers, container)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "main"})
	}
	pod.Status.Conditions = make([]corev1.PodCondition, 6)
	page, err := json.Marshal(corev1.PodList{Items: []corev1.Pod{pod}})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkDecoded(page, DefaultBudget.ListBytes/pageSize*2/3); err != nil {
		t.Error(err)
	}
}

func TestPeerIsReadNoFasterThanItsBudgetSays(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC))
	books := newLedger(Budget{HeldBytes: 1000, BytesPerSecond: 100}, nil, time.Now)
	if got := books.delay(1000, clock.Now()); got != 0 {
		t.Errorf("what may be held at all waits for %s", got)
	}
	if got := books.delay(200, clock.Now()); got != 2*time.Second {
		t.Errorf("two seconds' worth of bytes wait for %s", got)
	}
	clock.Step(2 * time.Second)
	if got := books.delay(100, clock.Now()); got != time.Second {
		t.Errorf("one second's worth waits for %s", got)
	}
	if got := newLedger(Budget{HeldBytes: 1000, BytesPerSecond: 100}, nil, time.Now).delay(100, clock.Now()); got != 0 {
		t.Errorf("another peer waits for %s", got)
	}
}

// A peer that runs many pods of ours is read at once when this process starts, and one that runs few cannot send much at once.
func TestAsMuchComesAtOnceAsThePeerMayTell(t *testing.T) {
	const most, least, each = 1 << 20, 1 << 16, 1 << 10
	clk, pods := clocktesting.NewFakePassiveClock(time.Now()), 0
	books := newLedger(Budget{HeldBytes: most, LeastBytes: least, PodBytes: each, BytesPerSecond: 1}, func() int { return pods }, clk.Now)
	for _, step := range []struct {
		pods, bytes int
		waits       bool
	}{
		{bytes: least},
		{bytes: each, waits: true},
		{pods: 64, bytes: least + 64*each}, // twice as much as before, which is worth a new start
		{pods: 64, bytes: each, waits: true},
		{pods: 100, bytes: each, waits: true},
		{pods: 10_000, bytes: most},
		{pods: 10_000, bytes: each, waits: true},
		{pods: 0, bytes: each, waits: true},
		{pods: 64, bytes: least + 64*each},
	} {
		clk.SetTime(clk.Now().Add(podsFresh))
		pods = step.pods
		if got := books.delay(step.bytes, clk.Now()); (got > 0) != step.waits {
			t.Errorf("with %d pods %d bytes wait for %s", pods, step.bytes, got)
		}
	}
}

func TestClosingEndsTheWaitForMore(t *testing.T) {
	books := newLedger(Budget{HeldBytes: 1, BytesPerSecond: 1}, nil, time.Now)
	books.delay(1, time.Now())
	ctx, end := context.WithCancel(t.Context())
	body := &pacedBody{ReadCloser: io.NopCloser(strings.NewReader("x")), books: books, now: func() time.Time { return time.Time{} }, ctx: ctx, end: end}
	time.AfterFunc(10*time.Millisecond, func() { _ = body.Close() })
	if _, err := io.ReadAll(body); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestOneAnswerIsDecodedAtATime(t *testing.T) {
	books := newLedger(DefaultBudget, nil, time.Now)
	one, other := &decoding{books: books}, &decoding{books: books}
	for range 2 { // whoever has the turn keeps it
		if err := one.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	late, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if err := other.begin(late); !errors.Is(err, ErrOverBudget) {
		t.Errorf("there are two at a time: %v", err)
	}
	one.pause()
	if err := other.begin(t.Context()); err != nil {
		t.Error(err)
	}
	other.end()
	other.end()
	if err := one.begin(t.Context()); err != nil {
		t.Error(err)
	}
	one.end()
	if err := other.begin(t.Context()); !errors.Is(err, context.Canceled) || len(books.decode) > 0 {
		t.Errorf("what has ended takes a turn: %v", err)
	}
}

func TestWatchEndsBehindALargeEvent(t *testing.T) {
	small, large := `{"type":"ADDED"}`, `{"type":"`+strings.Repeat("x", largeEvent)+`"}`
	text := io.NopCloser(strings.NewReader(small + "\n" + large + "\n" + small + "\n"))
	books := newLedger(DefaultBudget, nil, time.Now)
	body := checkEvents(t.Context(), text, sanitize.Quantities{}, books, time.Now)
	if read, err := io.ReadAll(body); err != nil || string(read) != small+"\n"+large+"\n" {
		t.Errorf("read %d bytes, %v", len(read), err)
	}
	if err := body.Close(); err != nil || len(books.decode) > 0 {
		t.Errorf("the turn is not given back: %v", err)
	}
}

// followed is a mirror of a peer that lists nothing, and answers watches as it is told.
func followed(t *testing.T, watch http.HandlerFunc) (*world, *Mirror) {
	t.Helper()
	w := newWorld(t, Config{Timeout: 200 * time.Millisecond})
	empty := listOf(t, "")
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("watch") != "" {
			watch(rw, req)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, empty)
	})
	return w, w.connect().Follow(Mappings, tenant)
}

func expectErr(t *testing.T, m *Mirror, want error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !errors.Is(m.Err(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %v, want %v", m.Err(), want)
		}
	}
}

func TestWatchThatIsNotAnsweredIsNoWatch(t *testing.T) {
	w, m := followed(t, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	expectErr(t, m, ErrUnreachable)
	w.links.Close(w.peer.Name)
}

func TestTooLargeEventCutsThePeerOff(t *testing.T) {
	w, m := followed(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, event(t, "ADDED", heavy("x", maxEvent)))
	})
	expectErr(t, m, ErrTooLarge)
	expectOverBudget(t, w)
}

func expectOverBudget(t *testing.T, w *world) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !errors.Is(w.links.OverBudget(w.peer.Name), ErrOverBudget); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody is told that the peer sends too much")
		}
	}
}

// Objects may be so large that a page of them is more than is taken. Fewer at a time are asked for then.
func TestLargeObjectsAreListedInSmallPages(t *testing.T) {
	const count, bytes = 60, 300 << 10
	w := newWorld(t, Config{Pods: func(string) int { return 10_000 }}) // enough to hold them all
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		if query.Get("watch") != "" {
			<-req.Context().Done()
			return
		}
		first, limit := 0, 0
		_, _ = fmt.Sscan(query.Get("continue"), &first)
		_, _ = fmt.Sscan(query.Get("limit"), &limit)
		var items []any
		for i := first; i < min(first+limit, count); i++ {
			items = append(items, heavy(fmt.Sprint(i), bytes))
		}
		next := ""
		if first+limit < count {
			next = fmt.Sprint(first + limit)
		}
		writeJSON(rw, map[string]any{
			"apiVersion": "hanse.dev/v1alpha1", "kind": "ShadowPodList", "items": items,
			"metadata": map[string]any{"resourceVersion": "1", "continue": next},
		})
	})
	m := w.connect().Follow(heavies, tenant)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := m.WaitForSync(ctx); err != nil || m.Len() != count {
		t.Errorf("%d objects are known: %v", m.Len(), err)
	}
	w.links.Close(w.peer.Name)
}
