package e2e

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
)

// Objects that come and go in a cluster by themselves, and why.
var restless = map[string]string{
	"events":               "say what happens, and end after an hour",
	"events.events.k8s.io": "are the same in another version",
	"componentstatuses":    "are asked of the components with each look",
	"nodes.metrics.k8s.io": "are measurements",
	"pods.metrics.k8s.io":  "are measurements, and come and go with pods",
}

// An inventory is every object of a cluster, by resource, namespace and name, with what is in it: all but its status, and what add
// leaves out.
type inventory map[string]string

// inventory lists every object of the cluster.
func (c *cluster) inventory(ctx context.Context) (inventory, error) {
	groups, err := c.groups(ctx)
	if err != nil {
		return nil, err
	}
	lister, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	found := inventory{}
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
func (c *cluster) groups(ctx context.Context) (groups []*metav1.APIResourceList, err error) {
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
func (i inventory) add(kind schema.GroupResource, object *unstructured.Unstructured) error {
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

// difference says what has come, gone or changed since.
func (i inventory) difference(since inventory) error {
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

func (c *cluster) memoryFile(of string) string {
	return filepath.Join(os.Getenv("HANSE_TESTBED_STATE")+"-memory", of+"-of-"+c.Name+".json")
}

// remember notes what the cluster is like before Hanse is installed, once.
func remember[T any](ctx context.Context, c *cluster, of string, look func(context.Context) (T, error)) error {
	if _, err := os.Stat(c.memoryFile(of)); err == nil {
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
	return os.WriteFile(c.memoryFile(of), data, 0o600)
}

// remembered returns what was noted.
func remembered[T any](c *cluster, of string) (found T, err error) {
	data, err := os.ReadFile(c.memoryFile(of))
	if err != nil {
		return found, err
	}
	return found, json.Unmarshal(data, &found)
}

// What is remembered of a cluster.
const rememberedObjects, rememberedNodes = "objects", "nodes"

// hasAgain checks that the cluster has exactly the objects that it had, and that they are as they were.
func (c *cluster) hasAgain(ctx context.Context, before inventory) error {
	after, err := c.inventory(ctx)
	if err != nil {
		return err
	}
	return after.difference(before)
}

func TestCheckFindsNothingWrong(t *testing.T) {
	ctx := alone(t, "rostock")
	for _, c := range []*cluster{lubeck, hamburg} {
		if out, err := c.Hanse(ctx, "check", "--wait"); err != nil {
			t.Errorf("%s: %v\n%s", c.Name, err, out)
		}
	}
	// A cluster without Hanse is told so, and could have it.
	if out, err := rostock.Hanse(ctx, "check"); err == nil {
		t.Errorf("a cluster without Hanse passes: %s", out)
	}
	if out, err := rostock.Hanse(ctx, "check", "--pre"); err != nil {
		t.Errorf("rostock could not have Hanse: %v\n%s", err, out)
	}
}

// Unpeering refuses while a claim has its volume at the peer. With --delete-data nothing is left of it on either side.
func TestUnpeerDeletesDataIfAsked(t *testing.T) {
	ctx := alone(t, "storage")
	for _, c := range []*cluster{lubeck, hamburg} {
		c.awaitNoRemotePods(t)
	}
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	claim := claimTemplate("hanse")
	claim.Namespace = ns
	lubeck.create(t, &claim)
	pod := shellPod(ns, "writer", wordKept)
	mount(&pod.Spec, "data")
	lubeck.create(t, pod)
	lubeck.awaitReadyPods(t, ns, "writer", 1)
	volume := lubeck.claimsAway(t, ns)["data"]
	theirs := hamburg.claimOf(t, volume)
	lubeck.deleteAndWait(t, pod)
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg"); err == nil || !strings.Contains(err.Error(), ns+"/data") || !strings.Contains(err.Error(), "--delete-data") {
		t.Errorf("unpeering with a volume there: %v", err)
	}
	if err := lubeck.peerReady(ctx, "hamburg"); err != nil {
		t.Error(err)
	}
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--delete-data"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left of the volume", func(ctx context.Context) error {
		return errors.Join(
			lubeck.isGone(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: claim.ObjectMeta}), lubeck.isGone(ctx, &corev1.PersistentVolume{ObjectMeta: named(volume)}),
			hamburg.isGone(ctx, theirs.DeepCopy()), hamburg.isGone(ctx, &corev1.PersistentVolume{ObjectMeta: named(theirs.Spec.VolumeName)}),
		)
	})
}

// The name of this file makes it the last of the stories that need the clusters alone: it leaves them without Hanse.
func TestUninstallLeavesNothing(t *testing.T) {
	ctx := alone(t)
	for _, c := range []*cluster{lubeck, hamburg} {
		c.awaitNoRemotePods(t)
	}
	for _, c := range []*cluster{lubeck, hamburg} {
		if _, err := c.Hanse(ctx, "uninstall"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*cluster{lubeck, hamburg} {
		before, err := remembered[inventory](c, rememberedObjects)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, c.Name+" has the objects it had before", func(ctx context.Context) error { return c.hasAgain(ctx, before) })
	}
}

// awaitNoRemotePods waits until the cluster runs nothing for others, nor they for it: uninstall refuses before.
func (c *cluster) awaitNoRemotePods(t *testing.T) {
	t.Helper()
	eventually(t, "the pods of earlier stories between "+c.Name+" and others are gone", c.noRemotePods)
}

func (c *cluster) noRemotePods(ctx context.Context) error {
	all := &corev1.PodList{}
	if err := c.List(ctx, all); err != nil {
		return err
	}
	left := slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool {
		return pod.Labels[v1alpha1.LabelHomeUID] == "" && !isVirtual(&pod)
	})
	if len(left) > 0 {
		return fmt.Errorf("%d pods: %s", len(left), summary(left))
	}
	return nil
}
