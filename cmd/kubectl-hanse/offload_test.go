package main

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

func TestSelectorsAreTranslated(t *testing.T) {
	got, err := parseSelector("region in (south,west),tier!=test,gpu,!spot,zone=a")
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{
		{Key: "gpu", Operator: metav1.LabelSelectorOpExists},
		{Key: "region", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"south", "west"}},
		{Key: "spot", Operator: metav1.LabelSelectorOpDoesNotExist},
		{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []v1alpha1.LabelValue{"test"}},
		{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"a"}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	if none, err := parseSelector(""); none != nil || err != nil {
		t.Errorf("no selector is %v, %v", none, err)
	}
}

func TestOffloadingWaitsUntilItHolds(t *testing.T) {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	spec := v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}
	probes := 0
	s := newWorld(t, shop)
	c := interceptor.NewClient(s.client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if pod, isPod := o.(*corev1.Pod); isPod {
				probes++
				if probes > 1 { // the policy acts from the second pod on
					pod.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
				}
			}
			return c.Create(ctx, o, options...)
		},
	})
	if err := offload(soon(t), install.Cluster{Client: c}, "shop", spec); err != nil {
		t.Fatal(err)
	}
	if probes != 2 {
		t.Errorf("%d pods were tried, want 2", probes)
	}
	pods := &corev1.PodList{}
	if err := s.client.List(t.Context(), pods); err != nil || len(pods.Items) > 0 {
		t.Errorf("%d pods were made, %v", len(pods.Items), err)
	}
}

func TestOffloadingDoesNotWaitWhereNoPodMayBeMade(t *testing.T) {
	s := newWorld(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	c := interceptor.NewClient(s.client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, isPod := o.(*corev1.Pod); isPod {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
			}
			return c.Create(ctx, o, options...)
		},
	})
	if err := offload(soon(t), install.Cluster{Client: c}, "shop", v1alpha1.NamespaceOffloadingSpec{}); err != nil {
		t.Error(err)
	}
}

func TestOffloadingOfNoNamespaceSaysSo(t *testing.T) {
	err := offload(soon(t), install.Cluster{Client: newWorld(t).client}, "shop", v1alpha1.NamespaceOffloadingSpec{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("error %v, want not found", err)
	}
}

func TestUnoffloadingTwiceIsNoError(t *testing.T) {
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName}}
	s := newWorld(t, o)
	for range 2 {
		if err := unoffload(soon(t), install.Cluster{Client: s.client}, "shop"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}
