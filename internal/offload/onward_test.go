// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestWhatIsAskedOfClustersThatAPodIsSentOnTo(t *testing.T) {
	type asks = v1alpha1.OnwardPlacement
	ids := map[string]string{"hamburg": "c-hamburg", "bremen": "c-bremen", "riga": "c-riga"}
	idOf := func(peer string) string {
		if id := ids[peer]; id != "" {
			return id
		}
		return peer
	}
	price := &v1alpha1.Price{Amount: resource.MustParse("0.05"), Currency: "EUR"}
	near, wide := &metav1.Duration{Duration: 50 * time.Millisecond}, ptr.To(resource.MustParse("100M"))
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	requires := func(key string, values ...v1alpha1.LabelValue) []v1alpha1.ClusterSelectorRequirement {
		return []v1alpha1.ClusterSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}
	}
	gold := map[string]v1alpha1.LabelValue{"tier": "gold"}
	for name, test := range map[string]struct {
		spec    v1alpha1.NamespaceOffloadingSpec
		decided []v1alpha1.NodePlacement
		pod     metav1.ObjectMeta
		want    *asks
	}{
		"nothing": {},
		"only what concerns the first hop": {
			spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, Placement: &v1alpha1.NamespacePlacement{
				Placement: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true, Request: small},
			}},
		},
		"a selector": {
			spec: v1alpha1.NamespaceOffloadingSpec{ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: gold}},
			want: &asks{ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: gold}},
		},
		"a selector that names peers": {
			spec: v1alpha1.NamespaceOffloadingSpec{ClusterSelector: &v1alpha1.ClusterSelector{
				MatchLabels:      map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: "hamburg"},
				MatchExpressions: requires(v1alpha1.LabelPeer, "hamburg", "visby"),
			}},
			want: &asks{ClusterSelector: &v1alpha1.ClusterSelector{
				MatchExpressions: append(requires(v1alpha1.LabelClusterID, "c-hamburg"), requires(v1alpha1.LabelClusterID, "c-hamburg", "visby")...),
			}},
		},
		"bounds and exclusions": {
			spec: v1alpha1.NamespaceOffloadingSpec{Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{
				Exclude: []string{"riga", "visby"}, MaxPrice: price, MaxLatency: near, MinBandwidth: wide, Request: small,
			}}},
			want: &asks{Exclude: []string{"c-riga", "visby"}, MaxPrice: price, MaxLatency: near, MinBandwidth: wide, Request: small},
		},
		"a bandwidth alone": {
			spec: v1alpha1.NamespaceOffloadingSpec{Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{MinBandwidth: wide}}},
			want: &asks{MinBandwidth: wide},
		},
		"the pod's own exclusion": {
			pod:  metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationExclude: " bremen, Not a name,"}},
			want: &asks{Exclude: []string{"c-bremen"}},
		},
		"what a policy excludes": {
			decided: []v1alpha1.NodePlacement{{Name: "hanse-riga", Excluded: "data stays in the EU"}, {Name: "hanse-bremen", Weight: 1}},
			want:    &asks{Exclude: []string{"c-riga"}},
		},
		"what is asked for a class": {
			spec: v1alpha1.NamespaceOffloadingSpec{Placement: &v1alpha1.NamespacePlacement{
				Placement: v1alpha1.Placement{Exclude: []string{"riga"}, MaxLatency: near},
				Classes: []v1alpha1.PlacementClass{{
					Name: "gold", PodLabels: gold, Placement: v1alpha1.Placement{Exclude: []string{"bremen"}, MaxPrice: price},
				}},
			}},
			pod:  metav1.ObjectMeta{Labels: map[string]string{"tier": "gold"}},
			want: &asks{Exclude: []string{"c-bremen", "c-riga"}, MaxPrice: price, MaxLatency: near},
		},
	} {
		t.Run(name, func(t *testing.T) {
			placement := placed(t, test.spec, v1alpha1.PlacementStatus{Nodes: test.decided})
			got := placement.AsksOnward(&corev1.Pod{ObjectMeta: test.pod}, idOf)
			if diff := cmp.Diff(test.want, got, cmpQuantities, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

var cmpQuantities = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })

// carrying is a pod that has come by the path and carries what was asked.
func carrying(onward string, path ...string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{v1alpha1.AnnotationPath: strings.Join(path, ","), v1alpha1.AnnotationOnward: onward}
	own(pod, shadowOf(`{}`))
	return pod
}

func TestWhatWasAskedBeforeGoesOnWithThePod(t *testing.T) {
	millis := func(n time.Duration) *metav1.Duration { return &metav1.Duration{Duration: n * time.Millisecond} }
	mine := &v1alpha1.OnwardPlacement{Exclude: []string{"riga"}, MaxLatency: millis(30)}
	theirs := v1alpha1.OnwardPlacement{Exclude: []string{"visby"}, MaxLatency: millis(20), MinBandwidth: ptr.To(resource.MustParse("100M"))}
	before, err := SendOnward(&corev1.Pod{}, &theirs, 0)
	if err != nil {
		t.Fatal(err)
	}
	stranger := carrying(before, "lubeck", "hamburg")
	stranger.OwnerReferences = nil
	nearer := func(asked v1alpha1.OnwardPlacement, n time.Duration) v1alpha1.OnwardPlacement {
		asked.MaxLatency = millis(n)
		return asked
	}
	spent := theirs
	spent.MaxLatency = &metav1.Duration{Duration: nothingLeft}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		asked *v1alpha1.OnwardPlacement
		away  time.Duration
		want  []v1alpha1.OnwardPlacement
	}{
		"nothing":                              {&corev1.Pod{}, nil, 0, nil},
		"what is asked here":                   {&corev1.Pod{}, mine, 0, []v1alpha1.OnwardPlacement{*mine}},
		"what was asked before":                {carrying(before, "lubeck", "hamburg"), nil, 0, []v1alpha1.OnwardPlacement{theirs}},
		"both":                                 {carrying(before, "lubeck", "hamburg"), mine, 0, []v1alpha1.OnwardPlacement{theirs, *mine}},
		"the way counts":                       {carrying(before, "lubeck", "hamburg"), mine, 5 * time.Millisecond, []v1alpha1.OnwardPlacement{nearer(theirs, 15), nearer(*mine, 25)}},
		"the way is too long":                  {carrying(before, "lubeck", "hamburg"), nil, time.Second, []v1alpha1.OnwardPlacement{spent}},
		"what a user wrote on a pod of theirs": {stranger, nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := SendOnward(test.pod, test.asked, test.away)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ReadOnward(text)
			if diff := cmp.Diff(test.want, got, cmpQuantities); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
	large := &v1alpha1.OnwardPlacement{Exclude: make([]string, v1alpha1.MaxOnwardBytes)}
	if _, err := SendOnward(&corev1.Pod{}, large, 0); err == nil {
		t.Error("more is asked than a provider takes")
	}
}

func TestWhatIsAskedIsReadStrictly(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want bool
	}{
		"nothing":                {"", true},
		"an empty list":          {"[]", true},
		"an exclusion":           {`[{"exclude":["riga"]}]`, true},
		"something newer":        {`[{"exclude":["riga"],"onlyOnSundays":true}]`, false},
		"no list":                {`{"exclude":["riga"]}`, false},
		"no JSON":                {`exclude riga`, false},
		"too many":               {`[{},{},{},{},{},{}]`, false},
		"a selector of nonsense": {`[{"clusterSelector":{"matchExpressions":[{"key":"a b","operator":"In","values":["x"]}]}}]`, false},
		"no operator":            {`[{"clusterSelector":{"matchExpressions":[{"key":"a","operator":"Perhaps"}]}}]`, false},
		"a price below nothing":  {`[{"maxPrice":{"amount":"-1","currency":"EUR"}}]`, false},
		"a price of no currency": {`[{"maxPrice":{"amount":"1","currency":""}}]`, false},
		"no time":                {`[{"maxLatency":"0s"}]`, false},
		"a bandwidth":            {`[{"minBandwidth":"100M"}]`, true},
		"no bandwidth":           {`[{"minBandwidth":"0"}]`, false},
		"less than no bandwidth": {`[{"minBandwidth":"-1"}]`, false},
		"too long":               {`[{"exclude":["` + strings.Repeat("a", v1alpha1.MaxOnwardBytes) + `"]}]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked, err := ReadOnward(test.text)
			if (err == nil) != test.want {
				t.Errorf("read %v, error %v", asked, err)
			}
		})
	}
}

func TestRouteOfAPodOfWhoseWaySomethingIsAsked(t *testing.T) {
	const plain = `{"spec":{"containers":[{"name":"c","image":"i"}]}}`
	const asks = `[{"exclude":["riga"]}]`
	path := []string{"lubeck", "hamburg"}
	for name, test := range map[string]struct {
		rules Rules
		next  []string // where it may go
	}{
		"it may go on to some":         {Rules{Path: path, Next: []string{"bremen", "lubeck"}}, []string{"bremen"}},
		"it may go on to none":         {Rules{Path: path}, nil},
		"it may only go back":          {Rules{Path: path, Next: []string{"lubeck"}}, nil},
		"this cluster sends none on":   {Rules{Next: []string{"bremen"}}, nil},
		"this cluster knows no others": {Rules{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := shadowOf(plain)
			shadow.Spec.Onward = asks
			pod, err := Build(shadow, test.rules)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.next, Next(pod)); diff != "" {
				t.Errorf("next (-want +got):\n%s", diff)
			}
			if goesOn := test.next != nil; (carriedOnward(pod) == asks) != goesOn || (len(Path(pod)) > 0) != goesOn {
				t.Errorf("it carries %v", pod.Annotations)
			}
			if terms := requiredTerms(pod); (len(terms) == 2) != (test.next != nil) {
				t.Errorf("it may run on %v", terms)
			}
			NoteSentOn(pod, "riga: It is excluded")
			if told := pod.Annotations[v1alpha1.AnnotationSentOn]; !strings.Contains(told, "riga: It is excluded") ||
				strings.Contains(told, "bremen") != (test.next != nil) {
				t.Errorf("it says %q", told)
			}
		})
	}
}

// FuzzReadOnward feeds ReadOnward what a hostile consumer may send. What is read goes on to the next cluster as it is.
func FuzzReadOnward(f *testing.F) {
	f.Add(`[{"clusterSelector":{"matchLabels":{"region":"north"}},"exclude":["riga"],"request":{"cpu":"2"},` +
		`"maxPrice":{"amount":"0.05","currency":"EUR"},"maxLatency":"50ms","minBandwidth":"100M"}]`)
	f.Add(`[{"maxPrice":{"amount":"1e999","currency":"EUR"}}]`)
	f.Add(`[{"clusterSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["x"]}]}}]`)
	f.Fuzz(func(t *testing.T, text string) {
		asked, err := ReadOnward(text)
		if err != nil || len(asked) == 0 {
			return
		}
		sent, err := SendOnward(carrying(text, "lubeck", "hamburg"), nil, 0)
		if err != nil {
			return // it is longer than what was read, as other texts for the same may be
		}
		again, err := ReadOnward(sent)
		if diff := cmp.Diff(asked, again, cmpQuantities, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("error %v, what is asked has changed (-read +sent):\n%s", err, diff)
		}
	})
}
