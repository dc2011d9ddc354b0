// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Cluster is an API server in memory. What is written through Client is recorded and may be refused; what the test does
// by the methods of Cluster is not.
type Cluster struct {
	// Client is what the code under test reads and writes by.
	Client client.WithWatch
	// Server is the same without records and refusals.
	Server client.WithWatch
	// ClockBehind is by how much the API server's clock is behind the test's.
	ClockBehind metav1.Duration

	t     testing.TB
	clock *clocktesting.FakeClock

	mu      sync.Mutex
	writes  []Write
	before  []func(Write) error
	onRead  []func(Read) error
	created int
}

// A Write is one request that changes something.
type Write struct {
	// Verb is create, update, patch, apply or delete, with "/" and the subresource if there is one. Of a dry run it is dry-run.
	Verb string
	// Kind, Namespace and Name say what is written.
	Kind, Namespace, Name string
	// Object is what was sent. It is nil for apply.
	Object client.Object
	// Delete are the options of a deletion.
	Delete client.DeleteOptions
}

// String is, for example, "patch/status Pod web-1".
func (w Write) String() string { return w.Verb + " " + w.Kind + " " + w.Name }

// A Read is one request for one object, or for a list.
type Read struct {
	// Kind, Namespace and Name say what is read. The kind of a list ends with List, and its name is empty.
	Kind, Namespace, Name string
}

// NewCluster returns a cluster in memory that has the objects. Status is a subresource of every kind that has one in
// Hanse, and of pods and nodes; pods can be found by spec.nodeName and metadata.uid.
func NewCluster(t testing.TB, clock *clocktesting.FakeClock, objects ...client.Object) *Cluster {
	t.Helper()
	c := &Cluster{t: t, clock: clock}
	c.Server = fake.NewClientBuilder().WithScheme(Scheme()).WithTypeConverters(typeConverters()...).
		WithStatusSubresource(
			&corev1.Pod{}, &corev1.Node{}, &v1alpha1.Peer{}, &v1alpha1.PeeringClaim{}, &v1alpha1.Advertisement{},
			&v1alpha1.NamespaceOffloading{}, &v1alpha1.NamespaceMapping{}, &v1alpha1.ShadowPod{}, &v1alpha1.Connection{},
			&v1alpha1.ShadowEndpointSlice{}, &v1alpha1.ShadowClaim{}, &v1alpha1.ShadowObject{}, &v1alpha1.ExportedService{}, &v1alpha1.Request{},
			&v1alpha1.PodMove{}, &v1alpha1.Application{}, &v1alpha1.Account{}, &v1alpha1.Quote{}, &v1alpha1.Message{}, &v1alpha1.Member{},
			&mcsv1beta1.ServiceExport{}, &mcsv1beta1.ServiceImport{}, &inventory.ClusterProfile{},
			&snapshotv1.VolumeSnapshot{}, &snapshotv1.VolumeSnapshotContent{},
		).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Pod{}, "metadata.uid", func(o client.Object) []string { return []string{string(o.GetUID())} }).
		WithIndex(&v1alpha1.Peer{}, "spec.clusterID", func(o client.Object) []string { return []string{o.(*v1alpha1.Peer).Spec.ClusterID} }).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string {
			return []string{o.(*corev1.Event).InvolvedObject.Kind}
		}).
		WithObjects(objects...).Build()
	c.Client = c.recording()
	return c
}

// Before has f called before each write through Client. An error of f is what the writer gets instead.
func (c *Cluster) Before(f func(Write) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = append(c.before, f)
}

// OnRead has f called before each Get and List through Client. An error of f is what the reader gets instead.
func (c *Cluster) OnRead(f func(Read) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onRead = append(c.onRead, f)
}

// Refuse answers writes with the error whose text, as Write.String gives it, begins with the prefix, until the returned
// function is called.
func (c *Cluster) Refuse(prefix string, err error) (stop func()) {
	refusing := true
	c.Before(func(w Write) error {
		if refusing && strings.HasPrefix(w.String(), prefix) {
			return err
		}
		return nil
	})
	return func() { refusing = false }
}

// Writes returns the writes through Client since the last call of Writes, Wrote or ExpectWrites.
func (c *Cluster) Writes() []Write {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes := c.writes
	c.writes = nil
	return writes
}

// Wrote returns the same as texts.
func (c *Cluster) Wrote() []string {
	var texts []string
	for _, write := range c.Writes() {
		texts = append(texts, write.String())
	}
	return texts
}

// ExpectWrites checks what was written through Client since the last look, in that order.
func (c *Cluster) ExpectWrites(want ...string) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.Wrote()); diff != "" {
		c.t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// Put creates each object, or replaces it with its status if it is there. The object is then what is stored.
func (c *Cluster) Put(objects ...client.Object) {
	c.t.Helper()
	for _, object := range objects {
		if err := c.put(object); err != nil {
			c.t.Fatalf("put %s %s: %v", kindOf(object), object.GetName(), err)
		}
	}
}

func (c *Cluster) put(object client.Object) error {
	ctx := c.t.Context()
	status := object.DeepCopyObject().(client.Object)  //nolint:forcetypeassert // a copy has its original's type
	current := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has its original's type
	err := c.Server.Get(ctx, client.ObjectKeyFromObject(object), current)
	switch {
	case apierrors.IsNotFound(err):
		c.birth(object)
		err = c.Server.Create(ctx, object)
	case err == nil:
		object.SetResourceVersion(current.GetResourceVersion())
		err = c.Server.Update(ctx, object)
	}
	if err != nil {
		return err
	}
	status.SetResourceVersion(object.GetResourceVersion())
	err = c.Server.Status().Update(ctx, status)
	if client.IgnoreNotFound(err) != nil { // not found: the kind has no status of its own
		return err
	}
	// An update without finalizers may have been the end of an object that was deleted.
	return client.IgnoreNotFound(c.Server.Get(ctx, client.ObjectKeyFromObject(object), object))
}

// Remove deletes the objects. One that has finalizers stays, with a deletion timestamp.
func (c *Cluster) Remove(objects ...client.Object) {
	c.t.Helper()
	for _, object := range objects {
		if err := c.Server.Delete(c.t.Context(), object); err != nil {
			c.t.Fatalf("remove %s %s: %v", kindOf(object), object.GetName(), err)
		}
	}
}

// Find reads the object of that name into object, and says whether there is one.
func (c *Cluster) Find(object client.Object, namespace, name string) bool {
	c.t.Helper()
	err := c.Server.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		c.t.Fatalf("read %s %s: %v", kindOf(object), name, err)
	}
	return err == nil
}

// Get is Find of an object that must be there.
func (c *Cluster) Get(object client.Object, namespace, name string) {
	c.t.Helper()
	if !c.Find(object, namespace, name) {
		c.t.Fatalf("there is no %s %s", kindOf(object), strings.TrimPrefix(namespace+"/"+name, "/"))
	}
}

// Names returns the names of all objects of the list's kind in the namespace, sorted.
func (c *Cluster) Names(list client.ObjectList, namespace string) []string {
	c.t.Helper()
	if err := c.Server.List(c.t.Context(), list, client.InNamespace(namespace)); err != nil {
		c.t.Fatalf("list: %v", err)
	}
	var names []string
	for _, object := range items(c.t, list) {
		names = append(names, object.GetName())
	}
	slices.Sort(names)
	return names
}

// Get returns the object of type T of that name, which must be there, such as Get[corev1.Pod](c, "shop", "web-1").
func Get[T any, P interface {
	*T
	client.Object
}](c *Cluster, namespace, name string,
) P {
	c.t.Helper()
	object := P(new(T))
	c.Get(object, namespace, name)
	return object
}

// Change reads the object of type T, has f change it, and stores it with its status.
func Change[T any, P interface {
	*T
	client.Object
}](c *Cluster, namespace, name string, f func(P),
) P {
	c.t.Helper()
	object := Get[T, P](c, namespace, name)
	f(object)
	c.Put(object)
	return object
}

// birth gives a new object what an API server gives it.
func (c *Cluster) birth(object client.Object) {
	c.mu.Lock()
	c.created++
	number := c.created
	c.mu.Unlock()
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", number)))
	}
	if created := object.GetCreationTimestamp(); created.IsZero() && c.clock != nil {
		object.SetCreationTimestamp(metav1.NewTime(c.clock.Now()))
	}
}

// write records the write, refuses it if it is to be refused, and does it.
func (c *Cluster) write(write Write, do func() error) error {
	c.mu.Lock()
	c.writes = append(c.writes, write)
	before := slices.Clone(c.before)
	c.mu.Unlock()
	for _, check := range before {
		if err := check(write); err != nil {
			return err
		}
	}
	return do()
}

// tellTime answers a SelfSubjectReview, by which Hanse asks the API server for its time. It is no write.
func (c *Cluster) tellTime(object client.Object) bool {
	review, asks := object.(*authenticationv1.SelfSubjectReview)
	if asks {
		review.CreationTimestamp = metav1.NewTime(c.clock.Now().Add(-c.ClockBehind.Duration))
	}
	return asks
}

// read reports the read, refuses it if it is to be refused, and does it.
func (c *Cluster) read(read Read, do func() error) error {
	c.mu.Lock()
	onRead := slices.Clone(c.onRead)
	c.mu.Unlock()
	var errs []error
	for _, check := range onRead {
		errs = append(errs, check(read))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return do()
}

func kindOf(object runtime.Object) string {
	gvk, err := apiutil.GVKForObject(object, Scheme())
	if err != nil {
		return fmt.Sprintf("%T", object)
	}
	return gvk.Kind
}
