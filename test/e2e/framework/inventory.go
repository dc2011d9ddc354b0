// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	"github.com/hanse-dev/hanse/test/harness"
)

// Objects that come and go in a cluster by themselves, and why.
var restless = map[string]string{
	"events":               "say what happens, and end after an hour",
	"events.events.k8s.io": "are the same in another version",
	"componentstatuses":    "are asked of the components with each look",
	"nodes.metrics.k8s.io": "are measurements",
	"pods.metrics.k8s.io":  "are measurements, and come and go with pods",
}

// An Inventory is every object of a cluster, by resource, namespace and name, with what is in it: all but its status, and what add
// leaves out.
type Inventory map[string]string

// TakeInventory lists every object of the cluster.
func (c *Cluster) TakeInventory(ctx context.Context) (Inventory, error) {
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
			if _, changes := restless[kind.GroupResource().String()]; changes || !slices.Contains(resource.Verbs, "list") {
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

// groups are the groups of all kinds of the cluster. The API server learns those of metrics some seconds after they can be asked for.
func (c *Cluster) groups(ctx context.Context) (groups []*metav1.APIResourceList, err error) {
	asked := discovery.NewDiscoveryClientForConfigOrDie(c.Config)
	waitErr := wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(context.Context) (bool, error) {
		groups, err = asked.ServerPreferredResources()
		return err == nil, nil
	})
	if waitErr != nil {
		return nil, errors.Join(waitErr, err)
	}
	return groups, nil
}

// add notes an object, without what changes by itself.
func (i Inventory) add(kind schema.GroupResource, object *unstructured.Unstructured) error {
	name := fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())
	content := object.Object
	if kind.Resource == "leases" {
		if !isNodeLease(object) {
			i[name] = "{}" // who holds it is renewed all the time, and made anew by an API server that starts
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

// Difference says what has come, gone or changed since.
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

// metadataOf returns what tells when an object came, by whom, and whether it is going.
func metadataOf(object string) string {
	var found struct{ Metadata json.RawMessage }
	if err := json.Unmarshal([]byte(object), &found); err != nil {
		return err.Error()
	}
	return string(found.Metadata)
}

// differenceOf shows which lines of an object have changed.
func differenceOf(before, after string) string {
	var was, is any
	if err := errors.Join(json.Unmarshal([]byte(before), &was), json.Unmarshal([]byte(after), &is)); err != nil {
		return err.Error()
	}
	var changes strings.Builder
	for line := range strings.Lines(cmp.Diff(was, is)) {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			changes.WriteString(line)
		}
	}
	return changes.String()
}

// isNodeLease says whether it is the lease of a node of the cluster's own, which gets it some time after it has joined.
func isNodeLease(object *unstructured.Unstructured) bool {
	return object.GetNamespace() == corev1.NamespaceNodeLease && !strings.HasPrefix(object.GetName(), v1alpha1.VirtualNodePrefix)
}

// MemoryFile returns the file with what was recorded of the cluster before Hanse was installed.
func (c *Cluster) MemoryFile(of string) string {
	return filepath.Join(harness.StateFolder()+"-memory", of+"-of-"+c.Name+".json")
}

// remember notes what the cluster is like before Hanse is installed, once.
func remember[T any](ctx context.Context, c *Cluster, of string, look func(context.Context) (T, error)) error {
	if _, err := os.Stat(c.MemoryFile(of)); err == nil {
		return nil
	}
	found, err := look(ctx)
	if err != nil {
		return err
	}
	data, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return os.WriteFile(c.MemoryFile(of), data, 0o600)
}

// What is remembered of a cluster.
const (
	RememberedObjects = "objects"
	RememberedNodes   = "nodes"
)

// CheckInventory checks that the cluster has exactly the objects that it had, and that they are as they were.
func (c *Cluster) CheckInventory(ctx context.Context, before Inventory) error {
	after, err := c.TakeInventory(ctx)
	if err != nil {
		return err
	}
	return after.Difference(before)
}

// AwaitNoRemotePods waits until the cluster runs nothing for others, nor they for it: uninstall refuses before.
func (c *Cluster) AwaitNoRemotePods(t *testing.T) {
	t.Helper()
	Eventually(t, "the pods of earlier stories between "+c.Name+" and others are gone", c.CheckNoRemotePods)
}

// CheckNoRemotePods returns an error if a pod of the cluster runs at a provider, or a consumer's pod runs here.
func (c *Cluster) CheckNoRemotePods(ctx context.Context) error {
	all := &corev1.PodList{}
	if err := c.List(ctx, all); err != nil {
		return err
	}
	left := slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool {
		return pod.Labels[v1alpha1.LabelHomeUID] == "" && !IsOnVirtualNode(&pod)
	})
	if len(left) > 0 {
		return fmt.Errorf("%d pods: %s", len(left), Summarize(left))
	}
	return nil
}
