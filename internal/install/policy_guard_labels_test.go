// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestOnlyTheManagerSpeaksInHansesNameOnPods(t *testing.T) {
	type entries = map[string]string
	pod := func(labels, annotations entries) *corev1.Pod {
		p := podWith(t, "")
		p.Labels, p.Annotations = labels, annotations
		return p
	}
	plain := pod(entries{"app": "web"}, entries{"example.org/a": "b"})
	remote := pod(entries{v1alpha1.LabelPeer: "turin", v1alpha1.LabelHomeUID: "u", "app": "web"}, entries{v1alpha1.AnnotationAsked: "x"})
	of := func(peer string) *corev1.Pod { return pod(entries{v1alpha1.LabelPeer: peer}, nil) }
	noted := func(key string) *corev1.Pod { return pod(nil, entries{key: "x"}) }
	agentless := pod(
		entries{v1alpha1.LabelAgentless: "id", v1alpha1.LabelHomeUID: "u"}, entries{v1alpha1.AnnotationHomePod: "web"})
	posing := agentless.DeepCopy()
	posing.Labels[v1alpha1.LabelPeer] = "turin"
	without := func(key string) *corev1.Pod {
		changed := remote.DeepCopy()
		delete(changed.Labels, key)
		delete(changed.Annotations, key)
		return changed
	}
	given := remote.DeepCopy()
	given.Labels[v1alpha1.LabelPeer] = "milan"
	relabelled := remote.DeepCopy()
	relabelled.Labels["app"] = "other"
	const labels, annotations, taken = "metadata.labels", "metadata.annotations", "metadata: "
	controller := "system:serviceaccount:kube-system:replicaset-controller"

	expectDecisions(t, validatingPolicy(t, "hanse-guard-labels"), map[string]decision{
		"a plain pod":                           {review: review{by: admin, in: inShop, object: plain}},
		"of a peer, by a user":                  {review: review{by: admin, in: inShop, object: of("turin")}, want: labels},
		"of a peer, by a controller":            {review: review{by: controller, in: inShop, object: of("turin")}, want: labels},
		"of a peer, by a peer":                  {review: review{by: peer, in: inShop, object: of("turin")}, want: labels},
		"of a peer, by hanse kubelet":           {review: review{by: kubelet, in: inShop, object: of("turin")}, want: labels},
		"of a peer, later":                      {review: review{by: admin, in: inShop, old: plain, object: of("turin")}, want: labels},
		"of another peer than before":           {review: review{by: admin, in: inShop, old: of("milan"), object: of("turin")}, want: labels},
		"of a peer, from before this policy":    {review: review{by: admin, in: inShop, old: of("turin"), object: of("turin")}},
		"of a peer no longer":                   {review: review{by: admin, in: inShop, old: of("turin"), object: plain}},
		"a label that is not known yet":         {review: review{by: admin, in: inShop, object: pod(entries{"hanse.dev/new": "x"}, nil)}, want: labels},
		"of a domain below ours":                {review: review{by: admin, in: inShop, object: pod(entries{"a.hanse.dev/x": "y"}, nil)}, want: labels},
		"of a domain that only looks like it":   {review: review{by: admin, in: inShop, object: pod(entries{"myhanse.dev/x": "y"}, nil)}},
		"that has come a way":                   {review: review{by: admin, in: inShop, object: noted(v1alpha1.AnnotationPath)}, want: annotations},
		"what it was made from":                 {review: review{by: admin, in: inShop, object: noted(v1alpha1.AnnotationAsked)}, want: annotations},
		"what it prefers":                       {review: review{by: admin, in: inShop, object: noted(v1alpha1.AnnotationPrefer)}},
		"whom it excludes":                      {review: review{by: admin, in: inShop, object: noted(v1alpha1.AnnotationExclude)}},
		"whom it excludes, later":               {review: review{by: admin, in: inShop, old: plain, object: noted(v1alpha1.AnnotationExclude)}},
		"that its token stays":                  {review: review{by: admin, in: inShop, object: noted(v1alpha1.AnnotationSkipToken)}},
		"why it runs at home":                   {review: review{by: admin, in: inShop, object: noted(v1alpha1.AnnotationRunsAtHome)}},
		"why it runs at home, said later":       {review: review{by: admin, in: inShop, old: plain, object: noted(v1alpha1.AnnotationRunsAtHome)}, want: annotations},
		"of a home for which there is no Hanse": {review: review{by: admin, in: inShop, object: agentless}},
		"of a peer and of such a home":          {review: review{by: admin, in: inShop, object: posing}, want: labels},

		"a peer's, by the manager":             {review: review{by: manager, in: inTwin, object: remote}},
		"a peer's, changed by the manager":     {review: review{by: manager, in: inTwin, old: remote, object: without(v1alpha1.AnnotationAsked)}},
		"a peer's, with another label":         {review: review{by: admin, in: inTwin, old: remote, object: relabelled}},
		"a peer's, given to another":           {review: review{by: admin, in: inTwin, old: remote, object: given}, want: labels},
		"a peer's, of nobody":                  {review: review{by: admin, in: inTwin, old: remote, object: without(v1alpha1.LabelPeer)}, want: taken},
		"a peer's, without a note":             {review: review{by: admin, in: inTwin, old: remote, object: without(v1alpha1.AnnotationAsked)}, want: taken},
		"a peer's, said to be of an agentless": {review: review{by: admin, in: inTwin, old: plain, object: pod(entries{v1alpha1.LabelAgentless: "id"}, nil)}, want: labels},
		"a peer's, excluding":                  {review: review{by: admin, in: inTwin, old: plain, object: noted(v1alpha1.AnnotationExclude)}, want: annotations},
		"its end":                              {review: review{by: admin, in: inTwin, old: remote}},
		"its status":                           {review: review{by: "system:node:worker-1", in: inTwin, of: "pods/status", old: remote, object: relabelled}},
	})
}
