// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestWhatCannotBeOffloadedIsNotWritten(t *testing.T) {
	turin := virtualNodeOf("turin", "south")
	ready := newPeer("bergen", v1alpha1.RoleProvider)
	setCondition(ready, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	north := &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{"region": "north"}}
	for name, test := range map[string]struct {
		namespace string // "" is shop
		spec      v1alpha1.NamespaceOffloadingSpec
		objects   []client.Object
		says      string // "" if there is hope
	}{
		"the default namespace":          {namespace: "default", objects: []client.Object{turin}, says: "kubectl create namespace"},
		"a namespace of Kubernetes":      {namespace: "kube-system", objects: []client.Object{turin}, says: "kubectl create namespace"},
		"a namespace of a peer":          {namespace: "hanse-peer-turin", objects: []client.Object{turin}, says: "kubectl create namespace"},
		"that of Hanse, with its name":   {namespace: "league", objects: []client.Object{turin}, says: "kubectl create namespace"},
		"a selector that nothing has":    {spec: v1alpha1.NamespaceOffloadingSpec{ClusterSelector: north}, objects: []client.Object{turin}, says: "There are hanse-turin"},
		"no virtual node":                {says: "kubectl hanse join"},
		"a peer whose node has gone":     {objects: []client.Object{newPeer("bergen", v1alpha1.RoleProvider)}, says: "kubectl hanse join"},
		"a selector that something has":  {spec: v1alpha1.NamespaceOffloadingSpec{ClusterSelector: north}, objects: []client.Object{virtualNodeOf("bergen", "north")}},
		"a node that is not there yet":   {spec: v1alpha1.NamespaceOffloadingSpec{ClusterSelector: north}, objects: []client.Object{turin, ready}},
		"pods that are to stay at home":  {spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocal}},
		"some namespace, to any cluster": {objects: []client.Object{turin}},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := offloadingOf(orElse(test.namespace, "shop"))
			wanted.Spec = test.spec
			err := checkHope(soon(t), newWorld(t, test.objects...).client, "league", wanted)
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
		})
	}
}

func TestOffloadSaysHowItEnds(t *testing.T) {
	yes := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}
	}
	no := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	type conditions = []metav1.Condition
	ready, placed := yes(v1alpha1.ConditionReady), yes(v1alpha1.ConditionPlaced)
	for name, test := range map[string]struct {
		strategy v1alpha1.OffloadingStrategy
		says     conditions
		older    bool // they are about an older spec
		want     string
		waits    bool
	}{
		"all is well":                   {says: conditions{ready, placed}},
		"pods stay at home":             {strategy: v1alpha1.StrategyLocal, says: conditions{ready}},
		"nobody has looked":             {want: "kubectl hanse check", waits: true},
		"nobody has looked since":       {says: conditions{ready, placed}, older: true, want: "kubectl hanse check", waits: true},
		"nothing is placed yet":         {says: conditions{ready}, want: "kubectl hanse check", waits: true},
		"a peer has not answered":       {says: conditions{no(v1alpha1.ConditionReady, "Pending", "Peer turin: no answer"), placed}, want: "Peer turin: no answer", waits: true},
		"no cluster fits":               {says: conditions{ready, no(v1alpha1.ConditionPlaced, v1alpha1.ReasonNoClusterFits, "too dear")}, want: "too dear", waits: true},
		"a peer refuses":                {says: conditions{no(v1alpha1.ConditionReady, v1alpha1.ClusterRefused, "Peer turin: no such names"), placed}, want: "no such names"},
		"a policy refuses, others wait": {says: conditions{no(v1alpha1.ConditionReady, "Pending", "later"), no(v1alpha1.ConditionPlaced, v1alpha1.ReasonRefusedByPolicy, "never")}, want: "never"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
				offloading := offloadingOf("shop")
				offloading.Generation, offloading.Spec.Strategy = 2, test.strategy
				for _, c := range test.says {
					if c.ObservedGeneration = 2; test.older {
						c.ObservedGeneration = 1
					}
					meta.SetStatusCondition(&offloading.Status.Conditions, c)
				}
				command, _, told := listener()
				err := awaitOffloaded(ctx, newWorld(t, offloading, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}).cluster(command), "shop")
				if test.want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, context.DeadlineExceeded) != test.waits {
					t.Errorf("error %v, want one that says %q, after waiting: %t", err, test.want, test.waits)
				}
				if test.waits != strings.Contains(told.String(), test.want) {
					t.Errorf("while waiting, the user is told %q", told)
				}
			})
		})
	}
}

func TestANamespaceIsNamedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		flag string
		args []string
		want string
	}{
		"by the argument": {args: []string{"shop"}, want: "shop"},
		"by the flag":     {flag: "shop", want: "shop"},
		"by both":         {flag: "shop", args: []string{"shop"}, want: "shop"},
		"by neither":      {},
		"by both, not so": {flag: "shop", args: []string{"bank"}},
	} {
		t.Run(name, func(t *testing.T) {
			command, _, _ := listener()
			got, err := (&globalFlags{namespace: test.flag}).namespaceOf(command, test.args)
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("%q, %v, want %q", got, err, test.want)
			}
		})
	}
}
