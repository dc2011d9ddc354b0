package tenant

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// kubeletHolds is a finalizer that stands for a kubelet, which ends containers before a pod goes.
const kubeletHolds = "test/kubelet"

// world is a provider's cluster.
type world struct {
	*testing.T
	clock  *clocktesting.FakeClock
	server client.WithWatch // what is
	client client.Client    // what the controllers use: it may be stale, and logs what they write
	writes []string
	uids   int

	policies  fakePolicies
	latency   time.Duration       // how long a write takes
	ahead     time.Duration       // how far our clock is ahead of the API server's
	createPod error               // what the API server answers to new pods
	changePod error               // what it answers to changes by a subresource
	uncounted bool                // whether Kubernetes has not counted quotas yet
	hidden    map[string]bool     // kinds that the cache does not show yet
	grace     []*int64            // the grace of each deletion of a pod
	stale     *v1alpha1.ShadowPod // what the cache shows instead of any ShadowPod
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{
		T:      t,
		clock:  clocktesting.NewFakeClock(noon),
		hidden: map[string]bool{},
	}
	w.server = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.ShadowPod{}, &v1alpha1.NamespaceMapping{}, &corev1.Pod{}).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string {
			return []string{o.(*corev1.Event).InvolvedObject.Kind}
		}).
		WithObjects(objects...).WithObjects(installed(noon.Add(-time.Hour))).Build()
	w.client = interceptor.NewClient(w.server, interceptor.Funcs{
		Get: w.get, Create: w.create, Delete: w.delete, Patch: w.patch, Update: w.update, SubResourcePatch: w.patchStatus,
	})
	return w
}

func (w *world) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if w.hidden[kindOf(o)] {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if shadow, ok := o.(*v1alpha1.ShadowPod); ok && w.stale != nil {
		w.stale.DeepCopyInto(shadow)
		return nil
	}
	return c.Get(ctx, key, o, opts...)
}

func (w *world) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	if review, ok := o.(*authenticationv1.SelfSubjectReview); ok {
		review.CreationTimestamp = metav1.NewTime(w.clock.Now().Add(-w.ahead))
		return nil
	}
	w.wrote("create", o)
	if pod, ok := o.(*corev1.Pod); ok {
		if w.createPod != nil {
			return w.createPod
		}
		if len(pod.Finalizers) > 0 {
			w.Errorf("a pod of a node that is lost would stay for ever by its finalizers %v", pod.Finalizers)
		}
		pod.Finalizers = append(pod.Finalizers, kubeletHolds)
		pod.Status.Phase = corev1.PodPending
	}
	if quota, ok := o.(*corev1.ResourceQuota); ok && !w.uncounted {
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard
	}
	w.uids++
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
	o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
	return c.Create(ctx, o, opts...)
}

func (w *world) delete(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	w.wrote("delete", o)
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if _, ok := o.(*corev1.Pod); ok {
		w.grace = append(w.grace, options.GracePeriodSeconds)
	}
	if options.Preconditions == nil || *options.Preconditions.UID != o.GetUID() {
		w.Errorf("deleted %s %s whatever its UID", kindOf(o), o.GetName())
	}
	return c.Delete(ctx, o, opts...)
}

func (w *world) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	w.wrote("patch", o)
	return c.Patch(ctx, o, p, opts...)
}

func (w *world) update(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
	w.wrote("update", o)
	return c.Update(ctx, o, opts...)
}

//nolint:revive // the signature is that of interceptor.Funcs
func (w *world) patchStatus(
	ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	w.wrote(sub, o)
	if _, ok := o.(*corev1.Pod); ok && sub != "status" {
		if w.changePod != nil {
			return w.changePod
		}
		// The fake API server knows no other subresource of pods. It takes the whole change.
		return c.Patch(ctx, o, p)
	}
	return c.SubResource(sub).Patch(ctx, o, p, opts...)
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1.Pod:
		return "Pod"
	case *v1alpha1.ShadowPod:
		return "ShadowPod"
	case *corev1.Namespace:
		return "Namespace"
	case *v1alpha1.NamespaceMapping:
		return "NamespaceMapping"
	case *corev1.ResourceQuota:
		return "ResourceQuota"
	case *corev1.LimitRange:
		return "LimitRange"
	case *networkingv1.NetworkPolicy:
		return "NetworkPolicy"
	default:
		return "RoleBinding"
	}
}

func (w *world) wrote(verb string, o client.Object) {
	w.writes = append(w.writes, verb+" "+kindOf(o))
	w.clock.Step(w.latency)
}

// expectWrites compares what was written since the last call.
func (w *world) expectWrites(want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.writes); diff != "" {
		w.Errorf("writes: -want +got:\n%s", diff)
	}
	w.writes = nil
}

func (w *world) reconcile(r reconcile.Reconciler, namespace, name string) reconcile.Result {
	w.Helper()
	result, err := r.Reconcile(w.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	if err != nil {
		w.Fatal(err)
	}
	return result
}

func (w *world) config() Config {
	return Config{Namespace: "hanse-system", ServiceAccount: "hanse-manager", Clock: w.clock, Decider: &w.policies}
}

// find reads an object and reports whether it exists.
func (w *world) find(o client.Object, namespace, name string) bool {
	w.Helper()
	err := w.server.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return err == nil
}

func (w *world) expectCondition(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) {
	w.Helper()
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		w.Errorf("condition %s is %+v, want %s with reason %s", kind, c, status, reason)
	}
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

var lubeck = twinOf{peer: "lubeck", clusterID: "lubeck-id", home: "shop"}

func peer() *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "lubeck"},
		Spec:       v1alpha1.PeerSpec{ClusterID: "lubeck-id", Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer}},
	}
}

// installed is Hanse's own namespace, which is as old as the installation.
func installed(at time.Time) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hanse-system", CreationTimestamp: metav1.NewTime(at)}}
}

func tenantNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   "hanse-peer-lubeck",
		Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: "lubeck"},
	}}
}
