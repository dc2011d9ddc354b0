// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// memory is a cluster that costs next to nothing, so that what is measured is ours.
type memory struct {
	client.Client
	namespace *corev1.Namespace
	peer      *v1alpha1.Peer
	shadow    *v1alpha1.ShadowPod
	pod       *corev1.Pod
	writes    int
}

func (m *memory) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *corev1.Namespace:
		m.namespace.DeepCopyInto(o)
	case *v1alpha1.Peer:
		m.peer.DeepCopyInto(o)
	case *v1alpha1.ShadowPod:
		m.shadow.DeepCopyInto(o)
	case *corev1.Pod:
		if m.pod == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
		}
		m.pod.DeepCopyInto(o)
	}
	return nil
}

func (m *memory) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	m.writes++
	pod, _ := o.(*corev1.Pod)
	pod.UID, pod.CreationTimestamp = types.UID(pod.Name), metav1.Now()
	m.pod = pod.DeepCopy()
	m.pod.Status.Phase = corev1.PodPending
	return nil
}

func (m *memory) Status() client.SubResourceWriter { return memoryStatus{m: m} }

type memoryStatus struct {
	client.SubResourceWriter
	m *memory
}

func (s memoryStatus) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	s.m.writes++
	if _, err := p.Data(o); err != nil {
		return err
	}
	shadow, _ := o.(*v1alpha1.ShadowPod)
	shadow.Status.DeepCopyInto(&s.m.shadow.Status)
	return nil
}

// lives is what happens to a pod on its way up, as the controller sees it.
func lives() []func(*corev1.Pod) {
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	container := corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
	}}
	return []func(*corev1.Pod){
		func(*corev1.Pod) {},
		func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Conditions = "n", []corev1.PodCondition{scheduled} },
		func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{container} },
		func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())},
			}
			p.Status.ContainerStatuses[0].Ready = true
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		},
	}
}

// BenchmarkPod is what one pod costs the controller, from its ShadowPod to its readiness on record.
func BenchmarkPod(b *testing.B) {
	template := `{"metadata":{"labels":{"app":"web","tier":"front"}},"spec":{"containers":[{"name":"c","image":"registry.example.com/web:1",` +
		`"ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}},` +
		`"readinessProbe":{"httpGet":{"path":"/","port":80}},"volumeMounts":[{"name":"v","mountPath":"/v"}]}],"volumes":[{"name":"v","emptyDir":{}}]}}`
	b.ReportAllocs()
	m := &memory{namespace: lubeck.namespace(""), peer: peer()}
	cfg := Config{Namespace: "hanse-system", ServiceAccount: "m", Clock: clock.RealClock{}, Decider: &fakePolicies{}}
	k := newShadowPodReconciler(cfg, m, m, nil)
	k.queue = &woken{}
	looks := 0
	for i := 0; b.Loop(); i++ {
		m.shadow, m.pod = shadowPod(), nil
		m.shadow.Name, m.shadow.UID = fmt.Sprintf("web-%d", i), types.UID(fmt.Sprintf("uid-%d", i))
		m.shadow.ResourceVersion, m.shadow.Spec.Pod = "1", template
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m.shadow)}
		look := func() {
			looks++
			if _, err := k.Reconcile(b.Context(), request); err != nil {
				b.Fatal(err)
			}
		}
		look()
		for _, happens := range lives() {
			happens(m.pod)
			k.podChanged(b.Context(), m.pod)
			look()
		}
		look() // by our own write
	}
	if per := float64(m.writes) / float64(looks) * 6; per != 2 {
		b.Errorf("%g writes per pod, want 2", per)
	}
}
