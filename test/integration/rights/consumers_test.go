// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

func TestConsumersCannotSeeEachOther(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	guests := []*guest{welcome(t, "visby-a"), welcome(t, "visby-b")}
	twins := make([]string, len(guests))
	for i, g := range guests {
		twins[i] = g.Twin(t, "shop")
		if err := g.Create(ctx, framework.Shadow(t, twins[i], "stall", framework.BusyPod)); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range guests {
		g.AwaitRunning(t, twins[i], "stall")
	}
	all := framework.EveryResource(t, hamburg)
	for i, g := range guests {
		other := guests[1-i]
		for _, ns := range []string{other.Invitation.Namespace, twins[1-i], v1alpha1.SystemNamespace, ""} {
			for _, allowed := range framework.AllowedIn(t, g.Client, ns, all) {
				if !framework.IsHarmless(allowed) {
					t.Errorf("%s may %s in namespace %q", g.ID, allowed, ns)
				}
			}
		}
		g.readsOf(t, other, twins[1-i])
		g.learnsNothingOfNodes(t, twins[i])
	}
}

// readsOf really sends some of the requests that the access reviews call forbidden.
func (g *guest) readsOf(t *testing.T, other *guest, twin string) {
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

// learnsNothingOfNodes checks that nothing that the guest may read contains names, addresses or the number of nodes. Two of its
// pods are in trouble of which scheduler and kubelet tell with names of nodes; the test plays the kubelet.
func (g *guest) learnsNothingOfNodes(t *testing.T, twin string) {
	t.Helper()
	huge := strings.Replace(framework.BusyPod, "cpu: 1m", "cpu: 640", 1)
	for name, template := range map[string]string{"huge": huge, "failing": framework.BusyPod} {
		if err := g.Create(t.Context(), framework.Shadow(t, twin, name, template)); err != nil {
			t.Fatal(err)
		}
	}
	g.AwaitRunning(t, twin, "failing")
	failing, err := hamburg.Pod(t.Context(), twin, "failing")
	if err != nil {
		t.Fatal(err)
	}
	fail(t, failing)
	var readable map[string]string
	framework.Eventually(t, g.ID+" reads the status of its pods", func(ctx context.Context) error {
		var err error
		if readable, err = g.readable(ctx, twin); err != nil {
			return err
		}
		for name, word := range map[string]string{"huge": v1alpha1.ReasonNoRoom, "failing": `"exitCode":1`} {
			if !strings.Contains(readable["record "+name], word) {
				return fmt.Errorf("the ShadowPod %s does not contain %s: %s", name, word, readable["record "+name])
			}
		}
		return nil
	})
	secrets := []*regexp.Regexp{regexp.MustCompile(`\d+/\d+ nodes|\d+ node\(s\)`)}
	for _, secret := range secretsOfNodes(t) {
		secrets = append(secrets, regexp.MustCompile(`(^|[^\w.-])`+regexp.QuoteMeta(secret)+`($|[^\w-])`))
	}
	for what, text := range readable {
		for _, secret := range secrets {
			if found := secret.FindString(text); found != "" {
				t.Errorf("%s tells %s %q: %s", what, g.ID, found, text)
			}
		}
	}
}

// fail makes a pod one that has failed, with a message of its kubelet that names the node.
func fail(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	before := pod.DeepCopy()
	pod.Status.Phase, pod.Status.Message = corev1.PodFailed, "The node "+pod.Spec.NodeName+" was low on resource: memory."
	pod.Status.ContainerStatuses[0].Ready = false
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 1, Reason: "Error", Message: "killed on " + pod.Spec.NodeName,
	}}
	if err := hamburg.Status().Patch(t.Context(), pod, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// readable returns what the guest can read about its pods in the remote namespace, and about the provider.
func (g *guest) readable(ctx context.Context, twin string) (map[string]string, error) {
	pods, offers, mappings := &v1alpha1.ShadowPodList{}, &v1alpha1.AdvertisementList{}, &v1alpha1.NamespaceMappingList{}
	if err := errors.Join(
		g.List(ctx, pods, client.InNamespace(twin)), g.List(ctx, offers, client.InNamespace(g.Invitation.Namespace)),
		g.List(ctx, mappings, client.InNamespace(g.Invitation.Namespace)),
	); err != nil {
		return nil, err
	}
	found := map[string]string{}
	add := func(what string, object any) error {
		data, err := json.Marshal(object)
		found[what] = string(data)
		return err
	}
	if err := errors.Join(add("the offer", offers.Items), add("the mapping", mappings.Items)); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if err := add("record "+pods.Items[i].Name, pods.Items[i].Status); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// secretsOfNodes returns names and addresses of the cluster's own nodes. All KWOK nodes have the loopback address.
func secretsOfNodes(t *testing.T) []string {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := hamburg.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	var secrets []string
	for i := range nodes.Items {
		if nodes.Items[i].Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			continue
		}
		secrets = append(secrets, nodes.Items[i].Name)
		for _, address := range nodes.Items[i].Status.Addresses {
			secrets = append(secrets, address.Address)
		}
	}
	return secrets
}
