// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// heavy is a record of about so many bytes.
func heavy(name string, bytes int) *v1alpha1.ShadowPod {
	return &v1alpha1.ShadowPod{
		TypeMeta: metav1.TypeMeta{APIVersion: "hanse.dev/v1alpha1", Kind: "ShadowPod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tenant, Name: name, ResourceVersion: "1", Annotations: map[string]string{"x": strings.Repeat("x", bytes)},
		},
	}
}

var heavies = &Subject{Example: &v1alpha1.ShadowPod{}}

// flooding is a world whose peer may cost little.
func flooding(t *testing.T, limit Budget) *world {
	t.Helper()
	budget := DefaultBudget
	budget.HeldBytes, budget.LeastBytes = limit.HeldBytes, 0
	budget.HeldObjects = max(limit.HeldObjects, 100)
	if limit.ReceivedBytes > 0 {
		budget.ReceivedBytes = limit.ReceivedBytes
	}
	return newWorld(t, Config{Budget: budget})
}

func expectOver(t *testing.T, w *world, m *Mirror) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !errors.Is(m.Err(), ErrOverBudget); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %v, want %v", m.Err(), ErrOverBudget)
		}
	}
	if err := w.links.OverBudget(w.peer.Name); !errors.Is(err, ErrOverBudget) {
		t.Errorf("nobody is told: %v", err)
	}
}

// A peer that runs many pods of ours may tell much, and one that runs few may not.
func TestPeerMayTellOfThePodsThatItRuns(t *testing.T) {
	const most, least, each = 1 << 20, 1 << 16, 1 << 10
	clk, pods, looks := clocktesting.NewFakePassiveClock(time.Now()), 0, 0
	books := newLedger(Budget{HeldBytes: most, HeldObjects: 1 << 20, LeastBytes: least, PodBytes: each},
		func() int { looks++; return pods }, clk.Now)
	m := &Mirror{ctx: t.Context(), subject: heavies}
	for _, step := range []struct {
		pods, bytes, looks int
		fits               bool
	}{
		{bytes: least, fits: true},
		{bytes: least + 1, looks: 1},
		{pods: 10, bytes: least + 10*each, looks: 2, fits: true},
		{pods: 10, bytes: least + 10*each + 1, looks: 3},
		{pods: 0, bytes: least + 10*each, looks: 4, fits: true}, // is no more than before
		{pods: 0, bytes: least, looks: 4, fits: true},
		{pods: 0, bytes: least + each, looks: 5},
		{pods: 10_000, bytes: most, looks: 6, fits: true},
		{pods: 10_000, bytes: most + 1, looks: 7},
	} {
		clk.SetTime(clk.Now().Add(podsFresh))
		pods = step.pods
		for range 3 {
			if err := books.charge(m, usage{bytes: step.bytes}); (err == nil) != step.fits {
				t.Errorf("with %d pods %d bytes: %v", pods, step.bytes, err)
			}
		}
		if looks != step.looks {
			t.Errorf("with %d pods %d bytes: looked %d times, want %d", pods, step.bytes, looks, step.looks)
		}
	}
}

func TestPagesOfAListCountTogetherWhileTheyArrive(t *testing.T) {
	w := flooding(t, Budget{HeldBytes: 1 << 20})
	asked := 0
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { // each page is small, and there is always another
		asked++
		rw.Header().Set("Content-Type", "application/json")
		page, _ := json.Marshal(map[string]any{
			"apiVersion": "hanse.dev/v1alpha1", "kind": "ShadowPodList",
			"metadata": map[string]any{"resourceVersion": "10", "continue": "more"},
			"items":    []any{heavy(fmt.Sprint(asked), 200<<10)},
		})
		_, _ = rw.Write(page)
	})
	m := w.connect().Follow(heavies, tenant)
	expectOver(t, w, m)
	if m.Len() > 0 || asked > 6 {
		t.Errorf("%d objects are held, of %d pages", m.Len(), asked)
	}
}

func TestEventsThatExceedTheBudgetAreNotKept(t *testing.T) {
	w := flooding(t, Budget{HeldBytes: 1 << 20})
	server := &apiServer{pages: []string{listOf(t, "")}, events: make(chan string, 10)}
	w.answers(server.serve)
	link := w.connect()
	m := link.Follow(heavies, tenant)
	if err := m.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		server.events <- event(t, "ADDED", heavy(fmt.Sprint(i), 200<<10))
	}
	expectOver(t, w, m)
	if held := m.Len(); held > 5 {
		t.Errorf("%d objects of 200 KiB are held", held)
	}
	books := w.links.ledger(w.peer.Name)
	w.links.Close(w.peer.Name)
	if err := w.links.OverBudget(w.peer.Name); err != nil {
		t.Errorf("a peer without a link still exceeds its budget: %v", err)
	}
	if len(w.links.ledgers) > 0 {
		t.Error("what a peer without a link cost is not forgotten")
	}
	<-m.ctx.Done()
	_ = m.put(types.NamespacedName{Namespace: tenant, Name: "late"}, heavy("late", 10))
	w.expectNothingHeld(books)
}

// expectNothingHeld waits until all accounts of the peer are closed.
func (w *world) expectNothingHeld(books *ledger) {
	w.t.Helper()
	held := func() usage {
		books.mu.Lock()
		defer books.mu.Unlock()
		return books.held
	}
	for deadline := time.Now().Add(time.Minute); held() != (usage{}); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("still held: %+v", held())
		}
	}
}

func TestObjectsOfAKindAreFewAndSmall(t *testing.T) {
	for name, test := range map[string]struct {
		of    *Subject
		count int
		bytes int // of the last one
	}{
		"too many":  {&Subject{Example: &v1alpha1.ShadowPod{}, MostObjects: 30}, 31, 10},
		"too large": {&Subject{Example: &v1alpha1.ShadowPod{}, MostBytes: 10 << 10}, 2, 20 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := flooding(t, Budget{HeldBytes: 1 << 20})
			server := &apiServer{pages: []string{listOf(t, "")}, events: make(chan string, test.count)}
			w.answers(server.serve)
			m := w.connect().Follow(test.of, tenant)
			if err := m.WaitForSync(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i := range test.count - 1 {
				server.events <- event(t, "ADDED", heavy(fmt.Sprint(i), 10))
			}
			server.events <- event(t, "ADDED", heavy("last", test.bytes))
			expectOver(t, w, m)
			if _, kept := m.Named("last"); kept {
				t.Error("the last object is kept")
			}
			w.links.Close(w.peer.Name) // the server waits for its watches
		})
	}
}

func TestAnswersAreCountedWhileTheyArrive(t *testing.T) {
	w := flooding(t, Budget{HeldBytes: 64 << 20, ReceivedBytes: 1 << 20})
	w.answers(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		for range 4 {
			_, _ = rw.Write([]byte(strings.Repeat(" ", 1<<20)))
		}
	})
	link := w.connect()
	m := link.Follow(heavies, tenant)
	expectOver(t, w, m)
	books := w.links.ledger(w.peer.Name)
	books.mu.Lock()
	defer books.mu.Unlock()
	if books.received != 0 {
		t.Errorf("%d bytes count as being received", books.received)
	}
}

func TestObjectsCountAgainstTheBudgetOfTheirPeer(t *testing.T) {
	w := flooding(t, Budget{HeldBytes: 64 << 20, HeldObjects: 100})
	link := w.connect()
	one, err := link.newMirror(t.Context(), Mappings, tenant)
	if err != nil {
		t.Fatal(err)
	}
	other, err := link.newMirror(t.Context(), heavies, tenant)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		(&Feed{one}).Put(mapping(fmt.Sprint(i), "1"))
		(&Feed{other}).Put(heavy(fmt.Sprint(i), 10))
	}
	if got := one.Len() + other.Len(); got != 100 {
		t.Errorf("%d objects are held", got)
	}
	if !errors.Is(other.Err(), ErrOverBudget) {
		t.Errorf("error %v", other.Err())
	}
	(&Feed{one}).Put(mapping("0", "2"))
	if object, _ := one.Named("0"); object.GetResourceVersion() != "2" {
		t.Error("a full mirror no longer follows what it holds")
	}
	(&Feed{one}).Delete(types.NamespacedName{Namespace: tenant, Name: "0"})
	(&Feed{other}).Put(heavy("late", 10))
	if _, held := other.Named("late"); !held {
		t.Error("what went makes no room")
	}
}

// refusal returns how soon a request is to be tried again that is refused.
func refusal(t *testing.T, books *ledger, clock clock.PassiveClock) time.Duration {
	t.Helper()
	var busy *BusyError
	if _, err := books.calls.begin(clock.Now); !errors.As(err, &busy) || !errors.Is(err, ErrBusy) {
		t.Fatalf("got %v, want a BusyError", err)
	}
	return busy.After
}

func begun(t *testing.T, books *ledger, clock clock.PassiveClock) (end func()) {
	t.Helper()
	end, err := books.calls.begin(clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func TestPeerThatHangsHoldsFewWorkers(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC))
	books := newLedger(Budget{Calls: 3, SlowCalls: 1}, nil, time.Now)
	ends := []func(){begun(t, books, clock), begun(t, books, clock), begun(t, books, clock)}
	refusal(t, books, clock)
	ends[0]()
	ends[1]()
	clock.Step(2 * slowCall)
	refusal(t, books, clock)
	ends[2]()
	begun(t, books, clock)
}

func TestRefusedRequestsComeBackAsFastAsThePeerAnswers(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC))
	books := newLedger(Budget{Calls: 2, SlowCalls: 1}, nil, time.Now)
	for range 50 {
		end := begun(t, books, clock)
		clock.Step(100 * time.Millisecond)
		end()
		end() // an answer may be closed twice
	}
	begun(t, books, clock)
	begun(t, books, clock)
	const waiting = 500 // two at a time, each for 100 ms: one each 50 ms
	perSecond := map[int]int{}
	for range waiting {
		perSecond[int(refusal(t, books, clock)/time.Second)]++
	}
	for second, tries := range perSecond {
		if second > int(latestTry/time.Second) || tries > 20*waiting/100+10 {
			t.Errorf("%d come back in second %d", tries, second)
		}
	}
	clock.Step(time.Hour)
	if got := refusal(t, books, clock); got > 100*time.Millisecond {
		t.Errorf("the first in an hour is to wait for %s", got)
	}
}

func TestRequestsOverALinkAreRefusedWhileThePeerHangs(t *testing.T) {
	budget := DefaultBudget
	budget.Calls = 1
	w := newWorld(t, Config{Budget: budget})
	asked, answer := make(chan struct{}), make(chan struct{})
	w.answers(func(rw http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		writeJSON(rw, clusterInfo("c-hamburg", "v0.1.0"))
	})
	link := w.connect()
	ended := make(chan error)
	go func() { _, err := link.ClusterInfo(t.Context()); ended <- err }()
	<-asked
	err := link.Client().Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "x"}, &v1alpha1.ShadowPod{})
	if !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
	if err := link.Busy(); !errors.Is(err, ErrBusy) {
		t.Errorf("there is room: %v", err)
	}
	close(answer)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := link.Busy(); err != nil {
		t.Errorf("after the answer: %v", err)
	}
}

func TestFlapsOfAPeerAreFew(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC))
	links := NewLinks(Config{Scheme: testScheme(t), Clock: clock})
	const pods = 1000
	writes := func(peer string) (written int) {
		for i := range pods {
			if links.Pace(peer, types.UID(fmt.Sprint(i))) == 0 {
				written++
			}
		}
		return written
	}
	for range writesAtOnce - 2 {
		if got := writes("turin"); got != pods {
			t.Fatalf("%d pods of a burst are written", got)
		}
	}
	flaps := 0
	const seconds = 60
	for range seconds * 10 { // each pod changes ten times a second
		flaps += writes("turin")
		clock.Step(100 * time.Millisecond)
	}
	if most := (seconds+2)*DefaultBudget.FlapsPerSecond + 2*pods; flaps > most {
		t.Errorf("%d writes in a minute, at most %d are meant", flaps, most)
	}
	if got := writes("milan"); got != pods {
		t.Errorf("of another peer %d pods are written", got)
	}
	if links.Flaps("turin") <= 0 || links.Flaps("milan") > 0 {
		t.Errorf("it is told for %s that one peer flaps, and for %s of the other", links.Flaps("turin"), links.Flaps("milan"))
	}
	clock.Step(flapsTold)
	if left := links.Flaps("turin"); left > 0 {
		t.Errorf("a quiet minute later it is told for %s", left)
	}
}

func TestFlapsOfAPeerAreToldOnce(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC))
	links, told := NewLinks(Config{Scheme: testScheme(t), Clock: clock}), 0
	links.subscribe(t.Context(), &subscription{linked: func(string) { told++ }})
	for range 1000 {
		links.Pace("turin", "restless")
	}
	if told != 1 {
		t.Errorf("it is told %d times that the peer flaps", told)
	}
	for range 20 { // a pod that starts, and has to wait now and then
		links.Pace("milan", "starting")
		clock.Step(500 * time.Millisecond)
	}
	if told != 1 {
		t.Error("a peer whose pod starts is said to flap")
	}
}

func TestPausesGrowAndAreForgotten(t *testing.T) {
	now := time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC)
	p := pause{}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if p = p.next(now); p.last != want {
			t.Errorf("pause of %s, want %s", p.last, want)
		}
		now = p.until
	}
	if p = p.next(now.Add(time.Hour)); p.last != firstPause {
		t.Errorf("pause of %s after a quiet hour", p.last)
	}
}

func TestPeerThatComesAndGoesMustStayForLongerEachTime(t *testing.T) {
	now := time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC)
	s := steadiness{}
	for i, want := range []time.Duration{0, 0, time.Second, 2 * time.Second, 4 * time.Second} {
		if got := s.next(now.Add(time.Duration(i) * time.Minute)); got != want {
			t.Errorf("cut %d: %s, want %s", i, got, want)
		}
	}
	if got := s.next(now.Add(time.Hour)); got != 0 {
		t.Errorf("after a quiet hour: %s", got)
	}
}

func TestAnswersMayBeClosedWhileTheyAreRead(t *testing.T) {
	books := newLedger(DefaultBudget, nil, time.Now)
	for _, body := range []io.ReadCloser{
		&countedBody{ReadCloser: io.NopCloser(endless{}), receipt: &receipt{books: books}},
		&eventBody{ReadCloser: io.NopCloser(endless{}), left: maxEvent, receipt: &receipt{books: books}},
	} {
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = io.CopyN(io.Discard, body, 1<<20) })
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		reading.Wait()
	}
	if books.received != 0 {
		t.Errorf("%d bytes count as being received of answers that are closed", books.received)
	}
}

// endless is a body that does not end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
