// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/remoteevents"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	twinName = "shop-lubeck-abc123"
	tenant   = "hanse-peer-lubeck"
)

// world is a home cluster and its peer turin, which is Away.
type world struct {
	*testkit.World
	told     []remoteevents.Report
	metadata *metadatafake.FakeMetadataClient
	peers    *peerstest.World
	turin    *peerstest.Peer
	reading  sync.Mutex
	reads    []string // what was read live
	copier   *copier
	granter  *granter
	queue    workqueue.TypedRateLimitingInterface[request]
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t, append(objects, turin(), testkit.VirtualNode("turin", nil))...)}
	w.peers = peerstest.New(t, testkit.Scheme(), peers.Config{})
	w.turin = w.peers.Add("turin", tenant, w.Away.Client)
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w.metadata = metadatafake.NewSimpleMetadataClient(scheme)
	w.Home.OnRead(func(read testkit.Read) error {
		w.reading.Lock()
		defer w.reading.Unlock()
		w.reads = append(w.reads, read.Name)
		return nil
	})
	config := Config{
		// The cache is read without a record: the tests ask what is read live.
		Client: cached{w.Home.Server, w.Home.Client}, Live: w.Home.Client, Metadata: w.metadata, Events: w.Events, Clock: w.Clock,
		Tell:      func(r remoteevents.Report) { w.told = append(w.told, r) },
		Namespace: "hanse-system", ServiceAccount: "hanse-manager",
		Links: w.peers.Links, Network: true, Listed: []reflection.ListedKind{widgetKind},
	}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	w.copier, w.granter = newCopier(config), &granter{config}
	w.run()
	return w
}

// cached is the cache's client: what it applies is recorded, and it lists the metadata of unstructured objects, which the fake one cannot.
type cached struct {
	client.Client
	writes client.Client
}

func (r cached) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return r.writes.Apply(ctx, o, opts...)
}

func (r cached) Status() client.SubResourceWriter { return r.writes.Status() }

func (r cached) List(ctx context.Context, to client.ObjectList, opts ...client.ListOption) error {
	partial, ok := to.(*metav1.PartialObjectMetadataList)
	if !ok {
		return r.Client.List(ctx, to, opts...)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(partial.GroupVersionKind())
	if err := r.Client.List(ctx, list, client.InNamespace("shop")); err != nil {
		return err
	}
	for i := range list.Items {
		item := metav1.PartialObjectMetadata{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &item); err != nil {
			return err
		}
		partial.Items = append(partial.Items, item)
	}
	return nil
}

// run has what outlives a Reconcile end with the test, and a queue that nobody works on: the tests call Reconcile.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	w.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
	c := w.copier
	started := []source.TypedSource[request]{
		source.TypedFunc[request](c.sources.start), peers.LinkChanges(c.Links, c.linkChanged),
		peers.Changes(c.Links, peers.Mappings, c.mappingChanged),
	}
	for _, kind := range c.kinds() {
		started = append(started, peers.Changes(c.Links, c.copies[kind], copyChanged(kind)))
	}
	for _, s := range started {
		if err := s.Start(ctx, w.queue); err != nil {
			w.Fatal(err)
		}
	}
	w.Cleanup(func() {
		cancel()
		w.queue.ShutDown()
	})
}

// connect makes the link to the peer, which has a twin of namespace shop.
func (w *world) connect() *world {
	w.Helper()
	w.Home.Put(testkit.Namespace("shop", map[string]string{v1alpha1.LabelOffloads: "true"}))
	w.put(mapping("shop", twinName))
	w.peers.Link(turin())
	return w
}

func turin() *v1alpha1.Peer { return testkit.Peer("turin", v1alpha1.RoleProvider) }

// mapping is that of the namespace, as it lies at the peer.
func mapping(namespace, twin string) *v1alpha1.NamespaceMapping {
	m := testkit.Mapping("turin", namespace, twin)
	m.Namespace = tenant
	return m
}

// save puts an object into the home cluster, or changes it there.
func (w *world) save(object client.Object) {
	w.Helper()
	w.Home.Put(object)
	w.tell(object)
}

// tell has the metadata of the object watched as it is now.
func (w *world) tell(object client.Object) {
	w.Helper()
	resource, kind := "configmaps", "ConfigMap"
	if _, secret := object.(*corev1.Secret); secret {
		resource, kind = "secrets", "Secret"
	}
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	seen := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
			ResourceVersion: object.GetResourceVersion(), Labels: object.GetLabels(), Annotations: object.GetAnnotations(),
		},
	}
	_ = w.metadata.Tracker().Delete(gvr, object.GetNamespace(), object.GetName())
	if err := w.metadata.Tracker().Create(gvr, seen, object.GetNamespace()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(object client.Object) {
	w.Helper()
	w.Home.Remove(object)
	resource := "configmaps"
	if _, secret := object.(*corev1.Secret); secret {
		resource = "secrets"
	}
	err := w.metadata.Tracker().Delete(corev1.SchemeGroupVersion.WithResource(resource), object.GetNamespace(), object.GetName())
	if err != nil {
		w.Fatal(err)
	}
}

// settle works on the queue until the condition holds, as the controller would.
func (w *world) settle(condition func() bool) {
	w.Helper()
	w.await(func() bool {
		if condition() {
			return true
		}
		for w.queue.Len() > 0 {
			req, _ := w.queue.Get()
			w.mustReconcile(req)
			w.queue.Done(req)
		}
		return false
	})
}

// await waits until the condition holds, while nobody works on the queue.
func (w *world) await(condition func() bool) {
	w.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatal("the condition does not come true")
		}
	}
}

func (w *world) mustReconcile(req request) {
	w.Helper()
	if _, err := w.copier.Reconcile(w.Context(), req); err != nil {
		w.Fatalf("reconcile %v: %v", req, err)
	}
}

// look looks at a kind in namespace shop, with watches that show what there is.
func (w *world) look(kind reflection.Kind) {
	w.Helper()
	w.mustReconcile(w.warm(kind))
}

// warm returns the request to look at a kind in namespace shop when the watches that it takes show what there is.
func (w *world) warm(kind reflection.Kind) request {
	w.Helper()
	req := request{Peer: "turin", place: place{Namespace: "shop", Kind: kind}}
	wanted, err := w.copier.demand(w.Context(), req)
	if err != nil {
		w.Fatal(err)
	}
	if len(wanted.names) == 0 || !kind.ByPods() {
		return req
	}
	source, err := w.copier.sources.follow(req)
	if err != nil {
		w.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !source.synced(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatal("what pods need is not seen")
		}
	}
	return req
}

func (w *world) watches(p place) *watched {
	s := w.copier.sources
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[p]
}

// follows says whether the kind is followed in the twin.
func (w *world) follows(kind string) bool {
	return slices.Contains(w.turin.Follows(), kind+" in "+twinName)
}

// put creates an object at the peer.
func (w *world) put(object client.Object) {
	w.Helper()
	if err := w.turin.Client.Create(w.Context(), object); err != nil {
		w.Fatal(err)
	}
}

// podUsing is a pod of namespace shop on a virtual node that mounts the Secret password and the ConfigMap settings.
func podUsing(name string) *corev1.Pod {
	pod := testkit.Pod("shop", name, "hanse-turin")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password"}}},
		{Name: "b", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
		}}},
	}
	return pod
}

func password(value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "password", UID: "u-1"},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"password": []byte(value)},
	}
}
