// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestTwoConsumersCannotSeeEachOther(t *testing.T) {
	ctx := framework.Begin(t)
	guests := []*framework.Guest{hamburg.PeerWithGuest(t, "visby-a"), hamburg.PeerWithGuest(t, "visby-b")}
	twins := make([]string, len(guests))
	for i, g := range guests {
		twins[i] = g.CreateTwin(t, "shop")
		if err := g.Create(ctx, framework.NewShadowPod(t, twins[i], "stall", framework.BusyPodTemplate)); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range guests {
		g.AwaitRunning(t, twins[i], "stall")
	}
	all := everyResource(t, hamburg)
	for i, g := range guests {
		other := guests[1-i]
		for _, ns := range []string{other.Invitation.Namespace, twins[1-i], v1alpha1.SystemNamespace, ""} {
			for _, allowed := range allowedIn(t, g, ns, all) {
				if !harmless(allowed) {
					t.Errorf("%s may %s in namespace %q", g.ID, allowed, ns)
				}
			}
		}
		asksForWhatIsNotItsOwn(t, g, other, twins[1-i])
		learnsNothingOfNodes(t, g, twins[i])
	}
}

// asksForWhatIsNotItsOwn really asks for some of what the reviews say is forbidden.
func asksForWhatIsNotItsOwn(t *testing.T, g *framework.Guest, other *framework.Guest, twin string) {
	t.Helper()
	ctx := t.Context()
	for what, err := range map[string]error{
		"read the other's pod":   g.Get(ctx, types.NamespacedName{Namespace: twin, Name: "stall"}, &v1alpha1.ShadowPod{}),
		"list the other's pods":  g.List(ctx, &v1alpha1.ShadowPodList{}, client.InNamespace(twin)),
		"list everybody's pods":  g.List(ctx, &v1alpha1.ShadowPodList{}),
		"read the other's offer": g.List(ctx, &v1alpha1.AdvertisementList{}, client.InNamespace(other.Invitation.Namespace)),
		"list nodes":             g.List(ctx, &corev1.NodeList{}),
		"list namespaces":        g.List(ctx, &corev1.NamespaceList{}),
		"list peers":             g.List(ctx, &v1alpha1.PeerList{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s, to %s: %v", g.ID, what, err)
		}
	}
}

// tellTales are pods in trouble, whose messages could tell of nodes: one too large for any, one whose image cannot be had, and one
// that fails.
var tellTales = map[string]string{
	"huge":      strings.Replace(framework.BusyPodTemplate, "cpu: 1m", "cpu: 640", 1),
	"imageless": strings.NewReplacer(framework.BusyboxImage, "hanse.dev/test/nowhere:v1", "IfNotPresent", "Never").Replace(framework.BusyPodTemplate),
	"failing":   strings.Replace(framework.BusyPodTemplate, framework.RunForever, "cat /proc/sys/kernel/hostname; exit 1", 1),
}

// learnsNothingOfNodes checks that nothing that the guest may read tells names, addresses or the number of nodes: records of
// pods that run and of pods in trouble, what it is offered, and logs and refusals to give them.
func learnsNothingOfNodes(t *testing.T, g *framework.Guest, twin string) {
	t.Helper()
	for name, template := range tellTales {
		if err := g.Create(t.Context(), framework.NewShadowPod(t, twin, name, template)); err != nil {
			t.Fatal(err)
		}
	}
	var told map[string]string
	framework.Eventually(t, g.ID+" has heard of all of its pods", func(ctx context.Context) error {
		var err error
		if told, err = everythingTold(ctx, g, twin); err != nil {
			return err
		}
		for name, word := range map[string]string{"huge": v1alpha1.ReasonNoRoom, "imageless": "ErrImageNeverPull", "failing": `"exitCode":1`} {
			if !strings.Contains(told["record "+name], word) {
				return fmt.Errorf("the record of %s does not say %s: %s", name, word, told["record "+name])
			}
		}
		return nil
	})
	secrets := []*regexp.Regexp{regexp.MustCompile(`\d+/\d+ nodes|\d+ node\(s\)`)}
	for _, secret := range secretsOfNodes(t, g.Provider) {
		secrets = append(secrets, regexp.MustCompile(`(^|[^\w.-])`+regexp.QuoteMeta(secret)+`($|[^\w-])`))
	}
	for what, text := range told {
		for _, secret := range secrets {
			if found := secret.FindString(text); found != "" {
				t.Errorf("%s tells %s %q: %s", what, g.ID, found, text)
			}
		}
	}
}

// everythingTold is what the guest can read about its pods in the twin, and about the provider.
func everythingTold(ctx context.Context, g *framework.Guest, twin string) (map[string]string, error) {
	told := map[string]string{}
	records, offers, mappings := &v1alpha1.ShadowPodList{}, &v1alpha1.AdvertisementList{}, &v1alpha1.NamespaceMappingList{}
	if err := errors.Join(
		g.List(ctx, records, client.InNamespace(twin)), g.List(ctx, offers, client.InNamespace(g.Invitation.Namespace)),
		g.List(ctx, mappings, client.InNamespace(g.Invitation.Namespace)),
	); err != nil {
		return nil, err
	}
	for what, list := range map[string]any{"the offer": offers.Items, "the mapping": mappings.Items} {
		data, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		told[what] = string(data)
	}
	reader, err := kubernetes.NewForConfig(g.Config)
	if err != nil {
		return nil, err
	}
	for i := range records.Items {
		name := records.Items[i].Name
		data, err := json.Marshal(records.Items[i].Status)
		if err != nil {
			return nil, err
		}
		told["record "+name] = string(data)
		log, err := reader.CoreV1().Pods(twin).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		told["log of "+name] = string(log)
		if err != nil {
			told["refusal of the log of "+name] = err.Error()
		}
	}
	return told, nil
}

// everyResource lists all resources of the cluster, subresources included, as group/resource.
func everyResource(t *testing.T, c *framework.Cluster) []authorizationv1.ResourceAttributes {
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

// allowedIn asks the API server of every verb on every resource whether the guest may.
func allowedIn(t *testing.T, g *framework.Guest, namespace string, all []authorizationv1.ResourceAttributes) []string {
	t.Helper()
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	var (
		mu      sync.Mutex
		allowed []string
		asking  sync.WaitGroup
	)
	queue := make(chan authorizationv1.ResourceAttributes)
	for range 8 {
		asking.Go(func() {
			for attributes := range queue {
				review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
				err := g.Create(t.Context(), review)
				mu.Lock()
				if err != nil {
					t.Errorf("ask: %v", err)
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
	asking.Wait()
	slices.Sort(allowed)
	return allowed
}

// harmless is what Kubernetes allows every service account: to review itself, and to read public certificates.
func harmless(allowed string) bool {
	_, public := strings.CutSuffix(allowed, " certificates.k8s.io/clustertrustbundles/")
	return public || strings.HasPrefix(allowed, "create authorization.k8s.io/selfsubject") ||
		strings.HasPrefix(allowed, "create authentication.k8s.io/selfsubject")
}

// secretsOfNodes are the names and addresses of the cluster's real nodes.
func secretsOfNodes(t *testing.T, c *framework.Cluster) []string {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := c.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range nodes.Items {
		if nodes.Items[i].Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			continue
		}
		out = append(out, nodes.Items[i].Name)
		for _, address := range nodes.Items[i].Status.Addresses {
			out = append(out, address.Address)
		}
	}
	return out
}
