// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// awayPod is a pod of namespace shop on the virtual node of turin.
func awayPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: "hanse-turin"}}
}

func shop(objects ...client.Object) []client.Object {
	return append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "hanse-turin", Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode},
	}})
}

// unoffloadShop runs the verb for namespace shop.
func unoffloadShop(ctx context.Context, w *world, flags unoffloadFlags) (said, told string, err error) {
	command, out, report := listener()
	err = runUnoffload(ctx, command, w.cluster(command), &flags, "shop")
	return out.String(), report.String(), err
}

func (w *world) offloadingOfShop(t *testing.T) *v1alpha1.NamespaceOffloading {
	t.Helper()
	o := offloadingOf("shop")
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		t.Fatal(err)
	}
	return o
}

func TestUnoffloadingTwiceIsNoError(t *testing.T) {
	ended, agent := awayPod("ended"), awayPod("agent")
	ended.Status.Phase = corev1.PodSucceeded
	yes := true
	agent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "a", Controller: &yes}}
	w := newWorld(t, shop(offloadingOf("shop"), ended, agent)...)
	for _, evict := range []bool{false, true} {
		said, _, err := unoffloadShop(soon(t), w, unoffloadFlags{waitFlags: waitFlags{wait: true}, evict: evict})
		if err != nil || said != "Namespace shop is no longer offloaded.\n" {
			t.Fatalf("%q, %v", said, err)
		}
		if w.offloadingOfShop(t) != nil {
			t.Error("it is still there")
		}
	}
}

func TestUnoffloadingWaitsForPodsAndNamesThem(t *testing.T) {
	testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(t, shop(offloadingOf("shop"), awayPod("web-1"))...)
		_, told, err := unoffloadShop(ctx, w, unoffloadFlags{waitFlags: waitFlags{wait: true}})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "kubectl hanse unoffload shop --evict") {
			t.Errorf("error %v", err)
		}
		if told != "Waiting for pods that run in other clusters: web-1 on hanse-turin\n" {
			t.Errorf("the user is told %q", told)
		}
		if w.offloadingOfShop(t) != nil {
			t.Error("new pods still leave")
		}
		if _, _, err := unoffloadShop(soon(t), w, unoffloadFlags{}); err != nil {
			t.Errorf("without waiting: %v", err)
		}
	})
}

func TestPodsAreMovedHomeBeforeTheOffloadingEnds(t *testing.T) {
	w := newWorld(t, shop(awayPod("web-1"))...)
	w.manager = func(ctx context.Context, c client.Client, written client.Object) error {
		o, isOffloading := written.(*v1alpha1.NamespaceOffloading)
		if isOffloading && o.Spec.Strategy == v1alpha1.StrategyLocal && o.Spec.OnChange == v1alpha1.ChangeEvict {
			return c.Delete(ctx, awayPod("web-1"))
		}
		return nil
	}
	said, _, err := unoffloadShop(soon(t), w, unoffloadFlags{waitFlags: waitFlags{wait: true}, evict: true})
	if err != nil || !strings.Contains(said, "no longer offloaded") || w.offloadingOfShop(t) != nil {
		t.Errorf("%q, %v, offloading %v", said, err, w.offloadingOfShop(t))
	}
}

func TestWhoDoesNotWaitLeavesPodsToTheManager(t *testing.T) {
	w := newWorld(t, shop(offloadingOf("shop"), awayPod("web-1"))...)
	said, _, err := unoffloadShop(soon(t), w, unoffloadFlags{evict: true})
	if err != nil || !strings.Contains(said, "are moved home") {
		t.Errorf("%q, %v", said, err)
	}
	if o := w.offloadingOfShop(t); o == nil || o.Spec.Strategy != v1alpha1.StrategyLocal || o.Spec.OnChange != v1alpha1.ChangeEvict {
		t.Errorf("the offloading is %+v", o)
	}
}

// A kept one that is deleted would come back.
func TestUnoffloadingByDefaultOffloadedMakesItTheUsers(t *testing.T) {
	kept := offloadingOf("shop")
	kept.Annotations = map[string]string{v1alpha1.AnnotationKeptOffloading: "true"}
	kept.Spec.Strategy = v1alpha1.StrategyRemote
	w := newWorld(t, shop(kept)...)
	said, _, err := unoffloadShop(soon(t), w, unoffloadFlags{})
	if err != nil || !strings.Contains(said, "yours now, with strategy Local") {
		t.Errorf("%q, %v", said, err)
	}
	if o := w.offloadingOfShop(t); o == nil || o.Spec.Strategy != v1alpha1.StrategyLocal || len(o.Annotations) > 0 {
		t.Errorf("the offloading is %+v", o)
	}
}
