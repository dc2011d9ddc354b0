// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/tenant"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Pods behind a Service are replaced in two clusters while each part is killed in turn. When things are quiet again, the provider has
// each endpoint that there is once, and no other. The fault suite kills API servers, after which a scheduler may end that loses its lease.
func TestNoStaleEndpoints(t *testing.T) {
	ctx := framework.Begin(t)
	const replicas = 2
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	lubeck.CreateService(t, ns, "shop", map[string]string{"tier": "shop"})
	for app, place := range map[string]map[string]string{"away": framework.AtHamburg, "here": {corev1.LabelHostname: lubeck.WorkerNames(t)[0]}} {
		spec := framework.NewShellPodSpec(framework.RunForever)
		spec.NodeSelector = place
		made := framework.NewDeployment(ns, app, replicas, spec)
		made.Spec.Template.Labels = map[string]string{"app": app, "tier": "shop"}
		lubeck.MustCreate(t, made)
	}
	expectExact := func(when string) {
		t.Helper()
		framework.Eventually(t, "hamburg has each endpoint once "+when, func(ctx context.Context) error {
			want, err := endpointsAtHamburg(ctx, ns)
			if err == nil && len(want) != 2*replicas {
				err = fmt.Errorf("%d pods are ready", len(want))
			}
			if err != nil {
				return err
			}
			got, err := hamburg.GetEndpoints(ctx, tenant.TwinName("lubeck", ns), "shop")
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("it has %v, want %v", got, want)
			}
			return err
		})
	}
	expectExact("at first")
	replace := func(app string) {
		t.Helper()
		framework.Eventually(t, "the pods of "+app+" are to be replaced", func(ctx context.Context) error { // also where the API server starts again
			return lubeck.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{"app": app})
		})
	}
	for _, victim := range []struct {
		name string
		kill func()
	}{
		{"lubeck's manager", func() { lubeck.KillHanse(t, "manager") }},
		{"lubeck's kubelet", func() { lubeck.KillHanse(t, "kubelet") }},
		{"hamburg's manager", func() { hamburg.KillHanse(t, "manager") }},
		{"hamburg's gateway", func() { kill9Gateway(ctx, t, hamburg) }},
		{"lubeck's gateway", func() { kill9Gateway(ctx, t, lubeck) }},
	} {
		replace("here")
		victim.kill()
		replace("away")
		expectExact("after " + victim.name + " was killed")
	}
	framework.AwaitConnected(t, lubeck, hamburg)
}

// endpointsAtHamburg are the addresses of the ready pods of the Service shop, as hamburg sees them.
func endpointsAtHamburg(ctx context.Context, ns string) (all []string, err error) {
	connection, err := lubeck.GetConnection(ctx, hamburg)
	if err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	if err := lubeck.List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{"tier": "shop"}); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !pod.DeletionTimestamp.IsZero() || !framework.IsPodReady(pod) {
			return nil, fmt.Errorf("pod %s is not ready", pod.Name)
		}
		var address string
		if framework.IsOnVirtualNode(pod) {
			remote, err := hamburg.GetRemotePod(ctx, pod)
			if err != nil {
				return nil, err
			}
			address = remote.Status.PodIP
		} else {
			seen, _ := overlay.Seen(overlay.Mappings(connection.Spec.Ours), netip.MustParseAddr(pod.Status.PodIP))
			address = seen.String()
		}
		all = append(all, address+" ready=true")
	}
	slices.Sort(all)
	return all, nil
}

// kill9Gateway kills the process of the active gateway.
func kill9Gateway(ctx context.Context, t *testing.T, c *framework.Cluster) {
	t.Helper()
	var pid int
	framework.Eventually(t, "a gateway of "+c.Name+" is active", func(ctx context.Context) error {
		active, err := c.ActiveGateway(ctx)
		if err == nil {
			pid, err = framework.ProcessOfPod(active.UID, "/hanse")
		}
		return err
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// What the provider has of its own, of the same name as what a pod of ours needs, stays as it is, and the one at home says so. When it
// goes, the copy comes. So it is with each kind.
func TestConflict(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	lubeck.StartNetworkPod(t, ns, "first", hamburg) // so that there is a twin
	twin := tenant.TwinName("lubeck", ns)
	slice := handmade(ns, "shop")
	theirs := map[string]client.Object{
		"configmap/config": &corev1.ConfigMap{ObjectMeta: framework.NamespacedMeta(twin, "config"), Data: map[string]string{"from": "hamburg"}},
		"secret/secret":    &corev1.Secret{ObjectMeta: framework.NamespacedMeta(twin, "secret"), StringData: map[string]string{"from": "hamburg"}},
		"service/shop":     &corev1.Service{ObjectMeta: framework.NamespacedMeta(twin, "shop"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8443}}}},
		"":                 handmade(twin, "shop"), // which is said to lubeck's ShadowEndpointSlice
	}
	theirs[""].SetName("hanse-" + slice.Name)
	for _, object := range theirs {
		hamburg.MustCreate(t, object)
	}
	before := map[string]types.UID{}
	for source, object := range theirs {
		before[source] = object.GetUID()
	}
	lubeck.CreateNeededObjects(t, ns, hamburg)
	lubeck.MustCreate(t, slice)
	for source := range theirs {
		if source != "" {
			eventsSay(t, ns, source, v1alpha1.ReasonReflectionConflict, "hamburg")
		}
	}
	expectAnswer(t, hamburg, twin, slice.Name, "of its own")
	for source, object := range theirs {
		expectItsOwn(t, hamburg, object, before[source])
		if err := hamburg.Delete(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	for source, object := range theirs {
		expectCopyInPlaceOf(t, hamburg, object, before[source])
	}
}

// expectItsOwn checks that the object is the one of that UID, and no copy.
func expectItsOwn(t *testing.T, c *framework.Cluster, object client.Object, uid types.UID) {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if err != nil || object.GetUID() != uid || object.GetLabels()[v1alpha1.LabelReflected] != "" {
		t.Errorf("%T of %s is now %v: %v", object, c.Name, object, err)
	}
}

// expectCopyInPlaceOf waits until the object is a copy, and no more the one of that UID.
func expectCopyInPlaceOf(t *testing.T, c *framework.Cluster, object client.Object, uid types.UID) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the copy %T comes", object), func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if object.GetUID() == uid || object.GetLabels()[v1alpha1.LabelReflected] != "true" {
			return fmt.Errorf("it is %v", object)
		}
		return nil
	})
}

// eventsSay waits until an event of that reason on the object, which is called kind/name, says so. Of Secrets `kubectl describe` shows none.
func eventsSay(t *testing.T, ns, object, reason, text string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the events of %s say %s: %s", object, reason, text), func(ctx context.Context) error {
		said, err := lubeck.Kubectl(ctx, "events", "-n", ns, "--for", object)
		if err == nil && (!strings.Contains(said, reason) || !strings.Contains(said, text)) {
			err = fmt.Errorf("they say %s", said)
		}
		return err
	})
}

// expectAnswer waits until the provider says of a ShadowEndpointSlice why there are no endpoints of it.
func expectAnswer(t *testing.T, c *framework.Cluster, twin, name, why string) {
	t.Helper()
	framework.Eventually(t, "the provider says so", func(ctx context.Context) error {
		shadow := &v1alpha1.ShadowEndpointSlice{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: twin, Name: name}, shadow); err != nil {
			return err
		}
		said := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionAccepted)
		if said == nil || said.Status != metav1.ConditionFalse || !strings.Contains(said.Message, why) {
			return fmt.Errorf("it says %v, want %q", said, why)
		}
		return nil
	})
}

// handmade are endpoints that an author wrote: a pod address of the cluster.
func handmade(ns, service string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: framework.NamespacedMeta(ns, service+"-by-hand"), AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.99"}}},
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	return slice
}

// What its author keeps at home does not go, or goes away again, and an event on it says so. So it is with each kind.
func TestSkipEveryKind(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	twin := tenant.TwinName("lubeck", ns)
	lubeck.CreateNeededObjects(t, ns, hamburg)
	slice := handmade(ns, "shop")
	lubeck.MustCreate(t, slice)
	kinds := map[string]client.Object{
		"endpointslice/" + slice.Name: &v1alpha1.ShadowEndpointSlice{ObjectMeta: framework.NamespacedMeta(twin, slice.Name)},
		"configmap/config":            &corev1.ConfigMap{ObjectMeta: framework.NamespacedMeta(twin, "config")},
		"secret/secret":               &corev1.Secret{ObjectMeta: framework.NamespacedMeta(twin, "secret")},
	}
	service := &corev1.Service{ObjectMeta: framework.NamespacedMeta(twin, "shop")}
	expectThere := func(what string, copied client.Object) {
		t.Helper()
		framework.Eventually(t, what+" is at hamburg", func(ctx context.Context) error { return hamburg.Get(ctx, client.ObjectKeyFromObject(copied), copied) })
	}
	skip := func(what string, copied client.Object) {
		t.Helper()
		if _, err := lubeck.Kubectl(ctx, "annotate", "-n", ns, what, v1alpha1.LabelSkipReflection+"=true"); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, what+" is at hamburg no more", func(ctx context.Context) error { return hamburg.CheckGone(ctx, copied) })
		eventsSay(t, ns, what, v1alpha1.ReasonReflectionRefused, "keeps it at home")
	}
	expectThere("service/shop", service)
	for what, copied := range kinds {
		expectThere(what, copied)
		skip(what, copied)
	}
	skip("service/shop", service)

	// Before they were ever reflected.
	config := &corev1.ConfigMap{ObjectMeta: framework.NamespacedMeta(ns, "kept")}
	config.Annotations = map[string]string{v1alpha1.LabelSkipReflection: "true"}
	secret := &corev1.Secret{ObjectMeta: framework.NamespacedMeta(ns, "kept")}
	secret.Labels = map[string]string{v1alpha1.LabelSkipReflection: "true"}
	alone := &corev1.Service{ObjectMeta: framework.NamespacedMeta(ns, "kept"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	alone.Annotations = config.Annotations
	lubeck.CreateService(t, ns, "open", nil)
	part := handmade(ns, "open")
	part.Labels[v1alpha1.LabelSkipReflection] = "true"
	for _, object := range []client.Object{config, secret, alone, part} {
		lubeck.MustCreate(t, object)
	}
	lubeck.StartNetworkPod(t, ns, "second", hamburg, func(spec *corev1.PodSpec) {
		spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kept"}, Optional: ptr.To(true)}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kept"}, Optional: ptr.To(true)}},
		}
	})
	for _, what := range []string{"configmap/kept", "secret/kept", "service/kept", "endpointslice/" + part.Name} {
		eventsSay(t, ns, what, v1alpha1.ReasonReflectionRefused, "keeps it at home")
	}
	for _, object := range []client.Object{config, secret, alone, &v1alpha1.ShadowEndpointSlice{ObjectMeta: framework.NamespacedMeta(ns, part.Name)}} {
		object.SetNamespace(twin)
		if err := hamburg.CheckGone(ctx, object); err != nil {
			t.Error(err)
		}
	}
	expectThere("service/open", &corev1.Service{ObjectMeta: framework.NamespacedMeta(twin, "open")})
}
