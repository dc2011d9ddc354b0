// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// Application returns an Application with one pod that requests cpu and 16Mi of memory for each component.
func Application(ns string, placement *v1alpha1.ApplicationPlacement, cpu string, components ...string) *v1alpha1.Application {
	app := &v1alpha1.Application{ObjectMeta: Named(ns, "shop"), Spec: v1alpha1.ApplicationSpec{Placement: placement}}
	for _, name := range components {
		app.Spec.Components = append(app.Spec.Components, v1alpha1.ApplicationComponent{
			Name: name, PodLabels: map[string]v1alpha1.LabelValue{"app": v1alpha1.LabelValue(name)}, Replicas: 1,
			Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("16Mi")},
		})
	}
	return app
}

// AwaitApplication waits until the current generation of the Application is in the phase, and updates the Application.
func (c *Cluster) AwaitApplication(t T, app *v1alpha1.Application, phase v1alpha1.ApplicationPhase) *v1alpha1.Application {
	t.Helper()
	Eventually(t, fmt.Sprintf("Application %s is %s", app.Name, phase), func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(app), app)
		if err == nil && (app.Status.Phase != phase || app.Status.ObservedGeneration != app.Generation) {
			err = fmt.Errorf("it is %s: %+v", app.Status.Phase, app.Status)
		}
		return err
	})
	return app
}

// ComponentPeers returns the peer of each component of the Application, in their order. The name of the home cluster is empty.
func ComponentPeers(app *v1alpha1.Application) (peers []string) {
	for _, component := range app.Status.Components {
		peers = append(peers, component.Peer)
	}
	return peers
}

// RequestOf returns the consumer's Request for the Application at this provider.
func (c *Cluster) RequestOf(ctx context.Context, app *v1alpha1.Application, consumer *Cluster) (*v1alpha1.Request, error) {
	request := &v1alpha1.Request{}
	return request, c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(consumer.Name), Name: offload.RequestName(app)}, request)
}

// SetExtendedResource gives a node of the cluster so much of an extended resource that no other test uses, until the end of the test.
func (c *Cluster) SetExtendedResource(t T, name corev1.ResourceName, count int) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: Named("", c.Name+"-simulated-1")}
	patch := func(ctx context.Context, value string) error {
		key := strings.ReplaceAll(string(name), "/", "~1")
		list := fmt.Sprintf(`[{"op":"add","path":"/status/capacity/%s","value":%q},{"op":"add","path":"/status/allocatable/%s","value":%q}]`, key, value, key, value)
		return c.Status().Patch(ctx, node, client.RawPatch(types.JSONPatchType, []byte(list)))
	}
	t.Cleanup(func() {
		if err := patch(context.Background(), "0"); err != nil {
			t.Error(err)
		}
	})
	if err := patch(t.Context(), fmt.Sprint(count)); err != nil {
		t.Fatal(err)
	}
}
