// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// CheckJobSucceeded returns an error unless so many pods of the Job have succeeded.
func (c *Cluster) CheckJobSucceeded(ctx context.Context, job *batchv1.Job, want int32) error {
	if err := c.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
		return err
	}
	if job.Status.Succeeded != want || job.Status.CompletionTime == nil {
		return fmt.Errorf("%d of %d have succeeded, %d failed", job.Status.Succeeded, want, job.Status.Failed)
	}
	return nil
}

// SmallPodSpec is a container that asks for little.
func SmallPodSpec() corev1.PodSpec {
	spec := NewShellPodSpec(RunForever)
	spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	return spec
}

// Images that the testbed makes and loads.
const (
	EchoImage    = "hanse.dev/test/echo:v1"
	BusyboxImage = "hanse.dev/test/busybox:v1"
)

// NewShellPod is a pod that runs a shell script in busybox and ends quickly when told to.
func NewShellPod(ns, app, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app, Labels: map[string]string{"app": app}},
		Spec:       NewShellPodSpec(script),
	}
}

// NewShellPodSpec returns the spec of a pod that runs a shell script.
func NewShellPodSpec(script string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](2),
		Containers: []corev1.Container{{
			Name: "main", Image: BusyboxImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Command:   []string{"/bin/sh", "-c", script},
			Resources: ResourceRequests("10m", "16Mi"),
		}},
	}
}

// RunForever keeps a shell alive that reacts to SIGTERM.
const RunForever = "trap 'exit 0' TERM; echo started; while true; do sleep 1 & wait $!; done"

// NewEchoPodSpec returns the spec of a pod with the HTTP server of the testbed, which describes each request in its answer.
func NewEchoPodSpec() corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](2),
		Containers: []corev1.Container{{
			Name: "echo", Image: EchoImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Ports:     []corev1.ContainerPort{{ContainerPort: 8080}},
			Resources: ResourceRequests("10m", "16Mi"),
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
				PeriodSeconds: 1,
			},
		}},
	}
}

// ResourceRequests returns requests without limits.
func ResourceRequests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

// NewDeployment returns a Deployment whose pods have the label app.
func NewDeployment(ns, app string, replicas int32, spec corev1.PodSpec) *appsv1.Deployment {
	labels := map[string]string{"app": app}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

// MustCreate creates the object, and fails the story if that fails.
func (c *Cluster) MustCreate(t *testing.T, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// AwaitAdmissionPolicy waits until the API server applies the admission policy to pods of the namespace: a new parameter takes
// effect after a moment. A dry run shows it.
func (c *Cluster) AwaitAdmissionPolicy(t *testing.T, ns string, strategy v1alpha1.OffloadingStrategy) {
	t.Helper()
	Eventually(t, "the admission policy takes effect in "+ns, func(ctx context.Context) error {
		probe := NewShellPod(ns, "probe", "true")
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

// IsOnVirtualNode reports whether the pod is bound to a virtual node.
func IsOnVirtualNode(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}
