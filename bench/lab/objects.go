// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects counts all that the cluster stores, by kind. Events are left out: they go by themselves after an hour.
func (c *Cluster) Objects(ctx context.Context) (map[string]int, error) {
	found, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	groups, err := found.ServerPreferredResourcesWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the kinds of %s: %w", c.Name, err)
	}
	counts := map[string]int{}
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range group.APIResources {
			if kind.Name == "events" || strings.Contains(kind.Name, "/") || !slices.Contains(kind.Verbs, "list") {
				continue
			}
			resource := version.WithResource(kind.Name)
			if counts[resource.GroupResource().String()], err = count(ctx, objects, resource); err != nil {
				return nil, fmt.Errorf("count %s of %s: %w", kind.Name, c.Name, err)
			}
		}
	}
	return counts, nil
}

func count(ctx context.Context, objects metadata.Interface, resource schema.GroupVersionResource) (int, error) {
	list, err := objects.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	total := len(list.Items)
	if list.RemainingItemCount != nil {
		total += int(*list.RemainingItemCount)
	}
	return total, nil
}

// none is nil if the list is empty, and otherwise tells what is in it.
func none(list client.ObjectList) error {
	objects, err := meta.ExtractList(list)
	if err != nil || len(objects) == 0 {
		return err
	}
	first, err := meta.Accessor(objects[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is still there", first.GetName())
}
