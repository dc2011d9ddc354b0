// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// market is a peer without Hanse, whose capacity is in memory.
type market struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	remote  client.WithWatch
	refused map[string]bool // kind of list → we may not
	surveyor
}

func newMarket(t *testing.T, there ...client.Object) *market {
	t.Helper()
	m := &market{t: t, clock: clocktesting.NewFakeClock(testkit.Noon), refused: map[string]bool{}}
	cluster := testkit.NewCluster(t, m.clock, there...)
	cluster.OnRead(func(read testkit.Read) error {
		if m.refused[read.Kind] || read.Namespace == "" && m.refused["everywhere"] {
			return apierrors.NewForbidden(schema.GroupResource{Resource: read.Kind}, "", nil)
		}
		return nil
	})
	m.remote = cluster.Client
	config := Config{ClusterID: homeID, Interval: 10 * time.Minute, TimeToLive: 30 * time.Minute, Clock: m.clock}
	m.surveyor = surveyor{config: config, reader: m.remote, peer: peer()}
	return m
}

func (m *market) mustOffer() *v1alpha1.AdvertisementSpec {
	m.t.Helper()
	offer, err := m.offer(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return offer
}

func (m *market) expectNoOffer(reason, says string) {
	m.t.Helper()
	_, err := m.offer(m.t.Context())
	none := noOffer{}
	if !errors.As(err, &none) || none.reason != reason || !strings.Contains(none.message, says) {
		m.t.Errorf("got %v, want %s that says %q", err, reason, says)
	}
}

func amounts(list corev1.ResourceList) map[corev1.ResourceName]string {
	texts := map[corev1.ResourceName]string{}
	for name, amount := range list {
		texts[name] = amount.String()
	}
	return texts
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: corev1.NodeStatus{
			Allocatable: testkit.Quantities("cpu", "8", "memory", "16Gi", "pods", "100", "ephemeral-storage", "50Gi"),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:    corev1.NodeSystemInfo{Architecture: "amd64", KubeletVersion: "v1.36.3"},
		},
	}
}

// podOf is a pod that asks for a core. A node name may be empty.
func podOf(namespace, name, on string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: testkit.Quantities("cpu", "1", "memory", "1Gi")},
		}}},
	}
}

func ours() map[string]string { return map[string]string{v1alpha1.LabelAgentless: peerID} }

func quota(hard, used corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Used: used},
	}
}

func TestNodesMakeAnOffer(t *testing.T) {
	m := newMarket(t, node(),
		podOf(there, "mine", "n1", ours()),
		podOf("else", "theirs", "n1", map[string]string{v1alpha1.LabelPeer: peerName}),
		podOf("else", "posing", "n1", ours()))
	offer := m.mustOffer()
	want := map[corev1.ResourceName]string{"cpu": "6", "memory": "14Gi", "pods": "98", "ephemeral-storage": "50Gi"}
	if diff := cmp.Diff(want, amounts(offer.Availability)); diff != "" {
		t.Error(diff)
	}
	if offer.ClusterID != peerID || offer.Architectures[0] != "amd64" || offer.KubernetesVersion != "v1.36.3" || offer.Prices != nil {
		t.Errorf("it says %+v", offer)
	}
}

// subject is what the manager follows.
var subject = &peers.Subject{Example: undecoded(&v1alpha1.Advertisement{})}

func TestOffersAreShownAsAdvertisements(t *testing.T) {
	m := newMarket(t, node())
	w := peerstest.New(t, testkit.Scheme(), peers.Config{Adapt: Offers(m.config)})
	w.Add(peerName, v1alpha1.TenantNamespace(peerName), m.remote)
	link := w.Link(peer())
	changes := make(chan struct{}, 10)
	mirror, err := link.Watch(t.Context(), subject, link.TenantNamespace(), func(types.NamespacedName) { changes <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	newest := func() *v1alpha1.AdvertisementSpec {
		t.Helper()
		<-changes
		object, found := mirror.Named(peerID)
		if !found {
			t.Fatal("there is no advertisement")
		}
		ad, err := exchange.Decode(object.(*unstructured.Unstructured).Object)
		if err != nil {
			t.Fatal(err)
		}
		return &ad.Spec
	}
	first := newest()
	if verdict := exchange.Judge(first, exchange.DefaultBounds(), peerID, nil, testkit.Noon); !verdict.Accepted {
		t.Errorf("nobody takes it: %+v", verdict)
	}
	for !m.clock.HasWaiters() {
		runtime.Gosched()
	}
	m.clock.Step(10 * time.Minute)
	again := newest()
	if again.Sequence <= first.Sequence || again.FullSequence != first.FullSequence ||
		!again.TimeToLive.Time.Equal(testkit.Noon.Add(40*time.Minute)) {
		t.Errorf("the offer was not renewed: %+v", again)
	}
}

func TestQuotasMakeAnOfferWhereNodesAreHidden(t *testing.T) {
	q := quota(testkit.Quantities("requests.cpu", "4", "limits.cpu", "8", "memory", "8Gi", "services", "3"),
		testkit.Quantities("requests.cpu", "3", "memory", "2Gi"))
	m := newMarket(t, q, podOf(there, "mine", "", ours()), podOf(there, "theirs", "", nil))
	m.refused["everywhere"] = true
	want := map[corev1.ResourceName]string{"cpu": "2", "memory": "7Gi", "pods": "110", "ephemeral-storage": "0"}
	if diff := cmp.Diff(want, amounts(m.mustOffer().Availability)); diff != "" {
		t.Error(diff)
	}
}

func TestQuotasBoundWhatNodesHave(t *testing.T) {
	m := newMarket(t, node(), quota(testkit.Quantities("cpu", "3"), testkit.Quantities("cpu", "1")))
	if got := amounts(m.mustOffer().Availability); got["cpu"] != "2" || got["memory"] != "16Gi" {
		t.Errorf("offered %v", got)
	}
}

func TestWhichRightIsMissingIsSaid(t *testing.T) {
	for name, test := range map[string]struct {
		refused []string
		there   []client.Object
		says    string
	}{
		"everything is hidden": {[]string{"everywhere", "ResourceQuotaList"}, nil, "resourcequotas in namespace guests"},
		"there is no quota":    {[]string{"everywhere"}, nil, "make such a quota"},
		"a quota of objects": {
			[]string{"NodeList"}, []client.Object{quota(testkit.Quantities("pods", "3"), nil)}, "requests.cpu and requests.memory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(t, test.there...)
			for _, kind := range test.refused {
				m.refused[kind] = true
			}
			m.expectNoOffer(v1alpha1.ReasonAgentless, test.says)
		})
	}
}

func TestAnIDThatSomebodyChoseIsNotUsed(t *testing.T) {
	m := newMarket(t, node())
	m.peer.Spec.ClusterID = "rostock"
	m.expectNoOffer(v1alpha1.ReasonClusterIDMismatch, "make the Peer anew")
}
