package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
)

// errOtherRole is returned for a RoleBinding that an administrator must remove: the role of one cannot be changed.
var errOtherRole = errors.New("a RoleBinding of that name binds another role")

// secure gives the twin its level of Pod Security, its guards, and then, not before, lets the peer in. A suspended peer
// is shut out first, whatever else goes wrong. It returns the reason of the mapping's condition.
func (m *mapper) secure(ctx context.Context, twin twinOf, peer *v1alpha1.Peer, ns *corev1.Namespace) (string, error) {
	var quota *corev1.ResourceQuota
	letIn := func() error { return m.bind(ctx, twin.peerBinding(peer.Access())) }
	steps := []func() error{
		func() error { return m.label(ctx, ns, podSecurity(peer.Spec.PodSecurity)) },
		func() error { return m.bind(ctx, twin.managerBinding(&m.config)) },
		func() (err error) { quota, err = m.guard(ctx, twin, peer); return err },
		letIn,
	}
	if peer.Access() == v1alpha1.AccessSuspended {
		steps = append([]func() error{letIn}, steps[:len(steps)-1]...)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return "", err
		}
		fault.Point(fault.BetweenGuards)
	}
	fault.Point(fault.TwinSecured)
	if counted(quota) {
		return v1alpha1.ReasonTwinCreated, nil
	}
	return v1alpha1.ReasonPending, nil
}

func (m *mapper) label(ctx context.Context, ns *corev1.Namespace, labels map[string]string) error {
	before := ns.DeepCopy()
	maps.Copy(ns.Labels, labels)
	if maps.Equal(before.Labels, ns.Labels) {
		return nil
	}
	if err := m.client.Patch(ctx, ns, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("label namespace %s: %w", ns.Name, err)
	}
	return nil
}

func (m *mapper) bind(ctx context.Context, want *rbacv1.RoleBinding) error {
	have := &rbacv1.RoleBinding{ObjectMeta: *want.ObjectMeta.DeepCopy()}
	_, err := controllerutil.CreateOrUpdate(ctx, local.Uncached(m.client, m.live), have, func() error {
		if have.RoleRef.Name != "" && have.RoleRef != want.RoleRef {
			return errOtherRole
		}
		have.RoleRef, have.Subjects = want.RoleRef, want.Subjects
		return nil
	})
	if err != nil {
		return fmt.Errorf("bind role %s in namespace %s: %w", want.Name, want.Namespace, err)
	}
	return nil
}

// guard gives the twin its quota, its defaults and its network policy. It returns the quota.
func (m *mapper) guard(ctx context.Context, twin twinOf, peer *v1alpha1.Peer) (*corev1.ResourceQuota, error) {
	own, err := m.ownRanges(ctx)
	if err != nil {
		return nil, err
	}
	wait, err := m.counting.Wait(ctx)
	if err != nil {
		return nil, err
	}
	limits := limitsOf(peer)
	named := metav1.ObjectMeta{Namespace: twin.name(), Name: guardName}
	quota := &corev1.ResourceQuota{ObjectMeta: named}
	defaults := &corev1.LimitRange{ObjectMeta: named}
	network := &networkingv1.NetworkPolicy{ObjectMeta: named}
	for _, guard := range []struct {
		object client.Object
		set    func()
	}{
		{quota, func() { quota.Spec = quotaOf(&limits, wait == 0) }},
		{defaults, func() { defaults.Spec = limitRangeOf(&limits) }},
		{network, func() { network.Spec = twin.networkPolicy(own) }},
	} {
		set := func() error { guard.set(); return nil }
		if _, err := controllerutil.CreateOrUpdate(ctx, local.Uncached(m.client, m.live), guard.object, set); err != nil {
			return nil, fmt.Errorf("guard namespace %s: %w", named.Namespace, err)
		}
	}
	return quota, nil
}
