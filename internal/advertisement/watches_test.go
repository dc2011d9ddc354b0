package advertisement

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// slowQueue notes when what is to come has been asked for.
type slowQueue struct {
	queue
	at    []string
	after []time.Duration
}

func (q *slowQueue) Add(request reconcile.Request) { q.AddAfter(request, 0) }

func (q *slowQueue) AddAfter(request reconcile.Request, after time.Duration) {
	q.at, q.after = append(q.at, request.Name), append(q.after, after)
}

func (w *world) rings(name string) {
	w.link.changed(types.NamespacedName{Namespace: v1alpha1.TenantNamespace(here), Name: name})
}

func TestChangesRingAtOnceAndThenOncePerInterval(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	q := &slowQueue{queue: w.queue}
	w.receiver.watches.queue = q
	w.reconcile(w.receiver)

	w.rings("another")
	w.expect(0, len(q.after))
	for range 5000 { // five seconds
		w.rings("hamburg")
		w.clock.Step(time.Millisecond)
	}
	w.expect([]time.Duration{
		0, time.Second - time.Millisecond, time.Second, time.Second, time.Second, time.Second,
	}, q.after)
}

// A thousand changes in a second, and our own writes ring too: what we write does not depend on how fast a peer is.
func TestPeerThatWritesWithoutEndCostsBoundedWrites(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	before, asked := w.writes.Load(), w.policies.times(policy.Incoming)
	ad := w.theirs()
	for i := range 1000 {
		ad.Spec = w.offer(int64(i+2), func(s *spec) { s.FullSequence = s.Sequence })
		w.update(w.there, ad)
		before++ // by the peer
		result := w.reconcile(w.receiver)
		if result.RequeueAfter > time.Second {
			t.Fatalf("message %d is looked at after %s", i+2, result.RequeueAfter)
		}
		ad = w.theirs()
		w.clock.Step(time.Millisecond)
	}
	if got := w.writes.Load() - before; got > 3 { // what one message costs
		t.Errorf("%d writes in a second", got)
	}
	w.clock.Step(time.Second)
	w.expectWrites(3, w.receiver)
	w.expect(int64(1001), w.held().Spec.Sequence)
	w.expect(int64(1001), w.theirs().Status.Acknowledgement.Sequence)
	if got := w.policies.times(policy.Incoming) - asked; got > 2 {
		t.Errorf("the policies were asked %d times", got)
	}
}

// The others wait for nothing: what one peer rings is one entry in the queue, however often it rings.
func TestOthersGetThroughAtOnce(t *testing.T) {
	w := newWorld(t)
	now := w.clock.Now()
	loud, quiet := &watch{}, &watch{}
	q := &slowQueue{queue: w.queue}
	for i := range 1000 {
		loud.ring(now.Add(time.Duration(i)*time.Millisecond), time.Second, q, requestFor("loud"))
	}
	quiet.ring(now.Add(time.Second), time.Second, q, requestFor("quiet"))
	w.expect([]string{"loud", "loud", "quiet"}, q.at)
	w.expect(time.Duration(0), q.after[2])
}

func requestFor(peer string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: peer}}
}

func TestHundredThousandImagesAreRefusedAndNotStored(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	good := w.held()
	images := make([]any, 100_000)
	for i := range images {
		images[i] = map[string]any{"names": []any{fmt.Sprintf("registry.example/image:%d", i)}}
	}
	raw, _ := w.link.Get(client.ObjectKeyFromObject(w.theirs()))
	w.link.raw = raw.(*unstructured.Unstructured)
	if err := unstructured.SetNestedField(w.link.raw.Object, images, "spec", "images"); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(time.Second)
	w.reconcile(w.receiver)

	w.expect(good.Spec, w.held().Spec)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonMalformed)
	w.expectAccepted(w.theirs(), metav1.ConditionFalse, v1alpha1.ReasonMalformed)
	w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonMalformed)
	w.expect(1, w.policies.times(policy.Incoming))
}
