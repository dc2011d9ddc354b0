// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// install installs Hanse in each cluster, and peers the consumer with all providers. It can be done again.
func install(ctx context.Context, clusters map[string]*cluster) error {
	installing, all := errgroup.WithContext(ctx)
	for _, name := range everyone {
		installing.Go(func() error { return clusters[name].Install(all, "probePeriod=2s") })
	}
	if err := installing.Wait(); err != nil {
		return err
	}
	home := clusters[consumer]
	for _, name := range providers {
		if err := errors.Join(peer(ctx, home, clusters[name]), clusters[name].rewriteImages(ctx)); err != nil {
			return err
		}
	}
	return again(ctx, home.peersReady)
}

// rewriteImages has the cluster take the images of pods that it runs for others from a mirror, as many clusters do.
func (c *cluster) rewriteImages(ctx context.Context) error {
	named := metav1.ObjectMeta{Name: "images-from-a-mirror"}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: named, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionregistrationv1.MatchResources{
			ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: v1alpha1.LabelHomeUID, Operator: metav1.LabelSelectorOpExists},
			}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: fmt.Sprintf(
				`[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: object.spec.containers[0].image.replace(%q, %q)}]`, image, mirrored)},
		}},
	}}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: named, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: named.Name},
	}
	return errors.Join(client.IgnoreAlreadyExists(c.Create(ctx, policy)), client.IgnoreAlreadyExists(c.Create(ctx, binding)))
}

// peer lets home consume from the provider, unless it does.
func peer(ctx context.Context, home, provider *cluster) error {
	err := home.Get(ctx, client.ObjectKey{Name: provider.Name}, &v1alpha1.Peer{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		return err
	}
	return harness.Peer(ctx, home.Cluster, provider.Cluster)
}

func (c *cluster) peersReady(ctx context.Context) error {
	for _, name := range providers {
		peer := &v1alpha1.Peer{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("peer %s is not Ready: %+v", name, peer.Status.Conditions)
		}
	}
	return nil
}

// settle waits until pods run at every provider, and then makes the clock of one cluster's Hanse wrong.
func settle(ctx context.Context, clusters map[string]*cluster, p plan) error {
	for _, name := range everyone {
		if err := again(ctx, clusters[name].settled); err != nil {
			return fmt.Errorf("wait for %s: %w", name, err)
		}
		offset := ""
		if name == p.skewed {
			offset = p.offset.String()
		}
		for _, subcommand := range []string{"manager", "kubelet"} {
			if err := clusters[name].setFlag(ctx, subcommand, flagOffset, offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// settled tells whether the cluster has a twin of the load's namespace, if it is a provider.
func (c *cluster) settled(ctx context.Context) error {
	if c.Name == consumer {
		return nil
	}
	mapping := &v1alpha1.NamespaceMapping{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(consumer), Name: loadNamespace}, mapping); err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(mapping.Status.Conditions, v1alpha1.ConditionReady) {
		return fmt.Errorf("mapping of namespace %s is not Ready: %+v", loadNamespace, mapping.Status.Conditions)
	}
	return nil
}
