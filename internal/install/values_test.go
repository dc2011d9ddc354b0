// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestValuesAreKept(t *testing.T) {
	c := newCluster(t)
	if values, err := c.Values(soon(t), "hanse-system"); err != nil || len(values) > 0 {
		t.Errorf("before there is a Hanse: got %v, %v", values, err)
	}
	want := map[string]any{
		"clusterID": "lubeck", "image": map[string]any{"repository": "registry.example.com/hanse", "tag": "1e12345"},
		"manager": map[string]any{"replicas": int64(2), "apiServers": []any{"https://lubeck:6443"}},
		"tracing": map[string]any{"insecure": true},
	}
	o := options()
	o.Values = want
	m := mustRender(t, o)
	m.Definitions = nil
	if err := c.Apply(soon(t), m); err != nil {
		t.Fatal(err)
	}
	got, err := c.Values(soon(t), o.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestValuesOfAHanseThatSomebodyElseInstalledAreNotGuessed(t *testing.T) {
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "hanse-system", Name: "hanse-manager", Annotations: map[string]string{"meta.helm.sh/release-name": "our-hanse"},
	}}
	_, err := newCluster(t, manager).Values(soon(t), "hanse-system")
	if !errors.Is(err, ErrNoRecord) || !strings.Contains(err.Error(), "release our-hanse") {
		t.Errorf("got %v", err)
	}
}

func TestAnotherClusterIDIsRefusedBeforeAnythingChanges(t *testing.T) {
	info := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: v1alpha1.ClusterInfo},
		Data:       map[string]string{v1alpha1.ClusterInfoID: "lubeck"},
	}
	for id, refused := range map[string]bool{"": false, "lubeck": false, "hamburg": true} {
		o := options()
		o.Values = map[string]any{"clusterID": id}
		m, c := mustRender(t, o), newCluster(t, info.DeepCopy())
		m.Definitions = nil
		err := c.Apply(soon(t), m)
		if errors.Is(err, ErrOtherID) != refused || !refused && err != nil {
			t.Errorf("%q: got %v", id, err)
		}
		missing, err := Missing(soon(t), c.Client, m.Objects[:1])
		if err != nil || refused != (len(missing) > 0) {
			t.Errorf("%q: missing %v, %v", id, missing, err)
		}
	}
}

// crashing is a Deployment whose new pod ends at once while the old one runs on.
func crashing() (*appsv1.Deployment, *corev1.Pod) {
	labels := map[string]string{PartOfLabel: PartOf, "app.kubernetes.io/component": "manager"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: "hanse-manager"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status:     appsv1.DeploymentStatus{UpdatedReplicas: 1, Replicas: 2, AvailableReplicas: 1},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: "hanse-manager-new", Labels: labels},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			RestartCount: 3,
			State:        corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 1, Reason: "Error", Message: "starting\nthe id of this cluster is lubeck\n",
			}},
		}}},
	}
	return deployment, pod
}
