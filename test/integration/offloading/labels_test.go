// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestNobodySpeaksInTheNameOfHanse: users may not set the labels and annotations of Hanse on pods, such as the path of a pod.
func TestNobodySpeaksInTheNameOfHanse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	path := map[string]string{v1alpha1.AnnotationPath: "hamburg,lubeck,hamburg"}
	speaking := framework.Pod(ns, "speaking")
	speaking.Annotations = path
	posing := framework.Pod(ns, "posing")
	posing.Labels[v1alpha1.LabelHomeUID] = "another"
	for _, pod := range []*corev1.Pod{speaking, posing} {
		if err := lubeck.Create(ctx, pod); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "hanse-guard-labels") {
			t.Errorf("pod %s is taken: %v", pod.Name, err)
		}
	}
	silent := framework.Pod(ns, "silent")
	lubeck.MustCreate(t, silent)
	home := lubeck.AwaitReadyPods(t, ns, "silent", 1)[0]
	later := home.DeepCopy()
	later.Annotations = path
	if err := lubeck.Patch(ctx, later, client.MergeFrom(&home)); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that runs may say so: %v", err)
	}
}

// TestWhatTravels: the remote pod lacks labels and annotations that could control the provider's software. A condition and an event
// of the home pod name them.
func TestWhatTravels(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	pod := framework.Pod(ns, "talkative")
	pod.Labels["app.kubernetes.io/name"] = "talkative"
	pod.Labels["sidecar.istio.io/inject"] = "true"
	pod.Annotations = map[string]string{"note": "kept", "prometheus.io/scrape": "true"}
	lubeck.MustCreate(t, pod)
	home := lubeck.AwaitReadyPods(t, ns, "talkative", 1)[0]
	remote := hamburg.MustRemotePod(t, &home)
	for key, want := range map[string]string{"app": "talkative", "app.kubernetes.io/name": "talkative", "sidecar.istio.io/inject": ""} {
		if got := remote.Labels[key]; got != want {
			t.Errorf("the remote pod has label %s=%q, want %q", key, got, want)
		}
	}
	for key, want := range map[string]string{"note": "kept", "prometheus.io/scrape": ""} {
		if got := remote.Annotations[key]; got != want {
			t.Errorf("the remote pod has annotation %s=%q, want %q", key, got, want)
		}
	}
	framework.Eventually(t, "home says what was left out", func(ctx context.Context) error {
		now, err := lubeck.Pod(ctx, ns, "talkative")
		if err == nil && !strings.Contains(fmt.Sprint(now.Status.Conditions), "prometheus.io/scrape, sidecar.istio.io/inject") {
			err = fmt.Errorf("conditions: %+v", now.Status.Conditions)
		}
		return err
	})
	lubeck.AwaitEvent(t, &home, v1alpha1.ReasonMetadataLeftOut)

	// What is taken off at home is not missed any more.
	for _, args := range [][]string{{"label", "sidecar.istio.io/inject-"}, {"annotate", "prometheus.io/scrape-"}} {
		if _, err := lubeck.Kubectl(ctx, args[0], "pod", "-n", ns, "talkative", args[1]); err != nil {
			t.Fatal(err)
		}
	}
	framework.Eventually(t, "home says nothing any more", func(ctx context.Context) error {
		now, err := lubeck.Pod(ctx, ns, "talkative")
		if err == nil && framework.PodCondition(now, v1alpha1.PodMetadata) == corev1.ConditionFalse {
			err = fmt.Errorf("conditions: %+v", now.Status.Conditions)
		}
		return err
	})
}
