package policymaker

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// league is a peer that we consume from and provide to, and a namespace that is offloaded.
func league() []client.Object {
	offer := func(cluster string, cpu string) *v1alpha1.Advertisement {
		return &v1alpha1.Advertisement{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: v1alpha1.TenantNamespace("hamburg"), Name: cluster, Labels: map[string]string{v1alpha1.LabelPeer: "hamburg"},
			},
			Spec: v1alpha1.AdvertisementSpec{
				ClusterID: cluster, TimeToLive: metav1.NewTime(start.Add(time.Hour)),
				Availability: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			},
			Status: v1alpha1.AdvertisementStatus{
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}},
			},
		}
	}
	ours := offer("c-lubeck", "2")
	ours.Labels = nil
	return []client.Object{
		&v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg"}, Spec: v1alpha1.PeerSpec{ClusterID: "c-hamburg"}},
		&v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bremen"}, Spec: v1alpha1.PeerSpec{ClusterID: "c-bremen"}},
		offer("c-hamburg", "8"), ours,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "retail"}}},
		&v1alpha1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName},
			Spec:       v1alpha1.NamespaceOffloadingSpec{Placement: &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}},
		},
	}
}

func TestTestsAreAskedAboutTheLiveCluster(t *testing.T) {
	for name, test := range map[string]struct{ question, key, value, condition string }{
		"an offer to us":        {"incoming", keyAdvertisement, "hamburg", `input.advertisement.availability.cpu == 8`},
		"by its cluster id":     {"incoming", keyAdvertisement, "c-hamburg", `input.peer.name == "hamburg"`},
		"with the table":        {"incoming", keyAdvertisement, "hamburg", `input.table[0].peer == "hamburg"`},
		"with the time":         {"incoming", keyAdvertisement, "hamburg", `input.time == "2026-03-01T12:00:00Z"`},
		"an offer of ours":      {"outgoing", keyAdvertisement, "hamburg", `input.advertisement.availability.cpu == 2`},
		"a namespace":           {"placement", keyNamespace, "shop", `input.namespace.labels.team == "retail"`},
		"with its user's wish":  {"placement", keyNamespace, "shop", `input.wish.prefer == "Price"`},
		"with what is on offer": {"placement", keyNamespace, "shop", `input.table[0].availability.cpu == 8`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, league()...)
			w.look()
			module := "package hanse." + test.question + "\ndeny contains \"found\" if " + test.condition
			got := w.answer(configMap("try", v1alpha1.LabelPolicyTest, test.question, map[string]string{keyModule: module, test.key: test.value}))
			if got.Reason != "found" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAnOfferThatThereIsNotCannotBeAskedAbout(t *testing.T) {
	w := newWorld(t, league()...)
	w.look()
	for _, question := range []string{"incoming", "outgoing"} {
		got := w.answer(configMap("try-"+question, v1alpha1.LabelPolicyTest, question, map[string]string{keyAdvertisement: "bremen"}))
		if got.Error == "" {
			t.Errorf("%s gets %+v", question, got)
		}
	}
}

func TestWhoAsksInEarnestKnowsMore(t *testing.T) {
	w := newWorld(t, league()...)
	w.look()
	w.Gather(policy.Incoming, func(_ context.Context, question policy.Question, name string) (policy.Facts, error) {
		if question != policy.Incoming || name != "hamburg" {
			return policy.Facts{}, errors.New("nobody knows " + name)
		}
		return policy.Facts{Time: start, Previous: &v1alpha1.AdvertisementSpec{ClusterID: "c-before"}}, nil
	})
	module := head + `deny contains "found" if input.previous.clusterID == "c-before"`
	got := w.answer(configMap("try", v1alpha1.LabelPolicyTest, "incoming", map[string]string{keyModule: module, keyAdvertisement: "hamburg"}))
	if got.Reason != "found" {
		t.Errorf("got %+v", got)
	}
	got = w.answer(configMap("again", v1alpha1.LabelPolicyTest, "incoming", map[string]string{keyModule: module, keyAdvertisement: "bremen"}))
	if got.Error == "" {
		t.Errorf("got %+v", got)
	}
}
