// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A spread is a Service with one pod in each of three clusters.
type spread struct {
	ns      string
	parties map[string]*framework.NetworkPod
}

func newSpread(t *testing.T) spread {
	t.Helper()
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	lubeck.CreateService(t, ns, "shop", map[string]string{"tier": "shop"})
	s := spread{ns, lubeck.StartNetworkPods(t, ns, map[string]*framework.Cluster{"at-hamburg": hamburg, "at-bremen": bremen})}
	s.parties["here"] = lubeck.StartNetworkPod(t, ns, "here", nil, framework.OnNode(lubeck.WorkerNames(t)[0]))
	return s
}

// asAt returns the address of the pod as it is seen where another one runs, and where it runs itself.
func (s spread) asAt(ctx context.Context, t *testing.T, at *framework.Cluster, name string) string {
	t.Helper()
	home := s.parties[name].Address
	if name == "at-"+at.Name {
		pod, err := lubeck.GetPod(ctx, s.ns, name)
		if err != nil {
			t.Fatal(err)
		}
		return at.MustGetRemotePod(t, pod).Status.PodIP
	}
	return lubeck.TranslateToPeer(ctx, t, at, home)
}

// A Service of home is one at each provider, where it has its own address, and each pod as an endpoint once. Pods there use it under
// the names of home, also when home cannot be reached. Then the endpoints elsewhere are not ready, and come back.
func TestServicesAreReflected(t *testing.T) {
	ctx := framework.Begin(t)
	s := newSpread(t)
	twin := tenant.TwinName("lubeck", s.ns)
	endpoints := func(ready bool) (all []string) {
		for name := range s.parties {
			all = append(all, fmt.Sprintf("%s ready=%t", s.asAt(ctx, t, hamburg, name), ready || name == "at-hamburg"))
		}
		return all
	}
	ready, cut := endpoints(true), endpoints(false)
	hamburg.AwaitEndpoints(t, twin, "shop", ready...)
	there := &corev1.Service{}
	framework.Eventually(t, "the Service is at hamburg", func(ctx context.Context) error {
		return hamburg.Get(ctx, types.NamespacedName{Namespace: twin, Name: "shop"}, there)
	})
	means := func(address string) func(context.Context) error {
		return func(ctx context.Context) error {
			out, err := s.parties["at-hamburg"].Run(ctx, "nslookup shop."+s.ns+".svc.cluster.local")
			if err == nil && !strings.Contains(out, address) {
				err = fmt.Errorf("it is told %q", out)
			}
			return err
		}
	}
	framework.Eventually(t, "shop means the Service at hamburg", means(there.Spec.ClusterIP))
	answers := map[string]bool{}
	framework.Eventually(t, "all three pods answer at hamburg", func(ctx context.Context) error {
		name, err := s.parties["at-hamburg"].Request(ctx, "shop")
		answers[name] = true
		if err == nil && len(answers) < len(s.parties) {
			err = fmt.Errorf("only %v", answers)
		}
		return err
	})

	remote, err := lubeck.GetPod(ctx, s.ns, "at-hamburg")
	if err != nil {
		t.Fatal(err)
	}
	inHamburg := hamburg.MustGetRemotePod(t, remote)
	framework.CutOff(t)
	t.Logf("endpoints elsewhere are not ready %.1f s after the cut", hamburg.AwaitEndpoints(t, twin, "shop", cut...).Seconds())
	framework.Eventually(t, "shop still answers at hamburg", func(ctx context.Context) error {
		_, err := hamburg.Kubectl(ctx, "exec", "-n", inHamburg.Namespace, inHamburg.Name, "-c", "main", "--", "timeout", "3", "wget", "-q", "-O-", "http://shop."+s.ns)
		return err
	})
	framework.MustTestbed(t, "heal", "lubeck", "hamburg")
	t.Logf("and ready again %.1f s after it heals", hamburg.AwaitEndpoints(t, twin, "shop", ready...).Seconds())
	framework.AwaitConnected(t, lubeck, hamburg)
}

// What a user keeps at home, and what a provider has of its own, is said on the user's Service, and works by the same name.
func TestServicesThatAreNotReflected(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	twin := tenant.TwinName("lubeck", ns)
	parties := lubeck.StartNetworkPods(t, ns, map[string]*framework.Cluster{"away": hamburg, "here": nil})
	skipped := lubeck.CreateService(t, ns, "skipped", map[string]string{"app": "here"})
	framework.Eventually(t, "hamburg has it", func(ctx context.Context) error {
		return hamburg.Get(ctx, types.NamespacedName{Namespace: twin, Name: skipped.Name}, &corev1.Service{})
	})
	if _, err := lubeck.Kubectl(ctx, "annotate", "service", "-n", ns, skipped.Name, v1alpha1.LabelSkipReflection+"=true"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "hamburg has it no more", func(ctx context.Context) error {
		copied := skipped.DeepCopy()
		copied.Namespace = twin
		return hamburg.CheckGone(ctx, copied)
	})
	lubeck.AwaitDescription(t, ns, "service/"+skipped.Name, v1alpha1.ReasonReflectionRefused, "keeps it at home")

	theirs := hamburg.CreateService(t, twin, "taken", map[string]string{"app": "of-hamburg"})
	taken := lubeck.CreateService(t, ns, theirs.Name, map[string]string{"app": "here"})
	lubeck.AwaitDescription(t, ns, "service/"+taken.Name, v1alpha1.ReasonReflectionConflict, "hamburg")
	left := &corev1.Service{}
	if err := hamburg.Get(ctx, client.ObjectKeyFromObject(theirs), left); err != nil || left.Spec.Selector["app"] != "of-hamburg" || left.UID != theirs.UID {
		t.Errorf("the Service of hamburg is now %v (%v)", left.Spec, err)
	}
	for _, name := range []string{skipped.Name, taken.Name} {
		framework.Eventually(t, name+" is reached at home", func(ctx context.Context) error {
			got, err := parties["away"].Request(ctx, name)
			if err == nil && got != "here" {
				err = fmt.Errorf("%s answers", got)
			}
			return err
		})
	}
}

// What a provider has no room for is said where its user looks: on the Service that lacks endpoints there, and on the pod that waits for
// its token. When there is room the pod starts.
func TestProviderWithoutRoomForCopies(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	twin := tenant.TwinName("lubeck", ns)
	lubeck.StartNetworkPods(t, ns, map[string]*framework.Cluster{"away": hamburg, "here": nil})
	none := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: "no-room"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/secrets": resource.MustParse("0"), "count/endpointslices.discovery.k8s.io": resource.MustParse("0"),
		}},
	}
	hamburg.MustCreate(t, none)
	framework.Eventually(t, "the quota is in force", func(ctx context.Context) error {
		err := hamburg.Get(ctx, client.ObjectKeyFromObject(none), none)
		if err == nil && len(none.Status.Used) < 2 {
			err = fmt.Errorf("it counts %v", none.Status.Used)
		}
		return err
	})

	lubeck.CreateService(t, ns, "full", map[string]string{"tier": "shop"})
	pod := framework.NewShellPod(ns, "tokenless", framework.RunForever)
	pod.Spec.NodeSelector = framework.AtHamburg
	lubeck.MustCreate(t, pod)
	lubeck.AwaitDescription(t, ns, "service/full", v1alpha1.ReasonReflectionRefused, "exceeded quota", v1alpha1.LabelSkipReflection,
		"FailedToUpdateEndpointSlices", "hanse-hamburg")
	lubeck.AwaitDescription(t, ns, "pod/tokenless", v1alpha1.ReasonTokenRefused, "exceeded quota")
	framework.Eventually(t, "the pod says that it waits for its token", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, ns, "tokenless")
		if err == nil && framework.PodConditionStatus(now, v1alpha1.PodToken) != corev1.ConditionFalse {
			err = fmt.Errorf("its conditions are %v", now.Status.Conditions)
		}
		return err
	})
	out, err := lubeck.Hanse(ctx, "explain", "pod", "away", "-n", ns)
	if err != nil || !strings.Contains(out, "Service full: ") {
		t.Errorf("explain says nothing of the Service: %v\n%s", err, out)
	}

	if err := hamburg.Delete(ctx, none); err != nil {
		t.Fatal(err)
	}
	framework.ExpectTokenAtProvider(t, &lubeck.AwaitReadyPods(t, ns, "tokenless", 1)[0])
}
