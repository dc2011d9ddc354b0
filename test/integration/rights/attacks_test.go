// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// A guest is a consumer that tests of this package play.
type guest struct{ *framework.Guest }

func welcome(t *testing.T, name string) *guest {
	t.Helper()
	return &guest{hamburg.Welcome(t, name)}
}

func welcomeWithin(t *testing.T, name, limits string) *guest {
	t.Helper()
	return &guest{hamburg.WelcomeWithin(t, name, limits)}
}

// limit sets limits of the peer.
func limit(t *testing.T, peer, limits string) {
	t.Helper()
	hamburg.MustPatch(t, &v1alpha1.Peer{ObjectMeta: framework.Named("", peer)}, fmt.Sprintf(`{"spec":{"limits":%s}}`, limits))
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: framework.Named(namespace, name)}
}

// podAttacks are pods that no provider may run: additions to the pod or to its container, and the field that the refusal must
// name.
var podAttacks = []struct{ name, pod, container, field string }{
	{name: "hostPath", pod: "volumes: [{name: v, hostPath: {path: /}}]", field: "hostPath"},
	{name: "hostNetwork", pod: "hostNetwork: true", field: "hostNetwork"},
	{name: "hostPID", pod: "hostPID: true", field: "hostPID"},
	{name: "hostIPC", pod: "hostIPC: true", field: "hostIPC"},
	{name: "hostUsers", pod: "hostUsers: true", field: "hostUsers"},
	{name: "hostPort", container: "ports: [{containerPort: 80, hostPort: 80}]", field: "hostPort"},
	{name: "privileged", container: "securityContext: {privileged: true}", field: "privileged"},
	{name: "capabilities", container: "securityContext: {capabilities: {add: [SYS_ADMIN]}}", field: "capabilities"},
	{name: "procMount", container: "securityContext: {procMount: Unmasked}", field: "procMount"},
	{name: "seccomp", container: "securityContext: {seccompProfile: {type: Unconfined}}", field: "seccompProfile"},
	{name: "sysctls", pod: "securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}", field: "sysctls"},
	{name: "nodename", pod: "nodeName: hamburg-simulated-1", field: "nodeName"},
	{name: "tolerations", pod: "tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]", field: "tolerations"},
	{name: "all-taints", pod: "tolerations: [{operator: Exists}]", field: "tolerations"},
	{name: "priority-class", pod: "priorityClassName: system-node-critical", field: "priorityClassName"},
	{name: "priority", pod: "priority: 2000001000", field: "priority"},
	{name: "service-account", pod: "serviceAccountName: hanse-manager", field: "serviceAccountName"},
	{name: "automount", pod: "automountServiceAccountToken: true", field: "automountServiceAccountToken"},
	{name: "token", pod: "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", field: "serviceAccountToken"},
	{name: "csi", pod: "volumes: [{name: v, csi: {driver: secrets-store.csi.k8s.io}}]", field: "csi"},
	{name: "claim", pod: "volumes: [{name: v, persistentVolumeClaim: {claimName: ../other}}]", field: "persistentVolumeClaim"},
	{name: "nfs", pod: "volumes: [{name: v, nfs: {server: 10.0.0.1, path: /}}]", field: "nfs"},
	{name: "runtime-class", pod: "runtimeClassName: kata", field: "runtimeClassName"},
	{name: "resource-claims", pod: "resourceClaims: [{name: gpu, resourceClaimName: gpu}]", field: "resourceClaims"},
	{name: "scheduler", pod: "schedulerName: mine", field: "schedulerName"},
	{name: "affinity", pod: "affinity: {nodeAffinity: {}}", field: "affinity"},
	{name: "node-selector", pod: "nodeSelector: {kubernetes.io/hostname: hamburg-simulated-1}", field: "nodeSelector"},
	{name: "unknown", pod: "brandNewField: 1", field: "brandNewField"},
	{name: "huge-number", container: "resources: {requests: {cpu: '1e-99999999'}}", field: "exponent"},
	{name: "no-such-amount", container: "resources: {requests: {cpu: '-1'}}", field: "cpu"},
}

// template returns an honest pod with the attack in it.
func template(pod, container string) string {
	text := "spec:\n  containers:\n  - name: main\n    image: " + framework.TestImage + "\n"
	if container == "" || !strings.HasPrefix(container, "resources") {
		text += "    resources: {requests: {cpu: 1m, memory: 8Mi}}\n"
	}
	if container != "" {
		text += "    " + container + "\n"
	}
	if pod != "" {
		text += "  " + pod + "\n"
	}
	return text
}

func TestHostileConsumer(t *testing.T) {
	ctx := t.Context()
	g, victim := welcome(t, "visby-hostile"), welcome(t, "visby-victim")
	twin, theirs := g.Twin(t, "pirates"), victim.Twin(t, "merchants")
	expectGuards(t, twin)

	t.Run("pods", func(t *testing.T) { g.expectPodsRefused(t, twin) })

	for name, attack := range g.requestAttacks(t, twin, theirs, victim) {
		t.Run(name, func(t *testing.T) { expectRefusal(t, attack()) })
	}

	t.Run("mapping onto a namespace", func(t *testing.T) {
		for i, target := range []string{
			"default", "hanse-system", theirs, victim.Invitation.Namespace, tenant.TwinName("visby-victim", "later"), "hanse-peer-later",
		} {
			g.expectNoTwinCalled(t, fmt.Sprintf("onto-%d", i), target)
		}
		if later := victim.Twin(t, "later"); later != tenant.TwinName("visby-victim", "later") {
			t.Errorf("the victim's next twin is %s", later)
		}
	})

	t.Run("fill", func(t *testing.T) { g.fill(t, victim, theirs) })

	// However many objects it creates, the other peer's pods start as before.
	t.Run("flood", func(t *testing.T) { g.flood(t, victim, theirs) })

	pods := &corev1.PodList{}
	if err := hamburg.List(ctx, pods, client.InNamespace(twin)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) > 0 {
		t.Errorf("there are pods of attacks: %s", framework.Summary(pods.Items))
	}
}

// expectPodsRefused tries all of podAttacks, and metadata that no pod of a peer may have.
func (g *guest) expectPodsRefused(t *testing.T, twin string) {
	for _, attack := range podAttacks {
		t.Run(attack.name, func(t *testing.T) {
			g.expectPodRefused(t, framework.Shadow(t, twin, attack.name, template(attack.pod, attack.container)), attack.field)
		})
	}
	for _, attack := range []struct{ name, metadata, field string }{
		{"another-namespace", "{namespace: kube-system}", "namespace"},
		{"owner", "{ownerReferences: [{apiVersion: v1, kind: Node, name: n, uid: u}]}", "ownerReferences"},
		{"finalizer", "{finalizers: [example.com/never]}", "finalizers"},
	} {
		t.Run(attack.name, func(t *testing.T) {
			g.expectPodRefused(t, framework.Shadow(t, twin, attack.name, "metadata: "+attack.metadata+"\n"+template("", "")), attack.field)
		})
	}
}

// expectRefusal checks that the API server has refused a request.
func expectRefusal(t *testing.T, answer error) {
	t.Helper()
	if answer == nil {
		t.Fatal("the API server accepts it")
	}
	if !apierrors.IsForbidden(answer) && !apierrors.IsInvalid(answer) && !apierrors.IsBadRequest(answer) &&
		!tooLarge(answer) && !apierrors.IsMethodNotSupported(answer) {
		t.Errorf("the error is no refusal: %v", answer)
	}
}

// expectGuards checks the objects that guard a remote namespace besides the policies.
func expectGuards(t *testing.T, twin string) {
	t.Helper()
	ns := &corev1.Namespace{}
	if err := hamburg.Get(t.Context(), types.NamespacedName{Name: twin}, ns); err != nil {
		t.Fatal(err)
	}
	if level := ns.Labels["pod-security.kubernetes.io/enforce"]; level != "baseline" {
		t.Errorf("the level of Pod Security is %q", level)
	}
	key := types.NamespacedName{Namespace: twin, Name: "hanse"}
	network := &networkingv1.NetworkPolicy{}
	for _, guard := range []client.Object{&corev1.ResourceQuota{}, &corev1.LimitRange{}, network} {
		if err := hamburg.Get(t.Context(), key, guard); err != nil {
			t.Errorf("%T: %v", guard, err)
		}
	}
	if len(network.Spec.PolicyTypes) != 2 || len(network.Spec.PodSelector.MatchLabels) > 0 {
		t.Errorf("the network policy does not hold for all traffic of all pods: %+v", network.Spec)
	}
}

// tooLarge reports whether the API server or etcd has refused an object for its size.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(err.Error(), "larger than max")
}

// expectPodRefused expects that the API server or the manager refuses a ShadowPod for the field, and that there is no pod.
func (g *guest) expectPodRefused(t *testing.T, attack *v1alpha1.ShadowPod, field string) {
	t.Helper()
	err := g.Create(t.Context(), attack)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("the refusal does not name %s: %v", field, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the ShadowPod is refused for "+field, func(ctx context.Context) error {
		if err := g.Get(ctx, client.ObjectKeyFromObject(attack), attack); err != nil {
			return err
		}
		c := meta.FindStatusCondition(attack.Status.Conditions, v1alpha1.ConditionUnrecoverable)
		if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, field) {
			return fmt.Errorf("conditions: %+v", attack.Status.Conditions)
		}
		return nil
	})
	if pod, err := hamburg.Pod(t.Context(), attack.Namespace, attack.Name); !apierrors.IsNotFound(err) {
		t.Errorf("there is a pod: %s %v", pod.Status.Phase, err)
	}
}

// requestAttacks returns requests to the API server that must be refused.
func (g *guest) requestAttacks(t *testing.T, twin, theirs string, victim *guest) map[string]func() error {
	ctx := t.Context()
	own := g.Invitation.Namespace
	named := framework.Named
	owned := framework.Shadow(t, twin, "owned", framework.BusyPod)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "kube-system", UID: "x"}}
	held := framework.Shadow(t, twin, "held", framework.BusyPod)
	held.Finalizers = []string{"example.com/never"}
	huge := framework.Shadow(t, twin, "huge", framework.BusyPod+"\nmetadata: {annotations: {big: "+strings.Repeat("x", 2<<20)+"}}")
	hugePod, swelling := framework.Shadow(t, twin, "huge-pod", framework.BusyPod), framework.Shadow(t, twin, "swelling", framework.BusyPod)
	hugePod.Spec.Pod = strings.Repeat("a", v1alpha1.MaxShadowPodBytes+1)
	swelling.Spec.Pod = strings.Repeat("\x01", 1000) // the API server would store 6,000 bytes
	noted, invented := framework.Shadow(t, twin, "noted", framework.BusyPod), framework.Shadow(t, twin, "invented", framework.BusyPod)
	noted.Annotations = map[string]string{"big": strings.Repeat("a", 100<<10)}
	invented.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "x", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "hanse.dev/v1alpha1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + strings.Repeat("a", 100<<10) + `":{}}}}`),
	}}
	status := framework.Shadow(t, twin, "status", framework.BusyPod)
	service := &corev1.Service{
		ObjectMeta: named(twin, "thief"),
		Spec:       corev1.ServiceSpec{ExternalIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 443}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: named(twin, "thief"), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}}},
	}
	labels := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`))
	impersonating := rest.CopyConfig(g.Config)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "system:admin", Groups: []string{"system:masters"}}
	return map[string]func() error{
		"record in a foreign namespace":  func() error { return g.Create(ctx, framework.Shadow(t, theirs, "spy", framework.BusyPod)) },
		"record in kube-system":          func() error { return g.Create(ctx, framework.Shadow(t, "kube-system", "spy", framework.BusyPod)) },
		"record in the tenant namespace": func() error { return g.Create(ctx, framework.Shadow(t, own, "spy", framework.BusyPod)) },
		"pod":                            func() error { return g.Create(ctx, framework.Pod(twin, "pod")) },
		"pod elsewhere":                  func() error { return g.Create(ctx, framework.Pod("default", "pod")) },
		"ephemeral container": func() error {
			patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"ephemeralContainers":[{"name":"e","image":"x"}]}}`))
			return g.SubResource("ephemeralcontainers").Patch(ctx, framework.Pod(twin, "any"), patch)
		},
		"foreign owner":     func() error { return g.Create(ctx, owned) },
		"foreign finalizer": func() error { return g.Create(ctx, held) },
		"huge object":       func() error { return g.Create(ctx, huge) },
		"huge pod":          func() error { return g.Create(ctx, hugePod) },
		"pod that swells":   func() error { return g.Create(ctx, swelling) },
		"long annotation":   func() error { return g.Create(ctx, noted) },
		"invented account":  func() error { return g.Create(ctx, invented) },
		"own status":        func() error { return g.Status().Update(ctx, status) },
		"own answer":        func() error { return g.Status().Patch(ctx, framework.Mapping(own, "pirates"), labels) },
		"claim's answer": func() error {
			return g.Status().Patch(ctx, &v1alpha1.PeeringClaim{ObjectMeta: named(own, "claim")}, labels)
		},
		"another claim":          func() error { return g.Create(ctx, &v1alpha1.PeeringClaim{ObjectMeta: named(own, "claim-2")}) },
		"mapping of a system":    func() error { return g.refusedMapping(t, "kube-system") },
		"mapping of Hanse's own": func() error { return g.refusedMapping(t, "hanse-system") },
		"mapping with two names": func() error { m := framework.Mapping(own, "a"); m.Spec.HomeNamespace = "b"; return g.Create(ctx, m) },
		"mapping elsewhere":      func() error { return g.Create(ctx, framework.Mapping(victim.Invitation.Namespace, "x")) },
		"relabel the twin":       func() error { return g.Patch(ctx, &corev1.Namespace{ObjectMeta: named("", twin)}, labels) },
		"relabel the tenant":     func() error { return g.Patch(ctx, &corev1.Namespace{ObjectMeta: named("", own)}, labels) },
		"namespace":              func() error { return g.Create(ctx, &corev1.Namespace{ObjectMeta: named("", "mine")}) },
		"peer":                   func() error { return g.Create(ctx, &v1alpha1.Peer{ObjectMeta: named("", "mine")}) },
		"definition": func() error {
			return g.Create(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", "a.b.c")})
		},
		"webhook": func() error {
			return g.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("", "mine")})
		},
		"role": func() error { return g.Create(ctx, &rbacv1.Role{ObjectMeta: named(twin, "mine")}) },
		"role binding": func() error {
			return g.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: named(twin, "mine"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}})
		},
		"cluster role":      func() error { return g.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: named("", "mine")}) },
		"service":           func() error { return g.Create(ctx, service) },
		"endpoints":         func() error { return g.Create(ctx, slice) },
		"persistent volume": func() error { return g.Create(ctx, &corev1.PersistentVolume{ObjectMeta: named("", "mine")}) },
		"service account":   func() error { return g.Create(ctx, account(twin, "mine")) },
		"token of another": func() error {
			return g.SubResource("token").Create(ctx, account(victim.Invitation.Namespace, "hanse-peer"), &authenticationv1.TokenRequest{})
		},
		"token of the twin": func() error {
			return g.SubResource("token").Create(ctx, account(twin, "default"), &authenticationv1.TokenRequest{})
		},
		"endless token": func() error {
			return g.SubResource("token").Create(ctx, account(own, "hanse-peer"), &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](1 << 31)}})
		},
		"impersonation":     func() error { return asAnother(ctx, impersonating) },
		"read pods":         func() error { return g.List(ctx, &corev1.PodList{}, client.InNamespace(twin)) },
		"read Secrets":      func() error { return g.List(ctx, &corev1.SecretList{}, client.InNamespace(own)) },
		"read nodes":        func() error { return g.List(ctx, &corev1.NodeList{}) },
		"read events":       func() error { return g.List(ctx, &corev1.EventList{}, client.InNamespace(twin)) },
		"delete the tenant": func() error { return g.Delete(ctx, &corev1.Namespace{ObjectMeta: named("", own)}) },
		"change the offer": func() error {
			return g.Patch(ctx, &v1alpha1.Advertisement{ObjectMeta: named(own, "hamburg")}, labels)
		},
		"take the quota away": func() error { return g.Delete(ctx, &corev1.ResourceQuota{ObjectMeta: named(twin, "hanse")}) },
	}
}

func asAnother(ctx context.Context, config *rest.Config) error {
	made, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	return made.List(ctx, &corev1.NodeList{})
}

// refusedMapping asks for a remote namespace and returns the provider's refusal as an error.
func (g *guest) refusedMapping(t *testing.T, home string) error {
	t.Helper()
	mapping := framework.Mapping(g.Invitation.Namespace, home)
	if err := g.Create(t.Context(), mapping); err != nil {
		return err
	}
	ready := &metav1.Condition{}
	framework.Eventually(t, "the provider answers the mapping of "+home, func(ctx context.Context) error {
		if err := g.Get(ctx, client.ObjectKeyFromObject(mapping), mapping); err != nil {
			return err
		}
		if ready = meta.FindStatusCondition(mapping.Status.Conditions, v1alpha1.ConditionReady); ready == nil {
			return errors.New("there is no condition Ready")
		}
		return nil
	})
	if ready.Status == metav1.ConditionTrue {
		return nil
	}
	return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("namespacemappings").GroupResource(), home, errors.New(ready.Message))
}

// expectNoTwinCalled checks that the peer does not get a namespace of a name that it chooses.
func (g *guest) expectNoTwinCalled(t *testing.T, home, target string) {
	t.Helper()
	mapping := framework.Mapping(g.Invitation.Namespace, home)
	mapping.Spec.Twin = target
	if err := g.Create(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the provider refuses the name "+target, func(ctx context.Context) error {
		if err := g.Get(ctx, client.ObjectKeyFromObject(mapping), mapping); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(mapping.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonTwinNameForbidden || mapping.Status.Twin != "" {
			return fmt.Errorf("%+v", mapping.Status)
		}
		return nil
	})
}
