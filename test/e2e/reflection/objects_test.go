// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// widgetDefinition is that of a kind that neither Kubernetes nor Hanse knows.
const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer}, secret: {type: string}, color: {type: string, default: blue}}
          status: {type: object, properties: {phase: {type: string}}}
`

// keepsRoutes has lubeck know routes of the Gateway API, and hamburg keep their definition, which is in a module that Traefik uses.
func keepsRoutes(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", "sigs.k8s.io/gateway-api")
	download.Dir = filepath.Join(framework.Root, "testbed", "traefik")
	out, err := download.Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(module.Dir, "config", "crd", "standard", "gateway.networking.k8s.io_httproutes.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "http-routes"}, Data: map[string]string{"yaml": string(text)}}
	hamburg.MustCreate(t, kept)
	if _, err := lubeck.Kubectl(ctx, "create", "-f", file); err != nil {
		t.Fatal(err)
	}
	if _, err := lubeck.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "-f", file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := hamburg.Delete(ctx, kept); err != nil { // first: what is asked for is installed again as long as it is kept
			t.Error(err)
		}
		for _, c := range []*framework.Cluster{lubeck, hamburg} {
			if _, err := c.Kubectl(ctx, "delete", "-f", file, "--ignore-not-found"); err != nil {
				t.Error(err)
			}
			if left, err := c.Kubectl(ctx, "get", "-f", file, "--ignore-not-found", "-o", "yaml"); err != nil || left != "" {
				t.Errorf("%s has the definition yet: %v\n%s", c.Name, err, left)
			}
		}
	})
}

const routeManifest = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: %[1]s}
spec:
  parentRefs: [{name: of-lubeck}]
  hostnames: [www.%[1]s.example.org]
  rules: [{backendRefs: [{name: web, port: 80}]}]
`

// expectRoute waits until the route is at hamburg, at the Gateway that hamburg has for lubeck, and what is said of it there is said at home.
func expectRoute(t *testing.T, ns, twin string) {
	t.Helper()
	is := func(c *framework.Cluster, ns, path, want string) {
		framework.Eventually(t, fmt.Sprintf("%s of the route at %s is %s", path, c.Name, want), func(ctx context.Context) error {
			got, err := c.Kubectl(ctx, "-n", ns, "get", "httproute", "web", "-o", "jsonpath={"+path+"}")
			if err == nil && got != want {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		})
	}
	is(hamburg, twin, ".spec.parentRefs[*].name", "public")
	is(hamburg, twin, ".spec.hostnames[0]", "www."+ns+".example.org")
	const accepted = `{"status": {"parents": [{"parentRef": {"namespace": "web", "name": "public"}, "controllerName": "example.org/gateway",
		"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "at 192.0.2.7", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]}}`
	if _, err := hamburg.Kubectl(t.Context(), "-n", twin, "patch", "httproute", "web", "--subresource=status", "--type=merge", "-p", accepted); err != nil {
		t.Fatal(err) // as a controller would
	}
	is(lubeck, ns, ".status.parents[*].conditions[*].message", "at 192.0.2.7")
	is(lubeck, ns, ".spec.parentRefs[*].name", "of-lubeck")
}

func widget(ns, name string, size int64) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget", "spec": map[string]any{"size": size, "secret": "of lubeck"},
	}}
	object.SetNamespace(ns)
	object.SetName(name)
	return object
}

// says waits until the field of the object has the value.
func says(t *testing.T, c *framework.Cluster, object *unstructured.Unstructured, want any, field ...string) {
	t.Helper()
	what := fmt.Sprintf("%s of %s at %s to be %v", strings.Join(field, "."), object.GetName(), c.Name, want)
	framework.Eventually(t, what, func(ctx context.Context) error {
		found := object.DeepCopy()
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), found); err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedFieldNoCopy(found.Object, field...); got != want {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

// lends has the provider's Peer of the consumer allow it something until the end of the story.
func lends(t *testing.T, c *framework.Cluster, consumer, field, what string) {
	t.Helper()
	patch := func(ctx context.Context, value string) {
		peer := &v1alpha1.Peer{ObjectMeta: framework.ObjectMeta(consumer)}
		text := fmt.Sprintf(`{"spec": {%q: %s}}`, field, value)
		if err := c.Patch(ctx, peer, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Error(err)
		}
	}
	patch(t.Context(), what)
	t.Cleanup(func() { patch(context.Background(), "null") })
}

// An object of a kind that administrators have listed is at the provider of the pods of its namespace, follows its changes, and has
// its status from there. Where there is none, it says why; what the provider has of its own stays as it is. The provider may keep a
// definition that Hanse installs: a route of the Gateway API leads to the Gateway that the provider has for its home.
func TestListedKindsAreReflected(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	twin := tenant.TwinName("lubeck", ns)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "user", framework.RunForever))
	lubeck.ApplyManifest(t, widgetDefinition)
	keepsRoutes(t)
	lubeck.ApplyManifest(t, fmt.Sprintf(routeManifest, ns))
	lubeck.AwaitReadyPods(t, ns, "user", 1)
	lubeck.MustCreate(t, widget(ns, "one", 3))

	lubeck.AwaitDescription(t, ns, "widget/one", v1alpha1.ReasonReflectionRefused, "hamburg", "spec.objects of the Peer")
	lends(t, hamburg, "lubeck", "ingress", `{"hosts": ["*.example.org"], "gateway": {"namespace": "web", "name": "public"}}`)
	lends(t, hamburg, "lubeck", "objects", `[{"group": "example.org", "kind": "Widget"}, {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]`)
	lubeck.AwaitDescription(t, ns, "widget/one", v1alpha1.ReasonDefinitionMissing)
	hamburg.ApplyManifest(t, widgetDefinition)
	there := widget(twin, "one", 0)
	says(t, hamburg, there, int64(3), "spec", "size")
	says(t, hamburg, there, nil, "spec", "secret")
	says(t, hamburg, there, "blue", "spec", "color")

	if _, err := lubeck.Kubectl(ctx, "-n", ns, "patch", "widget", "one", "--type=merge", "-p", `{"spec": {"size": 4}}`); err != nil {
		t.Fatal(err)
	}
	says(t, hamburg, there, int64(4), "spec", "size")
	if _, err := hamburg.Kubectl(ctx, "-n", twin, "patch", "widget", "one", "--subresource=status", "--type=merge", "-p", `{"status": {"phase": "Running"}}`); err != nil {
		t.Fatal(err)
	}
	says(t, lubeck, widget(ns, "one", 0), "Running", "status", "phase")
	says(t, lubeck, widget(ns, "one", 0), "of lubeck", "spec", "secret")
	expectRoute(t, ns, twin)

	theirs := widget(twin, "taken", 9)
	hamburg.MustCreate(t, theirs)
	lubeck.MustCreate(t, widget(ns, "taken", 1))
	lubeck.AwaitDescription(t, ns, "widget/taken", v1alpha1.ReasonNameTaken, "left alone")
	says(t, hamburg, widget(twin, "taken", 0), int64(9), "spec", "size")

	if err := lubeck.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "user"}}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the widget to be gone with the last pod", func(ctx context.Context) error { return hamburg.CheckGone(ctx, there.DeepCopy()) })
	says(t, hamburg, widget(twin, "taken", 0), int64(9), "spec", "size")
}

// An Ingress is at the provider of the pods of its namespace if that lets its home have the host, and only there. Where it is reached
// is said at home, and what keeps it away.
func TestIngressesAreReflected(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	twin := tenant.TwinName("lubeck", ns)
	lubeck.StartNetworkPod(t, ns, "away", hamburg)
	lubeck.CreateService(t, ns, "web", map[string]string{"app": "away"})
	lubeck.ApplyManifest(t, fmt.Sprintf(ingressManifest, ns))
	lubeck.AwaitDescription(t, ns, "ingress/web", v1alpha1.ReasonReflectionRefused, v1alpha1.ReasonHostNotAllowed, "www.ns-"+ns+".example.org")
	lends(t, hamburg, "lubeck", "ingress", `{"hosts": ["*.example.org"], "className": "of-hamburg"}`)
	there := &networkingv1.Ingress{}
	framework.Eventually(t, "hamburg has the Ingress, and its certificate", func(ctx context.Context) error {
		if err := hamburg.Get(ctx, types.NamespacedName{Namespace: twin, Name: "web"}, there); err != nil {
			return err
		}
		return hamburg.Get(ctx, types.NamespacedName{Namespace: twin, Name: "certificate"}, &corev1.Secret{})
	})
	if class := there.Spec.IngressClassName; class == nil || *class != "of-hamburg" {
		t.Errorf("its class is %v", class)
	}

	there.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.7"}}
	if err := hamburg.Status().Update(ctx, there); err != nil { // as a controller would
		t.Fatal(err)
	}
	home := &unstructured.Unstructured{}
	home.SetAPIVersion("networking.k8s.io/v1")
	home.SetKind("Ingress")
	home.SetNamespace(ns)
	home.SetName("web")
	says(t, lubeck, home, "192.0.2.7", "metadata", "annotations", v1alpha1.AnnotationAddressAt+"hamburg")
	if _, err := lubeck.Kubectl(ctx, "annotate", "ingress", "-n", ns, "web", v1alpha1.LabelSkipReflection+"=true"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "hamburg has it no more", func(ctx context.Context) error { return hamburg.CheckGone(ctx, there.DeepCopy()) })
	says(t, lubeck, home, nil, "metadata", "annotations", v1alpha1.AnnotationAddressAt+"hamburg")
}

// ingressManifest is an Ingress that would be any cluster's, with a certificate that nobody trusts.
const ingressManifest = `
apiVersion: v1
kind: Secret
metadata: {name: certificate, namespace: %[1]s}
data: {tls.crt: "", tls.key: ""}
type: kubernetes.io/tls
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: %[1]s}
spec:
  ingressClassName: of-lubeck
  tls: [{hosts: [www.ns-%[1]s.example.org], secretName: certificate}]
  rules:
  - host: www.ns-%[1]s.example.org
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`
