// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestNoRoomLetsGo: two pods are bound to a provider whose capacity is gone. The pod of a controller is replaced by one that runs where
// there is capacity. The standalone pod stays, and its status has the reason.
func TestNoRoomLetsGo(t *testing.T) {
	ctx := t.Context()
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyLocalAndRemote, PlacementTimeout: &metav1.Duration{Duration: 5 * time.Second},
		Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}},
	})
	awaitPreferred(t, ns)
	bare, owned := framework.Pod(ns, "bare"), framework.Deployment(ns, "owned", 1, framework.PodSpec())
	lubeck.AwaitPreference(t, bare, v1alpha1.VirtualNodeName("hamburg"))
	// lubeck believes the last offer while hamburg's manager is stopped.
	hamburg.PauseServer(t, "manager")
	hamburg.Cordon(t, hamburg.NodeNames(t)...)
	lubeck.MustCreate(t, bare)
	lubeck.MustCreate(t, owned)
	first := awaitVirtual(t, lubeck, ns)
	if err := hamburg.StartServer(ctx, "manager"); err != nil {
		t.Fatal(err)
	}

	awaitTimeout(t, ns)
	awaitReplacement(t, first)
	if pod, err := lubeck.Pod(ctx, ns, "bare"); err != nil || pod.UID != bare.UID || !pod.DeletionTimestamp.IsZero() {
		t.Errorf("the standalone pod: %v", err)
	}
}

// awaitVirtual waits until the scheduler has bound the pod "bare" and that of "owned", which it returns, to virtual nodes.
func awaitVirtual(t *testing.T, c *framework.Cluster, ns string) *corev1.Pod {
	t.Helper()
	var owned *corev1.Pod
	framework.Eventually(t, "both pods are on virtual nodes", func(ctx context.Context) error {
		pods, err := c.Pods(ctx, ns, "owned")
		if err != nil {
			return err
		}
		bare, err := c.Pod(ctx, ns, "bare")
		if err != nil {
			return err
		}
		if len(pods) != 1 || !framework.IsVirtual(&pods[0]) || !framework.IsVirtual(bare) {
			return errors.New(framework.Summary(append(pods, *bare)))
		}
		owned = &pods[0]
		return nil
	})
	return owned
}

// awaitPreferred waits until hamburg has a remote namespace for the namespace, and is preferred to the own nodes of lubeck.
func awaitPreferred(t *testing.T, ns string) {
	t.Helper()
	framework.Eventually(t, "hamburg has a remote namespace, and is preferred", func(ctx context.Context) error {
		offloading := &v1alpha1.NamespaceOffloading{}
		if err := lubeck.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
			return err
		}
		status := offloading.Status
		if status.Placement == nil || !status.Placement.PrefersRemote || len(status.Clusters) != 1 || status.Clusters[0].State != "Ready" {
			return fmt.Errorf("placement %+v, clusters %+v", status.Placement, status.Clusters)
		}
		return nil
	})
}

// awaitTimeout waits until the status of the standalone pod has the reason, and until an event shows that the other pod is given up.
func awaitTimeout(t *testing.T, ns string) {
	t.Helper()
	framework.Eventually(t, "the standalone pod shows why it waits", func(ctx context.Context) error {
		pod, err := lubeck.Pod(ctx, ns, "bare")
		if err == nil && (pod.Status.Phase != corev1.PodPending || !strings.Contains(pod.Status.Message, "no node with room")) {
			err = errors.New(framework.Summary([]corev1.Pod{*pod}))
		}
		return err
	})
	framework.Eventually(t, "an event shows that the pod of the controller is given up", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "get", "events", "-n", ns, "-o", "jsonpath={.items[*].reason}")
		if err == nil && !strings.Contains(out, v1alpha1.ReasonPlacementTimeout) {
			err = errors.New(out)
		}
		return err
	})
}

// awaitReplacement waits until another pod of the same controller runs on an own node of lubeck.
func awaitReplacement(t *testing.T, first *corev1.Pod) {
	t.Helper()
	framework.Eventually(t, "another pod runs at home", func(ctx context.Context) error {
		pods, err := lubeck.Pods(ctx, first.Namespace, first.Labels["app"])
		if err != nil {
			return err
		}
		for i := range pods {
			if pods[i].UID != first.UID && framework.IsPodReady(&pods[i]) && !framework.IsVirtual(&pods[i]) {
				return nil
			}
		}
		return errors.New(framework.Summary(pods))
	})
}
