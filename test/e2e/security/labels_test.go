// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A tenant of hamburg's own wants its pods to be taken for lubeck's.
func TestLabelsOfLocalPodsMeanNothing(t *testing.T) {
	ctx := framework.Begin(t)
	offered := func(ctx context.Context) (int64, error) {
		ad, err := hamburg.OfferFor(ctx, lubeck)
		if err != nil {
			return 0, err
		}
		return ad.Spec.Availability.Cpu().MilliValue(), nil
	}
	before, err := offered(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ns := hamburg.CreateNamespace(t)
	posing := func(name string, labels map[string]string) *corev1.Pod {
		pod := framework.NewShellPod(ns, name, framework.RunForever)
		pod.Spec.Containers[0].Resources = framework.ResourceRequests("400m", "1Mi")
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
	hamburg.MustCreate(t, posing("agentless", map[string]string{v1alpha1.LabelAgentless: "some-home", v1alpha1.LabelHomeUID: "u"}))
	framework.Eventually(t, "what it holds is taken off what lubeck is offered", func(ctx context.Context) error {
		now, err := offered(ctx)
		if err == nil && now > before-350 {
			err = fmt.Errorf("lubeck is offered %dm of %dm", now, before)
		}
		return err
	})
	home, _ := lubeck.RunPodAt(t, hamburg)
	if home == nil {
		t.Error("lubeck's own pod does not run")
	}
}
