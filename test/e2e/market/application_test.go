// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// An application of four tiers spreads over three clusters by labels alone. It is asked fifty times a second by the name of its Service,
// from home and from hamburg, and no request fails whatever is done to it, except while nobody knows yet that a cluster is lost.
// What has been ordered is there at the end. The tutorial "An application over three clusters" does the same by hand.
//
// Only make e2e-application tells it, since it takes three minutes and counts each request: beside other stories, which want all processors,
// a request may take longer than its ten seconds.
func TestApplicationOverThreeClusters(t *testing.T) {
	if os.Getenv("HANSE_APPLICATION") == "" {
		t.Skip("make e2e-application tells it")
	}
	framework.Begin(t)
	a := newApplication(t)
	a.begin(t)
	a.step(t, "nothing", a.undisturbed)
	a.step(t, "rolling update", a.update)
	a.step(t, "scaling", a.scale)
	a.step(t, "configuration and Secret", a.configure)
	a.step(t, "a node drained", a.drain)
	lost := a.step(t, "a provider lost", a.lose)
	a.step(t, "unoffload", a.unoffload)
	a.step(t, "offload again", a.offloadAgain)
	for _, from := range loads {
		a.judge(t, from, lost)
	}
	a.expectOrders(t)
}

// loads are the pods that ask.
var loads = []string{"load-home", "load-hamburg"}

// An application is the one of demo/orders, in a namespace of lubeck.
type application struct {
	ns    string
	steps []applicationStep
	gone  time.Time // when the endpoints of the lost provider were gone everywhere
}

type applicationStep struct {
	name     string
	from, to time.Time
}

func newApplication(t *testing.T) *application {
	t.Helper()
	return &application{ns: lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)}
}

// kubectl runs it in the application's namespace.
func (a *application) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := lubeck.Kubectl(t.Context(), append([]string{"-n", a.ns}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// manifest is the path of one of the application's, which the tutorial uses, too.
func manifest(name string) string {
	return filepath.Join(framework.Root, "demo", "orders", "manifests", name)
}

// begin starts the application, and those who ask.
func (a *application) begin(t *testing.T) {
	t.Helper()
	a.kubectl(t, "apply", "-f", manifest("application.yaml"))
	for app, replicas := range map[string]int{"web": 4, "api": 4, "cache": 1, "database": 1} {
		pods := lubeck.AwaitReadyPods(t, a.ns, app, replicas)
		if where := nodesOf(pods); replicas > 1 && len(where) != replicas {
			t.Errorf("%s runs on %v", app, where)
		}
	}
	a.await(t, "each cluster knows all of web", hasEndpoints("web", 4))
	a.kubectl(t, "apply", "-f", manifest("load.yaml"))
	lubeck.AwaitReadyPods(t, a.ns, "load", len(loads))
}

// nodesOf are the nodes of the pods, each once.
func nodesOf(pods []corev1.Pod) []string {
	var nodes []string
	for i := range pods {
		nodes = append(nodes, pods[i].Spec.NodeName)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// step does something to the application, and notes how long that took.
func (a *application) step(t *testing.T, name string, do func(t *testing.T)) applicationStep {
	t.Helper()
	s := applicationStep{name: name, from: time.Now()}
	do(t)
	s.to = time.Now()
	a.steps = append(a.steps, s)
	return s
}

// await looks at home and at both providers.
func (a *application) await(t *testing.T, what string, holds func(ctx context.Context, c *framework.Cluster, ns string) error) {
	t.Helper()
	framework.Eventually(t, what, func(ctx context.Context) error {
		return errors.Join(holds(ctx, lubeck, a.ns), holds(ctx, hamburg, tenant.TwinName("lubeck", a.ns)), holds(ctx, bremen, tenant.TwinName("lubeck", a.ns)))
	})
}

// hasEndpoints checks that so many endpoints of the Service are ready.
func hasEndpoints(service string, want int) func(ctx context.Context, c *framework.Cluster, ns string) error {
	return func(ctx context.Context, c *framework.Cluster, ns string) error {
		all, err := c.GetEndpoints(ctx, ns, service)
		ready := slices.DeleteFunc(slices.Clone(all), func(e string) bool { return !strings.HasSuffix(e, "ready=true") })
		if err == nil && len(ready) != want {
			err = fmt.Errorf("%s: %v", c.Name, all)
		}
		return err
	}
}

// undisturbed waits until each of those who ask has been answered for some seconds.
func (a *application) undisturbed(t *testing.T) {
	framework.Eventually(t, "answers for five seconds", func(ctx context.Context) error {
		for _, from := range loads {
			seconds, err := a.seconds(ctx, from)
			if err != nil || len(seconds) < 5 {
				return fmt.Errorf("%s: %d seconds, %w", from, len(seconds), err)
			}
		}
		return nil
	})
}

// rollout waits until each Deployment has all of its pods, and is known everywhere.
func (a *application) rollout(t *testing.T, replicas int) {
	t.Helper()
	for _, name := range []string{"deployment/web", "deployment/api"} {
		a.kubectl(t, "rollout", "status", name, "--timeout=3m")
	}
	a.await(t, "each cluster knows all of web", hasEndpoints("web", replicas))
}

func (a *application) update(t *testing.T) {
	a.kubectl(t, "set", "env", "deployment/web", "deployment/api", "VERSION=2")
	a.rollout(t, 4)
	a.expectPage(t, "version 2; api", "version 2, user")
}

func (a *application) scale(t *testing.T) {
	for _, replicas := range []int{6, 4} {
		a.kubectl(t, "scale", "deployment/web", "deployment/api", fmt.Sprintf("--replicas=%d", replicas))
		a.rollout(t, replicas)
	}
}

// configure changes the ConfigMap, and puts a new credential before the old one, which goes when all know the new one.
func (a *application) configure(t *testing.T) {
	a.kubectl(t, "patch", "configmap", "orders", "-p", `{"data":{"greeting":"Good day"}}`)
	a.kubectl(t, "patch", "secret", "orders", "-p", `{"stringData":{"credentials":"second:kS1vXj0Zb5Jt8Qyw\nfirst:5AvRAOBJuVlbGqIT\n"}}`)
	a.expectPage(t, "<h1>Good day</h1>", "user second")
	a.kubectl(t, "patch", "secret", "orders", "-p", `{"stringData":{"credentials":"second:kS1vXj0Zb5Jt8Qyw\n"}}`)
}

// expectPage waits until every pod of the API has answered what it should, through web and its Service.
func (a *application) expectPage(t *testing.T, want ...string) {
	t.Helper()
	answered := map[string]bool{}
	framework.Eventually(t, fmt.Sprintf("all pages say %v", want), func(ctx context.Context) error {
		page, err := lubeck.Kubectl(ctx, "-n", a.ns, "exec", loads[0], "--", "/orders", "get", "http://web")
		if err != nil {
			return err
		}
		_, by, _ := strings.Cut(page, "; api ")
		by, _, _ = strings.Cut(by, ",")
		for _, text := range want {
			if answered[by] = strings.Contains(page, text); !answered[by] {
				break
			}
		}
		pods, err := lubeck.GetPods(ctx, a.ns, "api")
		for i := range pods {
			if !answered[pods[i].Name] {
				err = fmt.Errorf("%s does not yet: %s", pods[i].Name, page)
			}
		}
		return err
	})
}

// drain empties the worker on which none of those who ask is, but the active gateway.
func (a *application) drain(t *testing.T) {
	node := lubeck.WorkerNames(t)[1]
	for lubeck.AwaitStandbyGateway(t).Spec.NodeName != node {
		lubeck.EvictGateway(t)
	}
	t.Cleanup(func() {
		if _, err := lubeck.Kubectl(context.Background(), "uncordon", node); err != nil {
			t.Error(err)
		}
	})
	if out, err := lubeck.Kubectl(t.Context(), "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=2m"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a.rollout(t, 4)
	if _, err := lubeck.Kubectl(t.Context(), "uncordon", node); err != nil {
		t.Fatal(err)
	}
}

// lose cuts bremen off from the two others, for HANSE_LOST_FOR or until all know it and a while more.
func (a *application) lose(t *testing.T) {
	heal := func() {
		framework.MustTestbed(t, "heal", "lubeck", "bremen")
		framework.MustTestbed(t, "heal", "hamburg", "bremen")
	}
	t.Cleanup(heal)
	began := time.Now()
	framework.MustTestbed(t, "cut", "lubeck", "bremen")
	framework.MustTestbed(t, "cut", "hamburg", "bremen")
	there := len(a.at(t, "web", bremen))
	framework.Eventually(t, "nobody takes pods of bremen for endpoints", func(ctx context.Context) error {
		left := hasEndpoints("web", 4-there)
		return errors.Join(left(ctx, lubeck, a.ns), left(ctx, hamburg, tenant.TwinName("lubeck", a.ns)))
	})
	a.gone = time.Now()
	t.Logf("endpoints in bremen are gone %.1f s after the cut", a.gone.Sub(began).Seconds())
	lasts := lostFor(t)
	select { // how long this lasts is what the step is about
	case <-time.After(time.Until(began.Add(lasts))):
	case <-t.Context().Done():
	}
	heal()
	framework.AwaitConnected(t, lubeck, bremen)
	framework.AwaitConnected(t, hamburg, bremen)
	a.rollout(t, 4)
	lubeck.AwaitReadyPods(t, a.ns, "cache", 1)
}

// lostFor is how long a provider is lost: long enough for its node to be given up.
func lostFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("HANSE_LOST_FOR")
	if text == "" {
		return time.Minute
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return lasts
}

// at are the pods of the tier whose node stands for the peer.
func (a *application) at(t *testing.T, app string, peer *framework.Cluster) []string {
	t.Helper()
	pods, err := lubeck.GetPods(t.Context(), a.ns, app)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range pods {
		if pods[i].Spec.NodeName == v1alpha1.VirtualNodePrefix+peer.Name {
			names = append(names, pods[i].Name)
		}
	}
	return names
}

// unoffload brings web and API home. Database and cache stay where they are, as their PodDisruptionBudget has it.
func (a *application) unoffload(t *testing.T) {
	if out, err := lubeck.Hanse(t.Context(), "unoffload", a.ns, "--evict", "--wait=false"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	framework.Eventually(t, "web and API are at home", func(ctx context.Context) error {
		for _, app := range []string{"web", "api"} {
			pods, err := lubeck.GetPods(ctx, a.ns, app)
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return framework.IsOnVirtualNode(&pod) || !framework.IsPodReady(&pod) }); i >= 0 || len(pods) != 4 {
				return fmt.Errorf("%s", framework.Summarize(pods))
			}
		}
		return nil
	})
	for app, peer := range map[string]*framework.Cluster{"database": hamburg, "cache": bremen} {
		if len(a.at(t, app, peer)) != 1 {
			t.Errorf("%s has left %s", app, peer.Name)
		}
	}
}

// offloadAgain spreads web and API again.
func (a *application) offloadAgain(t *testing.T) {
	if out, err := lubeck.Hanse(t.Context(), "offload", a.ns, "--strategy", string(v1alpha1.StrategyLocalAndRemote)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a.kubectl(t, "rollout", "restart", "deployment/web", "deployment/api")
	a.rollout(t, 4)
	for _, app := range []string{"web", "api"} {
		for _, peer := range []*framework.Cluster{hamburg, bremen} {
			if len(a.at(t, app, peer)) == 0 {
				t.Errorf("no pod of %s is in %s", app, peer.Name)
			}
		}
	}
}

// expectOrders looks for each order that was confirmed, also after the database was started anew with the volume that it has.
func (a *application) expectOrders(t *testing.T) {
	t.Helper()
	for _, again := range []bool{false, true} {
		if again {
			pod := lubeck.AwaitReadyPods(t, a.ns, "database", 1)[0]
			a.kubectl(t, "delete", "pod", pod.Name)
			framework.Eventually(t, "another database", func(ctx context.Context) error {
				now := &corev1.Pod{}
				err := lubeck.Get(ctx, types.NamespacedName{Namespace: a.ns, Name: pod.Name}, now)
				if err == nil && (now.UID == pod.UID || !framework.IsPodReady(now)) {
					err = errors.New("not yet")
				}
				return client.IgnoreNotFound(err)
			})
		}
		for _, from := range loads {
			a.expectAllOrders(t, from)
		}
	}
}
