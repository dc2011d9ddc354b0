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
	if err := c.checkInUse(ctx, away, r.Force); err != nil {
		return err
	}
	for _, s := range []struct {
		doing string
		step  func(context.Context) error
	}{
		{"Ending the offloading of namespaces", c.removeOffloadings},
		{"Ending pods on virtual nodes", func(ctx context.Context) error { return c.endPods(ctx, away, r.Timeout) }},
		{"Leaving peers", func(ctx context.Context) error { return c.removePeers(ctx, r) }},
		{"Stopping Hanse", c.stop},
		{"Removing virtual nodes", func(ctx context.Context) error { return c.deleteAll(ctx, []selection{virtualNodes}) }},
		// With the policies, among others, without which finalizers could not be taken off.
		{"Removing policies and roles", func(ctx context.Context) error { return c.deleteAll(ctx, ofChart()) }},
		{"Removing rights in namespaces", c.removeRights},
		{"Removing marks of namespaces", c.removeMarks},
		{"Removing what belonged to peers", c.removeNamespaces},
		{"Removing definitions", func(ctx context.Context) error { return c.removeAndWait(ctx, "definitions", definitions) }},
		{"Removing namespace " + r.Namespace, func(ctx context.Context) error {
			return c.removeAndWait(ctx, "namespace "+r.Namespace, selection{kind: namespaceKind, chosen: isNamed(r.Namespace)})
		}},
	} {
		c.Report("%s", s.doing)
		if err := s.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// deleteAll deletes the selected objects.
func (c Cluster) deleteAll(ctx context.Context, selected []selection, options ...client.DeleteOption) error {
	objects, err := c.list(ctx, selected...)
	if err != nil {
		return err
	}
	for i := range objects {
		if err := c.delete(ctx, &objects[i], options...); err != nil {
			return err
		}
	}
	return nil
}

// waitGone waits until none of the selected objects are there. An error names those that are left.
func (c Cluster) waitGone(ctx context.Context, what string, selected ...selection) error {
	return Until(ctx, what+" to go", func(ctx context.Context) (bool, error) {
		left, err := c.list(ctx, selected...)
		if len(left) > 0 {
			err = fmt.Errorf("still there: %s", some(names(left)))
		}
		return true, err
	})
}

func (c Cluster) removeAndWait(ctx context.Context, what string, selected ...selection) error {
	if err := c.deleteAll(ctx, selected); err != nil {
		return err
	}
	return c.waitGone(ctx, what, selected...)
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
func (c Cluster) checkInUse(ctx context.Context, away []selection, force bool) error {
	if force {
		return nil
	}
	ours, err := c.list(ctx, away...)
	if err != nil {
		return err
	}
	if len(ours) > 0 {
		return fmt.Errorf("%w: those of this cluster run in others (%s); delete them, or say --force to end them",
			ErrInUse, some(names(ours)))
	}
	theirs, err := c.list(ctx, of("ShadowPod"))
	if err != nil {
		return err
	}
	if len(theirs) > 0 {
		return fmt.Errorf("%w: those of other clusters run here (%s); have them deleted there, or say --force to end them",
			ErrInUse, some(names(theirs)))
	}
	return nil
}

// removeOffloadings comes first, so that pods which are made again while the rest goes land at home.
func (c Cluster) removeOffloadings(ctx context.Context) error {
	offloadings, err := c.list(ctx, of("NamespaceOffloading"))
	if err != nil {
		return err
	}
	if err := c.deleteAll(ctx, []selection{of("NamespaceOffloading")}); err != nil {
		return err
	}
	for i := range offloadings {
		if err := c.WaitPlaced(ctx, offloadings[i].GetNamespace()); err != nil {
			return err
		}
	}
	return nil
}

// endPods deletes the pods that run away, of which there are some only with Force, and gives `hanse kubelet` the time to end
// them over there. Those that it does not end are removed without it.
func (c Cluster) endPods(ctx context.Context, away []selection, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.deleteAll(ctx, away); err != nil {
		return err
	}
	if c.waitGone(limited, "pods", away...) == nil {
		return nil
	}
	c.Report("Some pods did not end within %s; removing them without waiting for their provider", timeout)
	return c.deleteAll(ctx, away, client.GracePeriodSeconds(0))
}

// removePeers has Hanse leave its peers, and `hanse kubelet` end what runs on its nodes, and the nodes.
func (c Cluster) removePeers(ctx context.Context, r Removal) error {
	limited, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	if err := c.deleteAll(ctx, []selection{of("Peer")}); err != nil {
		return err
	}
	err := c.waitGone(limited, "peers and virtual nodes", of("Peer"), virtualNodes)
	if err != nil && !r.Force {
		return fmt.Errorf("%w; see the conditions of the peers and whether `kubectl -n %s get pods` are well, or say --force", err, r.Namespace)
	}
	if err != nil {
		c.Report("Hanse did not leave its peers within %s; cleaning up without it", r.Timeout)
	}
	return nil
}

// stop ends Hanse's own pods, so that nothing is made again while it is removed.
func (c Cluster) stop(ctx context.Context) error {
	label := []client.ListOption{client.MatchingLabels{PartOfLabel: PartOf}}
	if err := c.deleteAll(ctx, []selection{{kind: deploymentKind, options: label}}); err != nil {
		return err
	}
	return c.waitGone(ctx, "Hanse's pods", selection{kind: podKind, options: label})
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

// removeRights removes what let the manager read in namespaces of users. It does so itself while it runs, but it may have
// been stopped before.
func (c Cluster) removeRights(ctx context.Context) error {
	return c.deleteAll(ctx, []selection{{
		kind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), chosen: isNamed(v1alpha1.ClusterRoleReflectorInNamespace),
	}})
}

func isNamed(name string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return o.GetName() == name }
}

// removeNamespaces removes the namespaces of peers that Hanse could not remove itself. Finalizers that only Hanse, which is
// no longer there, could take off go first.
func (c Cluster) removeNamespaces(ctx context.Context) error {
	err := c.change(ctx, func(object *unstructured.Unstructured) {
		object.SetFinalizers(slices.DeleteFunc(object.GetFinalizers(), func(f string) bool {
			return strings.HasPrefix(f, v1alpha1.GroupVersion.Group+"/")
		}))
	}, of("Peer"), of("PeeringClaim"), of("ShadowPod"), of("NamespaceMapping"), of("Advertisement"), of("NamespaceOffloading"))
	if err != nil {
		return err
	}
	return c.removeAndWait(ctx, "namespaces of peers", selection{
		kind:    namespaceKind,
		options: []client.ListOption{client.MatchingLabels{v1alpha1.LabelManaged: "true"}},
		chosen: func(n *unstructured.Unstructured) bool {
			kind := n.GetLabels()[v1alpha1.LabelType]
			return kind == v1alpha1.TypeTenant || kind == v1alpha1.TypeTwin || kind == v1alpha1.TypeTombstone
		},
	})
}

// definitions selects those of our kinds.
var definitions = selection{kind: definitionKind, chosen: func(d *unstructured.Unstructured) bool {
	return strings.HasSuffix(d.GetName(), "."+v1alpha1.GroupVersion.Group)
}}

func names(objects []unstructured.Unstructured) []string {
	var found []string
	for i := range objects {
		found = append(found, Describe(&objects[i]))
	}
	return found
}

// some names the first few of many.
func some(names []string) string {
	const few = 5
	slices.Sort(names)
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
