// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// volatile are resources whose objects come and go by themselves, and why.
var volatile = map[string]string{
	"events":               "say what happens, and end after an hour",
	"events.events.k8s.io": "are the same in another version",
	"componentstatuses":    "are asked of the components with each request",
	"nodes.metrics.k8s.io": "are measurements",
	"pods.metrics.k8s.io":  "are measurements, and come and go with pods",
}

// An Inventory holds every object of a cluster, without its status and without what changes by itself. The key names resource,
// namespace and name; the value is the object as JSON.
type Inventory map[string]string

// Inventory lists every object of the cluster.
func (c *Cluster) Inventory(ctx context.Context) (Inventory, error) {
	groups, err := c.groups(ctx)
	if err != nil {
		return nil, err
	}
	lister, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	found := Inventory{}
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range group.APIResources {
			kind := version.WithResource(resource.Name)
			if _, changes := volatile[kind.GroupResource().String()]; changes || !slices.Contains(resource.Verbs, "list") {
				continue
			}
			list, err := lister.Resource(kind).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", kind, err)
			}
			for i := range list.Items {
				if err := found.add(kind.GroupResource(), &list.Items[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	return found, nil
}

// groups returns the resources of the cluster.
func (c *Cluster) groups(ctx context.Context) (groups []*metav1.APIResourceList, err error) {
	resources := discovery.NewDiscoveryClientForConfigOrDie(c.Config)
	waitErr := wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(context.Context) (bool, error) {
		groups, err = resources.ServerPreferredResources()
		return err == nil, nil
	})
	if waitErr != nil {
		return nil, errors.Join(waitErr, err)
	}
	return groups, nil
}

// add adds an object, without what changes by itself.
func (i Inventory) add(kind schema.GroupResource, object *unstructured.Unstructured) error {
	name := fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())
	content := object.Object
	if kind.Resource == "leases" {
		if !isNodeLease(object) {
			i[name] = "{}" // its holder renews it all the time
		}
		return nil
	}
	delete(content, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	unstructured.RemoveNestedField(content, "metadata", "annotations", corev1.EndpointsLastChangeTriggerTime)
	data, err := json.Marshal(content)
	if kind.Resource == "secrets" {
		data = fmt.Appendf(nil, `{"hash":"%x"}`, sha256.Sum256(data))
	}
	i[name] = string(data)
	return err
}

// Difference returns an error that lists what was created, deleted or changed since.
func (i Inventory) Difference(since Inventory) error {
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(i)) {
		if before, had := since[name]; !had {
			changes = append(changes, "+ "+name+": "+metadataOf(i[name]))
		} else if before != i[name] {
			changes = append(changes, "~ "+name+"\n"+differenceOf(before, i[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(since)) {
		if _, has := i[name]; !has {
			changes = append(changes, "- "+name)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return errors.New(strings.Join(changes, "\n"))
}

// metadataOf returns the metadata of an object.
func metadataOf(object string) string {
	var found struct{ Metadata json.RawMessage }
	if err := json.Unmarshal([]byte(object), &found); err != nil {
		return err.Error()
	}
	return string(found.Metadata)
}

// differenceOf returns the lines of an object that have changed.
func differenceOf(before, after string) string {
	var old, current any
	if err := errors.Join(json.Unmarshal([]byte(before), &old), json.Unmarshal([]byte(after), &current)); err != nil {
		return err.Error()
	}
	var changes strings.Builder
	for line := range strings.Lines(cmp.Diff(old, current)) {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			changes.WriteString(line)
		}
	}
	return changes.String()
}

// isNodeLease reports whether an object is the lease of a node of the cluster itself.
func isNodeLease(object *unstructured.Unstructured) bool {
	return object.GetNamespace() == corev1.NamespaceNodeLease && !strings.HasPrefix(object.GetName(), v1alpha1.VirtualNodePrefix)
}

// HasAgain returns an error unless the cluster has exactly the objects that it had, as they were.
func (c *Cluster) HasAgain(ctx context.Context, before Inventory) error {
	after, err := c.Inventory(ctx)
	if err != nil {
		return err
	}
	return after.Difference(before)
}
