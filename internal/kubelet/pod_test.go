// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	// going is a pod about which all is well, except that the peer has no record of it.
	going := podFacts{
		peer: turin, home: podCalled("web-1"), virtual: true, peered: true, offloaded: true, settled: true, linked: true,
		view: view{answers: true, mappingsSynced: true, mapping: mapping(), twin: twinName, shadowsSynced: true},
	}
	out := shadowOf(podCalled("web-1"))
	ended := podCalled("web-1")
	ended.Status.Phase = corev1.PodFailed
	over := out.DeepCopy()
	over.Status.Phase = string(corev1.PodSucceeded)
	givenUp := out.DeepCopy()
	givenUp.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUnrecoverable, Status: metav1.ConditionTrue}}
	other := podCalled("web-1")
	other.UID = "uid-other"
	pending := mapping()
	pending.Status.Conditions = nil
	ending := mapping()
	ending.Status.Conditions[0].Status = "False"
	ending.Status.Conditions[0].Reason = v1alpha1.ReasonNamespaceTerminating

	for name, tc := range map[string]struct {
		change func(f *podFacts)
		want   action
	}{
		"a pod goes out": {func(*podFacts) {}, doCreate},
		"without waiting for what the twin holds":       {func(f *podFacts) { f.shadowsSynced = false }, doCreate},
		"a pod that is out is reported":                 {func(f *podFacts) { f.shadow = out }, doReport},
		"also from a namespace no longer offloaded":     {func(f *podFacts) { f.shadow, f.offloaded = out, false }, doReport},
		"an ended pod too":                              {func(f *podFacts) { f.shadow, f.home = over, ended }, doReport},
		"one whose remote pod can run no more too":      {func(f *podFacts) { f.shadow, f.home = givenUp, ended }, doReport},
		"what runs for an ended pod is stopped":         {func(f *podFacts) { f.shadow, f.home = out, ended }, doClear},
		"when the peer answers":                         {func(f *podFacts) { f.shadow, f.home, f.answers = out, ended, false }, doNothing},
		"but it does not go out":                        {func(f *podFacts) { f.home = ended }, doNothing},
		"a record of no pod is cleared":                 {func(f *podFacts) { f.shadow, f.home = out, nil }, doClear},
		"a record of another pod too":                   {func(f *podFacts) { f.shadow, f.home = out, other }, doClear},
		"nothing is nothing":                            {func(f *podFacts) { f.home = nil }, doNothing},
		"a pod on a node that is not ours is let alone": {func(f *podFacts) { f.virtual = false }, doNothing},
		"even when it is dying": {func(f *podFacts) {
			f.virtual, f.home = false, dying("web-1", 30)
		}, doNothing},
		"a namespace that is not offloaded is told": {func(f *podFacts) { f.offloaded = false }, doHold},
		"no link is told": {func(f *podFacts) { f.linked = false }, doHold},
		"not before it is known whether there is one": {func(f *podFacts) {
			f.linked, f.settled, f.answers = false, false, false
		}, doWait},
		"nor that the peer does not answer":           {func(f *podFacts) { f.settled, f.answers = false, false }, doWait},
		"but not at once":                             {func(f *podFacts) { f.linked, f.justBound = false, true }, doWait},
		"a peer that has not answered is told":        {func(f *podFacts) { f.mappingsSynced = false }, doHold},
		"one that answers no more is told":            {func(f *podFacts) { f.answers = false }, doHold},
		"a started pod needs not be told":             {func(f *podFacts) { f.home, f.answers = running(), false }, doNothing},
		"nor of a namespace that lost its mapping":    {func(f *podFacts) { f.home, f.mapping, f.twin = running(), nil, "" }, doNothing},
		"a started pod that the peer lost goes out":   {func(f *podFacts) { f.home = running() }, doCreate},
		"a peer that is down is not asked to end":     {func(f *podFacts) { f.home, f.shadow, f.answers = dying("web-1", 30), out, false }, doNothing},
		"nor to clear":                                {func(f *podFacts) { f.home, f.shadow, f.answers = nil, out, false }, doNothing},
		"nor what is left":                            {func(f *podFacts) { f.home, f.answers = dying("web-1", 30), false }, doNothing},
		"no mapping is told":                          {func(f *podFacts) { f.mapping, f.twin = nil, "" }, doHold},
		"a mapping that is not ready is told":         {func(f *podFacts) { f.mapping = pending }, doHold},
		"a dying pod that is out is ended":            {func(f *podFacts) { f.home, f.shadow = dying("web-1", 30), out }, doEnd},
		"a dying pod of which nothing is left goes":   {func(f *podFacts) { f.home = dying("web-1", 30) }, doFinish},
		"a dying pod waits for the link":              {func(f *podFacts) { f.home, f.linked = dying("web-1", 30), false }, doNothing},
		"and for the mappings":                        {func(f *podFacts) { f.home, f.mappingsSynced = dying("web-1", 30), false }, doNothing},
		"and for the twin":                            {func(f *podFacts) { f.home, f.shadowsSynced = dying("web-1", 30), false }, doNothing},
		"without a twin there is nothing to wait for": {func(f *podFacts) { f.home, f.mapping, f.twin, f.shadowsSynced = dying("web-1", 30), nil, "", false }, doFinish},
		"a twin that is being deleted may still have it": {func(f *podFacts) {
			f.home, f.mapping, f.twin, f.shadowsSynced = dying("web-1", 30), ending, "", false
		}, doNothing},
		"until it is seen to be empty of it":       {func(f *podFacts) { f.home, f.mapping = dying("web-1", 30), ending }, doFinish},
		"a pod that ended with its twin is failed": {func(f *podFacts) { f.home, f.mapping = running(), ending }, doGiveUp},
		"not while it may still end there": {func(f *podFacts) {
			f.home, f.mapping, f.twin, f.shadowsSynced = running(), ending, "", false
		}, doNothing},
		"one that never ran waits for the next twin": {func(f *podFacts) { f.mapping = ending }, doHold},
		"nor without the Peer": {func(f *podFacts) {
			f.home, f.linked, f.peered = dying("web-1", 30), false, false
		}, doFinish},
	} {
		t.Run(name, func(t *testing.T) {
			facts := going
			tc.change(&facts)
			got := decide(facts)
			if got.do != tc.want {
				t.Errorf("got action %d (%s), want %d", got.do, got.message, tc.want)
			}
			if (got.do == doHold) != (got.message != "") {
				t.Errorf("action %d has the message %q", got.do, got.message)
			}
		})
	}
}

func running() *corev1.Pod {
	pod := podCalled("web-1")
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web"}}
	return pod
}

func TestRevisionChangesWithWhatMayTravel(t *testing.T) {
	base := revision(podCalled("web-1"), nil, false)
	for name, tc := range map[string]struct {
		change func(pod *corev1.Pod)
		same   bool
	}{
		"the status does not travel": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, true},
		"the spec does":              {func(p *corev1.Pod) { p.Generation++ }, false},
		"labels do":                  {func(p *corev1.Pod) { p.Labels["app"] = "other" }, false},
		"annotations do":             {func(p *corev1.Pod) { p.Annotations = map[string]string{"app": "shop"} }, false},
		"a label is no annotation": {func(p *corev1.Pod) {
			p.Annotations, p.Labels = p.Labels, nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podCalled("web-1")
			tc.change(pod)
			if same := revision(pod, nil, false) == base; same != tc.same {
				t.Errorf("same revision: %t", same)
			}
		})
	}
}

func TestMessageOfTheMappingReachesThePod(t *testing.T) {
	m := mapping()
	m.Status.Twin = ""
	m.Status.Conditions[0].Status = "False"
	m.Status.Conditions[0].Message = "the quota is used up"
	facts := podFacts{
		peer: turin, home: podCalled("web-1"), virtual: true, offloaded: true, linked: true,
		view: view{answers: true, mappingsSynced: true, mapping: m},
	}
	want := `peer "turin" has not made a twin of namespace "shop" yet: the quota is used up`
	if got := decide(facts); got.message != want {
		t.Errorf("message %q", got.message)
	}
}
