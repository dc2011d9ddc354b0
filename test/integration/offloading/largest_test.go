// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestLargestNamespaceOffloading: admission reads the NamespaceOffloading for each new pod, also one of the largest size.
func TestLargestNamespaceOffloading(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ns := lubeck.MustOffload(t, largestOffloading())
	offloading := &v1alpha1.NamespaceOffloading{}
	if err := lubeck.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(offloading)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	lubeck.MustCreate(t, framework.Pod(ns, "guest"))
	t.Logf("a pod was made in %s beside a NamespaceOffloading of %d KiB", time.Since(start).Round(time.Millisecond), len(text)>>10)
	home := lubeck.AwaitReadyPods(t, ns, "guest", 1)[0]
	framework.Eventually(t, "what was worked out for it is in its status", func(ctx context.Context) error {
		err := lubeck.Get(ctx, client.ObjectKeyFromObject(offloading), offloading)
		if err == nil && (offloading.Status.Placement == nil || len(offloading.Status.Placement.Classes) != 8) {
			err = fmt.Errorf("conditions: %+v", offloading.Status.Conditions)
		}
		return err
	})
	remote := hamburg.MustRemotePod(t, &home)
	if remote.Labels["patched"] != "15" {
		t.Errorf("the last of all changes was not made: %v", remote.Labels)
	}
}

// largestOffloading returns a spec with the most entries of each kind that its definition allows.
func largestOffloading() v1alpha1.NamespaceOffloadingSpec {
	values, names := make([]v1alpha1.LabelValue, 32), make([]string, 100)
	for i := range values {
		values[i] = v1alpha1.LabelValue(fmt.Sprintf("%063d", i))
	}
	for i := range names {
		names[i] = fmt.Sprintf("cluster-%032d", i)
	}
	selector := &v1alpha1.ClusterSelector{}
	for range 4 {
		selector.MatchExpressions = append(selector.MatchExpressions, v1alpha1.ClusterSelectorRequirement{
			Key: v1alpha1.LabelClusterID, Operator: metav1.LabelSelectorOpNotIn, Values: values,
		})
	}
	spec := v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote, ClusterSelector: selector,
		Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: names}},
	}
	for i := range 8 {
		override := v1alpha1.ClusterOverride{ClusterSelector: selector}
		for op := range 16 {
			override.Patch = append(override.Patch, v1alpha1.PatchOperation{
				Op: "add", Path: "/metadata/labels/patched", Value: &runtime.RawExtension{Raw: fmt.Appendf(nil, "%q", fmt.Sprint(op))},
			})
		}
		spec.Overrides = append(spec.Overrides, override)
		spec.Placement.Classes = append(spec.Placement.Classes, v1alpha1.PlacementClass{
			Name: fmt.Sprint("class-", i), PodLabels: map[string]v1alpha1.LabelValue{"class": values[i]}, Placement: v1alpha1.Placement{Exclude: names},
		})
	}
	return spec
}
