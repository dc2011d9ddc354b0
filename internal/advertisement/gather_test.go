// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
)

// expectAskedWith compares what was gathered with what the policies were asked with last.
func (w *world) expectAskedWith(question policy.Question, known policy.Facts) {
	w.Helper()
	input, err := policy.NewInput(known)
	if err != nil {
		w.Fatal(err)
	}
	asked := w.policies.asked[question]
	equal := cmp.Comparer(func(a, b ast.Value) bool { return ast.Compare(a, b) == 0 })
	if diff := cmp.Diff(asked[len(asked)-1], input, cmp.AllowUnexported(policy.Input{}), equal); diff != "" {
		w.Errorf("what is gathered is not what the policies were asked with:\n%s", diff)
	}
}

func (w *world) incoming() policy.Facts {
	w.Helper()
	known, err := w.receiver.Gather(w.Context(), policy.Incoming, "hamburg")
	if err != nil {
		w.Fatal(err)
	}
	return known
}

// What the copy holds is not what was said: it is older, or corrected.
func TestWhatIsAskedAboutAnOfferCanBeGathered(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.policies.say(policy.Incoming, capped, nil)
	w.offered()
	w.reconcile(w.receiver)
	if known := w.incoming(); known.Previous == nil || known.Table == nil {
		t.Errorf("previous %v, table %v", known.Previous, known.Table)
	}

	w.policies.say(policy.Incoming, denied, nil)
	w.says(w.offer(2, func(s *spec) { s.KubernetesVersion = "v1.37.1" }))
	w.reconcile(w.receiver)
	w.wrote()
	known := w.incoming()
	w.expect(int64(2), known.Advertisement.Sequence)
	w.expect("v1.37.1", known.Advertisement.KubernetesVersion)
	w.expect(resource.MustParse("4"), known.Advertisement.Availability[corev1.ResourceCPU])
	w.expect(resource.MustParse("1"), known.Previous.Availability[corev1.ResourceCPU])
	w.expectAskedWith(policy.Incoming, known)

	w.expect(0, len(w.wrote()))

	w.says(w.offer(3)) // which nobody has looked at yet
	w.expect(int64(3), w.incoming().Advertisement.Sequence)
	w.expect(2, w.policies.times(policy.Incoming))
}

func TestWhatIsAskedAboutOurOfferCanBeGathered(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	if _, err := w.publisher.Gather(t.Context(), policy.Outgoing, "hamburg"); err == nil {
		t.Error("something is gathered before all is known")
	}
	if err := w.publisher.capacity.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.policies.say(policy.Outgoing, capped, nil)
	w.reconcile(w.publisher)
	w.wrote()
	known, err := w.publisher.Gather(t.Context(), policy.Outgoing, "hamburg")
	if err != nil {
		t.Fatal(err)
	}
	w.expectAskedWith(policy.Outgoing, known)
	w.expect(resource.MustParse("4"), known.Advertisement.Availability[corev1.ResourceCPU])
	w.expect(resource.MustParse("4"), known.Load.Free[corev1.ResourceCPU])
	w.expect(0, len(w.wrote()))
	w.expect(1, w.asked())
}

func TestWhatNobodyAsksAboutCannotBeGathered(t *testing.T) {
	outgoing := func(w *world) error {
		_, err := w.publisher.Gather(w.Context(), policy.Outgoing, "hamburg")
		return err
	}
	incoming := func(w *world) error {
		w.reconcile(w.receiver)
		_, err := w.receiver.Gather(w.Context(), policy.Incoming, "hamburg")
		return err
	}
	nonsense := &unstructured.Unstructured{Object: map[string]any{"spec": []any{}}}
	nonsense.SetGroupVersionKind(advertisementKind)
	nonsense.SetName("hamburg")
	nonsense.SetNamespace(v1alpha1.TenantNamespace(here))
	for name, test := range map[string]struct {
		prepare func(*world)
		gather  func(*world) error
		want    string
	}{
		"no such peer":          {func(*world) {}, incoming, "there is no peer"},
		"no such consumer":      {func(*world) {}, outgoing, "there is no peer"},
		"no provider":           {func(w *world) { w.peer(v1alpha1.RoleConsumer) }, incoming, "no provider"},
		"no consumer":           {func(w *world) { w.peer(v1alpha1.RoleProvider) }, outgoing, "no consumer"},
		"no link":               {func(w *world) { w.peer(v1alpha1.RoleProvider); w.peers.Links.Close("hamburg") }, incoming, "no link"},
		"no offer":              {func(w *world) { w.peer(v1alpha1.RoleProvider) }, incoming, "offers nothing"},
		"not read yet":          {func(w *world) { w.peer(v1alpha1.RoleProvider); w.hamburg.Silence() }, incoming, "not read yet"},
		"too large to be read":  {func(w *world) { w.peer(v1alpha1.RoleProvider); w.hamburg.Fail(peers.ErrTooLarge) }, incoming, "read what peer"},
		"malformed":             {func(w *world) { w.peer(v1alpha1.RoleProvider); w.offered(); w.raw.Store(nonsense) }, incoming, "read what peer"},
		"refused before policy": {func(w *world) { w.peer(v1alpha1.RoleProvider); w.offered(madeAt(time.Hour)) }, incoming, "ClockSkew"},
		"prices unknown": {func(w *world) {
			w.peer(v1alpha1.RoleConsumer)
			w.prices(map[string]string{"currency": "EUR", "cpu": "cheap"})
		}, outgoing, PricesConfigMap},
		"parting": {func(w *world) {
			peer := w.peer(v1alpha1.RoleConsumer)
			w.hold(peer)
			w.Home.Remove(peer)
		}, outgoing, "any more"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			close(w.publisher.capacity.complete)
			test.prepare(w)
			if err := test.gather(w); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestPeersAreFoundByNameAndByClusterID(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.Home.Put(&v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "altona"}, Spec: v1alpha1.PeerSpec{ClusterID: "c-altona"}})
	for name, want := range map[string]string{"hamburg": "hamburg", "altona": "altona", "c-altona": "altona"} {
		peer, err := findPeer(t.Context(), w.Home.Client, name)
		if err != nil || peer.Name != want {
			t.Errorf("%s is %v, %v", name, peer, err)
		}
	}
	if _, err := findPeer(t.Context(), w.Home.Client, "nobody"); err == nil {
		t.Error("nobody was found")
	}
}
