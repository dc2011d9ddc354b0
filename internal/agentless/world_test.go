// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const (
	peerName = "rostock"
	homeID   = "lubeck"
	there    = "guests" // the namespace at the peer
)

var (
	peerID = v1alpha1.AgentlessClusterID(homeID, peerName)
	web    = types.NamespacedName{Namespace: "shop", Name: "web-0"}
)

// records is what the kubelet follows.
var records = &peers.Subject{Example: &v1alpha1.ShadowPod{}}

// world is a cluster without Hanse, in memory, and our link to it.
type world struct {
	*peerstest.World
	t       *testing.T
	cluster *testkit.Cluster
	remote  *peerstest.Peer
	view    *podView
	link    *peers.Link
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, cluster: testkit.NewCluster(t, clocktesting.NewFakeClock(testkit.Noon), objects...)}
	w.cluster.Before(w.keepInForeground)
	w.World = peerstest.New(t, testkit.Scheme(), peers.Config{Adapt: w.adapt})
	w.remote = w.Add(peerName, v1alpha1.TenantNamespace(peerName), w.cluster.Client)
	w.cluster.Server = w.remote.Mirrored(w.cluster.Server)
	w.link = w.Link(peer())
	if err := w.link.Mappings().WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// keepInForeground keeps what is deleted in the foreground until its pods are gone, as a real API server does.
func (w *world) keepInForeground(write testkit.Write) error {
	policy := write.Delete.PropagationPolicy
	if policy == nil || *policy != metav1.DeletePropagationForeground {
		return nil
	}
	write.Object.SetFinalizers([]string{metav1.FinalizerDeleteDependents})
	return w.cluster.Server.Update(w.t.Context(), write.Object)
}

// adapt is Adapt, but nothing keeps records except the test.
func (w *world) adapt(link *peers.Link, peer *v1alpha1.Peer) (*peers.Transport, error) {
	if _, err := Adapt(link, peer); err != nil {
		return nil, err
	}
	w.view = newPodView(link, peer.Spec.ClusterID, peer.Spec.Namespaces)
	w.view.queue.ShutDown()
	return w.view.transport(), nil
}

func peer() *v1alpha1.Peer {
	peer := testkit.Peer(peerName, v1alpha1.RoleProvider)
	peer.Spec.ClusterID, peer.Spec.Mode, peer.Spec.Namespaces = peerID, v1alpha1.ModeAgentless, []string{there}
	return peer
}

// shadow is the ShadowPod of web-0, changed as change has it.
func shadow(t *testing.T, change func(*corev1.PodTemplateSpec)) *v1alpha1.ShadowPod {
	t.Helper()
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "main", Image: "registry.example/web:1"}},
		},
	}
	if change != nil {
		change(&template)
	}
	raw, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: web.Namespace, Name: web.Name, Annotations: map[string]string{"hanse.dev/home-revision": "1"},
		},
		Spec: v1alpha1.ShadowPodSpec{HomeUID: "home-uid-1", Pod: string(raw)},
	}
}

func never(template *corev1.PodTemplateSpec) { template.Spec.RestartPolicy = corev1.RestartPolicyNever }

func (w *world) create(object client.Object) {
	w.t.Helper()
	if err := w.link.Client().Create(w.t.Context(), object); err != nil {
		w.t.Fatalf("create %s: %v", object.GetName(), err)
	}
}

// shadow returns what the kubelet sees of web-0, or nil.
func (w *world) shadow() *v1alpha1.ShadowPod {
	w.t.Helper()
	object, found := w.link.FollowTwin(records, web.Namespace).Named(web.Name)
	if !found {
		return nil
	}
	return object.(*v1alpha1.ShadowPod)
}

// told returns the status of the pod that the kubelet sees.
func (w *world) told() corev1.PodStatus {
	w.t.Helper()
	seen := w.shadow()
	status := corev1.PodStatus{}
	if seen == nil || seen.Status.Pod == nil {
		return status
	}
	if err := json.Unmarshal(seen.Status.Pod.Raw, &status); err != nil {
		w.t.Fatal(err)
	}
	return status
}

func (w *world) replicaSet() *appsv1.ReplicaSet {
	w.t.Helper()
	return testkit.Get[appsv1.ReplicaSet](w.cluster, there, remoteName(peerID, web))
}

func (w *world) job() *batchv1.Job {
	w.t.Helper()
	return testkit.Get[batchv1.Job](w.cluster, there, remoteName(peerID, web))
}

// deletions returns the options of the deletions since the last look at writes.
func (w *world) deletions() []client.DeleteOptions {
	var options []client.DeleteOptions
	for _, write := range w.cluster.Writes() {
		if write.Verb == "delete" {
			options = append(options, write.Delete)
		}
	}
	return options
}

// run makes a pod of the ReplicaSet or Job, as its controller does.
func (w *world) run(owner client.Object, name string, phase corev1.PodPhase, change func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	template := templateOfOwner(owner)
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.UID = there, name, types.UID("uid-"+name)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Owner", Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true),
	}}
	pod.Status = corev1.PodStatus{Phase: phase, PodIP: "10.0.0.7", ContainerStatuses: []corev1.ContainerStatus{{Name: "main"}}}
	if change != nil {
		change(pod)
	}
	w.cluster.Put(pod)
	return pod
}

// held keeps a pod after it was deleted, as its containers would that still run.
func held(pod *corev1.Pod) { pod.Finalizers = []string{"test/held"} }

// giveGrace says what grace home gives web-0.
func (w *world) giveGrace(seconds int64) {
	w.t.Helper()
	target := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	patch := fmt.Appendf(nil, `{"spec":{"deletionGracePeriodSeconds":%d}}`, seconds)
	if err := w.link.Client().Patch(w.t.Context(), target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		w.t.Fatal(err)
	}
}

// end deletes the ShadowPod of web-0 that has the UID.
func (w *world) end(uid types.UID) error {
	target := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	err := w.link.Client().Delete(w.t.Context(), target, client.Preconditions{UID: &uid})
	return err
}

// keepRecord does what the view does by itself.
func (w *world) keepRecord() {
	w.t.Helper()
	if seen, found := w.view.look(web); found {
		if err := w.view.writer.keepRecord(w.t.Context(), seen); err != nil {
			w.t.Fatal(err)
		}
	}
}
