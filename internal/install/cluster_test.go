// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// newCluster is a cluster whose API server establishes definitions at once.
func newCluster(t *testing.T, objects ...client.Object) Cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&apiextensionsv1.CustomResourceDefinition{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", nodeNames).
		WithInterceptorFuncs(interceptor.Funcs{Apply: applyAndEstablish}).
		Build()
	return Cluster{Client: c, Report: t.Logf}
}

func nodeNames(pod client.Object) []string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil
	}
	name, _, _ := unstructured.NestedString(content, "spec", "nodeName")
	return []string{name}
}

func applyAndEstablish(
	ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption,
) error {
	if err := c.Apply(ctx, object, options...); err != nil {
		return err
	}
	definitions := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := c.List(ctx, definitions); err != nil {
		return err
	}
	for i := range definitions.Items {
		if len(definitions.Items[i].Status.Conditions) > 0 {
			continue
		}
		definitions.Items[i].Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
		}
		if err := c.Status().Update(ctx, &definitions.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// small is the manifest with one definition: the fake API server takes long over them.
func small(t *testing.T) Manifest {
	t.Helper()
	m := mustRender(t, options())
	m.Definitions = slices.DeleteFunc(m.Definitions, func(d *unstructured.Unstructured) bool {
		return d.GetName() != "namespacemappings.hanse.dev"
	})
	return m
}

func TestApplyMakesWhatTheManifestSays(t *testing.T) {
	c, m := newCluster(t), small(t)
	for _, time := range []string{"once", "again"} {
		if err := c.Apply(soon(t), m); err != nil {
			t.Fatal(time, err)
		}
		for _, wanted := range slices.Concat(m.Definitions, m.Objects) {
			got := &unstructured.Unstructured{}
			got.SetGroupVersionKind(wanted.GroupVersionKind())
			if err := c.Client.Get(soon(t), client.ObjectKeyFromObject(wanted), got); err != nil {
				t.Errorf("%s: %v", time, err)
			}
		}
	}
}

func TestApplyRemovesWhatIsNoLongerWanted(t *testing.T) {
	mine := map[string]string{PartOfLabel: PartOf}
	c := newCluster(t,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: "of-an-older-version", Labels: mine}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: "of-somebody-else"}},
	)
	if err := c.Apply(soon(t), small(t)); err != nil {
		t.Fatal(err)
	}
	var got []string
	list := &corev1.ServiceAccountList{}
	if err := c.Client.List(soon(t), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		got = append(got, list.Items[i].Name)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"hanse-kubelet", "hanse-manager", "of-somebody-else"}, got); diff != "" {
		t.Errorf("service accounts (-want +got):\n%s", diff)
	}
}

// The names of roles and policies do not depend on the namespace, so there is one Hanse in a cluster. Its key lies in its
// namespace: removing that one in favour of another would end every peering.
func TestHanseStaysInItsNamespace(t *testing.T) {
	c, m := newCluster(t), small(t)
	if err := c.Apply(soon(t), m); err != nil {
		t.Fatal(err)
	}
	elsewhere := options()
	elsewhere.Namespace = "other"
	other := mustRender(t, elsewhere)
	other.Definitions = m.Definitions
	for name, err := range map[string]error{
		"install":   c.Apply(soon(t), other),
		"uninstall": c.Remove(soon(t), Removal{Namespace: "other", Force: true, Timeout: time.Second}),
	} {
		if !errors.Is(err, ErrElsewhere) || !strings.Contains(err.Error(), "--hanse-namespace hanse-system") {
			t.Errorf("%s: error %v, want one that says where Hanse is", name, err)
		}
	}
	if err := c.Client.Get(soon(t), client.ObjectKey{Name: "hanse-system"}, &corev1.Namespace{}); err != nil {
		t.Errorf("the namespace with the key: %v", err)
	}
	if err := c.Client.Get(soon(t), client.ObjectKey{Name: "other"}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("another namespace was made: %v", err)
	}
}

func TestWaitingEndsWhenEveryReplicaRunsTheNewVersion(t *testing.T) {
	for name, test := range map[string]struct {
		status appsv1.DeploymentStatus
		done   bool
	}{
		"all are new and run":     {appsv1.DeploymentStatus{UpdatedReplicas: 1, Replicas: 1, AvailableReplicas: 1}, true},
		"the new one starts":      {appsv1.DeploymentStatus{UpdatedReplicas: 1, Replicas: 1}, false},
		"an old one is there yet": {appsv1.DeploymentStatus{UpdatedReplicas: 1, Replicas: 2, AvailableReplicas: 2}, false},
		"only the old one runs":   {appsv1.DeploymentStatus{Replicas: 1, AvailableReplicas: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
				var objects []client.Object
				for _, n := range []string{"hanse-manager", "hanse-kubelet"} {
					objects = append(objects, &appsv1.Deployment{
						ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: n}, Status: test.status,
					})
				}
				err := newCluster(t, objects...).WaitAvailable(ctx, mustRender(t, options()))
				if (err == nil) != test.done {
					t.Errorf("error %v, want it to be done: %v", err, test.done)
				}
			})
		})
	}
}

func TestRemovingIsRefusedWhilePodsNeedHanse(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "hanse-turin", Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode},
	}}
	for name, object := range map[string]client.Object{
		"ours at the peer": &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "hanse-turin"}},
		"theirs here":      &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-turin-abcdef", Name: "web"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, node, object)
			err := c.Remove(soon(t), Removal{Namespace: "hanse-system", Timeout: time.Second})
			if !errors.Is(err, ErrInUse) {
				t.Errorf("error %v, want %v", err, ErrInUse)
			}
			if err := c.Client.Get(soon(t), client.ObjectKeyFromObject(object), object); err != nil {
				t.Errorf("the pod is gone: %v", err)
			}
		})
	}
}

// With Force, Hanse need not run: here it does not, and nobody but Remove takes finalizers off.
func TestRemovingLeavesNothing(t *testing.T) {
	peerNamespace := func(kind, name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1alpha1.LabelManaged: "true", v1alpha1.LabelType: kind,
		}}}
	}
	waiting := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "waiting"}, Spec: corev1.PodSpec{
		SchedulingGates: []corev1.PodSchedulingGate{{Name: "mine"}, {Name: v1alpha1.GateNoClusterFits}},
	}}
	theirs := []client.Object{
		waiting,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{
			v1alpha1.LabelOffloads: "true", "team": "shop",
		}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.PodSpec{NodeName: "worker"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "worker"}},
	}
	ours := []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hanse-turin", Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "hanse-turin"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "hanse-turin"}},
		&v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "turin", Finalizers: []string{v1alpha1.FinalizerPeer}}},
		&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName}},
		&v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-turin-abcdef", Name: "api", Finalizers: []string{v1alpha1.FinalizerShadowPod},
		}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-turin-abcdef", Name: "api", Finalizers: []string{v1alpha1.FinalizerRemotePod},
			Labels: map[string]string{v1alpha1.LabelHomeUID: "uid"},
		}},
		peerNamespace(v1alpha1.TypeTenant, "hanse-peer-turin"),
		peerNamespace(v1alpha1.TypeTombstone, "hanse-peer-milan"),
		peerNamespace(v1alpha1.TypeTwin, "shop-turin-abcdef"),
	}
	c := newCluster(t, slices.Concat(theirs, ours)...)
	if err := c.Apply(soon(t), small(t)); err != nil {
		t.Fatal(err)
	}
	err := c.Remove(soon(t), Removal{Namespace: "hanse-system", Force: true, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range theirs {
		if err := c.Client.Get(soon(t), client.ObjectKeyFromObject(object), object); err != nil {
			t.Errorf("removed what is not Hanse's: %v", err)
		}
	}
	if diff := cmp.Diff([]corev1.PodSchedulingGate{{Name: "mine"}}, waiting.Spec.SchedulingGates); diff != "" {
		t.Errorf("gates of a pod that waited (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"team": "shop"}, theirs[1].GetLabels()); diff != "" {
		t.Errorf("labels of a user's namespace (-want +got):\n%s", diff)
	}
	for _, object := range ours {
		err := c.Client.Get(soon(t), client.ObjectKeyFromObject(object), object)
		// The API server would remove it with its namespace or definition; here it is enough that nothing holds it.
		if err == nil && len(object.GetFinalizers()) > 0 || err == nil && object.GetNamespace() == "" {
			t.Errorf("%T %s is left", object, object.GetName())
		}
	}
	ofChartAlone := chartKinds[1:] // users have namespaces too
	expectNoneOf(t, c, append(slices.Clone(ofChartAlone), definitionKind)...)
}

func expectNoneOf(t *testing.T, c Cluster, kinds ...schema.GroupVersionKind) {
	t.Helper()
	for _, kind := range kinds {
		left, err := c.list(soon(t), selection{kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			t.Errorf("%d of %s are left", len(left), kind.Kind)
		}
	}
}

// soon ends waiting in vain.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
