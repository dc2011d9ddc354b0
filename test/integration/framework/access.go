// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EveryResource returns all resources of the cluster, with subresources.
func EveryResource(t T, c *Cluster) []authorizationv1.ResourceAttributes {
	t.Helper()
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(c.Config).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var all []authorizationv1.ResourceAttributes
	for _, list := range lists {
		group, _, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			group = ""
		}
		for _, r := range list.APIResources {
			resource, sub, _ := strings.Cut(r.Name, "/")
			all = append(all, authorizationv1.ResourceAttributes{Group: group, Resource: resource, Subresource: sub})
		}
	}
	return all
}

// AllowedIn returns what the client may do in a namespace, of all usual verbs on the resources, such as
// "get apps/deployments/status", by access reviews.
func AllowedIn(t T, c client.Client, namespace string, all []authorizationv1.ResourceAttributes) []string {
	t.Helper()
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	var (
		mu      sync.Mutex
		allowed []string
		workers sync.WaitGroup
	)
	queue := make(chan authorizationv1.ResourceAttributes)
	for range 8 {
		workers.Go(func() {
			for attributes := range queue {
				review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
				err := c.Create(t.Context(), review)
				mu.Lock()
				if err != nil {
					t.Errorf("review access: %v", err)
				} else if review.Status.Allowed {
					allowed = append(allowed, fmt.Sprintf("%s %s/%s/%s", attributes.Verb, attributes.Group, attributes.Resource, attributes.Subresource))
				}
				mu.Unlock()
			}
		})
	}
	for _, attributes := range all {
		for _, verb := range verbs {
			attributes.Verb, attributes.Namespace = verb, namespace
			queue <- attributes
		}
	}
	close(queue)
	workers.Wait()
	slices.Sort(allowed)
	return slices.Compact(allowed)
}

// IsHarmless reports whether Kubernetes allows it to every service account: to review itself, and to read public certificates.
func IsHarmless(allowed string) bool {
	_, public := strings.CutSuffix(allowed, " certificates.k8s.io/clustertrustbundles/")
	return public || strings.HasPrefix(allowed, "create authorization.k8s.io/selfsubject") ||
		strings.HasPrefix(allowed, "create authentication.k8s.io/selfsubject")
}
