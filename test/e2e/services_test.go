package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
)

// A spread is a Service with one pod in each of three clusters.
type spread struct {
	ns      string
	parties map[string]*party
}

func newSpread(t *testing.T) spread {
	t.Helper()
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	lubeck.service(t, ns, "shop", map[string]string{"tier": "shop"})
	s := spread{ns, lubeck.parties(t, ns, map[string]*cluster{"at-hamburg": hamburg, "at-bremen": bremen})}
	s.parties["here"] = lubeck.party(t, ns, "here", nil, atHome(lubeck.workers(t)[0]))
	return s
}

// endpoints are the addresses behind the Service at the cluster, with whether they are ready, each as often as it is listed.
func (c *cluster) endpoints(ctx context.Context, ns, service string) ([]string, error) {
	list := &discoveryv1.EndpointSliceList{}
	if err := c.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return nil, err
	}
	var all []string
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			all = append(all, fmt.Sprintf("%s ready=%t", strings.Join(e.Addresses, ","), ptr.Deref(e.Conditions.Ready, true)))
		}
	}
	slices.Sort(all)
	return all, nil
}

// expectEndpoints waits until exactly those are behind the Service, and returns how long that took.
func (c *cluster) expectEndpoints(t *testing.T, ns, service string, want ...string) time.Duration {
	t.Helper()
	slices.Sort(want)
	began := time.Now()
	eventually(t, fmt.Sprintf("%s has endpoints %v of %s", c.Name, want, service), func(ctx context.Context) error {
		got, err := c.endpoints(ctx, ns, service)
		if err == nil && !slices.Equal(got, want) {
			return fmt.Errorf("it has %v", got)
		}
		return err
	})
	return time.Since(began)
}

// asAt returns the address of the pod as it is seen where another one runs, and where it runs itself.
func (s spread) asAt(ctx context.Context, t *testing.T, at *cluster, name string) string {
	t.Helper()
	home := s.parties[name].address
	if name == "at-"+at.Name {
		pod, err := lubeck.pod(ctx, s.ns, name)
		if err != nil {
			t.Fatal(err)
		}
		return at.mustRemotePod(t, pod).Status.PodIP
	}
	return lubeck.seenBy(ctx, t, at, home)
}

// A Service of home is one at each provider, where it has its own address, and each pod as an endpoint once. Pods there use it under
// the names of home, also when home cannot be reached. Then the endpoints elsewhere are not ready, and come back.
func TestServicesAreReflected(t *testing.T) {
	ctx := network(t)
	s := newSpread(t)
	twin := tenant.TwinName("lubeck", s.ns)
	endpoints := func(ready bool) (all []string) {
		for name := range s.parties {
			all = append(all, fmt.Sprintf("%s ready=%t", s.asAt(ctx, t, hamburg, name), ready || name == "at-hamburg"))
		}
		return all
	}
	ready, cut := endpoints(true), endpoints(false)
	hamburg.expectEndpoints(t, twin, "shop", ready...)
	there := &corev1.Service{}
	eventually(t, "the Service is at hamburg", func(ctx context.Context) error {
		return hamburg.Get(ctx, types.NamespacedName{Namespace: twin, Name: "shop"}, there)
	})
	means := func(address string) func(context.Context) error {
		return func(ctx context.Context) error {
			out, err := s.parties["at-hamburg"].run(ctx, "nslookup shop."+s.ns+".svc.cluster.local")
			if err == nil && !strings.Contains(out, address) {
				err = fmt.Errorf("it is told %q", out)
			}
			return err
		}
	}
	eventually(t, "shop means the Service at hamburg", means(there.Spec.ClusterIP))
	answers := map[string]bool{}
	eventually(t, "all three pods answer at hamburg", func(ctx context.Context) error {
		name, err := s.parties["at-hamburg"].ask(ctx, "shop")
		answers[name] = true
		if err == nil && len(answers) < len(s.parties) {
			err = fmt.Errorf("only %v", answers)
		}
		return err
	})

	remote, err := lubeck.pod(ctx, s.ns, "at-hamburg")
	if err != nil {
		t.Fatal(err)
	}
	inHamburg := hamburg.mustRemotePod(t, remote)
	cutOff(t)
	t.Logf("endpoints elsewhere are not ready %.1f s after the cut", hamburg.expectEndpoints(t, twin, "shop", cut...).Seconds())
	eventually(t, "shop still answers at hamburg", func(ctx context.Context) error {
		_, err := hamburg.Kubectl(ctx, "exec", "-n", inHamburg.Namespace, inHamburg.Name, "-c", "main", "--", "timeout", "3", "wget", "-q", "-O-", "http://shop."+s.ns)
		return err
	})
	mustTestbed(t, "heal", "lubeck", "hamburg")
	t.Logf("and ready again %.1f s after it heals", hamburg.expectEndpoints(t, twin, "shop", ready...).Seconds())
	awaitConnected(t, lubeck, hamburg)
}

// What a user keeps at home, and what a provider has of its own, is said on the user's Service, and works by the same name.
func TestServicesThatAreNotReflected(t *testing.T) {
	ctx := connected(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	twin := tenant.TwinName("lubeck", ns)
	parties := lubeck.parties(t, ns, map[string]*cluster{"away": hamburg, "here": nil})
	skipped := lubeck.service(t, ns, "skipped", map[string]string{"app": "here"})
	eventually(t, "hamburg has it", func(ctx context.Context) error {
		return hamburg.Get(ctx, types.NamespacedName{Namespace: twin, Name: skipped.Name}, &corev1.Service{})
	})
	if _, err := lubeck.Kubectl(ctx, "annotate", "service", "-n", ns, skipped.Name, v1alpha1.LabelSkipReflection+"=true"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "hamburg has it no more", func(ctx context.Context) error {
		copied := skipped.DeepCopy()
		copied.Namespace = twin
		return hamburg.isGone(ctx, copied)
	})
	lubeck.describeSays(t, ns, "service/"+skipped.Name, v1alpha1.ReasonReflectionRefused, "keeps it at home")

	theirs := hamburg.service(t, twin, "taken", map[string]string{"app": "of-hamburg"})
	taken := lubeck.service(t, ns, theirs.Name, map[string]string{"app": "here"})
	lubeck.describeSays(t, ns, "service/"+taken.Name, v1alpha1.ReasonReflectionConflict, "hamburg")
	left := &corev1.Service{}
	if err := hamburg.Get(ctx, client.ObjectKeyFromObject(theirs), left); err != nil || left.Spec.Selector["app"] != "of-hamburg" || left.UID != theirs.UID {
		t.Errorf("the Service of hamburg is now %v (%v)", left.Spec, err)
	}
	for _, name := range []string{skipped.Name, taken.Name} {
		eventually(t, name+" is reached at home", func(ctx context.Context) error {
			got, err := parties["away"].ask(ctx, name)
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
	ctx := connected(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	twin := tenant.TwinName("lubeck", ns)
	lubeck.parties(t, ns, map[string]*cluster{"away": hamburg, "here": nil})
	none := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: "no-room"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/secrets": resource.MustParse("0"), "count/endpointslices.discovery.k8s.io": resource.MustParse("0"),
		}},
	}
	hamburg.create(t, none)
	eventually(t, "the quota is in force", func(ctx context.Context) error {
		err := hamburg.Get(ctx, client.ObjectKeyFromObject(none), none)
		if err == nil && len(none.Status.Used) < 2 {
			err = fmt.Errorf("it counts %v", none.Status.Used)
		}
		return err
	})

	lubeck.service(t, ns, "full", map[string]string{"tier": "shop"})
	pod := shellPod(ns, "tokenless", forever)
	pod.Spec.NodeSelector = atHamburg
	lubeck.create(t, pod)
	lubeck.describeSays(t, ns, "service/full", v1alpha1.ReasonReflectionRefused, "exceeded quota", v1alpha1.LabelSkipReflection,
		"FailedToUpdateEndpointSlices", "hanse-hamburg")
	lubeck.describeSays(t, ns, "pod/tokenless", v1alpha1.ReasonTokenRefused, "exceeded quota")
	eventually(t, "the pod says that it waits for its token", func(ctx context.Context) error {
		now, err := lubeck.pod(ctx, ns, "tokenless")
		if err == nil && podCondition(now, v1alpha1.PodToken) != corev1.ConditionFalse {
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
	expectNothingToldOfToken(t, &lubeck.awaitReadyPods(t, ns, "tokenless", 1)[0])
}
