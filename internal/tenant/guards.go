// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
)

// guardName is what every ResourceQuota, LimitRange and NetworkPolicy of Hanse's is called.
const guardName = "hanse"

// countedKinds are those of which a twin may hold only so many objects.
var countedKinds = []corev1.ResourceName{
	"count/services", "count/endpointslices.discovery.k8s.io", "count/configmaps", "count/secrets", "count/persistentvolumeclaims",
}

// Hanse's own kinds are counted like countedKinds, but not from the beginning.
const (
	countShadowPods    = corev1.ResourceName("count/shadowpods.hanse.dev")
	countShadowSlices  = corev1.ResourceName("count/shadowendpointslices.hanse.dev")
	countShadowClaims  = corev1.ResourceName("count/shadowclaims.hanse.dev")
	countShadowObjects = corev1.ResourceName("count/shadowobjects.hanse.dev")
)

// quotaOf bounds the objects in one twin, Hanse's own included if they can be counted, and what its pods ask for. The
// latter stands behind the controller's ledger, which counts all twins of the peer together.
func quotaOf(limits *v1alpha1.PeerLimits, ownKinds bool) corev1.ResourceQuotaSpec {
	objects := int64(ptr.Deref(limits.Objects, v1alpha1.DefaultLimitObjects))
	hard := corev1.ResourceList{}
	for _, kind := range countedKinds {
		hard[kind] = *resource.NewQuantity(objects, resource.DecimalSI)
	}
	hard[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(int64(ptr.Deref(limits.NodePorts, 0)), resource.DecimalSI)
	hard[corev1.ResourceServicesLoadBalancers] = resource.Quantity{Format: resource.DecimalSI}
	if ownKinds {
		hard[countShadowPods] = *resource.NewQuantity(objects, resource.DecimalSI)
		hard[countShadowSlices] = *resource.NewQuantity(objects, resource.DecimalSI)
		hard[countShadowClaims] = *resource.NewQuantity(objects, resource.DecimalSI)
		hard[countShadowObjects] = *resource.NewQuantity(objects, resource.DecimalSI)
	}
	for name, limit := range limits.Resources {
		if counted := exchange.QuotaKey(name); counted != "" {
			hard[counted] = limit
		}
	}
	return corev1.ResourceQuotaSpec{Hard: hard}
}

// limitRangeOf gives containers the least requests that come into a twin by another way than Hanse's.
func limitRangeOf(limits *v1alpha1.PeerLimits) corev1.LimitRangeSpec {
	return corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, DefaultRequest: exchange.LeastCount(limits.Resources),
	}}}
}

// networkPolicy lets the pods of a peer reach each other, their home where a network leads there, the cluster's DNS, and the world
// outside; and nobody else here reach them.
func (t twinOf) networkPolicy(here, home ranges) networkingv1.NetworkPolicySpec {
	siblings := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: t.peer,
	}}}
	dns := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
		corev1.LabelMetadataName: metav1.NamespaceSystem,
	}}}
	own := []networkingv1.NetworkPolicyPeer{siblings}
	for _, seen := range home {
		own = append(own, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: seen.String()}})
	}
	outside := []networkingv1.NetworkPolicyPeer{
		{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: here.inside(privateIPv4)}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: here.inside(privateIPv6)}},
	}
	return networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: own}},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{To: own},
			{To: []networkingv1.NetworkPolicyPeer{dns}, Ports: dnsPorts()},
			{To: outside},
		},
	}
}

func dnsPorts() []networkingv1.NetworkPolicyPort {
	port := func(protocol corev1.Protocol) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(53))}
	}
	return []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP), port(corev1.ProtocolTCP)}
}

// counted says whether the quota is in force: before it is, the API server takes nothing that it counts.
func counted(in *corev1.ResourceQuota) bool {
	names := quota.ResourceNames(in.Spec.Hard)
	return len(quota.Difference(names, quota.ResourceNames(in.Status.Hard)))+
		len(quota.Difference(names, quota.ResourceNames(in.Status.Used))) == 0
}

// errBindingGoes is returned for a RoleBinding that somebody has deleted and that something else holds.
var errBindingGoes = errors.New("a RoleBinding is being deleted")

// errOtherRole is returned for a RoleBinding that an administrator must remove: the role of one cannot be changed.
var errOtherRole = errors.New("a RoleBinding of that name binds another role")

// secure gives the twin its level of Pod Security, its guards, and then, not before, lets the peer in. A suspended peer
// is shut out first, whatever else goes wrong. What was done is looked at again only when it is due, or rests on something
// else by now. It returns the reason of the mapping's condition.
func (r *mappingReconciler) secure(
	ctx context.Context, mapping types.NamespacedName, twin twinOf, peer *v1alpha1.Peer, ns *corev1.Namespace,
) (string, error) {
	wait, waitErr := r.counting.Wait(ctx) // an error is no reason to leave a suspended peer in
	now := r.config.Clock.Now()
	home, err := homeRanges(ctx, r.client, peer.Name)
	if err != nil {
		return "", err
	}
	seen, err := r.guarding.sight(peer, ns, home, waitErr == nil && wait == 0)
	if err != nil {
		return "", err
	}
	known := r.guarding.of(mapping)
	label := func() error { return r.label(ctx, ns, peer) }
	limits := &corev1.ResourceQuota{}
	switch {
	case known.seen != seen || !now.Before(known.due):
		r.guarding.forget(mapping)
		limits, err = r.furnish(ctx, twin, peer, home, label)
	case known.counted:
		return v1alpha1.ReasonTwinCreated, label()
	default: // nothing but the count is waited for
		err = errors.Join(label(), r.live.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: guardName}, limits))
	}
	if err != nil {
		r.guarding.forget(mapping)
		return "", err
	}
	r.guarding.done(mapping, guarded{seen: seen, counted: counted(limits)}, now)
	if counted(limits) {
		return v1alpha1.ReasonTwinCreated, nil
	}
	return v1alpha1.ReasonPending, nil
}

// furnish makes what secures a twin, each step for itself, and returns its quota.
func (r *mappingReconciler) furnish(
	ctx context.Context, twin twinOf, peer *v1alpha1.Peer, home ranges, label func() error,
) (limits *corev1.ResourceQuota, err error) {
	letIn := func() error { return r.bind(ctx, twin.peerBinding(peer.Access())) }
	steps := []func() error{
		label,
		func() error { return r.bind(ctx, twin.managerBinding(&r.config)) },
		func() (err error) { limits, err = r.guard(ctx, twin, peer, home); return err },
		letIn,
	}
	if peer.Access() == v1alpha1.AccessSuspended {
		steps = append([]func() error{letIn}, steps[:len(steps)-1]...)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
		fault.Point(fault.BetweenGuards)
	}
	fault.Point(fault.TwinSecured)
	return limits, nil
}

// setLabels has the namespace say what the API server holds the twin's pods and the peer's objects to.
func (r *mappingReconciler) setLabels(ctx context.Context, ns *corev1.Namespace, peer *v1alpha1.Peer) error {
	share, err := r.shareOf(ctx, ns.Name, peer)
	maps.Copy(ns.Labels, podSecurity(peer.Spec.PodSecurity))
	ns.Labels[v1alpha1.LabelRoom] = strconv.Itoa(share)
	return err
}

// label writes that to a twin where it says something else.
func (r *mappingReconciler) label(ctx context.Context, ns *corev1.Namespace, peer *v1alpha1.Peer) error {
	before := ns.DeepCopy()
	if err := r.setLabels(ctx, ns, peer); err != nil {
		return err
	}
	if maps.Equal(before.Labels, ns.Labels) {
		return nil
	}
	if err := r.client.Patch(ctx, ns, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("label namespace %s: %w", ns.Name, err)
	}
	return nil
}

// put makes the object in a twin what set makes of it.
func (r *mappingReconciler) put(ctx context.Context, o client.Object, set controllerutil.MutateFn) error {
	if _, err := controllerutil.CreateOrUpdate(ctx, local.Uncached(r.client, r.live), o, set); err != nil {
		return fmt.Errorf("guard namespace %s: %T %s: %w", o.GetNamespace(), o, o.GetName(), err)
	}
	return nil
}

// bind gives the rights of the RoleBinding. One that somebody has deleted is let go and made again.
func (r *mappingReconciler) bind(ctx context.Context, want *rbacv1.RoleBinding) error {
	for range 2 {
		have := &rbacv1.RoleBinding{ObjectMeta: *want.ObjectMeta.DeepCopy()}
		err := r.put(ctx, have, func() error {
			switch {
			case have.RoleRef.Name != "" && have.RoleRef != want.RoleRef:
				return errOtherRole
			case !have.DeletionTimestamp.IsZero():
				controllerutil.RemoveFinalizer(have, v1alpha1.FinalizerRoleBinding)
			default:
				controllerutil.AddFinalizer(have, v1alpha1.FinalizerRoleBinding)
				have.RoleRef, have.Subjects = want.RoleRef, want.Subjects
			}
			return nil
		})
		if err != nil || have.DeletionTimestamp.IsZero() {
			return err
		}
	}
	return fmt.Errorf("guard namespace %s: %s: %w", want.Namespace, want.Name, errBindingGoes)
}

// guard gives the twin its quota, its defaults and its network policy. It returns the quota.
func (r *mappingReconciler) guard(ctx context.Context, twin twinOf, peer *v1alpha1.Peer, home ranges) (*corev1.ResourceQuota, error) {
	own, err := r.ownRanges(ctx)
	if err != nil {
		return nil, err
	}
	wait, err := r.counting.Wait(ctx)
	if err != nil {
		return nil, err
	}
	limits := limitsOf(peer)
	named := metav1.ObjectMeta{Namespace: twin.name(), Name: guardName}
	objects := &corev1.ResourceQuota{ObjectMeta: named}
	defaults := &corev1.LimitRange{ObjectMeta: named}
	network := &networkingv1.NetworkPolicy{ObjectMeta: named}
	return objects, errors.Join(
		r.put(ctx, objects, func() error { objects.Spec = quotaOf(&limits, wait == 0); return nil }),
		r.put(ctx, defaults, func() error { defaults.Spec = limitRangeOf(&limits); return nil }),
		r.put(ctx, network, func() error { network.Spec = twin.networkPolicy(own, home); return nil }),
	)
}
