package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Objects that come and go in a cluster by themselves.
var restless = []string{"events", "events.events.k8s.io", "componentstatuses"}

// objects lists every object of the cluster by name: resource, namespace, name.
func (c *cluster) objects(ctx context.Context) ([]string, error) {
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(c.Config).ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	lister, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		if version.Group == "metrics.k8s.io" {
			continue // measurements, which come and go with pods
		}
		for _, resource := range group.APIResources {
			kind := version.WithResource(resource.Name)
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(restless, kind.GroupResource().String()) {
				continue
			}
			list, err := lister.Resource(kind).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", kind, err)
			}
			for _, item := range list.Items {
				if !isNodeLease(item) {
					names = append(names, fmt.Sprintf("%s %s/%s", kind.GroupResource(), item.Namespace, item.Name))
				}
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// isNodeLease says whether it is the lease of a node of the cluster's own, which gets it some time after it has joined.
func isNodeLease(item metav1.PartialObjectMetadata) bool {
	return item.Namespace == corev1.NamespaceNodeLease && !strings.HasPrefix(item.Name, v1alpha1.VirtualNodePrefix)
}

func (c *cluster) memoryFile() string {
	return filepath.Join(os.Getenv("HANSE_TESTBED_STATE")+"-memory", "objects-of-"+c.Name+".json")
}

// rememberObjects notes which objects the cluster has before Hanse is installed, once.
func (c *cluster) rememberObjects(ctx context.Context) error {
	if _, err := os.Stat(c.memoryFile()); err == nil {
		return nil
	}
	names, err := c.objects(ctx)
	if err != nil {
		return err
	}
	data, err := json.Marshal(names)
	if err != nil {
		return err
	}
	return os.WriteFile(c.memoryFile(), data, 0o600)
}

func (c *cluster) rememberedObjects() ([]string, error) {
	data, err := os.ReadFile(c.memoryFile())
	if err != nil {
		return nil, err
	}
	var names []string
	return names, json.Unmarshal(data, &names)
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
		before, err := c.rememberedObjects()
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, c.Name+" has the objects it had before", func(ctx context.Context) error {
			after, err := c.objects(ctx)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(before, after); diff != "" {
				return errors.New(onlyChanges(diff))
			}
			return nil
		})
	}
}

func onlyChanges(diff string) string {
	var changes []string
	for line := range strings.Lines(diff) {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			changes = append(changes, line)
		}
	}
	return strings.Join(changes, "")
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
