package exchange

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// behind is an offer of a cluster in that of another.
func behind(id, cpu string, path ...string) v1alpha1.NestedOffer {
	return v1alpha1.NestedOffer{ClusterID: id, Path: path, Availability: resources("cpu", cpu)}
}

func cpuOf(list corev1.ResourceList) string {
	quantity := list[corev1.ResourceCPU]
	return quantity.String()
}

func TestWhatIsOfferedIsAllThatIsBehind(t *testing.T) {
	ad := offer()
	expectEqual(t, "4", cpuOf(Offered(ad)))
	ad.Nested = []v1alpha1.NestedOffer{behind("bremen", "2500m"), behind("visby", "1", "bremen")}
	got := Offered(ad)
	expectEqual(t, "7500m", cpuOf(got))
	expectEqual(t, "8Gi", got.Memory().String())
	expectEqual(t, "4", cpuOf(ad.Availability))
}

func TestNextHopsAreThoseThatTheSenderKnows(t *testing.T) {
	ad := offer()
	expectEqual(t, 0, len(NextHops(ad)))
	ad.Nested = []v1alpha1.NestedOffer{behind("visby", "1", "bremen", "riga"), behind("bremen", "1"), behind("danzig", "1", "wismar")}
	expectEqual(t, []string{"bremen", "wismar"}, NextHops(ad))
}

func TestWhatOthersHoldBehindIsNotOffered(t *testing.T) {
	virtual := node("hanse-bremen", func(n *corev1.Node) { n.Labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode })
	offers := []v1alpha1.Advertisement{
		taken("bremen", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.Nested = []v1alpha1.NestedOffer{behind("visby", "3")} }),
		taken("wismar", 1),
	}
	for name, test := range map[string]struct {
		pods                  []*corev1.Pod
		bremen, visby, wismar string
	}{
		"nobody":                            {nil, "4", "3", "4"},
		"the receiver itself":               {[]*corev1.Pod{boundPod("a", "hanse-bremen", "lubeck", resources("cpu", "2"))}, "4", "3", "4"},
		"we do":                             {[]*corev1.Pod{boundPod("a", "hanse-bremen", "", resources("cpu", "1"))}, "3", "3", "4"},
		"another":                           {[]*corev1.Pod{boundPod("a", "hanse-bremen", "riga", resources("cpu", "1"))}, "3", "3", "4"},
		"more than it has, so those behind": {[]*corev1.Pod{boundPod("a", "hanse-bremen", "riga", resources("cpu", "6"))}, "0", "1", "4"},
		"on our own nodes":                  {[]*corev1.Pod{boundPod("a", "n", "riga", resources("cpu", "1"))}, "4", "3", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			capacity := ledgerOf(Snapshot{Nodes: []*corev1.Node{node("n"), virtual}, Pods: test.pods}).Capacity(nil)
			got := capacity.Leftovers("lubeck", offers)
			expectEqual(t, []string{test.bremen, test.visby, test.wismar}, []string{
				cpuOf(got[0].Spec.Availability), cpuOf(got[0].Spec.Nested[0].Availability), cpuOf(got[1].Spec.Availability),
			})
			expectEqual(t, "4", cpuOf(offers[0].Spec.Availability))
			expectEqual(t, "3", cpuOf(offers[0].Spec.Nested[0].Availability))
		})
	}
}

func TestLimitsHoldForAllThatIsBehindTogether(t *testing.T) {
	nested := []v1alpha1.NestedOffer{behind("bremen", "2"), behind("visby", "3")}
	ad := offer(func(ad *v1alpha1.AdvertisementSpec) {
		ad.Nested, ad.LargestPod = nested, resources("cpu", "8", "memory", "1Gi")
	})
	Within(resources("cpu", "5"), ad)
	expectEqual(t, []string{"1", "0"}, []string{cpuOf(ad.Nested[0].Availability), cpuOf(ad.Nested[1].Availability)})
	expectEqual(t, "5", cpuOf(ad.LargestPod))
	expectEqual(t, "2", cpuOf(nested[0].Availability))

	unlimited := offer(func(ad *v1alpha1.AdvertisementSpec) { ad.Nested = nested })
	Within(nil, unlimited)
	expectEqual(t, "2", cpuOf(unlimited.Nested[0].Availability))
}

func TestTheLargestPodMayFitBehindOnly(t *testing.T) {
	larger := taken("bremen", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.LargestPod = resources("cpu", "3", "memory", "6Gi") })
	own := offer(func(ad *v1alpha1.AdvertisementSpec) { ad.LargestPod = resources("cpu", "1", "memory", "2Gi") })
	expectEqual(t, "3", cpuOf(Aggregate(*own, []v1alpha1.Advertisement{larger}, Share{}, "receiver").LargestPod))
	own.LargestPod = resources("cpu", "4", "memory", "8Gi")
	expectEqual(t, "4", cpuOf(Aggregate(*own, []v1alpha1.Advertisement{larger}, Share{}, "receiver").LargestPod))
	own.LargestPod = nil
	expectEqual(t, "3", cpuOf(Aggregate(*own, []v1alpha1.Advertisement{larger}, Share{}, "receiver").LargestPod))
}
