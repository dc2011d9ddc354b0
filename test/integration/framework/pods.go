// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// TestImage is the image of the pods of tests. Nobody pulls it: on KWOK nodes pods are Ready as soon as they are bound.
const TestImage = "hanse.dev/test/busybox:v1"

// Pod returns a small pod with the label app.
func Pod(namespace, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Labels: map[string]string{"app": app}},
		Spec:       PodSpec(),
	}
}

// PodSpec returns the spec of a small pod.
func PodSpec() corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](2),
		Containers: []corev1.Container{{
			Name: "main", Image: TestImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{"/bin/sh", "-c", "true"}, Resources: Requests("10m", "16Mi"),
		}},
	}
}

// Requests returns requests for processor time and memory.
func Requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

// Deployment returns a Deployment whose pods have the label app.
func Deployment(namespace, app string, replicas int32, spec corev1.PodSpec) *appsv1.Deployment {
	labels := map[string]string{"app": app}
	return &appsv1.Deployment{
		ObjectMeta: Named(namespace, app),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

// NamespacePrefix begins the names of the namespaces that tests make.
const NamespacePrefix = "test-"

// MustNamespace makes a namespace in which pods can be created, and deletes it at the end of the test.
func (c *Cluster) MustNamespace(t T) string {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.GenerateName = NamespacePrefix
	c.MustCreate(t, ns)
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), ns); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	// The API server refuses pods until the controller manager has made their service account.
	Eventually(t, "the service account of "+ns.Name+" exists", func(ctx context.Context) error {
		return c.Get(ctx, types.NamespacedName{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return ns.Name
}

// MustOffload makes a namespace whose pods are offloaded as the spec says, and waits until admission does so.
func (c *Cluster) MustOffload(t T, spec v1alpha1.NamespaceOffloadingSpec) string {
	t.Helper()
	ns := c.MustNamespace(t)
	c.MustCreate(t, &v1alpha1.NamespaceOffloading{ObjectMeta: Named(ns, v1alpha1.NamespaceOffloadingName), Spec: spec})
	c.AwaitAdmission(t, ns, spec.Strategy)
	return ns
}

// MustOffloadTo makes a namespace whose pods run at the provider and at no other, and waits until admission does so.
func (c *Cluster) MustOffloadTo(t T, provider *Cluster) string {
	t.Helper()
	return c.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: &v1alpha1.ClusterSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: v1alpha1.LabelValue(provider.Name)},
	}})
}

// AwaitAdmission waits until the API server applies the admission policy to pods of the namespace: a new parameter takes
// effect after a moment. A dry run shows it.
func (c *Cluster) AwaitAdmission(t T, ns string, strategy v1alpha1.OffloadingStrategy) {
	t.Helper()
	Eventually(t, "the admission policy takes effect in "+ns, func(ctx context.Context) error {
		probe := Pod(ns, "probe")
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if strategy == v1alpha1.StrategyRemote && offload.Gated(probe) {
			return nil // no cluster takes it at present
		}
		if ToleratesVirtualNodes(probe) != (strategy != v1alpha1.StrategyLocal) {
			return fmt.Errorf("a pod of strategy %s got tolerations %v", strategy, probe.Spec.Tolerations)
		}
		if probe.Spec.Affinity == nil {
			return fmt.Errorf("a pod of strategy %s got no affinity", strategy)
		}
		return nil
	})
}

// ToleratesVirtualNodes reports whether the pod tolerates the taint of virtual nodes.
func ToleratesVirtualNodes(pod *corev1.Pod) bool {
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == v1alpha1.TaintVirtualNode {
			return true
		}
	}
	return false
}

// IsVirtual reports whether the pod is bound to a virtual node.
func IsVirtual(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}

// Pods returns the pods of a namespace that have the label app.
func (c *Cluster) Pods(ctx context.Context, ns, app string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := c.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{"app": app})
	return list.Items, err
}

// Pod returns a pod.
func (c *Cluster) Pod(ctx context.Context, ns, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, c.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, pod)
}

// AwaitPods waits until there are as many pods with the label app, and returns them.
func (c *Cluster) AwaitPods(t T, ns, app string, count int) (pods []corev1.Pod) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s/%s has %d pods in %s", ns, app, count, c.Name), func(ctx context.Context) (err error) {
		if pods, err = c.Pods(ctx, ns, app); err == nil && len(pods) != count {
			err = errors.New(Summary(pods))
		}
		return err
	})
	return pods
}

// AwaitReadyPods waits until as many pods with the label app are Ready, and returns them.
func (c *Cluster) AwaitReadyPods(t T, ns, app string, count int) []corev1.Pod {
	t.Helper()
	var ready []corev1.Pod
	Eventually(t, fmt.Sprintf("%d pods of %s/%s are Ready in %s", count, ns, app, c.Name), func(ctx context.Context) error {
		pods, err := c.Pods(ctx, ns, app)
		if err != nil {
			return err
		}
		ready = ready[:0]
		for _, pod := range pods {
			if pod.DeletionTimestamp.IsZero() && IsPodReady(&pod) {
				ready = append(ready, pod)
			}
		}
		if len(ready) != count {
			return fmt.Errorf("%d of %d pods are Ready: %s", len(ready), count, Summary(pods))
		}
		return nil
	})
	return ready
}

// Summary tells of each pod where it is and in which phase.
func Summary(pods []corev1.Pod) string {
	text := ""
	for _, pod := range pods {
		text += fmt.Sprintf("\n  %s on %q: %s %s %s", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	}
	return text
}

// IsPodReady reports whether the pod is Ready.
func IsPodReady(pod *corev1.Pod) bool {
	return PodCondition(pod, corev1.PodReady) == corev1.ConditionTrue
}

// PodCondition returns the status of a condition, Unknown if the pod does not have it.
func PodCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

// RemotePod returns the one pod of this provider that belongs to the home pod. Several are an error.
func (c *Cluster) RemotePod(ctx context.Context, home *corev1.Pod) (*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.MatchingLabels{v1alpha1.LabelHomeUID: string(home.UID)}); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%s has %d remote pods for %s/%s, want 1: %s", c.Name, len(list.Items), home.Namespace, home.Name, Summary(list.Items))
	}
	return &list.Items[0], nil
}

// MustRemotePod is RemotePod for a home pod that is Ready.
func (c *Cluster) MustRemotePod(t T, home *corev1.Pod) *corev1.Pod {
	t.Helper()
	remote, err := c.RemotePod(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	return remote
}

// RunsAt offloads a pod to the provider.
func (c *Cluster) RunsAt(t T, provider *Cluster) (home, remote *corev1.Pod) {
	t.Helper()
	ns := c.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	c.MustCreate(t, Pod(ns, "guest"))
	home = &c.AwaitReadyPods(t, ns, "guest", 1)[0]
	if home.Spec.NodeName != v1alpha1.VirtualNodeName(provider.Name) {
		t.Fatalf("pod %s runs on %s, want the virtual node of %s", home.Name, home.Spec.NodeName, provider.Name)
	}
	return home, provider.MustRemotePod(t, home)
}

// AwaitEvent waits for an event of the reason on the object.
func (c *Cluster) AwaitEvent(t T, about client.Object, reason string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s has an event %s", about.GetName(), reason), func(ctx context.Context) error {
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

// ContainerIDs returns the id of each container of the pod, by the container's name. KWOK makes them from the UID of the pod.
func ContainerIDs(pod *corev1.Pod) map[string]string {
	ids := map[string]string{}
	for _, status := range pod.Status.ContainerStatuses {
		ids[status.Name] = status.ContainerID
	}
	return ids
}

// ExpectSamePod checks that the home pod shows what the remote pod is.
func ExpectSamePod(t T, home, remote *corev1.Pod) {
	t.Helper()
	if home.UID == remote.UID || home.Name != remote.Name {
		t.Errorf("home pod %s (%s) and remote pod %s (%s)", home.Name, home.UID, remote.Name, remote.UID)
	}
	if remote.Spec.NodeName == "" || IsVirtual(remote) {
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
}
