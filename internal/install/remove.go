// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// ErrInUse says that removing Hanse would end pods that somebody still needs.
var ErrInUse = errors.New("pods still need Hanse")

// Removal says how Hanse is to be removed.
type Removal struct {
	// Namespace is where Hanse runs.
	Namespace string
	// Force removes it although pods still need it, and although it no longer works or a peer does not answer.
	Force bool
	// Timeout is for how long Hanse itself is given to clean up. With Force the rest is cleaned up without it.
	Timeout time.Duration
}

// virtualNodes selects the nodes that stand for providers.
var virtualNodes = selection{
	kind:    corev1.SchemeGroupVersion.WithKind("Node"),
	options: []client.ListOption{client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}},
}

// remotePods selects the pods that run here for others.
var remotePods = selection{kind: podKind, options: []client.ListOption{client.HasLabels{v1alpha1.LabelHomeUID}}}

// of selects all objects of one of our kinds.
func of(kind string) selection { return selection{kind: v1alpha1.GroupVersion.WithKind(kind)} }

// Remove takes Hanse out of the cluster, so that it is as it was before. What Hanse must clean up itself, such as what
// it made for its peers, comes first, while it still runs.
func (c Cluster) Remove(ctx context.Context, r Removal) error {
	if err := c.checkNamespace(ctx, r.Namespace); err != nil {
		return err
	}
	away, err := c.podsAway(ctx)
	if err != nil {
		return err
	}
	if err := c.checkInUse(ctx, away); err != nil && !r.Force {
		return err
	}
	for _, s := range c.steps(r, away) {
		c.Report("%s", s.doing)
		if err := c.do(ctx, s, r.Timeout); err != nil {
			return err
		}
	}
	return nil
}

// A step of a removal.
type step struct {
	doing   string
	first   func(context.Context) error // what is done before objects are deleted
	objects []selection                 // what is deleted, and waited for
	theirs  []selection                 // what goes with it, and is waited for too
	// late is what is done if Hanse does not clean up in the time that it is given. Without it there is no such limit.
	late func(context.Context, error) error
}

func (c Cluster) do(ctx context.Context, s step, timeout time.Duration) error {
	if s.first != nil {
		if err := s.first(ctx); err != nil {
			return err
		}
	}
	if err := c.deleteAll(ctx, s.objects); err != nil {
		return err
	}
	gone := slices.Concat(s.objects, s.theirs)
	if s.late == nil {
		return c.waitGone(ctx, gone...)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.waitGone(limited, gone...); err != nil {
		return s.late(ctx, err)
	}
	return nil
}

func (c Cluster) steps(r Removal, away []selection) []step {
	chart := ofChart()
	namespaces := []selection{chart[len(chart)-1], {kind: namespaceKind, chosen: isNamed(r.Namespace)}}
	ownPods := selection{kind: podKind, options: chart[0].options}
	return []step{
		{doing: "Ending the offloading of namespaces", first: c.removeOffloadings},
		{doing: "Ending pods on virtual nodes", objects: away, late: func(ctx context.Context, _ error) error {
			c.Report("Some pods did not end within %s; removing them without waiting for their provider", r.Timeout)
			return c.deleteAll(ctx, away, client.GracePeriodSeconds(0))
		}},
		// `hanse kubelet` ends what runs on the virtual nodes, and the nodes.
		{doing: "Leaving peers", objects: []selection{of("Peer")}, theirs: []selection{virtualNodes}, late: func(_ context.Context, err error) error {
			if !r.Force {
				return fmt.Errorf("%w; see the conditions of the peers and whether `kubectl -n %s get pods` are well, or say --force", err, r.Namespace)
			}
			c.Report("Hanse did not leave its peers within %s; cleaning up without it", r.Timeout)
			return nil
		}},
		{doing: "Stopping Hanse", objects: chart[:2], theirs: []selection{ownPods}},
		{doing: "Removing virtual nodes", objects: []selection{virtualNodes}},
		// Without the policies, finalizers can be taken off.
		{doing: "Removing policies and roles", objects: chart[:len(chart)-1]},
		{doing: "Removing rights in namespaces", objects: []selection{rightsInNamespaces}},
		// Their Services and EndpointSlices go with them.
		{doing: "Removing imported Services", objects: []selection{serviceImports}},
		{doing: "Releasing pods that wait for other clusters", first: c.removeGates},
		{doing: "Removing marks of namespaces", first: c.removeMarks},
		{doing: "Removing what belonged to peers", first: c.release, objects: []selection{namespacesOfPeers}},
		{doing: "Removing definitions", objects: []selection{definitions}},
		{doing: "Removing namespace " + r.Namespace, objects: namespaces},
	}
}

// deleteAll deletes the selected objects.
func (c Cluster) deleteAll(ctx context.Context, selected []selection, options ...client.DeleteOption) error {
	objects, err := c.list(ctx, selected...)
	if err != nil {
		return err
	}
	return c.delete(ctx, objects, options...)
}

// waitGone waits until none of the selected objects are there. An error names those that are left.
func (c Cluster) waitGone(ctx context.Context, selected ...selection) error {
	return Until(ctx, "objects to go", func(ctx context.Context) (bool, error) {
		left, err := c.list(ctx, selected...)
		if len(left) > 0 {
			err = fmt.Errorf("still there: %s", some(left))
		}
		return true, err
	})
}

// podsAway selects the pods on the virtual nodes that there are now.
func (c Cluster) podsAway(ctx context.Context) ([]selection, error) {
	nodes, err := c.list(ctx, virtualNodes)
	var selected []selection
	for i := range nodes {
		on := client.MatchingFields{"spec.nodeName": nodes[i].GetName()}
		selected = append(selected, selection{kind: podKind, options: []client.ListOption{on}})
	}
	return selected, err
}

// checkInUse refuses to end pods without being told to.
func (c Cluster) checkInUse(ctx context.Context, away []selection) error {
	for _, pods := range []struct {
		selected []selection
		says     string
	}{
		{away, "those of this cluster run in others (%s); delete them"},
		{[]selection{of("ShadowPod")}, "those of other clusters run here (%s); have them deleted there"},
	} {
		found, err := c.list(ctx, pods.selected...)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return fmt.Errorf("%w: "+pods.says+", or say --force to end them", ErrInUse, some(found))
		}
	}
	return nil
}

// removeOffloadings comes first, so that pods which are made again while the rest goes land at home.
func (c Cluster) removeOffloadings(ctx context.Context) error {
	offloadings, err := c.list(ctx, of("NamespaceOffloading"))
	if err != nil {
		return err
	}
	if err := c.delete(ctx, offloadings); err != nil {
		return err
	}
	for i := range offloadings {
		if err := c.WaitPlaced(ctx, offloadings[i].GetNamespace()); err != nil {
			return err
		}
	}
	return nil
}

// change makes the selected objects be as mutate says.
func (c Cluster) change(ctx context.Context, mutate func(*unstructured.Unstructured), selected ...selection) error {
	objects, err := c.list(ctx, selected...)
	if err != nil {
		return err
	}
	for i := range objects {
		after := objects[i].DeepCopy()
		if mutate(after); equality.Semantic.DeepEqual(after, &objects[i]) {
			continue
		}
		// The policy that keeps others from this takes a moment to go.
		err := Until(ctx, Describe(after)+" to be released", func(ctx context.Context) (bool, error) {
			return true, client.IgnoreNotFound(c.Client.Patch(ctx, after.DeepCopy(), client.MergeFrom(&objects[i])))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeMarks takes Hanse's mark off the namespaces of users that still have it, since nobody keeps it any more.
func (c Cluster) removeMarks(ctx context.Context) error {
	return c.change(ctx, func(namespace *unstructured.Unstructured) {
		labels := namespace.GetLabels()
		delete(labels, v1alpha1.LabelOffloads)
		namespace.SetLabels(labels)
	}, selection{kind: namespaceKind, options: []client.ListOption{client.HasLabels{v1alpha1.LabelOffloads}}})
}

// removeGates takes Hanse's gates off pods that still have one, since nobody else does by now. They run at home.
func (c Cluster) removeGates(ctx context.Context) error {
	return c.change(ctx, func(object *unstructured.Unstructured) {
		gates, _, _ := unstructured.NestedSlice(object.Object, "spec", "schedulingGates")
		gates = slices.DeleteFunc(gates, isOurGate)
		if len(gates) == 0 {
			unstructured.RemoveNestedField(object.Object, "spec", "schedulingGates")
			return
		}
		_ = unstructured.SetNestedSlice(object.Object, gates, "spec", "schedulingGates") // it is one already
	}, selection{kind: podKind, chosen: func(object *unstructured.Unstructured) bool {
		gates, _, _ := unstructured.NestedSlice(object.Object, "spec", "schedulingGates")
		return slices.ContainsFunc(gates, isOurGate)
	}})
}

func isOurGate(gate any) bool {
	fields, ok := gate.(map[string]any)
	return ok && (fields["name"] == v1alpha1.GateNoClusterFits || fields["name"] == v1alpha1.GateMove)
}

func isNamed(name string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return o.GetName() == name }
}

// release takes off the finalizers that only Hanse, which is no longer there, could take off.
func (c Cluster) release(ctx context.Context) error {
	return c.change(ctx, func(object *unstructured.Unstructured) {
		object.SetFinalizers(slices.DeleteFunc(object.GetFinalizers(), func(f string) bool {
			return strings.HasPrefix(f, v1alpha1.GroupVersion.Group+"/")
		}))
	}, of("Peer"), of("PeeringClaim"), of("ShadowPod"), of("NamespaceMapping"), of("Advertisement"), of("NamespaceOffloading"), of("PodMove"), remotePods)
}

// namespacesOfPeers selects those that Hanse could not remove itself.
var namespacesOfPeers = selection{
	kind:    namespaceKind,
	options: []client.ListOption{client.MatchingLabels{v1alpha1.LabelManaged: "true"}},
	chosen: func(n *unstructured.Unstructured) bool {
		types := []string{v1alpha1.TypeTenant, v1alpha1.TypeTwin, v1alpha1.TypeTombstone}
		return slices.Contains(types, n.GetLabels()[v1alpha1.LabelType])
	},
}

// rightsInNamespaces selects what let the manager read in namespaces of users. It removes that itself while it runs, but it
// may have been stopped before.
var rightsInNamespaces = selection{
	kind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), chosen: isNamed(v1alpha1.ClusterRoleReflectorInNamespace),
}

// serviceImports selects those that Hanse has made of multi-cluster Services.
var serviceImports = selection{
	kind:    schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1beta1", Kind: "ServiceImport"},
	options: []client.ListOption{client.MatchingLabels{v1alpha1.LabelClusterSet: "true"}},
}

// definitions selects those of our kinds.
var definitions = selection{kind: definitionKind, chosen: func(d *unstructured.Unstructured) bool {
	return strings.HasSuffix(d.GetName(), "."+v1alpha1.GroupVersion.Group)
}}

// some names the first few of many.
func some(objects []unstructured.Unstructured) string {
	const few = 5
	var names []string
	for i := range objects[:min(few, len(objects))] {
		names = append(names, Describe(&objects[i]))
	}
	if more := len(objects) - few; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
