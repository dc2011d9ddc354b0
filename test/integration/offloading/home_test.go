// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

func TestDaemonSetStaysHome(t *testing.T) {
	t.Parallel()
	remote := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	ordinary := daemonSet(remote, "ordinary", nil)
	everywhere := daemonSet(lubeck.MustNamespace(t), "everywhere", []corev1.Toleration{{Operator: corev1.TolerationOpExists}})
	for _, ds := range []*appsv1.DaemonSet{ordinary, everywhere} {
		lubeck.MustCreate(t, ds)
		awaitDaemonSet(t, lubeck, ds)

		patch := client.MergeFrom(ds.DeepCopy())
		ds.Spec.Template.Annotations = map[string]string{"release": "2"}
		if err := lubeck.Patch(t.Context(), ds, patch); err != nil {
			t.Fatal(err)
		}
		awaitDaemonSet(t, lubeck, ds)
	}
}

func daemonSet(ns, app string, tolerations []corev1.Toleration) *appsv1.DaemonSet {
	labels := map[string]string{"app": app}
	spec := framework.PodSpec()
	spec.Tolerations = tolerations
	spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

// awaitDaemonSet waits until the newest template runs on every node of the cluster itself, and on no virtual node.
func awaitDaemonSet(t *testing.T, c *framework.Cluster, ds *appsv1.DaemonSet) {
	t.Helper()
	framework.Eventually(t, "daemon set "+ds.Name+" is rolled out on the real nodes", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(ds), ds); err != nil {
			return err
		}
		nodes, err := realNodes(ctx, c)
		if err != nil {
			return err
		}
		want := int32(len(nodes))
		s := ds.Status
		if s.ObservedGeneration != ds.Generation || s.DesiredNumberScheduled != want || s.UpdatedNumberScheduled != want || s.NumberReady != want {
			return fmt.Errorf("want %d pods, status is %+v", want, s)
		}
		pods, err := c.Pods(ctx, ds.Namespace, ds.Name)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if framework.IsVirtual(&pod) {
				return fmt.Errorf("%s is on node %s", pod.Name, pod.Spec.NodeName)
			}
		}
		return nil
	})
}

func realNodes(ctx context.Context, c *framework.Cluster) ([]corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	var real []corev1.Node
	for _, node := range list.Items {
		if node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
			real = append(real, node)
		}
	}
	return real, nil
}

// TestPodThatCannotLeaveStaysHome: a pod that cannot run remotely runs at home, and has an event with the reason.
func TestPodThatCannotLeaveStaysHome(t *testing.T) {
	t.Parallel()
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	pod := framework.Pod(ns, "rooted")
	pod.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}}}
	lubeck.MustCreate(t, pod)
	home := lubeck.AwaitReadyPods(t, ns, "rooted", 1)[0]
	if framework.IsVirtual(&home) {
		t.Errorf("the pod runs on %s", home.Spec.NodeName)
	}
	lubeck.AwaitEvent(t, &home, v1alpha1.ReasonRunsAtHome)
}

// TestPodThatProvidersRefuseStaysHome: admission keeps a pod at home that every provider would refuse, where it would wait for ever.
func TestPodThatProvidersRefuseStaysHome(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	for what, change := range map[string]func(*corev1.PodSpec){
		"nothing special": func(*corev1.PodSpec) {},
		"no seccomp": func(spec *corev1.PodSpec) {
			spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
		},
		"an unsafe sysctl": func(spec *corev1.PodSpec) {
			spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "65536"}}}
		},
		"a probe of another host": func(spec *corev1.PodSpec) {
			spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				TCPSocket: &corev1.TCPSocketAction{Host: "192.0.2.7", Port: intstr.FromInt32(80)},
			}}
		},
		"a file of an annotation that does not travel": func(spec *corev1.PodSpec) {
			spec.Volumes = []corev1.Volume{{Name: "me", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
				Items: []corev1.DownwardAPIVolumeFile{{
					Path: "it", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['example.org/it']"},
				}},
			}}}}
		},
	} {
		pod := framework.Pod(ns, "refused")
		change(&pod.Spec)
		if err := lubeck.Create(ctx, pod, client.DryRunAll); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if stays := pod.Annotations[v1alpha1.AnnotationRunsAtHome] != ""; stays != (what != "nothing special") {
			t.Errorf("%s: stays at home: %t, tolerations %v", what, stays, pod.Spec.Tolerations)
		}
	}
}
