// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const here = "lubeck"

// world is this cluster, lubeck, and one peer, hamburg, of which it is or has the consumer.
type world struct {
	*testkit.World
	peers    *peerstest.World
	hamburg  *peerstest.Peer
	refusing error                                     // why advertisements are not stored
	raw      atomic.Pointer[unstructured.Unstructured] // what is read at the provider instead of its advertisement

	policies  *fakePolicies
	publisher *Publisher
	receiver  *Receiver
}

func newWorld(t *testing.T, changes ...func(*Config)) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t)}
	w.Home.Before(w.refuse)
	w.Away.Client = interceptor.NewClient(w.Away.Client, interceptor.Funcs{Get: w.readRaw})
	w.peers = peerstest.New(t, testkit.Scheme(), peers.Config{})
	w.hamburg = w.peers.Add("hamburg", v1alpha1.TenantNamespace(here), w.Away.Client)
	w.Away.Server = w.hamburg.Mirrored(w.Away.Server)
	w.connect()
	config := Config{ClusterID: here, Namespace: "hanse-system"}
	config.Default()
	for _, change := range changes {
		change(&config)
	}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	w.policies = &fakePolicies{}
	w.publisher = NewPublisher(config, w.Home.Client, nil, w.policies, w.Clock, w.Events)
	w.receiver = NewReceiver(config, w.Home.Client, w.peers.Links, w.policies, w.Clock, w.Events)
	return w
}

// connect makes the link to hamburg.
func (w *world) connect() {
	w.Helper()
	w.peers.Link(testkit.Peer("hamburg"))
}

// shows has hamburg show the object instead of its advertisement.
func (w *world) shows(object *unstructured.Unstructured) {
	w.raw.Store(object)
	w.hamburg.Heal()
}

// readRaw reads what hamburg shows.
func (w *world) readRaw(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	raw := w.raw.Load()
	object, undecoded := o.(*unstructured.Unstructured)
	if raw == nil || !undecoded {
		return c.Get(ctx, key, o, opts...)
	}
	raw.DeepCopyInto(object)
	return nil
}

// refuse stores no advertisement when told so.
func (w *world) refuse(write testkit.Write) error {
	ad, isAd := write.Object.(*v1alpha1.Advertisement)
	if write.Verb == "update" || write.Verb == "create" && isAd && len(ad.Spec.Availability) > 0 {
		return w.refusing
	}
	return nil
}

func (w *world) peer(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	peer := testkit.Peer("hamburg", roles...)
	peer.Spec.ClusterID = "hamburg"
	w.Home.Put(peer)
	return peer
}

func (w *world) reconcile(r reconcile.Reconciler) reconcile.Result {
	w.Helper()
	return w.Reconcile(r, "", "hamburg")
}

// wrote returns what was written in both clusters since the last look.
func (w *world) wrote() []string { return append(w.Home.Wrote(), w.Away.Wrote()...) }

// expectWrites reconciles and counts.
func (w *world) expectWrites(want int, r reconcile.Reconciler) reconcile.Result {
	w.Helper()
	w.wrote()
	result := w.reconcile(r)
	if got := w.wrote(); len(got) != want {
		w.Errorf("wrote %q, want %d writes", got, want)
	}
	return result
}

func (w *world) expect(want, got any) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("unexpected (-want +got):\n%s", diff)
	}
}

// offered puts hamburg's advertisement for us into hamburg.
func (w *world) offered(changes ...func(*v1alpha1.AdvertisementSpec)) *v1alpha1.Advertisement {
	w.Helper()
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(here), Name: "hamburg"},
		Spec:       w.offer(1, changes...),
	}
	w.Away.Put(ad)
	return ad
}

func (w *world) offer(sequence int64, changes ...func(*v1alpha1.AdvertisementSpec)) v1alpha1.AdvertisementSpec {
	now := w.Clock.Now()
	spec := v1alpha1.AdvertisementSpec{
		ClusterID: "hamburg", Sequence: sequence, FullSequence: 1,
		Timestamp: metav1.NewTime(now), TimeToLive: metav1.NewTime(now.Add(30 * time.Minute)),
		Availability: testkit.Quantities("cpu", "4", "memory", "8Gi", "pods", "10", "ephemeral-storage", "0"),
	}
	for _, change := range changes {
		change(&spec)
	}
	return spec
}

// says changes hamburg's advertisement, a moment later.
func (w *world) says(spec v1alpha1.AdvertisementSpec) {
	w.Helper()
	w.Clock.Step(w.receiver.config.ReceiveInterval)
	ad := w.theirs()
	ad.Spec = spec
	w.Away.Put(ad)
}

// theirs is hamburg's advertisement as it is there, with our answer.
func (w *world) theirs() *v1alpha1.Advertisement {
	w.Helper()
	return testkit.Get[v1alpha1.Advertisement](w.Away, v1alpha1.TenantNamespace(here), "hamburg")
}

// held is our copy of it, or nil.
func (w *world) held() *v1alpha1.Advertisement {
	w.Helper()
	return w.about("hamburg", "hamburg")
}

// ours is our advertisement for hamburg, or nil.
func (w *world) ours() *v1alpha1.Advertisement {
	w.Helper()
	return w.about("hamburg", here)
}

// about is the advertisement of the cluster that is exchanged with the peer, as it is here, or nil.
func (w *world) about(peer, clusterID string) *v1alpha1.Advertisement {
	w.Helper()
	ad := &v1alpha1.Advertisement{}
	if !w.Home.Find(ad, v1alpha1.TenantNamespace(peer), clusterID) {
		return nil
	}
	return ad
}

func (w *world) expectAccepted(ad *v1alpha1.Advertisement, status metav1.ConditionStatus, reason string) {
	w.Helper()
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		testkit.ExpectCondition(w, ad.Status.Conditions, kind, status, reason)
	}
}

// expectAdvertised expects what a Peer shows as its condition Advertised, and returns the message.
func (w *world) expectAdvertised(status metav1.ConditionStatus, reason string) string {
	w.Helper()
	held := w.held()
	if held == nil {
		w.Fatal("there is no copy")
	}
	testkit.ExpectCondition(w, held.Status.Conditions, v1alpha1.ConditionAccepted, status, reason)
	if accepted := meta.FindStatusCondition(held.Status.Conditions, v1alpha1.ConditionAccepted); accepted != nil {
		return accepted.Message
	}
	return ""
}
