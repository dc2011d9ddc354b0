// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// behindHamburg is what hamburg, where the test runs, tells lubeck of the clusters behind it, and what it knows of them itself.
func behindHamburg() []client.Object {
	cpu := func(price string) *v1alpha1.Prices {
		return &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse(price)}}
	}
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-peer-lubeck", Name: "hamburg-id"},
		Spec: v1alpha1.AdvertisementSpec{Nested: []v1alpha1.NestedOffer{
			{ClusterID: "bremen-id", Prices: cpu("0.03")}, {ClusterID: "riga-id"}, {ClusterID: "visby-id", Path: []string{"riga-id"}},
		}},
	}
	objects := []client.Object{ad}
	for name, region := range map[string]string{"bremen": "north", "riga": "east"} {
		peer := testkit.Peer(name, v1alpha1.RoleProvider)
		peer.Spec.ClusterID = name + "-id"
		peer.Status.RoundTripTime = &metav1.Duration{Duration: 10 * time.Millisecond}
		peer.Status.Bandwidth = resource.NewQuantity(map[string]int64{"bremen": 1e6, "riga": 100e6}[name], resource.DecimalSI)
		objects = append(objects, peer, testkit.VirtualNode(name, map[string]string{
			v1alpha1.LabelClusterID: name + "-id", v1alpha1.LabelPeer: name, "region": region,
		}))
	}
	return objects
}

// asked is a ShadowPod of whose way that is asked.
func asked(onward string) *v1alpha1.ShadowPod {
	shadow := shadowPod()
	shadow.Spec.Onward = onward
	return shadow
}

func (s *stage) sendsOn() *stage {
	s.pods.config.ClusterID, s.pods.config.SendOn = "hamburg-id", true
	return s
}

func TestPodIsSentOnAsItsHomeAsks(t *testing.T) {
	for name, test := range map[string]struct {
		onward string
		path   []string
		stays  bool // this cluster sends no pods on
		want   []string
		told   []string
	}{
		"nothing is excluded":        {`[{"exclude":["visby-id"]}]`, nil, false, []string{"bremen-id", "riga-id"}, nil},
		"one is excluded":            {`[{"exclude":["bremen-id"]}]`, nil, false, []string{"riga-id"}, []string{"bremen-id: It is excluded"}},
		"one is too dear":            {`[{"maxPrice":{"amount":"0.01","currency":"EUR"}}]`, nil, false, []string{"riga-id"}, []string{"bremen-id", "maxPrice"}},
		"all are too far":            {`[{"maxLatency":"1ms"}]`, nil, false, nil, []string{"bremen-id", "riga-id", "maxLatency"}},
		"to one passes too little":   {`[{"minBandwidth":"100M"}]`, nil, false, []string{"riga-id"}, []string{"bremen-id", "minBandwidth"}},
		"a region":                   {`[{"clusterSelector":{"matchLabels":{"region":"north"}}}]`, nil, false, []string{"bremen-id"}, []string{"riga-id", "selector"}},
		"all that was asked":         {`[{"exclude":["bremen-id"]},{"exclude":["riga-id"]}]`, nil, false, nil, []string{"bremen-id", "riga-id"}},
		"something newer":            {`[{"onlyOnSundays":true}]`, nil, false, nil, []string{"cannot be read", "onlyOnSundays"}},
		"of one that sends none on":  {`[{"exclude":["bremen-id"]}]`, nil, true, nil, []string{"sends no pods on"}},
		"of one that came a far way": {`[{"exclude":["bremen-id"]}]`, []string{"a", "b", "c", "d"}, false, nil, []string{"too many clusters"}},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := asked(test.onward)
			shadow.Spec.Path = test.path
			s := newStage(t, shadow, behindHamburg()...).sendsOn()
			s.pods.config.SendOn = !test.stays
			s.run()
			pod := s.pod()
			if pod == nil {
				t.Fatal("it was not made")
			}
			if diff := cmp.Diff(test.want, offload.Next(pod)); diff != "" {
				t.Errorf("next (-want +got):\n%s", diff)
			}
			s.becomes(s.running)
			s.run()
			s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web") // that it is told costs no write
			status, reason := metav1.ConditionTrue, v1alpha1.ReasonPlacementObeyed
			if test.want == nil {
				status, reason = metav1.ConditionFalse, v1alpha1.ReasonStaysHere
			}
			testkit.ExpectCondition(t, s.shadow().Status.Conditions, v1alpha1.ConditionOnward, status, reason, append(test.told, test.want...)...)
		})
	}
}

func TestNothingIsSaidOfPodsOfWhoseWayNothingIsAsked(t *testing.T) {
	s := newStage(t, shadowPod(), behindHamburg()...).sendsOn()
	s.run()
	s.becomes(s.running)
	s.run()
	if c := meta.FindStatusCondition(s.shadow().Status.Conditions, v1alpha1.ConditionOnward); c != nil {
		t.Errorf("it says %+v", c)
	}
	if path := s.pod().Annotations[v1alpha1.AnnotationPath]; path != "lubeck-id,hamburg-id" || offload.Next(s.pod()) != nil {
		t.Errorf("path %q, next %v", path, offload.Next(s.pod()))
	}
}

// Home changes an image: where the pod may be sent on to was settled when it was made.
func TestAChangeLeavesTheWayOfAPodAlone(t *testing.T) {
	s := newStage(t, asked(`[{"exclude":["riga-id"]}]`), behindHamburg()...).sendsOn()
	s.run()
	s.becomes(s.running)
	s.run()
	before := s.pod()
	s.homeWants("i:2")
	s.Home.Remove(testkit.Get[v1alpha1.Advertisement](s.Home, "hanse-peer-lubeck", "hamburg-id"))
	s.Clock.Step(time.Minute)
	s.run()
	after := s.pod()
	if after.Spec.Containers[0].Image != "i:2" {
		t.Error("the change was not carried over")
	}
	for _, key := range []string{v1alpha1.AnnotationPath, v1alpha1.AnnotationOnward, v1alpha1.AnnotationSentOn} {
		if before.Annotations[key] == "" || before.Annotations[key] != after.Annotations[key] {
			t.Errorf("%s was %q and is %q", key, before.Annotations[key], after.Annotations[key])
		}
	}
}

// Pods come in crowds, and each is asked about.
func TestWhatIsBehindUsIsReadOnceForManyPods(t *testing.T) {
	const pods = 20
	objects := behindHamburg()
	for i := range pods {
		shadow := asking(strings.Repeat("w", i+1), "1")
		shadow.Spec.Onward = `[{"exclude":["riga-id"]}]`
		objects = append(objects, shadow)
	}
	s := newStage(t, shadowPod(), objects...).sendsOn()
	lists := 0
	s.Home.OnRead(func(read testkit.Read) error {
		if read.Kind == "NodeList" {
			lists++
		}
		return nil
	})
	for i := range pods {
		s.runOf(strings.Repeat("w", i+1))
	}
	if made := len(s.made()); made != pods || lists != 1 {
		t.Errorf("for %d pods the nodes were listed %d times", made, lists)
	}
}
