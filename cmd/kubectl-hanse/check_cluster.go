package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/internal/install"
)

// cluster checks what Hanse needs of any cluster.
func (c *checker) cluster() []finding {
	const kubernetes, mutating = "Kubernetes version", "MutatingAdmissionPolicy"
	version, err := install.CheckKubernetes(c.discovery)
	if err != nil && !errors.Is(err, install.ErrUnsupported) {
		return []finding{topicKubernetes.unknown(kubernetes, err)}
	}
	if version == "" {
		return []finding{
			topicKubernetes.failed(kubernetes, err.Error(), "upgrade Kubernetes to "+install.MinimumKubernetes+" or newer"),
			topicPolicies.skipped(mutating, "see Kubernetes version"),
		}
	}
	findings := []finding{topicKubernetes.ok(kubernetes, "%s, and %s is the oldest that will do", version, install.MinimumKubernetes)}
	const fix = "turn it on with the API server's --runtime-config and --feature-gates"
	if err != nil {
		findings = append(findings, topicPolicies.failed(mutating, err.Error(), fix))
	} else {
		findings = append(findings, topicPolicies.ok(mutating, "served as v1"))
	}
	return append(findings, c.validatingPolicies(fix))
}

func (c *checker) validatingPolicies(fix string) finding {
	const name = "ValidatingAdmissionPolicy"
	group := admissionregistrationv1.SchemeGroupVersion.String()
	served, err := c.discovery.ServerResourcesForGroupVersion(group)
	if err != nil {
		return topicPolicies.unknown(name, err)
	}
	for i := range served.APIResources {
		if served.APIResources[i].Name == "validatingadmissionpolicies" {
			return topicPolicies.ok(name, "served as v1")
		}
	}
	return topicPolicies.failed(name, "the API server does not serve it in "+group, fix)
}

// rights checks whether the user may make what the chart consists of.
func (c *checker) rights(ctx context.Context) finding {
	const name = "your rights"
	needed, err := c.needed()
	if err != nil {
		return topicRights.unknown(name, err)
	}
	var missing []string
	for _, right := range needed {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
		}
		if err := c.client.Create(ctx, review); err != nil {
			return topicRights.unknown(name, fmt.Errorf("ask whether you may %s %s: %w", right.Verb, right.Resource, err))
		}
		if !review.Status.Allowed {
			missing = append(missing, right.Verb+" "+right.Resource)
		}
	}
	if len(missing) > 0 {
		return topicRights.failed(name, "you may not "+strings.Join(missing, ", "),
			"install as an administrator of the cluster (ClusterRole cluster-admin)")
	}
	return topicRights.ok(name, "they suffice to install Hanse")
}

// needed are the rights that an installation takes.
func (c *checker) needed() ([]authorizationv1.ResourceAttributes, error) {
	manifest, err := c.manifest()
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	for _, object := range slices.Concat(manifest.Definitions, manifest.Objects) {
		if kind := object.GroupVersionKind(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	// A role may give only what its maker has, or whoever may escalate.
	needed := []authorizationv1.ResourceAttributes{
		{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"},
		{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles"},
	}
	for _, kind := range kinds {
		mapping, err := c.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			continue // that it is not served is another check's finding
		}
		if err != nil {
			return nil, fmt.Errorf("find the resource of kind %s: %w", kind.Kind, err)
		}
		for _, verb := range []string{"create", "patch", "delete"} {
			right := authorizationv1.ResourceAttributes{Verb: verb, Group: kind.Group, Resource: mapping.Resource.Resource}
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				right.Namespace = c.namespace
			}
			needed = append(needed, right)
		}
	}
	return needed, nil
}

// manifest is what this client would install.
func (c *checker) manifest() (install.Manifest, error) {
	return install.Render(install.Options{
		Namespace: c.namespace, Version: c.ours, KubernetesVersion: "v" + install.MinimumKubernetes + ".0",
	})
}
