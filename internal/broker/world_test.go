// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a broker, hamburg, and two members of it that are no peers, lubeck and wismar. The id of each ends in -id.
type world struct {
	*testkit.World
	broker         *testkit.Cluster
	relay          *relay
	marker         *marker
	readers        *readers
	lubeck, wismar *cluster
}

// A cluster is a member.
type cluster struct {
	*testkit.Cluster
	*member
	ages  *ages
	links *peerstest.World
	way   *peerstest.Peer // to hamburg
	key   ed25519.PrivateKey
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t)}
	w.broker = testkit.NewCluster(t, w.Clock, memberPeer("lubeck"), memberPeer("wismar"))
	w.broker.Before(func(write testkit.Write) error { // generations are the API server's
		if write.Kind == "Message" && (write.Verb == "create" || write.Verb == "update") {
			write.Object.SetGeneration(write.Object.GetGeneration() + 1)
		}
		return nil
	})
	w.lubeck, w.wismar = w.newMember("lubeck"), w.newMember("wismar")
	config := Config{Client: w.broker.Client, Live: w.broker.Server, Clock: w.Clock, ClusterID: "hamburg-id", Key: keyOf("hamburg")}
	w.relay, w.readers = &relay{config, &notes{}}, &readers{config, local.Uncached(config.Client, config.Live)}
	w.marker = &marker{config, w.relay.notes}
	return w
}

// memberPeer is what hamburg has of the member.
func memberPeer(name string) *v1alpha1.Peer {
	peer := testkit.Peer(name, v1alpha1.RoleConsumer, v1alpha1.RoleMember)
	peer.Spec.PublicKey = trust.PublicKeyOf(keyOf(name))
	return peer
}

// newMember returns a member of hamburg, to whose members it has 4 CPUs to spare.
func (w *world) newMember(name string) *cluster {
	w.Helper()
	own := testkit.NewCluster(w, w.Clock, brokerPeer("hamburg"), toSpare(name+"-id", "4"))
	c := &cluster{Cluster: own, key: keyOf(name), links: peerstest.New(w, testkit.Scheme(), peers.Config{})}
	c.member = &member{Config: Config{
		Client: own.Client, Live: own.Client, Links: c.links.Links, Clock: w.Clock, ClusterID: name + "-id", Key: c.key,
	}, direct: local.Uncached(own.Client, own.Client)}
	c.ages = &ages{c.Config}
	c.way = c.joins("hamburg", v1alpha1.TenantNamespace(name), w.broker)
	return c
}

// joins links the cluster to its broker.
func (c *cluster) joins(broker, tenantNamespace string, there *testkit.Cluster) *peerstest.Peer {
	way := c.links.Add(broker, tenantNamespace, there.Client)
	c.links.Link(brokerPeer(broker))
	return way
}

// brokerPeer is what a member has of its broker.
func brokerPeer(name string) *v1alpha1.Peer {
	peer := testkit.Peer(name, v1alpha1.RoleProvider, v1alpha1.RoleBroker)
	peer.Spec.PublicKey = trust.PublicKeyOf(keyOf(name))
	return peer
}

func keyOf(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(slices.Repeat([]byte{name[0]}, ed25519.SeedSize))
}

// hasToSpare has the cluster advertise that to its broker.
func (c *cluster) hasToSpare(cpu string) { c.Put(toSpare(c.ClusterID, cpu)) }

// toSpare is what the cluster of that id advertises to hamburg.
func toSpare(id, cpu string) *v1alpha1.Advertisement {
	ad := testkit.Advertisement("hamburg")
	ad.Name = id
	ad.Spec.Availability = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return ad
}

// rounds has everybody look so many times, and see what the others have written. What members ask for is done by hand.
func (w *world) rounds(count int) {
	w.Helper()
	for range count {
		w.looks(w.lubeck)
		w.looks(w.wismar)
		w.relays()
	}
}

// looks has one member look at hamburg, as it is now.
func (w *world) looks(c *cluster) time.Duration {
	w.Helper()
	c.way.Heal()
	return w.Reconcile(c.member, "", "hamburg").RequeueAfter
}

// relays has the broker look at all Messages, and at its peers.
func (w *world) relays() {
	w.Helper()
	all := &v1alpha1.MessageList{}
	if err := w.broker.Server.List(w.Context(), all); err != nil {
		w.Fatal(err)
	}
	for i := range all.Items {
		for _, request := range originOf(w.Context(), &all.Items[i]) {
			w.Reconcile(w.relay, request.Namespace, request.Name)
		}
	}
}

// said is the Message at the broker, in hanse-members or the tenant namespace of a member, nil if there is none.
func (w *world) said(namespace, name string) *v1alpha1.Message {
	w.Helper()
	message := &v1alpha1.Message{}
	if !w.broker.Find(message, namespace, name) {
		return nil
	}
	return message
}

// introduction is what hamburg tells all of the member.
func (w *world) introduction(of *cluster) *v1alpha1.Message {
	w.Helper()
	return w.said(v1alpha1.MembersNamespace, of.ClusterID)
}

// says has somebody put a Message where the statement would lie, signed with the key.
func (w *world) says(key ed25519.PrivateKey, namespace, name string, s trust.Statement, body any) *v1alpha1.Message {
	w.Helper()
	if s.Expires.IsZero() {
		s.Expires = w.Clock.Now().Add(introductionLife)
	}
	signed, err := trust.SignStatement(key, s, body)
	if err != nil {
		w.Fatal(err)
	}
	message := &v1alpha1.Message{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1}, Spec: v1alpha1.MessageSpec{To: s.To, SignedStatement: *signed}}
	w.broker.Put(message)
	return message
}

// knows is what the member knows of the other, nil if nothing.
func (c *cluster) knows(id string) *v1alpha1.Member {
	known := &v1alpha1.Member{}
	if !c.Find(known, "", id) {
		return nil
	}
	return known
}

// expectKnown checks that the member is known, that what is known of it holds, and how many CPUs it has to spare.
func (w *world) expectKnown(by, of *cluster, cpu string) *v1alpha1.Member {
	w.Helper()
	known := by.knows(of.ClusterID)
	if known == nil {
		w.Fatalf("%s does not know %s", by.ClusterID, of.ClusterID)
	}
	testkit.ExpectCondition(w, known.Status.Conditions, v1alpha1.ConditionCurrent, metav1.ConditionTrue, v1alpha1.ReasonHeard)
	testkit.ExpectCondition(w, known.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonHeard)
	if got := known.Status.Offer.Availability.Cpu().String(); got != cpu {
		w.Errorf("%s is said to have %s CPUs to spare, want %s", of.ClusterID, got, cpu)
	}
	return known
}

// expectNotHeard checks that the member is known by the key that was pinned, and that nothing that is known of it holds.
func (w *world) expectNotHeard(by, of *cluster, texts ...string) *v1alpha1.Member {
	w.Helper()
	known := by.knows(of.ClusterID)
	if known == nil {
		w.Fatalf("%s does not know %s", by.ClusterID, of.ClusterID)
	}
	for _, kind := range []string{v1alpha1.ConditionCurrent, v1alpha1.ConditionReady} {
		testkit.ExpectCondition(w, known.Status.Conditions, kind, metav1.ConditionFalse, v1alpha1.ReasonNotHeard, texts...)
	}
	if known.Spec.PublicKey != trust.PublicKeyOf(of.key) {
		w.Errorf("%s is known by key %s", known.Name, known.Spec.PublicKey)
	}
	return known
}

// refusedSo is how many statements were refused for each reason, by all members in all tests so far.
func refusedSo(t testing.TB) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, reason := range []string{
		v1alpha1.ReasonForged, v1alpha1.ReasonStale, v1alpha1.ReasonMalformed, v1alpha1.ReasonMisaddressed, v1alpha1.ReasonExpired,
		v1alpha1.ReasonUnknownMember, v1alpha1.ReasonRecipientFull,
	} {
		counts[reason] = testkit.Counted(t, peers.StatementsRefused.WithLabelValues("hamburg", reason))
	}
	return counts
}

// expectRefused checks that f has one statement refused for each of the reasons, and no other.
func (w *world) expectRefused(f func(), reasons ...string) {
	w.Helper()
	want := refusedSo(w)
	for _, reason := range reasons {
		want[reason]++
	}
	f()
	if diff := cmp.Diff(want, refusedSo(w)); diff != "" {
		w.Errorf("refused statements (-want +got):\n%s", diff)
	}
}

func (w *world) expectIntroduced(c *cluster, peer string, status metav1.ConditionStatus, reason string, texts ...string) {
	w.Helper()
	testkit.ExpectCondition(w, testkit.Get[v1alpha1.Peer](c.Cluster, "", peer).Status.Conditions, v1alpha1.ConditionIntroduced, status, reason, texts...)
}

// errorOf reconciles where an error is expected.
func (w *world) errorOf(c *cluster) error {
	_, err := c.Reconcile(w.Context(), testkit.Request("", "hamburg"))
	return err
}

var errBroken = errors.New("broken")

// tenantOf is the tenant namespace of the member at hamburg.
func tenantOf(c *cluster) string {
	return v1alpha1.TenantNamespace(strings.TrimSuffix(c.ClusterID, "-id"))
}
