// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// An intruder has the credentials of a peer, and does with them what its Hanse would not.
type intruder struct {
	client.Client
	at   *framework.Cluster
	user string
	twin string
	gone context.Context //nolint:containedctx // of the story
}

// credentialsOf returns what the peer of that name has at the cluster.
func credentialsOf(t *testing.T, c *framework.Cluster, peer *framework.Cluster) *intruder {
	t.Helper()
	link := &corev1.Secret{}
	key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace(c.Name), Name: v1alpha1.LinkSecret}
	if err := peer.Get(t.Context(), key, link); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(link.Data[v1alpha1.LinkSecretKey])
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	made, err := client.New(config, client.Options{Scheme: c.Scheme(), Mapper: framework.MapperOf(c.Scheme())})
	if err != nil {
		t.Fatal(err)
	}
	user := "system:serviceaccount:" + v1alpha1.TenantNamespace(peer.Name) + ":" + v1alpha1.PeerServiceAccount
	return &intruder{Client: made, at: c, user: user, gone: t.Context()}
}

// An intrusion is one request, and to which resource.
type intrusion struct {
	resource string
	request  func() error
}

// answer makes the request until the API server answers it, which a busy one may not do in time, and returns the answer.
func (i intrusion) answer(t *testing.T) (answer error) {
	t.Helper()
	framework.Eventually(t, "the API server answers", func(context.Context) error {
		if answer = i.request(); apierrors.IsTimeout(answer) || apierrors.IsServerTimeout(answer) || apierrors.IsTooManyRequests(answer) {
			return answer
		}
		return nil
	})
	return answer
}

// A consumer writes into its twin with its own credentials: endpoints and Services with addresses that are not its own, giant objects,
// labels of others, claims of classes that it is not lent. All of it is refused, and the audit log of the provider tells of it.
func TestHostileReflection(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	pod := lubeck.StartNetworkPod(t, ns, "away", hamburg)
	in := credentialsOf(t, hamburg, lubeck)
	in.twin = tenant.TwinName("lubeck", ns)
	hamburg.MustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: in.twin, Name: "of-hamburg"}})

	for name, try := range in.intrusions() {
		t.Run(name, func(t *testing.T) {
			from := hamburg.AuditOffset(t)
			expectRefusal(t, try.answer(t))
			framework.Eventually(t, "the audit log tells of it", func(context.Context) error { return audited(t, hamburg, from, in.user, try.resource) })
		})
	}
	t.Run("addresses", func(t *testing.T) { in.expectAddressesRefused(ctx, t, pod) })
	t.Run("cluster IPs", func(t *testing.T) {
		theirs := hamburg.ClusterIP(t, "default", "kubernetes")
		service := in.service("as-api-server", func(s *corev1.Service) { s.Spec.ClusterIP = theirs })
		if err := in.Create(ctx, service); err != nil || service.Spec.ClusterIP == theirs {
			t.Errorf("it has %q: %v", service.Spec.ClusterIP, err)
		}
	})
	t.Run("claims", func(t *testing.T) { in.expectClaimsRefused(ctx, t) })
}

func (in *intruder) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: in.twin, Name: name, Labels: map[string]string{v1alpha1.LabelReflected: "true"},
		Annotations: map[string]string{v1alpha1.AnnotationOriginUID: "u-" + name, v1alpha1.AnnotationOriginVersion: "1"},
	}
}

func (in *intruder) service(name string, change func(*corev1.Service)) *corev1.Service {
	service := &corev1.Service{ObjectMeta: in.meta(name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	change(service)
	return service
}

func (in *intruder) slice(name string, change func(*v1alpha1.ShadowEndpointSlice), addresses ...string) *v1alpha1.ShadowEndpointSlice {
	slice := &v1alpha1.ShadowEndpointSlice{ObjectMeta: in.meta(name), Spec: v1alpha1.ShadowEndpointSliceSpec{Service: "shop", AddressType: "IPv4"}}
	for _, a := range addresses {
		slice.Spec.Endpoints = append(slice.Spec.Endpoints, v1alpha1.ShadowEndpoint{Addresses: []string{a}, Ready: ptr.To(true)})
	}
	change(slice)
	return slice
}

// intrusions are requests that the API server refuses.
func (in *intruder) intrusions() map[string]intrusion {
	all := map[string]intrusion{
		"read EndpointSlices":    {"endpointslices", func() error { return in.List(in.gone, &discoveryv1.EndpointSliceList{}, client.InNamespace(in.twin)) }},
		"write an EndpointSlice": {"endpointslices", func() error { return in.Create(in.gone, &discoveryv1.EndpointSlice{ObjectMeta: in.meta("thief")}) }},
		"answer itself": {"shadowendpointslices", func() error {
			return in.Status().Patch(in.gone, in.slice("any", func(*v1alpha1.ShadowEndpointSlice) {}), client.RawPatch(types.MergePatchType, []byte(`{}`)))
		}},
		"write a claim":         {"persistentvolumeclaims", func() error { return in.Create(in.gone, &corev1.PersistentVolumeClaim{ObjectMeta: in.meta("thief")}) }},
		"the provider's Secret": {"secrets", func() error { return in.Delete(in.gone, &corev1.Secret{ObjectMeta: in.meta("of-hamburg")}) }},
		"the provider's CA":     {"configmaps", func() error { return in.Delete(in.gone, &corev1.ConfigMap{ObjectMeta: in.meta("kube-root-ca.crt")}) }},
		"a token of the cluster": {"secrets", func() error {
			return in.Create(in.gone, &corev1.Secret{ObjectMeta: in.meta("token"), Type: corev1.SecretTypeServiceAccountToken})
		}},
		"a giant ConfigMap": {"configmaps", func() error {
			return in.Create(in.gone, &corev1.ConfigMap{ObjectMeta: in.meta("giant"), Data: map[string]string{"a": strings.Repeat("a", 2<<20)}})
		}},
	}
	for name, change := range map[string]func(*corev1.Service){
		"a Service at the metadata address": func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"169.254.169.254"} },
		"a Service with a load balancer":    func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer },
		"a Service for the API server": func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "kubernetes.default.svc"
		},
		"a Service on all nodes":        func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
		"a Service for another proxy":   func(s *corev1.Service) { s.Labels["service.kubernetes.io/service-proxy-name"] = "none" },
		"a Service that asks a cloud":   func(s *corev1.Service) { s.Annotations["service.beta.kubernetes.io/aws-load-balancer-type"] = "nlb" },
		"a Service that stays for ever": func(s *corev1.Service) { s.Finalizers = []string{"example.com/never"} },
		"a Service of somebody else": func(s *corev1.Service) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}}
		},
		"a Service that says it is no copy": func(s *corev1.Service) { s.Labels = nil },
		"a giant Service":                   func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": strings.Repeat("a", 2<<20)} },
	} {
		all[name] = intrusion{"services", func() error { return in.Create(in.gone, in.service("thief", change)) }}
	}
	for name, change := range map[string]func(*v1alpha1.ShadowEndpointSlice){
		"endpoints of another controller": func(s *v1alpha1.ShadowEndpointSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
		},
		"endpoints of somebody else": func(s *v1alpha1.ShadowEndpointSlice) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}}
		},
		"endpoints that stay for ever": func(s *v1alpha1.ShadowEndpointSlice) { s.Finalizers = []string{"example.com/never"} },
		"endpoints with a long note":   func(s *v1alpha1.ShadowEndpointSlice) { s.Annotations["example.com/long"] = strings.Repeat("a", 8<<10) },
		"1,001 endpoints": func(s *v1alpha1.ShadowEndpointSlice) {
			s.Spec.Endpoints = slices.Repeat([]v1alpha1.ShadowEndpoint{{Addresses: []string{"100.64.0.1"}}}, 1001)
		},
		"endpoints with a name": func(s *v1alpha1.ShadowEndpointSlice) {
			s.Spec.Endpoints = []v1alpha1.ShadowEndpoint{{Addresses: []string{"kubernetes.default.svc"}}}
		},
	} {
		all[name] = intrusion{"shadowendpointslices", func() error { return in.Create(in.gone, in.slice("thief", change)) }}
	}
	for name, room := range map[string]string{"a quantity that takes minutes": "1e-999999999", "a quantity of 100,000 digits": "1" + strings.Repeat("0", 100_000), "less than nothing": "-1Gi"} {
		all[name] = intrusion{"shadowclaims", func() error { return in.Create(in.gone, in.claim("thief", map[string]any{"storage": room})) }}
	}
	return all
}

// claim is a ShadowClaim that says more than one can: a quantity as any text, and fields that there are not.
func (in *intruder) claim(name string, more map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"homeUID": "u-" + name, "storage": "1Mi", "accessModes": []any{"ReadWriteOnce"}}
	for key, value := range more {
		spec[key] = value
	}
	claim := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	claim.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ShadowClaim"))
	claim.SetNamespace(in.twin)
	claim.SetName(name)
	return claim
}

// expectAddressesRefused tells of endpoints everywhere but where the provider sees the consumer: it says so of each, and none of them
// gets behind a Service. One that is the consumer's own does.
func (in *intruder) expectAddressesRefused(ctx context.Context, t *testing.T, pod *framework.NetworkPod) {
	there := in.at.MustGetRemotePod(t, mustPod(t, lubeck, pod))
	addresses := map[string]string{
		"own":       lubeck.TranslateToPeer(ctx, t, in.at, lubeck.StartNetworkPod(t, pod.Ns, "here", nil, framework.OnNode(lubeck.WorkerNames(t)[0])).Address),
		"node":      in.at.NodeAddress(t, 0),
		"apiserver": in.at.ClusterIP(t, "default", "kubernetes"),
		"metadata":  "169.254.169.254",
		"loopback":  "127.0.0.1",
		"multicast": "224.0.0.1",
		"broadcast": "255.255.255.255",
		"unknown":   "0.0.0.0",
		"pod":       there.Status.PodIP,
		"other":     in.at.TranslateFromPeer(ctx, t, bremen, bremen.ClusterIP(t, "default", "kubernetes")),
		"misnamed":  "",
	}
	for name, address := range addresses {
		slice := in.slice(name, func(*v1alpha1.ShadowEndpointSlice) {}, address)
		if name == "misnamed" {
			slice.Spec.Endpoints[0] = v1alpha1.ShadowEndpoint{Addresses: []string{addresses["own"]}, Hostname: "NO_NAME"}
		}
		if err := in.Create(ctx, slice); err != nil {
			t.Fatal(err)
		}
	}
	for name, address := range addresses {
		if name == "own" {
			in.at.AwaitEndpoints(t, in.twin, "shop", address+" ready=true")
			continue
		}
		framework.Eventually(t, "the provider refuses "+name, func(ctx context.Context) error {
			all := &v1alpha1.ShadowEndpointSliceList{}
			if err := in.List(ctx, all, client.InNamespace(in.twin), client.MatchingFields{"metadata.name": name}); err != nil || len(all.Items) != 1 {
				return fmt.Errorf("%d: %w", len(all.Items), err)
			}
			said := meta.FindStatusCondition(all.Items[0].Status.Conditions, v1alpha1.ConditionAccepted)
			if said == nil || said.Reason != v1alpha1.ReasonEndpointsRefused {
				return fmt.Errorf("it says %v", said)
			}
			return in.at.CheckGone(ctx, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: in.twin, Name: "hanse-" + name}})
		})
	}
}

// lendLittle has the provider lend one class of two, and no more than a little of it.
func (in *intruder) lendLittle(t *testing.T) {
	t.Helper()
	for name, offered := range map[string]string{"story-lent": "true", "story-own": "false"} {
		class := &storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelOfferToPeers: offered}},
			Provisioner: "example.com/none", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		}
		in.at.MustCreate(t, class)
		t.Cleanup(func() { in.at.DeleteAndWait(t, class) })
	}
	in.at.SetLimits(t, "lubeck", `{"resources":{"storage":"1Gi"}}`)
	t.Cleanup(func() { in.at.SetLimits(t, "lubeck", `{"resources":{"storage":null}}`) })
	framework.Eventually(t, "the limit is in force", func(ctx context.Context) error {
		quota := &corev1.ResourceQuota{}
		err := in.at.Get(ctx, types.NamespacedName{Namespace: in.twin, Name: "hanse"}, quota)
		if _, has := quota.Status.Hard[corev1.ResourceRequestsStorage]; err == nil && !has {
			err = fmt.Errorf("the quota is %v", quota.Status.Hard)
		}
		return err
	})
}

// expectClaimsRefused asks for volumes of a class that is not lent, for more than may be, and for a copy of what others have.
func (in *intruder) expectClaimsRefused(ctx context.Context, t *testing.T) {
	in.lendLittle(t)
	for name, more := range map[string]map[string]any{
		"not-lent": {"storageClass": "story-own"}, "huge": {"storageClass": "story-lent", "storage": "1e30"},
		"others-snapshot": {"storageClass": "story-lent", "dataSource": "theirs"}, "no-snapshot": {"storageClass": "story-lent", "dataSource": "huge"},
		"a-copy": {"storageClass": "story-lent", "volumeName": "theirs", "dataSourceRef": map[string]any{"kind": "PersistentVolumeClaim", "name": "theirs"}},
	} {
		if err := in.Create(ctx, in.claim(name, more)); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the provider answers claim "+name, func(ctx context.Context) error {
			key := types.NamespacedName{Namespace: in.twin, Name: name}
			if name == "a-copy" {
				return in.isNoCopy(ctx, t, key)
			}
			return in.isRefused(ctx, t, key)
		})
	}
}

// isNoCopy returns an error unless there is a claim. What is no field of a ShadowClaim is left out of it.
func (in *intruder) isNoCopy(ctx context.Context, t *testing.T, key types.NamespacedName) error {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	err := in.at.Get(ctx, key, claim)
	if err == nil && (claim.Spec.VolumeName != "" || claim.Spec.DataSourceRef != nil) {
		t.Errorf("it got %v", claim.Spec)
	}
	return err
}

// isRefused returns an error unless the ShadowClaim says that its volume is refused. At no time there is a claim.
func (in *intruder) isRefused(ctx context.Context, t *testing.T, key types.NamespacedName) error {
	t.Helper()
	claim, shadow := &corev1.PersistentVolumeClaim{}, &v1alpha1.ShadowClaim{}
	if err := in.at.Get(ctx, key, claim); !apierrors.IsNotFound(err) {
		t.Errorf("it got %v (%v)", claim.Spec, err)
	}
	if err := in.at.Get(ctx, key, shadow); err != nil {
		return err
	}
	ready := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason != v1alpha1.ReasonVolumeRefused || ready.Message == "" {
		return fmt.Errorf("it says %v", ready)
	}
	return nil
}

func mustPod(t *testing.T, c *framework.Cluster, p *framework.NetworkPod) *corev1.Pod {
	t.Helper()
	pod, err := c.GetPod(t.Context(), p.Ns, p.Pod)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// A provider gets at nothing of home's that its pods do not refer to: with what it has as a consumer of home it may read nothing there,
// and what it puts into the twin by itself is not filled, but removed.
func TestProviderGetsNoSecretThatNoPodRefersTo(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "crown"}, StringData: map[string]string{"jewels": "here"}}
	used := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "used"}, StringData: map[string]string{"word": "anchor"}}
	lubeck.MustCreate(t, secret)
	lubeck.MustCreate(t, used)
	lubeck.StartNetworkPod(t, ns, "away", hamburg, func(spec *corev1.PodSpec) {
		spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "used"}}}}
	})

	in := credentialsOf(t, lubeck, hamburg)
	for name, ask := range map[string]func() error{
		"read": func() error { return in.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.Secret{}) },
		"list": func() error { return in.List(ctx, &corev1.SecretList{}, client.InNamespace(ns)) },
		"all":  func() error { return in.List(ctx, &corev1.SecretList{}) },
	} {
		from := lubeck.AuditOffset(t)
		if err := ask(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
		framework.Eventually(t, "lubeck's audit log tells of it", func(context.Context) error { return audited(t, lubeck, from, in.user, "secrets") })
	}

	twin := tenant.TwinName("lubeck", ns)
	bait := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: twin, Name: "crown", Labels: map[string]string{v1alpha1.LabelReflected: "true"},
		Annotations: map[string]string{v1alpha1.AnnotationOriginUID: string(secret.UID), v1alpha1.AnnotationOriginVersion: "0"},
	}}
	hamburg.MustCreate(t, bait)
	framework.Eventually(t, "home removes what it did not make", func(ctx context.Context) error {
		found := bait.DeepCopy()
		err := hamburg.CheckGone(ctx, found)
		if len(found.Data) > 0 {
			t.Errorf("home has told %v", found.Data)
		}
		return err
	})
	if err := hamburg.Get(ctx, types.NamespacedName{Namespace: twin, Name: "used"}, &corev1.Secret{}); err != nil {
		t.Error(err)
	}
}
