// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ed25519"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unsure  = metav1.ConditionUnknown
	tenant  = "hanse-peer-hamburg"
	manager = v1alpha1.ClusterRoleManagerInTenant
	kubelet = v1alpha1.ClusterRoleKubeletInTenant
)

func TestConsumerGetsATenantNamespace(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.reconcile()

	ns := &corev1.Namespace{}
	w.get("", tenant, ns)
	want := map[string]string{
		"hanse.dev/type": "tenant", "hanse.dev/peer": "hamburg", "hanse.dev/cluster-id": "c-hamburg", "hanse.dev/managed": "true",
	}
	if diff := cmp.Diff(want, ns.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	subjects := map[string]string{ // ClusterRole → who has it
		manager: "hanse-system/hanse-manager", kubelet: "hanse-system/hanse-kubelet",
	}
	for role, subject := range subjects {
		binding := &rbacv1.RoleBinding{}
		w.get(tenant, role, binding)
		if binding.RoleRef.Kind != "ClusterRole" || binding.RoleRef.Name != role || len(binding.Subjects) != 1 ||
			binding.Subjects[0].Namespace+"/"+binding.Subjects[0].Name != subject {
			t.Errorf("binding of %s: %v to %v", role, binding.RoleRef, binding.Subjects)
		}
	}
	if w.exists(tenant, "hanse-peer", &corev1.ServiceAccount{}) ||
		w.exists(tenant, v1alpha1.ClusterRolePeerTenant, &rbacv1.RoleBinding{}) {
		t.Error("a consumer that was not even invited has an identity or rights")
	}
	info := &corev1.ConfigMap{}
	w.get(tenant, "hanse-cluster", info)
	told := map[string]string{
		"clusterID": "c-lubeck", "version": "v0.1.0", "publicKey": trust.PublicKeyOf(ourKey), "apiVersions": "v1alpha1",
	}
	if diff := cmp.Diff(told, info.Data); diff != "" {
		t.Errorf("cluster info (-want +got):\n%s", diff)
	}
	w.expectQuota("100")

	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAuthenticated, v1alpha1.ConditionCompatible} {
		w.expect(kind, unsure, v1alpha1.ReasonNotConsumed)
	}
	w.expect(v1alpha1.ConditionConnected, no, v1alpha1.ReasonNoNetworkFabric)
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonPending)
	w.says(v1alpha1.ConditionJoined, no, v1alpha1.ReasonInvited)
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonInvited)
	w.joins()
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	w.expect(v1alpha1.ConditionCompatible, yes, v1alpha1.ReasonReady)
	w.expectEventCount(3)
	if w.asked() > 0 {
		t.Error("contacted a peer from which nothing is consumed")
	}
	w.expectNoWrites()
	w.clock.Step(repairPeriod)
	w.expectNoWrites()
	w.expectEventCount(0)
}

func TestPeerThatChangedMeanwhileIsLookedAtAgain(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.refuse = func(o client.Object) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "peers"}, o.GetName(), nil)
	}
	if pause := w.reconcile().RequeueAfter; pause != cacheLag {
		t.Errorf("looks again in %s", pause)
	}
	if w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("made something for a Peer that is not held")
	}
	w.refuse = nil
	w.reconcile()
	if !slices.Contains(w.peer().Finalizers, v1alpha1.FinalizerPeer) {
		t.Error("the Peer is not held")
	}
	w.get("", tenant, &corev1.Namespace{})
}

func TestProviderIsProbedUntilItIsReady(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	w.remote.RemoveCredentials()
	w.reconcile()
	for _, role := range []string{manager, kubelet} {
		w.get(tenant, role, &rbacv1.RoleBinding{})
	}
	if w.exists(tenant, "hanse-peer", &corev1.ServiceAccount{}) || w.exists(tenant, "hanse-cluster", &corev1.ConfigMap{}) {
		t.Error("a provider has an identity here")
	}
	w.expect(v1alpha1.ConditionReachable, unsure, v1alpha1.ReasonCredentialsMissing)
	w.expect(v1alpha1.ConditionAuthenticated, no, v1alpha1.ReasonCredentialsMissing)
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonCredentialsMissing)
	w.expectEventCount(1)

	w.joinBy("their-invitation")
	w.reconcile()
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAuthenticated, v1alpha1.ConditionCompatible} {
		w.expect(kind, yes, v1alpha1.ReasonReady)
	}
	w.expect(v1alpha1.ConditionConnected, no, v1alpha1.ReasonNoNetworkFabric)
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonNoAdvertisement)
	w.expectEventCount(1)

	w.advertises(no, v1alpha1.ReasonExpired)
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonExpired)
	w.advertises(yes, v1alpha1.ReasonAccepted)
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	w.expectEventCount(2)
	if got := w.peer().Status; got.Version != "v0.1.0" || got.RoundTripTime.Duration != 10*time.Millisecond {
		t.Errorf("version %s, round trip %s", got.Version, got.RoundTripTime)
	}
	w.expectNoWrites()
	w.clock.Step(time.Minute)
	w.expectNoWrites()
	w.expectEventCount(0)
}

func TestWhatIsWrongWithAProviderIsSaid(t *testing.T) {
	tests := map[string]struct {
		broken      bool  // our Secret is no kubeconfig
		silent      bool  // the peer does not introduce itself
		refused     error // what the peer answers
		id, version string
		key         ed25519.PrivateKey
		apis        []string
		kind        string
		status      metav1.ConditionStatus
		reason      string
		says        string
	}{
		"broken Secret": {
			broken: true,
			kind:   v1alpha1.ConditionAuthenticated, status: no, reason: v1alpha1.ReasonCredentialsInvalid, says: "not a kubeconfig",
		},
		"no answer": {
			refused: noAnswer,
			kind:    v1alpha1.ConditionReachable, status: no, reason: v1alpha1.ReasonUnreachable, says: "connection refused",
		},
		"an address of another family": {
			refused: &net.OpError{Op: "dial", Err: syscall.ENETUNREACH},
			kind:    v1alpha1.ConditionReachable, status: no, reason: v1alpha1.ReasonUnreachable, says: "--server URL",
		},
		"untrusted": {
			refused: untrusted,
			kind:    v1alpha1.ConditionReachable, status: no, reason: v1alpha1.ReasonCredentialsInvalid, says: "does not trust",
		},
		"unauthorized": {
			refused: unauthorized,
			kind:    v1alpha1.ConditionAuthenticated, status: no, reason: v1alpha1.ReasonUnauthorized, says: "invite --renew",
		},
		"not introduced": {
			silent: true,
			kind:   v1alpha1.ConditionAuthenticated, status: no, reason: v1alpha1.ReasonPending, says: "role Consumer",
		},
		"nonsense": {
			refused: peers.ErrTooLarge,
			kind:    v1alpha1.ConditionAuthenticated, status: no, reason: v1alpha1.ReasonMalformed, says: "makes no sense",
		},
		"another cluster": {
			id:   "c-bremen",
			kind: v1alpha1.ConditionAuthenticated, status: no, reason: v1alpha1.ReasonClusterIDMismatch, says: `"c-bremen"`,
		},
		"another key": {
			key:  ourKey,
			kind: v1alpha1.ConditionAuthenticated, status: no, reason: v1alpha1.ReasonKeyMismatch, says: trust.PublicKeyOf(ourKey),
		},
		"suspended": {
			refused: forbidden,
			kind:    v1alpha1.ConditionAuthenticated, status: no, reason: v1alpha1.ReasonForbidden, says: "suspended us",
		},
		"another API": {
			apis: []string{"v1", "v1beta1"},
			kind: v1alpha1.ConditionCompatible, status: no, reason: v1alpha1.ReasonIncompatibleAPI, says: "v1, v1beta1",
		},
		"another version": {
			version: "v0.9.0",
			kind:    v1alpha1.ConditionCompatible, status: no, reason: v1alpha1.ReasonIncompatibleVersion, says: "upgrade",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peerOf(v1alpha1.RoleProvider))
			w.remote.Refuse(readInfo, test.refused)
			if test.broken {
				w.remote.Store(map[string][]byte{v1alpha1.LinkSecretKey: []byte("nonsense")})
			}
			info := hamburg
			info.APIVersions = test.apis
			if test.id != "" {
				info.ClusterID = test.id
			}
			if test.version != "" {
				info.Version = test.version
			}
			if test.key != nil {
				info.PublicKey = trust.PublicKeyOf(test.key)
			}
			w.introduces(info)
			if test.silent {
				w.away.Remove(configMap(there, v1alpha1.ClusterInfo))
			}
			w.reconcile()
			w.expect(test.kind, test.status, test.reason)
			w.expect(v1alpha1.ConditionReady, no, test.reason)
			ready := meta.FindStatusCondition(w.peer().Status.Conditions, v1alpha1.ConditionReady)
			if !strings.Contains(ready.Message, test.says) {
				t.Errorf("%q does not say %q", ready.Message, test.says)
			}
			w.clock.Step(time.Hour)
			w.expectNoWrites()
		})
	}
}

func TestProbesBackOff(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider))
	w.remote.Refuse(readInfo, noAnswer)
	var pauses []time.Duration
	for range 8 {
		w.reconcile()
		pause := w.contact().probe.due.Sub(w.clock.Now())
		pauses = append(pauses, pause)
		asked := w.asked()
		w.clock.Step(pause / 2)
		w.reconcile()
		if w.asked() != asked {
			t.Fatal("probed before it is time")
		}
		w.clock.Step(pause - pause/2)
	}
	for i, pause := range pauses {
		least := min(firstRetry<<i, 30*time.Second)
		if pause < least || pause > least*12/10 {
			t.Errorf("pause %d is %s, want about %s", i, pause, least)
		}
	}
	w.remote.Refuse(readInfo, nil)
	w.joinBy("another")
	before := w.asked()
	if pause := w.reconcile().RequeueAfter; pause < 30*time.Second || pause > 36*time.Second || w.asked() == before {
		t.Errorf("with new credentials: probed %d times, next in %s", w.asked()-before, pause)
	}
}

func TestForeignNamespaceIsNeverAdopted(t *testing.T) {
	former := map[string]string{
		"hanse.dev/type": "tenant", "hanse.dev/peer": "hamburg", "hanse.dev/cluster-id": "c-former", "hanse.dev/managed": "true",
	}
	for name, labels := range map[string]map[string]string{"somebody's": nil, "a former peer's": former} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peerOf(v1alpha1.RoleProvider, v1alpha1.RoleConsumer), namespace(tenant, labels))
			w.reconcile()
			w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonNamespaceTaken)
			if w.exists(tenant, manager, &rbacv1.RoleBinding{}) || w.asked() > 0 {
				t.Error("the foreign namespace was used")
			}
			w.expectNoWrites()

			if err := w.client.Delete(t.Context(), w.peer()); err != nil {
				t.Fatal(err)
			}
			w.reconcile()
			if w.exists("", "hamburg", &v1alpha1.Peer{}) || !w.exists("", tenant, &corev1.Namespace{}) {
				t.Error("the Peer must go and the foreign namespace stay")
			}
		})
	}
}

func TestRoleThatIsTakenBackLeavesNoRights(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer, v1alpha1.RoleProvider))
	w.reconcile()
	w.joins()
	w.linked()
	peer := w.peer()
	peer.Spec.Roles, peer.Generation = []v1alpha1.PeerRole{v1alpha1.RoleProvider}, 2
	w.update(peer)
	w.reconcile()
	for name, object := range map[string]client.Object{
		"hanse-peer": &corev1.ServiceAccount{}, "hanse-session": &corev1.Secret{}, "claim": &v1alpha1.PeeringClaim{},
		"hanse-cluster": &corev1.ConfigMap{}, "hanse": &corev1.ResourceQuota{},
	} {
		if w.exists(tenant, name, object) {
			t.Errorf("%T %s is left", object, name)
		}
	}
	if w.exists(tenant, "hanse-invitation", &corev1.ServiceAccount{}) || w.exists(tenant, "hanse-invitation", &corev1.Secret{}) {
		t.Error("the invitation is left")
	}
	if !w.exists(tenant, "hanse-link", &corev1.Secret{}) {
		t.Error("what we are as a consumer is gone")
	}
	w.expectNobodyHas(v1alpha1.ClusterRolePeerTenant, v1alpha1.ClusterRolePeerInvitation)
	w.clock.Step(repairPeriod)
	w.expectNoWrites()
}

func (w *world) expectNobodyHas(roles ...string) {
	w.t.Helper()
	for _, role := range roles {
		binding := &rbacv1.RoleBinding{}
		w.get(tenant, role, binding)
		if len(binding.Subjects) > 0 {
			w.t.Errorf("%s is left to %v", role, binding.Subjects)
		}
	}
}

func TestDamageInATenantNamespaceIsRepaired(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	w.reconcile()
	binding := &rbacv1.RoleBinding{}
	w.get(tenant, manager, binding)
	binding.Subjects = []rbacv1.Subject{{Kind: "User", Name: "mallory"}}
	w.update(binding)
	w.remove(configMap(tenant, v1alpha1.ClusterInfo))
	w.clock.Step(repairPeriod)
	w.reconcile()
	w.get(tenant, manager, binding)
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "hanse-manager" {
		t.Errorf("rights are with %v", binding.Subjects)
	}
	w.get(tenant, "hanse-cluster", &corev1.ConfigMap{})
}

func TestNewRightsMayTakeAMoment(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleConsumer))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "hanse-cluster", nil)
	w.ahead = 10 * time.Minute // which does not make the namespace older
	w.refuse = func(o client.Object) error {
		if ns, ok := o.(*corev1.Namespace); ok {
			ns.CreationTimestamp = metav1.NewTime(w.clock.Now().Add(-w.ahead))
		}
		if _, ok := o.(*corev1.ConfigMap); ok {
			return forbidden
		}
		return nil
	}
	if pause := w.reconcile().RequeueAfter; pause != settlePause {
		t.Errorf("looks again in %s", pause)
	}
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonPending)
	w.clock.Step(settleTime)
	if _, err := w.tryReconcile(); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want Forbidden", err)
	}
	ready := meta.FindStatusCondition(w.peer().Status.Conditions, v1alpha1.ConditionReady)
	if !strings.Contains(ready.Message, "forbidden") {
		t.Errorf("%q does not tell the cause", ready.Message)
	}
	w.refuse = nil
	w.joins()
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
}
