// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// Users of the requests. All of them may do everything by RBAC in these tests, so that only admission can refuse.
const (
	everything = "test:everything"
	admin      = "test:admin"
	manager    = "system:serviceaccount:hanse-system:hanse-manager"
	kubelet    = "system:serviceaccount:hanse-system:hanse-kubelet"
	gateway    = "system:serviceaccount:hanse-system-network:hanse-gateway"
	peer       = "system:serviceaccount:hanse-peer-visby:hanse-peer"
)

// Namespaces of the tests: the tenant namespace and a remote namespace of peer visby, and namespaces of users.
const (
	tenant = "hanse-peer-visby"
	twin   = "shop-visby-abcdef"
	users  = "users"
	marked = "marked"
)

// A request is a request to the API server, as a dry run.
type request func() error

// A policyCase shows that a policy is in force: a request that it accepts, and one that it refuses and no other policy does, since
// the API server names only the first that it finds.
type policyCase struct{ accepts, refuses request }

// An author sends requests as a user.
type author struct {
	t *testing.T
	client.Client
}

func (a *author) creates(object string) request {
	return func() error { return a.Create(a.t.Context(), parseObject(a.t, object), client.DryRunAll) }
}

func (a *author) patches(object client.Object, patch string) request {
	return func() error {
		copied, ok := object.DeepCopyObject().(client.Object)
		if !ok {
			a.t.Fatal("the copy of an object is none")
		}
		return a.Patch(a.t.Context(), copied, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
}

func (a *author) changesImage(pod *corev1.Pod) request {
	return func() error {
		changed := pod.DeepCopy()
		changed.Spec.Containers[0].Image = "example.com/other:v1"
		return a.Patch(a.t.Context(), changed, client.StrategicMergeFrom(pod), client.DryRunAll)
	}
}

func (a *author) deletes(object client.Object, options ...client.DeleteOption) request {
	return func() error { return a.Delete(a.t.Context(), object, append(options, client.DryRunAll)...) }
}

func (a *author) createsToken(namespace, name string, spec authenticationv1.TokenRequestSpec) request {
	return func() error {
		account := &corev1.ServiceAccount{ObjectMeta: framework.Named(namespace, name)}
		return a.SubResource("token").Create(a.t.Context(), account, &authenticationv1.TokenRequest{Spec: spec})
	}
}

func (a *author) evicts(pod *corev1.Pod) request {
	return func() error {
		return a.SubResource("eviction").Create(a.t.Context(), pod, &policyv1.Eviction{}, client.DryRunAll)
	}
}

func parseObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	return &unstructured.Unstructured{Object: parse(t, text)}
}

// A world is what the requests are about.
type world struct {
	t                                      *testing.T
	admin, manager, kubelet, gateway, peer *author

	shadow                 *v1alpha1.ShadowPod // in the remote namespace
	remote, pod, onVirtual *corev1.Pod         // in the remote namespace, in that of users, and on a virtual node
}

// newWorld makes the namespaces and objects of the requests.
func newWorld(t *testing.T) *world {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: framework.Named("", "test-everything"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: everything}},
	}
	w := &world{t: t}
	for user, a := range map[string]**author{admin: &w.admin, manager: &w.manager, kubelet: &w.kubelet, gateway: &w.gateway, peer: &w.peer} {
		*a = &author{t, lubeck.Impersonate(t, user, everything, "system:authenticated")}
	}
	w.make(lubeck, binding)
	framework.Eventually(t, "the API server knows the binding", func(ctx context.Context) error {
		return w.admin.Create(ctx, &corev1.Namespace{ObjectMeta: framework.Named("", users)}, client.DryRunAll)
	})
	w.namespace(w.admin, tenant, map[string]string{v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: "visby", v1alpha1.LabelManaged: "true"})
	w.namespace(w.manager, twin, map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: "visby", v1alpha1.LabelManaged: "true", v1alpha1.LabelRoom: "100000000",
		"pod-security.kubernetes.io/enforce": "baseline",
	})
	w.namespace(w.admin, users, nil)
	w.namespace(w.admin, marked, nil)
	ns := &corev1.Namespace{ObjectMeta: framework.Named("", marked)}
	if err := w.manager.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"hanse.dev/offloads":"true"}}}`))); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{twin, users, marked} {
		framework.Eventually(t, "the service account of "+ns+" exists", func(ctx context.Context) error {
			return lubeck.Get(ctx, types.NamespacedName{Namespace: ns, Name: "default"}, &corev1.ServiceAccount{})
		})
	}
	for _, name := range []string{"hanse-peer", "other"} {
		w.make(lubeck, &corev1.ServiceAccount{ObjectMeta: framework.Named(tenant, name)})
	}
	w.make(lubeck, &corev1.Secret{ObjectMeta: framework.Named(tenant, v1alpha1.SessionSecret)})
	// The parameter of hanse-guard-bytes.
	w.make(lubeck, &corev1.ResourceQuota{ObjectMeta: framework.Named(twin, "hanse")})
	w.makePods()
	return w
}

// makePods makes pods that nothing runs: they are bound to nodes that do not exist, or to none.
func (w *world) makePods() {
	t := w.t
	w.shadow = framework.Shadow(t, twin, "web", framework.BusyPod)
	w.make(w.peer, w.shadow)
	plain := func(namespace string) *corev1.Pod {
		pod := framework.Pod(namespace, "web")
		pod.Spec.SchedulerName, pod.Spec.AutomountServiceAccountToken = "none", ptr.To(false)
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) // no kubelet ends it
		return pod
	}
	w.remote = plain(twin)
	w.remote.Labels = map[string]string{v1alpha1.LabelPeer: "visby", v1alpha1.LabelHomeUID: "u"}
	w.make(w.manager, w.remote)
	w.pod, w.onVirtual = plain(users), plain(marked)
	w.make(w.admin, w.pod)
	w.onVirtual.Spec.NodeName = "hanse-nowhere"
	w.make(w.admin, w.onVirtual)
}

func (w *world) namespace(by client.Client, name string, labels map[string]string) {
	w.t.Helper()
	w.make(by, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// make creates an object, and deletes it at the end of the test. Finalizers of peers' objects go with their namespace.
func (w *world) make(by client.Client, object client.Object) {
	w.t.Helper()
	if err := by.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if _, isShadow := object.(*v1alpha1.ShadowPod); isShadow {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			if err := w.manager.Patch(context.Background(), object, patch); err != nil {
				w.t.Error(err)
			}
		}
		lubeck.DeleteAndWait(w.t, object)
	})
}

// TestEveryPolicyIsInForce sends to each validating policy of the chart a request that it must accept and one that it must refuse.
// What else the policies say, the tests of internal/install show with the API server's interpreter.
func TestEveryPolicyIsInForce(t *testing.T) {
	w := newWorld(t)
	cases := w.cases()
	list := &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	if err := lubeck.List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/name": "hanse"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	if known := slices.Sorted(maps.Keys(cases)); !slices.Equal(known, names) {
		t.Errorf("policies with requests here: %q\nof the chart: %q", known, names)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := c.accepts(); err != nil {
				t.Errorf("the good request: %v", err)
			}
			err := c.refuses()
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "'"+name+"'") {
				t.Errorf("the bad request: %v, want a refusal by %s", err, name)
			}
		})
	}
}

// cases returns requests for each policy.
func (w *world) cases() map[string]policyCase {
	all := map[string]policyCase{}
	maps.Copy(all, w.casesOfPeers())
	maps.Copy(all, w.casesOfUsers())
	maps.Copy(all, w.casesOfHanse())
	maps.Copy(all, w.casesOfPods())
	return all
}

// casesOfPeers are requests of a peer.
func (w *world) casesOfPeers() map[string]policyCase {
	const reflected = "labels: {hanse.dev/reflected: 'true'}"
	configMap := func(metadata string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: " + twin + ", " + metadata + "}}"
	}
	service := func(spec string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: s, namespace: " + twin + ", " + reflected + "}, spec: {ports: [{port: 80}]" + spec + "}}"
	}
	shadow := func(name, text string) string {
		return "{apiVersion: hanse.dev/v1alpha1, kind: ShadowPod, metadata: {name: " + name + ", namespace: " + twin + "}, spec: {homeUID: u, pod: '" + text + "'}}"
	}
	mapping := func(metadata string) string {
		return "{apiVersion: hanse.dev/v1alpha1, kind: NamespaceMapping, metadata: {name: shop, namespace: " + tenant + metadata + "}, spec: {homeNamespace: shop}}"
	}
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: v1alpha1.SessionSecret}
	life := ptr.To[int64](3600)
	return map[string]policyCase{
		"hanse-guard-bytes":    {w.peer.creates(shadow("s", `{"spec": {}}`)), w.peer.creates(shadow("s", `{"spec": {"a": "<"}}`))},
		"hanse-guard-copies":   {w.peer.creates(configMap(reflected)), w.peer.creates(configMap("labels: {a: b}"))},
		"hanse-guard-objects":  {w.peer.creates(mapping("")), w.peer.creates(mapping(", finalizers: [example.com/never]"))},
		"hanse-guard-services": {w.peer.creates(service("")), w.peer.creates(service(", type: LoadBalancer"))},
		"hanse-guard-deletions": {
			w.peer.deletes(w.shadow), w.peer.deletes(w.shadow, client.PropagationPolicy(metav1.DeletePropagationOrphan)),
		},
		"hanse-finalizers": {
			w.manager.patches(w.shadow, `{"metadata":{"finalizers":null}}`), w.peer.patches(w.shadow, `{"metadata":{"finalizers":null}}`),
		},
		"hanse-peer-tokens": {
			w.peer.createsToken(tenant, "hanse-peer", authenticationv1.TokenRequestSpec{BoundObjectRef: bound, ExpirationSeconds: life}),
			w.peer.createsToken(tenant, "other", authenticationv1.TokenRequestSpec{BoundObjectRef: bound, ExpirationSeconds: life}),
		},
	}
}

// casesOfUsers are requests of users and administrators.
func (w *world) casesOfUsers() map[string]policyCase {
	move := func(namespace string) string {
		return "{apiVersion: hanse.dev/v1alpha1, kind: PodMove, metadata: {name: m, namespace: " + namespace + "}," +
			" spec: {pod: {name: web, uid: u}, destination: {node: a}}}"
	}
	application := func(cpu string) string {
		return "{apiVersion: hanse.dev/v1alpha1, kind: Application, metadata: {name: a, namespace: " + users + "}," +
			" spec: {components: [{name: web, podLabels: {app: web}, resources: {cpu: '" + cpu + "'}}]}}"
	}
	pod := func(labels string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: l, namespace: " + users + ", labels: {" + labels + "}}, spec: {containers: [{name: c, image: i}]}}"
	}
	claim := "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: " + twin + ", ownerReferences: [" +
		"{apiVersion: hanse.dev/v1alpha1, kind: ShadowClaim, name: c, uid: u}]}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
	usersNamespace := &corev1.Namespace{ObjectMeta: framework.Named("", users)}
	return map[string]policyCase{
		"hanse-guard-moves":        {w.admin.creates(move(users)), w.admin.creates(move("kube-system"))},
		"hanse-guard-applications": {w.admin.creates(application("500m")), w.admin.creates(application("0"))},
		"hanse-guard-labels":       {w.admin.creates(pod("app: web")), w.admin.creates(pod("hanse.dev/peer: visby"))},
		"hanse-guard-claims":       {w.manager.creates(claim), w.admin.creates(claim)},
		"hanse-guard-namespaces": {
			w.admin.patches(usersNamespace, `{"metadata":{"labels":{"team":"a"}}}`),
			w.admin.patches(usersNamespace, `{"metadata":{"labels":{"hanse.dev/offloads":"true"}}}`),
		},
	}
}

// casesOfHanse are requests of Hanse's servers for objects other than pods.
func (w *world) casesOfHanse() map[string]policyCase {
	t := w.t
	secret := func(namespace string) string {
		return "{apiVersion: v1, kind: Secret, metadata: {name: hanse-x, namespace: " + namespace + "}}"
	}
	binding := func(role string) string {
		return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: " + tenant + "}," +
			" roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role + "}," +
			" subjects: [{kind: ServiceAccount, namespace: " + tenant + ", name: hanse-peer}]}"
	}
	offloading := func(annotations string) string {
		return "{apiVersion: hanse.dev/v1alpha1, kind: NamespaceOffloading, metadata: {name: offloading, namespace: " + users + annotations + "}}"
	}
	member := func(id string) string {
		return "{apiVersion: hanse.dev/v1alpha1, kind: Peer, metadata: {name: stade, annotations: {hanse.dev/introduced-by: bremen}}," +
			" spec: {clusterID: " + id + ", publicKey: " + strings.Repeat("A", 43) + "=, roles: [Consumer]}}"
	}
	volume := func(driver string) string {
		return "{apiVersion: v1, kind: PersistentVolume, metadata: {name: test-v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]," +
			" csi: {driver: " + driver + ", volumeHandle: h}}}"
	}
	slice := func(managedBy string) string {
		return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [], metadata: {name: e, namespace: " + twin +
			", labels: {endpointslice.kubernetes.io/managed-by: " + managedBy + "}, ownerReferences: [" +
			"{apiVersion: hanse.dev/v1alpha1, kind: ShadowEndpointSlice, name: e, uid: u, controller: true}]}}"
	}
	node := func(labels string) string {
		return "{apiVersion: v1, kind: Node, metadata: {name: hanse-stade, labels: {" + labels + "}}}"
	}
	app := &v1alpha1.Application{ObjectMeta: framework.Named(users, "app")}
	app.Spec.Components = []v1alpha1.ApplicationComponent{{Name: "web", PodLabels: map[string]v1alpha1.LabelValue{"app": "web"}}}
	w.make(lubeck, app)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: framework.Named(marked, "claim")}
	claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "hanse-stade"}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *w.pod.Spec.Containers[0].Resources.Requests.Memory()}
	w.make(lubeck, claim)
	content := w.snapshotContent()
	bound := func(kind string) authenticationv1.TokenRequestSpec {
		return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: kind, Name: w.onVirtual.Name, UID: w.onVirtual.UID,
		}}
	}
	usersNamespace := &corev1.Namespace{ObjectMeta: framework.Named("", users)}
	t.Helper()
	return map[string]policyCase{
		"hanse-own-writes":      {w.manager.creates(secret(tenant)), w.manager.creates(secret(users))},
		"hanse-own-bindings":    {w.manager.creates(binding("hanse-peer-tenant")), w.manager.creates(binding("cluster-admin"))},
		"hanse-own-offloadings": {w.manager.creates(offloading(", annotations: {hanse.dev/kept: 'true'}")), w.manager.creates(offloading(""))},
		"hanse-own-peers":       {w.manager.creates(member("stade")), w.manager.creates(member("wismar"))},
		"hanse-own-volumes":     {w.manager.creates(volume("volumes.hanse.dev")), w.manager.creates(volume("other.example.org"))},
		"hanse-own-endpoints":   {w.manager.creates(slice("reflector.hanse.dev")), w.manager.creates(slice("other.example.org"))},
		"hanse-kubelet-nodes":   {w.kubelet.creates(node("hanse.dev/type: virtual-node")), w.kubelet.creates(node("a: b"))},
		"hanse-own-namespaces": {
			w.manager.patches(usersNamespace, `{"metadata":{"labels":{"hanse.dev/offloads":"true"}}}`),
			w.manager.patches(usersNamespace, `{"metadata":{"labels":{"team":"b"}}}`),
		},
		"hanse-own-applications": {
			w.manager.patches(app, `{"metadata":{"finalizers":["hanse.dev/application"]}}`),
			w.manager.patches(app, `{"metadata":{"labels":{"a":"b"}}}`),
		},
		"hanse-own-claims": {
			w.manager.patches(claim, `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}`),
			w.manager.patches(claim, `{"metadata":{"labels":{"a":"b"}}}`),
		},
		"hanse-own-snapshots": {
			w.manager.patches(content["volumes.hanse.dev"], `{"metadata":{"finalizers":null}}`),
			w.manager.patches(content["other.example.org"], `{"metadata":{"finalizers":null}}`),
		},
		"hanse-own-tokens": {
			w.manager.createsToken(marked, "default", bound("Pod")), w.manager.createsToken(marked, "default", authenticationv1.TokenRequestSpec{}),
		},
		"hanse-own-objects": {
			w.manager.creates(ingress(twin, "{apiVersion: hanse.dev/v1alpha1, kind: ShadowObject, name: i, uid: u, controller: true}")),
			w.manager.creates(ingress(twin, "")),
		},
		"hanse-own-cluster-set": {
			w.manager.creates(imported("hanse-s")), w.manager.creates(imported("other")),
		},
	}
}

func ingress(namespace, owner string) string {
	return "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i, namespace: " + namespace + ", ownerReferences: [" + owner + "]}," +
		" spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}}"
}

// imported is the Service of a ServiceImport.
func imported(name string) string {
	return "{apiVersion: v1, kind: Service, metadata: {name: " + name + ", namespace: " + users + ", labels: {hanse.dev/cluster-set: 'true'}," +
		" ownerReferences: [{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceImport, name: s, uid: u}]}, spec: {ports: [{port: 80}]}}"
}

// casesOfPods are requests of Hanse's servers for pods.
func (w *world) casesOfPods() map[string]policyCase {
	moved := func(annotation string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: moved, namespace: " + users + ", annotations: {" + annotation + "}, ownerReferences: [" +
			"{apiVersion: hanse.dev/v1alpha1, kind: PodMove, name: m, uid: u}]}, spec: {containers: [{name: c, image: i}]}}"
	}
	return map[string]policyCase{
		"hanse-guard-pods": {
			w.manager.patches(w.remote, `{"spec":{"activeDeadlineSeconds":5}}`),
			w.manager.creates("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: " + twin + "}, spec: {automountServiceAccountToken: false," +
				" tolerations: [{operator: Exists}], containers: [{name: c, image: i}]}}"),
		},
		"hanse-gateway-pods": {w.gateway.patches(w.pod, `{"metadata":{"labels":{"a":"b"}}}`), w.gateway.changesImage(w.pod)},
		"hanse-kubelet-pods": {w.kubelet.evicts(w.onVirtual), w.kubelet.changesImage(w.onVirtual)},
		"hanse-own-moves":    {w.manager.creates(moved("hanse.dev/move: u")), w.manager.creates(moved(""))},
		"hanse-own-pods": {
			w.manager.patches(w.onVirtual, `{"metadata":{"annotations":null}}`),
			w.manager.changesImage(w.onVirtual),
		},
	}
}

// snapshotContent makes VolumeSnapshotContents of a driver each. The cluster has no such kind: the test brings the least of it.
func (w *world) snapshotContent() map[string]*unstructured.Unstructured {
	definition := parseObject(w.t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: volumesnapshotcontents.snapshot.storage.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}}
spec:
  group: snapshot.storage.k8s.io
  scope: Cluster
  names: {kind: VolumeSnapshotContent, listKind: VolumeSnapshotContentList, plural: volumesnapshotcontents, singular: volumesnapshotcontent}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`)
	w.make(lubeck, definition)
	contents := map[string]*unstructured.Unstructured{}
	for _, driver := range []string{"volumes.hanse.dev", "other.example.org"} {
		content := parseObject(w.t, "{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotContent, metadata: {name: "+driver+
			", annotations: {a: b}}, spec: {driver: "+driver+"}}")
		framework.Eventually(w.t, "the API server serves VolumeSnapshotContents", func(ctx context.Context) error {
			return lubeck.Create(ctx, content.DeepCopy(), client.DryRunAll)
		})
		w.make(lubeck, content)
		contents[driver] = content
	}
	return contents
}
