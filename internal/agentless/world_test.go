package agentless

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	peerName = "rostock"
	homeID   = "lubeck"
	there    = "guests" // the namespace at the peer
)

var (
	peerID = ClusterID(homeID, peerName)
	start  = time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC)
	web    = types.NamespacedName{Namespace: "shop", Name: "web-0"}
)

// world is a cluster without Hanse, in memory, and our link to it.
type world struct {
	t       *testing.T
	api     *fakeAPI
	link    *Link
	deletes []client.DeleteOptions
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t}
	remote := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(objects...).
		WithStatusSubresource(&corev1.Pod{}, &appsv1.ReplicaSet{}, &batchv1.Job{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if o.GetUID() == "" {
					o.SetUID(types.UID("uid-" + o.GetName()))
				}
				o.SetCreationTimestamp(metav1.NewTime(start))
				return c.Create(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				options := client.DeleteOptions{}
				options.ApplyOptions(opts)
				w.deletes = append(w.deletes, options)
				// A real API server keeps what is deleted in the foreground until its pods are gone.
				if p := options.PropagationPolicy; p != nil && *p == metav1.DeletePropagationForeground {
					o.SetFinalizers([]string{metav1.FinalizerDeleteDependents})
					if err := c.Update(ctx, o); err != nil {
						return err
					}
				}
				return c.Delete(ctx, o, opts...)
			},
			SubResourcePatch: func(
				ctx context.Context, c client.Client, _ string, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption,
			) error {
				return c.Patch(ctx, o, p)
			},
		}).Build()
	w.api = &fakeAPI{remote: remote, done: make(chan struct{})}
	idle := &crew{}
	idle.end() // nothing is tended but by the test
	link, err := newLink(t.Context(), w.api, peer(), idle)
	if err != nil {
		t.Fatal(err)
	}
	w.link, link.crew = link, &crew{}
	t.Cleanup(func() {
		link.close()
		link.crew.end()
	})
	w.sync()
	return w
}

func testScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

func peer() *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: peerName, UID: "peer-uid"},
		Spec: v1alpha1.PeerSpec{
			ClusterID: peerID, Mode: v1alpha1.ModeAgentless, Namespaces: []string{there},
			Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider},
		},
	}
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
		Spec: v1alpha1.ShadowPodSpec{HomeUID: "home-uid-1", Pod: runtime.RawExtension{Raw: raw}},
	}
}

func never(template *corev1.PodTemplateSpec) { template.Spec.RestartPolicy = corev1.RestartPolicyNever }

// sync has the mirrors tell of everything that there is, or was.
func (w *world) sync() {
	for _, m := range w.api.mirrors {
		for _, object := range m.List() {
			m.known[client.ObjectKeyFromObject(object)] = true
		}
		for key := range m.known {
			m.changed(key)
		}
	}
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	if err := w.link.Client().Create(w.t.Context(), object); err != nil {
		w.t.Fatalf("create %s: %v", object.GetName(), err)
	}
	w.sync()
}

// shadow returns what the kubelet sees of web-0, or nil.
func (w *world) shadow() *v1alpha1.ShadowPod {
	w.t.Helper()
	m, err := w.link.Watch(w.t.Context(), &v1alpha1.ShadowPod{}, web.Namespace, func(types.NamespacedName) {})
	if err != nil {
		w.t.Fatal(err)
	}
	object, found := m.Get(web)
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
	return read(w, &appsv1.ReplicaSet{}, remoteName(peerID, web))
}

func (w *world) job() *batchv1.Job {
	w.t.Helper()
	return read(w, &batchv1.Job{}, remoteName(peerID, web))
}

func read[T client.Object](w *world, into T, name string) T {
	w.t.Helper()
	if err := w.api.remote.Get(w.t.Context(), client.ObjectKey{Namespace: there, Name: name}, into); err != nil {
		w.t.Fatalf("read %T %s: %v", into, name, err)
	}
	return into
}

// run makes a pod of the ReplicaSet or Job, as its controller does.
func (w *world) run(keeper client.Object, name string, phase corev1.PodPhase, change func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	template := templateFrom(keeper)
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.UID = there, name, types.UID("uid-"+name)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Keeper", Name: keeper.GetName(), UID: keeper.GetUID(), Controller: ptr.To(true),
	}}
	pod.Status = corev1.PodStatus{Phase: phase, PodIP: "10.0.0.7", ContainerStatuses: []corev1.ContainerStatus{{Name: "main"}}}
	if change != nil {
		change(pod)
	}
	status := pod.Status
	if err := w.api.remote.Create(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
	pod.Status = status
	w.updateStatus(pod)
	return pod
}

func (w *world) updateStatus(object client.Object) {
	w.t.Helper()
	if err := w.api.remote.Status().Update(w.t.Context(), object); err != nil {
		w.t.Fatalf("update status of %s: %v", object.GetName(), err)
	}
	w.sync()
}

func (w *world) delete(object client.Object) {
	w.t.Helper()
	if err := w.api.remote.Delete(w.t.Context(), object); err != nil {
		w.t.Fatalf("delete %s: %v", object.GetName(), err)
	}
	w.deletes = nil
	w.sync()
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
	w.sync()
}

// end deletes the ShadowPod of web-0 that has the UID.
func (w *world) end(uid types.UID) error {
	target := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	err := w.link.Client().Delete(w.t.Context(), target, client.Preconditions{UID: &uid})
	w.sync()
	return err
}

// tend does what the link does by itself.
func (w *world) tend() {
	w.t.Helper()
	if seen, found := w.link.view.look(web); found {
		if err := w.link.client.hand.tend(w.t.Context(), seen); err != nil {
			w.t.Fatal(err)
		}
	}
	w.sync()
}

type fakeAPI struct {
	remote  client.WithWatch
	done    chan struct{}
	mirrors []*fakeMirror
}

func (a *fakeAPI) Client() client.Client  { return a.remote }
func (*fakeAPI) RESTConfig() *rest.Config { return &rest.Config{} }
func (*fakeAPI) HTTPClient() *http.Client { return http.DefaultClient }
func (*fakeAPI) TenantNamespace() string  { return v1alpha1.TenantNamespace(peerName) }
func (a *fakeAPI) Done() <-chan struct{}  { return a.done }

func (a *fakeAPI) Mirror(
	_ context.Context, example client.Object, of peers.Selection, changed func(types.NamespacedName),
) (Mirror, error) {
	made := &fakeMirror{
		remote: a.remote, example: example, of: of, changed: changed, known: map[types.NamespacedName]bool{},
		failed: make(chan struct{}),
	}
	a.mirrors = append(a.mirrors, made)
	return made, nil
}

// fakeMirror shows at once what there is, and tells when the test says so.
type fakeMirror struct {
	remote  client.Client
	example client.Object
	of      peers.Selection
	changed func(types.NamespacedName)
	known   map[types.NamespacedName]bool
	failed  chan struct{}
	err     error
}

func (m *fakeMirror) Get(key types.NamespacedName) (client.Object, bool) {
	for _, object := range m.List() {
		if client.ObjectKeyFromObject(object) == key {
			return object, true
		}
	}
	return nil, false
}

func (m *fakeMirror) List() []client.Object {
	options := &client.ListOptions{Namespace: m.of.Namespace, LabelSelector: m.of.Labels}
	var found []client.Object
	switch m.example.(type) {
	case *appsv1.ReplicaSet:
		list := &appsv1.ReplicaSetList{}
		_ = m.remote.List(context.Background(), list, options)
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	case *batchv1.Job:
		list := &batchv1.JobList{}
		_ = m.remote.List(context.Background(), list, options)
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	case *corev1.Pod:
		list := &corev1.PodList{}
		_ = m.remote.List(context.Background(), list, options)
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found
}

func (m *fakeMirror) HasSynced() bool                   { return true }
func (m *fakeMirror) WaitForSync(context.Context) error { return nil }
func (m *fakeMirror) Err() error                        { return m.err }
func (m *fakeMirror) Failed() <-chan struct{}           { return m.failed }
