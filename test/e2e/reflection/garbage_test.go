// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
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
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Many objects are reflected and deleted again. Nothing that tells of them is left at the provider, and home's manager runs no more
// goroutines after the second time than after the first. HANSE_GARBAGE sets how many of each of the four kinds: 2500 makes 10,000 objects.
func TestGarbage(t *testing.T) {
	ctx := framework.Begin(t)
	each := framework.IntFromEnvironment(t, "HANSE_GARBAGE", 100)
	var after []int
	for round := range 2 {
		ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
		twin := tenant.TwinName("lubeck", ns)
		objects := garbage(t, lubeck, ns, each)
		pod := garbagePod(t, lubeck, ns, each)
		framework.Eventually(t, "all of it is at hamburg", func(ctx context.Context) error { return holds(ctx, hamburg, twin, each) })
		for _, object := range append(objects, client.Object(pod)) {
			if err := lubeck.Delete(ctx, object); err != nil {
				t.Fatal(err)
			}
		}
		framework.Eventually(t, "nothing is left in the twin", func(ctx context.Context) error { return holds(ctx, hamburg, twin, 0) })
		lubeck.DeleteAndWait(t, &corev1.Namespace{ObjectMeta: framework.ObjectMeta(ns)})
		framework.Eventually(t, "nothing at hamburg tells of it", func(ctx context.Context) error {
			all, err := hamburg.TakeInventory(ctx)
			for name, content := range all {
				if strings.Contains(name, "soon-gone-") || strings.Contains(name, ns) || strings.Contains(content, ns) {
					return fmt.Errorf("%s is left", name)
				}
			}
			return err
		})
		framework.Eventually(t, "the manager is at rest", func(ctx context.Context) error {
			running, err := goroutines(ctx, lubeck)
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
func garbage(t *testing.T, c *framework.Cluster, ns string, each int) (all []client.Object) {
	t.Helper()
	for i := range each {
		name := garbageName(i)
		service := &corev1.Service{ObjectMeta: framework.NamespacedMeta(ns, name), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}}}
		all = append(all, &corev1.ConfigMap{ObjectMeta: framework.NamespacedMeta(ns, name)}, &corev1.Secret{ObjectMeta: framework.NamespacedMeta(ns, name)}, service, handmade(ns, name))
	}
	for _, object := range all {
		c.MustCreate(t, object)
	}
	return all
}

func garbageName(i int) string { return fmt.Sprintf("soon-gone-%d", i) }

// garbagePod runs a pod at hamburg that refers to all of the ConfigMaps and Secrets.
func garbagePod(t *testing.T, c *framework.Cluster, ns string, each int) *corev1.Pod {
	t.Helper()
	pod := framework.NewShellPod(ns, "user", framework.RunForever)
	pod.Spec.NodeSelector = framework.AtHamburg
	for i := range each {
		ref := corev1.LocalObjectReference{Name: garbageName(i)}
		pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom,
			corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref, Optional: ptr.To(true)}},
			corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref, Optional: ptr.To(true)}})
	}
	c.MustCreate(t, pod)
	return pod
}

// holds returns an error unless the twin has exactly so many copies of each kind, and slices of those.
func holds(ctx context.Context, c *framework.Cluster, twin string, each int) error {
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
func goroutines(ctx context.Context, c *framework.Cluster) (int, error) {
	out, err := c.ManagerMetrics(ctx)
	if err != nil {
		return 0, err
	}
	found := goroutineMetric.FindStringSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("no go_goroutines in %s", framework.Tail(out, 300))
	}
	return strconv.Atoi(found[1])
}
