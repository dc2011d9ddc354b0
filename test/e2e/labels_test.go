package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A tenant of hamburg's own wants its pods to be taken for lubeck's.
func TestLabelsOfLocalPodsMeanNothing(t *testing.T) {
	ctx := market(t)
	offered := func(ctx context.Context) (int64, error) {
		ad, err := hamburg.offerFor(ctx, lubeck)
		if err != nil {
			return 0, err
		}
		return ad.Spec.Availability.Cpu().MilliValue(), nil
	}
	before, err := offered(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ns := hamburg.namespace(t)
	posing := func(name string, labels map[string]string) *corev1.Pod {
		pod := shellPod(ns, name, forever)
		pod.Spec.Containers[0].Resources = requests("400m", "1Mi")
		for key, value := range labels {
			pod.Labels[key] = value
		}
		return pod
	}
	err = hamburg.Create(ctx, posing("refused", map[string]string{v1alpha1.LabelPeer: "lubeck"}))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "hanse-guard-labels") {
		t.Errorf("the policy lets it pass for lubeck's: %v", err)
	}

	// Pods of homes for which hamburg is a cluster without Hanse may have the label. Here it means nothing.
	hamburg.create(t, posing("agentless", map[string]string{v1alpha1.LabelAgentless: "some-home", v1alpha1.LabelHomeUID: "u"}))
	eventually(t, "what it holds is taken off what lubeck is offered", func(ctx context.Context) error {
		now, err := offered(ctx)
		if err == nil && now > before-350 {
			err = fmt.Errorf("lubeck is offered %dm of %dm", now, before)
		}
		return err
	})
	home, _ := lubeck.runsAt(t, hamburg)
	if home == nil {
		t.Error("lubeck's own pod does not run")
	}
}

// What could steer hamburg's own software is left out of the pods that run there, and home says what.
func TestWhatTravels(t *testing.T) {
	ctx := shared(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	pod := shellPod(ns, "talkative", forever)
	pod.Labels["app.kubernetes.io/name"] = "talkative"
	pod.Labels["sidecar.istio.io/inject"] = "true"
	pod.Annotations = map[string]string{"note": "kept", "prometheus.io/scrape": "true"}
	lubeck.create(t, pod)
	home := lubeck.awaitReadyPods(t, ns, "talkative", 1)[0]
	remote := hamburg.mustRemotePod(t, &home)
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
	eventually(t, "home says what was left out", func(ctx context.Context) error {
		now, err := lubeck.pod(ctx, ns, "talkative")
		if err == nil && !strings.Contains(fmt.Sprint(now.Status.Conditions), "prometheus.io/scrape, sidecar.istio.io/inject") {
			err = fmt.Errorf("conditions: %+v", now.Status.Conditions)
		}
		return err
	})
	lubeck.awaitEvent(t, &home, v1alpha1.ReasonMetadataLeftOut)

	// What is taken off at home is not missed any more.
	for _, args := range [][]string{{"label", "sidecar.istio.io/inject-"}, {"annotate", "prometheus.io/scrape-"}} {
		if _, err := lubeck.Kubectl(ctx, args[0], "pod", "-n", ns, "talkative", args[1]); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "home says nothing any more", func(ctx context.Context) error {
		now, err := lubeck.pod(ctx, ns, "talkative")
		if err == nil && podCondition(now, v1alpha1.PodMetadata) == corev1.ConditionFalse {
			err = fmt.Errorf("conditions: %+v", now.Status.Conditions)
		}
		return err
	})
}
