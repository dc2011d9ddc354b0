// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Home pods on both workers, one in the network of its node, and pods at two providers reach each other at the addresses that
// each knows of the other.
func TestPodToPodBothWays(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := lubeck.StartNetworkPods(t, ns, map[string]*framework.Cluster{"at-hamburg": hamburg, "at-bremen": bremen})
	here := map[string]*framework.NetworkPod{}
	for i, node := range lubeck.WorkerNames(t) {
		name := fmt.Sprintf("here-%d", i)
		here[name] = lubeck.StartNetworkPod(t, ns, name, nil, func(spec *corev1.PodSpec) {
			spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		})
	}
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		there := away["at-"+provider.Name]
		for _, pod := range here {
			pod.ExpectReaches(t, there, there.Address)
			there.ExpectReaches(t, pod, lubeck.TranslateToPeer(ctx, t, provider, pod.Address))
		}
	}
	onNode := lubeck.StartNetworkPod(t, lubeck.CreateNamespace(t), "on-node", nil, func(spec *corev1.PodSpec) {
		spec.HostNetwork = true
		spec.Containers[1].Env = append(spec.Containers[1].Env, corev1.EnvVar{Name: "PORT", Value: "18080"})
		spec.Containers[1].ReadinessProbe, spec.Containers[1].Ports = nil, nil
	})
	onNode.ExpectReaches(t, away["at-hamburg"], away["at-hamburg"].Address)
}

// One Service at home has endpoints in three clusters. Who asks it from home, or from a pod that runs elsewhere, is answered by
// all of them.
func TestServiceAcrossClusters(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	svc := lubeck.CreateService(t, ns, "shop", map[string]string{"tier": "shop"})
	parties := lubeck.StartNetworkPods(t, ns, map[string]*framework.Cluster{"at-hamburg": hamburg, "at-bremen": bremen})
	parties["here"] = lubeck.StartNetworkPod(t, ns, "here", nil, framework.OnNode(lubeck.WorkerNames(t)[0]))
	for _, from := range []string{"here", "at-hamburg"} {
		for _, host := range []string{svc.Spec.ClusterIP, "shop"} {
			if from == "at-hamburg" && host != "shop" {
				continue // it knows the Service by its name, as addresses of home are other ones there
			}
			answered := map[string]bool{}
			framework.Eventually(t, "all three pods answer to "+from+" at "+host, func(ctx context.Context) error {
				for range 6 {
					name, err := parties[from].Request(ctx, host)
					if err != nil {
						return err
					}
					answered[name] = true
				}
				if len(answered) != len(parties) {
					return fmt.Errorf("only %v have answered", answered)
				}
				return nil
			})
		}
	}
}

// Names mean at the provider what they mean at home, also where the provider has a Service of the very same name in a namespace
// of the very same name.
func TestDNSMeansHome(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	other := lubeck.CreateNamespace(t)
	away := lubeck.StartNetworkPod(t, ns, "away", hamburg)
	lubeck.CreateService(t, ns, "shop", map[string]string{"app": "here"})
	lubeck.CreateService(t, other, "stock", map[string]string{"app": "in-stock"})
	lubeck.StartNetworkPod(t, ns, "here", nil, framework.OnNode(lubeck.WorkerNames(t)[0]))
	lubeck.StartNetworkPod(t, other, "in-stock", nil)

	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
	hamburg.MustCreate(t, theirs)
	t.Cleanup(func() { _ = hamburg.Delete(context.Background(), theirs) })
	hamburg.CreateService(t, other, "stock", map[string]string{"app": "of-hamburg"})
	hamburg.StartNetworkPod(t, other, "of-hamburg", nil)

	for host, want := range map[string]string{
		"shop": "here", "shop." + ns: "here", "shop." + ns + ".svc.cluster.local": "here",
		"stock." + other: "in-stock", "stock." + other + ".svc": "in-stock",
	} {
		framework.Eventually(t, host+" means the one at home", func(ctx context.Context) error {
			got, err := away.Request(ctx, host)
			if err == nil && got != want {
				return fmt.Errorf("%s answers", got)
			}
			return err
		})
	}
	if out, err := away.Run(t.Context(), "nslookup nowhere."+other+".svc.cluster.local"); err == nil {
		t.Errorf("a name that is nobody's means %s", strings.TrimSpace(out))
	}
}

// Two parts of an application that run at two providers reach each other.
func TestLeafToLeaf(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	parties := lubeck.StartNetworkPods(t, ns, map[string]*framework.Cluster{"at-hamburg": hamburg, "at-bremen": bremen})
	lubeck.CreateService(t, ns, "stock", map[string]string{"app": "at-bremen"})
	framework.Eventually(t, "the pod at hamburg reaches the one at bremen by name", func(ctx context.Context) error {
		name, err := parties["at-hamburg"].Request(ctx, "stock")
		if err == nil && name != "at-bremen" {
			return fmt.Errorf("%s answers", name)
		}
		return err
	})
}
