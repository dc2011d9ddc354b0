package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
)

// fromEnvironment returns the number that the environment variable has, or else the usual one.
func fromEnvironment(t *testing.T, variable string, usual int) int {
	t.Helper()
	set := os.Getenv(variable)
	if set == "" {
		return usual
	}
	number, err := strconv.Atoi(set)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// Many objects are reflected and deleted again. Nothing that tells of them is left at the provider, and home's manager runs no more
// goroutines after the second time than after the first. HANSE_GARBAGE sets how many of each of the four kinds: 2500 makes 10,000 objects.
func TestGarbage(t *testing.T) {
	ctx := network(t)
	each := fromEnvironment(t, "HANSE_GARBAGE", 100)
	var after []int
	for round := range 2 {
		ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
		twin := tenant.TwinName("lubeck", ns)
		objects := lubeck.garbage(t, ns, each)
		pod := lubeck.garbagePod(t, ns, each)
		eventually(t, "all of it is at hamburg", func(ctx context.Context) error { return hamburg.holds(ctx, twin, each) })
		for _, object := range append(objects, client.Object(pod)) {
			if err := lubeck.Delete(ctx, object); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "nothing is left in the twin", func(ctx context.Context) error { return hamburg.holds(ctx, twin, 0) })
		lubeck.deleteAndWait(t, &corev1.Namespace{ObjectMeta: named(ns)})
		eventually(t, "nothing at hamburg tells of it", func(ctx context.Context) error {
			all, err := hamburg.inventory(ctx)
			for name, content := range all {
				if strings.Contains(name, "soon-gone-") || strings.Contains(name, ns) || strings.Contains(content, ns) {
					return fmt.Errorf("%s is left", name)
				}
			}
			return err
		})
		eventually(t, "the manager is at rest", func(ctx context.Context) error {
			running, err := lubeck.goroutines(ctx)
			if err == nil && round > 0 && running > after[0]+10 {
				err = fmt.Errorf("%d goroutines run, and %d did after the first round", running, after[0])
			}
			after = append(after[:round], running)
			return err
		})
	}
	t.Logf("the manager of lubeck runs %v goroutines after each round of %d objects", after, 4*each)
}

// garbage makes so many ConfigMaps, Secrets, Services and EndpointSlices of these.
func (c *cluster) garbage(t *testing.T, ns string, each int) (all []client.Object) {
	t.Helper()
	for i := range each {
		name := garbageName(i)
		service := &corev1.Service{ObjectMeta: inNamespace(ns, name), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}}}
		all = append(all, &corev1.ConfigMap{ObjectMeta: inNamespace(ns, name)}, &corev1.Secret{ObjectMeta: inNamespace(ns, name)}, service, handmade(ns, name))
	}
	for _, object := range all {
		c.create(t, object)
	}
	return all
}

func garbageName(i int) string { return fmt.Sprintf("soon-gone-%d", i) }

// garbagePod runs a pod at hamburg that refers to all of the ConfigMaps and Secrets.
func (c *cluster) garbagePod(t *testing.T, ns string, each int) *corev1.Pod {
	t.Helper()
	pod := shellPod(ns, "user", forever)
	pod.Spec.NodeSelector = atHamburg
	for i := range each {
		ref := corev1.LocalObjectReference{Name: garbageName(i)}
		pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom,
			corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref, Optional: ptr.To(true)}},
			corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref, Optional: ptr.To(true)}})
	}
	c.create(t, pod)
	return pod
}

// holds returns an error unless the twin has exactly so many copies of each kind, and slices of those.
func (c *cluster) holds(ctx context.Context, twin string, each int) error {
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &v1alpha1.ShadowEndpointSliceList{},
	} {
		if err := c.List(ctx, list, client.InNamespace(twin)); err != nil {
			return err
		}
		count := 0
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object, err := meta.Accessor(item)
			if err == nil && strings.Contains(object.GetName(), "soon-gone-") { // and not the tokens of the pod
				count++
			}
			return err
		})
		if err != nil {
			return err
		}
		if count != each {
			return fmt.Errorf("%T: %d, want %d", list, count, each)
		}
	}
	return nil
}

var goroutineMetric = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)

// goroutines is how many run in the manager, by its metrics.
func (c *cluster) goroutines(ctx context.Context) (int, error) {
	out, err := c.metrics(ctx)
	if err != nil {
		return 0, err
	}
	found := goroutineMetric.FindStringSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("no go_goroutines in %s", tail(out, 300))
	}
	return strconv.Atoi(found[1])
}

// metrics are those of the manager.
func (c *cluster) metrics(ctx context.Context) (string, error) {
	pods := &corev1.PodList{}
	err := c.List(ctx, pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})
	if err != nil || len(pods.Items) == 0 {
		return "", fmt.Errorf("%d managers: %w", len(pods.Items), err)
	}
	return c.Kubectl(ctx, "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/metrics", v1alpha1.SystemNamespace, pods.Items[0].Name))
}
