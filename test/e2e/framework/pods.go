// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AwaitEvent waits until an event of that reason is about the object.
func (c *Cluster) AwaitEvent(t *testing.T, about client.Object, reason string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("an event %s on %s", reason, about.GetName()), func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := c.List(ctx, list, client.InNamespace(about.GetNamespace())); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.InvolvedObject.UID == about.GetUID() && event.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("none among %d events", len(list.Items))
	})
}

// These stories examine Kubernetes, not Hanse: which pod a ReplicaSet deletes when it has one too many. What is real in them is the
// controller manager; kubelet and scheduler are the story itself wherever that is quicker.

// NoScheduler names no scheduler: a pod that asks for it waits until the story binds it.
const NoScheduler = "by-hand"

// AwaitPods waits until there are as many pods of the app, and returns them.
func (c *Cluster) AwaitPods(t *testing.T, ns, app string, count int) (pods []corev1.Pod) {
	t.Helper()
	Eventually(t, fmt.Sprintf("there are %d pods of %s", count, app), func(ctx context.Context) (err error) {
		if pods, err = c.GetPods(ctx, ns, app); err == nil && len(pods) != count {
			err = fmt.Errorf("there are %d", len(pods))
		}
		return err
	})
	return pods
}

// BindPod binds the pod to the node, as a scheduler does.
func (c *Cluster) BindPod(t *testing.T, pod *corev1.Pod, node string) {
	t.Helper()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := c.SubResource("binding").Create(t.Context(), pod.DeepCopy(), binding); err != nil {
		t.Fatal(err)
	}
}

// MergePatch patches the object.
func (c *Cluster) MergePatch(t *testing.T, object client.Object, patch string) {
	t.Helper()
	if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// CheckPhase returns an error unless the pod has the phase.
func (c *Cluster) CheckPhase(ctx context.Context, ns, name string, phase corev1.PodPhase) error {
	pod, err := c.GetPod(ctx, ns, name)
	if err == nil && pod.Status.Phase != phase {
		err = fmt.Errorf("%s: %s %s %s", name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	}
	return err
}

// AwaitDescription waits until `kubectl describe` says all of it in the events of the object, which is called kind/name.
func (c *Cluster) AwaitDescription(t *testing.T, ns, object string, want ...string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("kubectl describe %s says %s", object, strings.Join(want, ", ")), func(ctx context.Context) error {
		said, err := c.Kubectl(ctx, "-n", ns, "describe", object)
		if err != nil {
			return err
		}
		_, events, _ := strings.Cut(said, "Events:")
		for _, text := range want {
			if !strings.Contains(events, text) {
				return fmt.Errorf("no %q in %s", text, events)
			}
		}
		return nil
	})
}

// ExpectSamePod compares what the home pod shows with the pod that really runs.
func ExpectSamePod(t *testing.T, home, remote *corev1.Pod) {
	t.Helper()
	if home.UID == remote.UID || home.Name != remote.Name {
		t.Errorf("home pod %s (%s) and remote pod %s (%s)", home.Name, home.UID, remote.Name, remote.UID)
	}
	if remote.Spec.NodeName == "" || IsOnVirtualNode(remote) {
		t.Errorf("remote pod %s is on node %q", remote.Name, remote.Spec.NodeName)
	}
	if diff := cmp.Diff(remote.Status.StartTime, home.Status.StartTime); diff != "" {
		t.Errorf("start times of %s: %s", home.Name, diff)
	}
	// Resources of running containers stay out until in-place resize is carried over.
	later := cmpopts.IgnoreFields(corev1.ContainerStatus{}, "AllocatedResources", "Resources")
	if diff := cmp.Diff(remote.Status.ContainerStatuses, home.Status.ContainerStatuses, later); diff != "" {
		t.Errorf("container statuses of %s: %s", home.Name, diff)
	}
	for name, id := range ContainerIDs(home) {
		if !strings.HasPrefix(id, "containerd://") {
			t.Errorf("container %s of %s has id %q", name, home.Name, id)
		}
	}
}

// ExpectUntouched checks that the home pod is the same object and its containers are the same ones as before.
func ExpectUntouched(t *testing.T, consumer *Cluster, home *corev1.Pod, provider *Cluster, before *corev1.Pod) {
	t.Helper()
	now, err := consumer.GetPod(t.Context(), home.Namespace, home.Name)
	if err != nil {
		t.Fatal(err)
	}
	if now.UID != home.UID {
		t.Errorf("home pod %s was %s and is %s", home.Name, home.UID, now.UID)
	}
	remote := provider.MustGetRemotePod(t, now)
	if remote.UID != before.UID {
		t.Errorf("remote pod of %s was %s and is %s", home.Name, before.UID, remote.UID)
	}
	if diff := cmp.Diff(ContainerIDs(before), ContainerIDs(remote)); diff != "" {
		t.Errorf("containers of %s: %s", home.Name, diff)
	}
	if diff := cmp.Diff(ContainerIDs(remote), ContainerIDs(now)); diff != "" {
		t.Errorf("containers of %s as home shows them: %s", home.Name, diff)
	}
}
