package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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

// Remove takes Hanse out of the cluster, so that it is as it was before. What Hanse must clean up itself, such as what
// it made for its peers, comes first, while it still runs.
func (c Cluster) Remove(ctx context.Context, r Removal) error {
	if err := c.checkInUse(ctx, r.Force); err != nil {
		return err
	}
	nodes, err := c.virtualNodes(ctx)
	if err != nil {
		return err
	}
	steps := []struct {
		doing string
		step  func(context.Context) error
	}{
		{"Ending the offloading of namespaces", c.removeOffloadings},
		{"Ending pods on virtual nodes", func(ctx context.Context) error { return c.endPods(ctx, nodes, r.Timeout) }},
		{"Leaving peers", func(ctx context.Context) error { return c.removePeers(ctx, r) }},
		{"Stopping Hanse", c.stop},
		{"Removing virtual nodes", func(ctx context.Context) error { return c.removeNodes(ctx, nodes) }},
		{"Removing policies and roles", c.removeChart},
		{"Removing rights in namespaces", c.removeRights},
		{"Removing marks of namespaces", c.removeMarks},
		{"Removing what belonged to peers", c.removeNamespaces},
		{"Removing definitions", c.removeDefinitions},
		{"Removing namespace " + r.Namespace, func(ctx context.Context) error { return c.removeNamespace(ctx, r.Namespace) }},
	}
	for _, s := range steps {
		c.Report("%s", s.doing)
		if err := s.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkInUse refuses to end pods without being told to.
func (c Cluster) checkInUse(ctx context.Context, force bool) error {
	if force {
		return nil
	}
	nodes, err := c.virtualNodes(ctx)
	if err != nil {
		return err
	}
	away, err := c.podsOn(ctx, nodes)
	if err != nil {
		return err
	}
	if len(away) > 0 {
		return fmt.Errorf("%w: those of this cluster run in others (%s); delete them, or say --force to end them",
			ErrInUse, some(namesOfPods(away)))
	}
	theirs, err := c.list(ctx, v1alpha1.GroupVersion.WithKind("ShadowPod"))
	if err != nil {
		return err
	}
	if len(theirs) > 0 {
		return fmt.Errorf("%w: those of other clusters run here (%s); have them deleted there, or say --force to end them",
			ErrInUse, some(names(theirs)))
	}
	return nil
}

// podsOn returns the pods that are bound to the nodes.
func (c Cluster) podsOn(ctx context.Context, nodes []string) ([]corev1.Pod, error) {
	var found []corev1.Pod
	for _, node := range nodes {
		pods := &corev1.PodList{}
		if err := c.Client.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return nil, fmt.Errorf("list pods on node %s: %w", node, err)
		}
		found = append(found, pods.Items...)
	}
	return found, nil
}

func namesOfPods(pods []corev1.Pod) []string {
	var found []string
	for i := range pods {
		found = append(found, client.ObjectKeyFromObject(&pods[i]).String())
	}
	return found
}

func (c Cluster) virtualNodes(ctx context.Context) ([]string, error) {
	nodes := &corev1.NodeList{}
	err := c.Client.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode})
	if err != nil {
		return nil, fmt.Errorf("list virtual nodes: %w", err)
	}
	var found []string
	for i := range nodes.Items {
		found = append(found, nodes.Items[i].Name)
	}
	return found, nil
}

// removeOffloadings comes first, so that pods which are made again while the rest goes land at home.
func (c Cluster) removeOffloadings(ctx context.Context) error {
	offloadings, err := c.deleteAll(ctx, v1alpha1.GroupVersion.WithKind("NamespaceOffloading"), nil)
	if err != nil {
		return err
	}
	for i := range offloadings {
		if err := c.WaitAtHome(ctx, offloadings[i].GetNamespace()); err != nil {
			return err
		}
	}
	return nil
}

// endPods deletes the pods that run on the nodes, of which there are some only with Force, and gives `hanse kubelet` the
// time to end them over there. Those that it does not end are removed without it.
func (c Cluster) endPods(ctx context.Context, nodes []string, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.deletePods(ctx, nodes); err != nil {
		return err
	}
	err := Until(limited, "pods to end", func(ctx context.Context) (bool, error) {
		left, err := c.podsOn(ctx, nodes)
		return len(left) == 0, err
	})
	if err == nil {
		return nil
	}
	c.Report("Some pods did not end within %s; removing them without waiting for their provider", timeout)
	return c.deletePods(ctx, nodes, client.GracePeriodSeconds(0))
}

func (c Cluster) deletePods(ctx context.Context, nodes []string, options ...client.DeleteOption) error {
	pods, err := c.podsOn(ctx, nodes)
	if err != nil {
		return err
	}
	for i := range pods {
		if err := c.delete(ctx, &pods[i], options...); err != nil {
			return err
		}
	}
	return nil
}

func (c Cluster) removePeers(ctx context.Context, r Removal) error {
	kind := v1alpha1.GroupVersion.WithKind("Peer")
	if _, err := c.deleteAll(ctx, kind, nil); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var peers []unstructured.Unstructured
	err := Until(limited, "Hanse to leave its peers", func(ctx context.Context) (bool, error) {
		var err error
		peers, err = c.list(ctx, kind)
		return len(peers) == 0, err
	})
	if err == nil {
		return c.waitForNodes(limited, r.Force)
	}
	if !r.Force {
		return fmt.Errorf("peers are still there (%s); see their conditions and whether `kubectl -n %s get pods` are well, "+
			"or say --force: %w", some(names(peers)), r.Namespace, err)
	}
	c.Report("Hanse did not leave %s within %s; cleaning up without it", some(names(peers)), r.Timeout)
	return nil
}

// waitForNodes gives `hanse kubelet` the time to end what runs on its nodes, and the nodes.
func (c Cluster) waitForNodes(ctx context.Context, force bool) error {
	var nodes []string
	err := Until(ctx, "virtual nodes to go", func(ctx context.Context) (bool, error) {
		var err error
		nodes, err = c.virtualNodes(ctx)
		return len(nodes) == 0, err
	})
	if err != nil && !force {
		return fmt.Errorf("virtual nodes are still there (%s); see whether hanse-kubelet runs, or say --force: %w",
			some(nodes), err)
	}
	return nil
}

// stop ends Hanse's own pods, so that nothing is made again while it is removed.
func (c Cluster) stop(ctx context.Context) error {
	if _, err := c.deleteAll(ctx, chartKinds[0], nil, client.MatchingLabels{PartOfLabel: PartOf}); err != nil {
		return err
	}
	return Until(ctx, "Hanse's pods to end", func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := c.Client.List(ctx, pods, client.MatchingLabels{PartOfLabel: PartOf})
		return len(pods.Items) == 0, err
	})
}

// removeNodes removes the virtual nodes that are left, and the heartbeats of all.
func (c Cluster) removeNodes(ctx context.Context, nodes []string) error {
	for _, name := range nodes {
		if err := c.delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
		if err := c.delete(ctx, lease); err != nil {
			return err
		}
	}
	return nil
}

// removeChart removes the policies among others, without which finalizers could not be taken off.
func (c Cluster) removeChart(ctx context.Context) error {
	return c.eachOfChart(ctx, func(object *unstructured.Unstructured) error { return c.delete(ctx, object) })
}

// releaseObjects takes the finalizers off what only Hanse, which is no longer there, could release.
func (c Cluster) releaseObjects(ctx context.Context) error {
	for _, kind := range []string{
		"Peer", "PeeringClaim", "ShadowPod", "NamespaceMapping", "Advertisement", "NamespaceOffloading",
	} {
		objects, err := c.list(ctx, v1alpha1.GroupVersion.WithKind(kind))
		if err != nil {
			return err
		}
		for i := range objects {
			if err := c.release(ctx, &objects[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Cluster) release(ctx context.Context, object *unstructured.Unstructured) error {
	kept := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool {
		return strings.HasPrefix(f, v1alpha1.GroupVersion.Group+"/")
	})
	if len(kept) == len(object.GetFinalizers()) {
		return nil
	}
	before := object.DeepCopy()
	object.SetFinalizers(kept)
	// The policy that keeps others from this takes a moment to go.
	return Until(ctx, describe(object)+" to be released", func(ctx context.Context) (bool, error) {
		err := client.IgnoreNotFound(c.Client.Patch(ctx, object.DeepCopy(), client.MergeFrom(before)))
		return err == nil, err
	})
}

func (c Cluster) removeDefinitions(ctx context.Context) error {
	definitions, err := c.deleteAll(ctx, definitionKind, func(d unstructured.Unstructured) bool {
		return strings.HasSuffix(d.GetName(), "."+v1alpha1.GroupVersion.Group)
	})
	if err != nil {
		return err
	}
	for i := range definitions {
		if err := c.waitGone(ctx, &definitions[i]); err != nil {
			return err
		}
	}
	return nil
}

// removeMarks takes Hanse's mark off the namespaces of users that still have it, since nobody keeps it any more.
func (c Cluster) removeMarks(ctx context.Context) error {
	marked := &corev1.NamespaceList{}
	if err := c.Client.List(ctx, marked, client.HasLabels{v1alpha1.LabelOffloads}); err != nil {
		return fmt.Errorf("list marked namespaces: %w", err)
	}
	patch := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelOffloads))
	for i := range marked.Items {
		namespace := &marked.Items[i]
		// The policy that keeps others from this takes a moment to go.
		err := Until(ctx, "the mark of namespace "+namespace.Name+" to go", func(ctx context.Context) (bool, error) {
			err := client.IgnoreNotFound(c.Client.Patch(ctx, namespace.DeepCopy(), patch))
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeRights removes what let the manager read in namespaces of users. It does so itself while it runs, but it may have
// been stopped before.
func (c Cluster) removeRights(ctx context.Context) error {
	_, err := c.deleteAll(ctx, rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), func(b unstructured.Unstructured) bool {
		role, _, err := unstructured.NestedString(b.Object, "roleRef", "name")
		return err == nil && role == v1alpha1.ClusterRoleReflectorInNamespace
	})
	return err
}

// typesOfNamespaces are the values of v1alpha1.LabelType of the namespaces of peers.
var typesOfNamespaces = []string{v1alpha1.TypeTenant, v1alpha1.TypeTwin, v1alpha1.TypeTombstone}

// removeNamespaces removes the namespaces of peers that Hanse could not remove itself.
func (c Cluster) removeNamespaces(ctx context.Context) error {
	if err := c.releaseObjects(ctx); err != nil {
		return err
	}
	kind, ofPeers := corev1.SchemeGroupVersion.WithKind("Namespace"), client.MatchingLabels{v1alpha1.LabelManaged: "true"}
	isOfPeer := func(n unstructured.Unstructured) bool {
		return slices.Contains(typesOfNamespaces, n.GetLabels()[v1alpha1.LabelType])
	}
	if _, err := c.deleteAll(ctx, kind, isOfPeer, ofPeers); err != nil {
		return err
	}
	return Until(ctx, "namespaces of peers to go", func(ctx context.Context) (bool, error) {
		namespaces, err := c.list(ctx, kind, ofPeers)
		return !slices.ContainsFunc(namespaces, isOfPeer), err
	})
}

func (c Cluster) removeNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.delete(ctx, namespace); err != nil {
		return err
	}
	return c.waitGone(ctx, namespace)
}

func (c Cluster) waitGone(ctx context.Context, object client.Object) error {
	return Until(ctx, describe(object)+" to go", func(ctx context.Context) (bool, error) {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err != nil, client.IgnoreNotFound(err)
	})
}

func names(objects []unstructured.Unstructured) []string {
	var found []string
	for i := range objects {
		found = append(found, strings.TrimPrefix(client.ObjectKeyFromObject(&objects[i]).String(), "/"))
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
