package gateway

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/topology"
)

// announce tells nodes where the VXLAN is, and has the Service of the gateway lead here, once after each change. The last
// gateway that does so is the one that the Lease names, since the others have given up by then, or can write nothing.
func (g *Gateway) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	said := topology.Active{Pod: g.config.Pod, Node: g.config.Node, Addresses: g.config.Addresses, MTU: g.config.MTU}
	if g.active.announced && g.active.network.Active.Pod == said.Pod {
		return nil
	}
	namespace := v1alpha1.NetworkNamespace(g.config.Namespace)
	object, err := said.Object(namespace)
	if err != nil {
		return err
	}
	wanted := applycorev1.ConfigMap(object.Name, namespace).WithData(object.Data)
	if err := g.client.Apply(ctx, wanted, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("tell nodes which gateway is active: %w", err)
	}
	if err := g.lead(ctx, namespace); err != nil {
		return err
	}
	if !g.active.announced {
		ctrl.LoggerFrom(ctx).Info("This gateway is active")
	}
	g.active.announced = true
	return nil
}

// lead puts the label by which the Service finds the active gateway on this pod, and takes it off all others.
func (g *Gateway) lead(ctx context.Context, namespace string) error {
	labelled := &corev1.PodList{}
	is := client.MatchingLabels{v1alpha1.LabelGateway: v1alpha1.ActiveGateway}
	if err := g.client.List(ctx, labelled, client.InNamespace(namespace), is); err != nil {
		return fmt.Errorf("list the pods of gateways: %w", err)
	}
	own := &corev1.Pod{}
	own.Namespace, own.Name = namespace, g.config.Pod
	patches := map[*corev1.Pod]string{own: fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelGateway, v1alpha1.ActiveGateway)}
	for i := range labelled.Items {
		pod := &labelled.Items[i]
		if pod.Name != g.config.Pod {
			patches[pod] = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelGateway)
		}
	}
	for pod, patch := range patches {
		err := g.client.Patch(ctx, pod, client.RawPatch("application/merge-patch+json", []byte(patch)))
		if client.IgnoreNotFound(err) != nil || err != nil && pod == own {
			return fmt.Errorf("label pod %s: %w", pod.Name, err)
		}
	}
	return nil
}
