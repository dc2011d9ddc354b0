package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// Images that the testbed makes and loads.
const (
	echoImage = "hanse.dev/test/echo:v1"
	busybox   = "hanse.dev/test/busybox:v1"
)

// shellPod is a pod that runs a shell script in busybox and ends quickly when told to.
func shellPod(ns, app, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app, Labels: map[string]string{"app": app}},
		Spec:       shellSpec(script),
	}
}

func shellSpec(script string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](2),
		Containers: []corev1.Container{{
			Name: "main", Image: busybox, ImagePullPolicy: corev1.PullIfNotPresent,
			Command:   []string{"/bin/sh", "-c", script},
			Resources: requests("10m", "16Mi"),
		}},
	}
}

// forever keeps a shell alive that reacts to SIGTERM.
const forever = "trap 'exit 0' TERM; echo started; while true; do sleep 1 & wait $!; done"

func echoSpec() corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](2),
		Containers: []corev1.Container{{
			Name: "echo", Image: echoImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Ports:     []corev1.ContainerPort{{ContainerPort: 8080}},
			Resources: requests("10m", "16Mi"),
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
				PeriodSeconds: 1,
			},
		}},
	}
}

func requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

func deployment(ns, app string, replicas int32, spec corev1.PodSpec) *appsv1.Deployment {
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

func (c *cluster) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// awaitPolicy waits until the API server applies the admission policy to pods of the namespace: a new parameter takes
// effect after a moment. A dry run shows it.
func (c *cluster) awaitPolicy(t *testing.T, ns string, strategy v1alpha1.OffloadingStrategy) {
	t.Helper()
	eventually(t, "the admission policy takes effect in "+ns, func(ctx context.Context) error {
		probe := shellPod(ns, "probe", "true")
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if strategy == v1alpha1.StrategyRemote && offload.Gated(probe) {
			return nil // no cluster takes it at present
		}
		if tolerates(probe) != (strategy != v1alpha1.StrategyLocal) {
			return fmt.Errorf("a pod of strategy %s got tolerations %v", strategy, probe.Spec.Tolerations)
		}
		if probe.Spec.Affinity == nil {
			return fmt.Errorf("a pod of strategy %s got no affinity", strategy)
		}
		return nil
	})
}

func tolerates(pod *corev1.Pod) bool {
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == v1alpha1.TaintVirtualNode {
			return true
		}
	}
	return false
}

// isVirtual reports whether the pod is bound to a virtual node.
func isVirtual(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}
