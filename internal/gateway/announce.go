// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/topology"
)

// announce tells nodes where the VXLAN is, and has the Service of the gateway lead here. It looks again each time: one that has
// just ceased to be active may yet finish what it began.
func (g *Gateway) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	namespace := v1alpha1.NetworkNamespace(g.config.Namespace)
	if err := errors.Join(g.tellNodes(ctx, namespace), g.lead(ctx, namespace)); err != nil {
		return err
	}
	if !g.active.announced {
		ctrl.LoggerFrom(ctx).Info("This gateway is active")
	}
	g.active.announced = true
	return nil
}

// tellNodes writes down that this gateway is active, once and after another one has written there. The last that does so is the one
// that the Lease names, since the others have given up by then, or can write nothing.
func (g *Gateway) tellNodes(ctx context.Context, namespace string) error {
	said := topology.Active{Pod: g.config.Pod, Node: g.config.Node, Addresses: g.config.Addresses, MTU: g.config.MTU}
	if g.active.announced && g.active.network.Active.Pod == said.Pod {
		return nil
	}
	object, err := said.Object(namespace)
	if err != nil {
		return err
	}
	wanted := applycorev1.ConfigMap(object.Name, namespace).WithData(object.Data)
	if err := g.client.Apply(ctx, wanted, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("tell nodes which gateway is active: %w", err)
	}
	return nil
}

// lead puts the label by which the Service finds the active gateway on this pod, and takes it off all others.
func (g *Gateway) lead(ctx context.Context, namespace string) error {
	labelled := &corev1.PodList{}
	is := client.MatchingLabels{v1alpha1.LabelGateway: v1alpha1.ActiveGateway}
	if err := g.client.List(ctx, labelled, client.InNamespace(namespace), is); err != nil {
		return fmt.Errorf("list the pods of gateways: %w", err)
	}
	isOwn := func(pod corev1.Pod) bool { return pod.Name == g.config.Pod }
	if !slices.ContainsFunc(labelled.Items, isOwn) {
		own := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: g.config.Pod}}
		if err := g.label(ctx, &own, fmt.Sprintf("%q", v1alpha1.ActiveGateway)); err != nil {
			return err
		}
	}
	for _, pod := range slices.DeleteFunc(labelled.Items, isOwn) {
		if err := g.label(ctx, &pod, "null"); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (g *Gateway) label(ctx context.Context, pod *corev1.Pod, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelGateway, value)
	if err := g.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("label pod %s: %w", pod.Name, err)
	}
	return nil
}
