// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/move"
	"github.com/hanse-dev/hanse/internal/offload"
)

// seen is what is observed.
type seen struct{ move.Observed }

// observe returns nil if there is no such move.
func (m *Mover) observe(ctx context.Context, key client.ObjectKey) (*seen, error) {
	pm, err := local.Find(ctx, m.Live, key, &v1alpha1.PodMove{})
	if err != nil || pm == nil {
		return nil, err
	}
	s := &seen{Observed: move.Observed{Move: pm}}
	if pm.Status.Phase.IsOver() {
		return s, nil
	}
	if err := m.observeOriginal(ctx, s); err != nil {
		return nil, err
	}
	if s.hasBegun() && pm.Status.Method == v1alpha1.MoveSteer {
		err := m.observeOwner(ctx, s)
		s.Copy = s.Replacement()
		return s, err
	}
	if s.hasBegun() {
		return s, errors.Join(m.observeCopy(ctx, s), m.observeOwner(ctx, s))
	}
	if s.Waits, err = m.waits(ctx, s, notOlderThan(pm.ResourceVersion)); err != nil || s.Waits {
		return s, err
	}
	if err := m.observeOwner(ctx, s); err != nil {
		return nil, err
	}
	return s, m.preflight(ctx, s)
}

// Check says how a move that nobody has asked for yet would be done, or what stands against it, as far as the client may see.
func Check(ctx context.Context, c client.Client, pm *v1alpha1.PodMove) (v1alpha1.MoveMethod, []move.Cause, error) {
	m, s := New(Config{Client: c, Live: c}), &seen{Observed: move.Observed{Move: pm}}
	if err := errors.Join(m.observeOriginal(ctx, s), m.observeOwner(ctx, s)); err != nil {
		return "", nil, err
	}
	err := m.preflight(ctx, s)
	return s.Method, s.Findings, err
}

func (m *Mover) observeOriginal(ctx context.Context, s *seen) error {
	pod, err := m.pod(ctx, s.Move, s.Move.Spec.Pod.Name)
	if err == nil && pod != nil && pod.UID == s.Move.Spec.Pod.UID {
		s.Original = pod
	}
	return err
}

func (s *seen) hasBegun() bool {
	return s.Move.Status.Phase != "" && s.Move.Status.Phase != v1alpha1.MovePending
}

func (m *Mover) pod(ctx context.Context, pm *v1alpha1.PodMove, name string) (*corev1.Pod, error) {
	return local.Find(ctx, m.Live, client.ObjectKey{Namespace: pm.Namespace, Name: name}, &corev1.Pod{})
}

// observeCopy finds the pod that was made for this move, and no other of its name.
func (m *Mover) observeCopy(ctx context.Context, s *seen) error {
	pod, err := m.pod(ctx, s.Move, move.CopyName(s.Move, s.Move.Status.Owner))
	if err != nil || pod == nil {
		return err
	}
	s.Recognise(pod)
	return nil
}

// observeOwner finds the controller and its pods.
func (m *Mover) observeOwner(ctx context.Context, s *seen) error {
	named := s.controller()
	if named == nil {
		return nil
	}
	owner, err := m.owner(ctx, s, named)
	if err != nil || owner == nil {
		return err
	}
	s.Owner = owner
	if s.isTakenOver() {
		return nil
	}
	pods := &corev1.PodList{}
	of := client.MatchingLabelsSelector{Selector: owner.Selector}
	seen := notOlderThan(versionOf(s.Original), versionOf(s.Copy))
	if err := m.Live.List(ctx, pods, client.InNamespace(s.Move.Namespace), of, seen); err != nil {
		return fmt.Errorf("list pods of %s %s: %w", owner.Kind, owner.Name, err)
	}
	for i := range pods.Items {
		if of := metav1.GetControllerOfNoCopy(&pods.Items[i]); of != nil && of.UID == owner.UID {
			owner.Pods = append(owner.Pods, pods.Items[i])
		}
	}
	if s.hasBegun() && s.Move.Status.Phase != v1alpha1.MoveRollingBack { // an original that is no longer the owner's is put right, too
		s.agree()
	}
	return nil
}

// controller is the one that was noted down, or before that the one that the original names, or nil.
func (s *seen) controller() *metav1.OwnerReference {
	switch noted := s.Move.Status.Owner; {
	case noted != nil:
		return &metav1.OwnerReference{APIVersion: noted.APIVersion, Kind: noted.Kind, Name: noted.Name, UID: noted.UID}
	case !s.hasBegun() && s.Original != nil:
		return metav1.GetControllerOf(s.Original)
	default:
		return nil
	}
}

// isTakenOver says whether the other pods of the owner decide nothing any more: the original is gone, or the copy is not adopted yet.
func (s *seen) isTakenOver() bool {
	return s.Move.Status.Method == v1alpha1.MoveSurge && s.HandedOver() &&
		(s.Original == nil || metav1.GetControllerOfNoCopy(s.Copy) == nil)
}

// notOlderThan has a list show at least what was read at these versions of objects of its kind, of which some may be empty. Without that
// the API server waits until its cache has all that was written to any object, for up to a tenth of a second.
func notOlderThan(versions ...string) client.ListOption {
	newest := ""
	for _, version := range versions {
		if order, err := resourceversion.CompareResourceVersion(version, newest); newest == "" || err == nil && order > 0 {
			newest = version
		}
	}
	if newest == "" {
		return &client.ListOptions{}
	}
	return &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: newest, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}}
}

func versionOf(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	return pod.ResourceVersion
}

// agree has the two pods be as the list of their owner's has them, which was read last: what the owner did meanwhile would
// otherwise be seen of one pod and not of the other.
func (s *seen) agree() {
	find := func(uid types.UID) *corev1.Pod {
		at := slices.IndexFunc(s.Owner.Pods, func(p corev1.Pod) bool { return p.UID == uid })
		if at < 0 {
			return nil
		}
		return &s.Owner.Pods[at]
	}
	if s.Original != nil {
		s.Original = find(s.Original.UID)
	}
	if s.Copy == nil {
		return
	}
	if listed := find(s.Copy.UID); listed != nil || metav1.GetControllerOfNoCopy(s.Copy) != nil {
		s.Copy = listed
	}
}

// waits says whether another move of the same owner, or of the same pod, has begun, or comes first.
func (m *Mover) waits(ctx context.Context, s *seen, options ...client.ListOption) (bool, error) {
	moves := &v1alpha1.PodMoveList{}
	if err := m.Live.List(ctx, moves, append(options, client.InNamespace(s.Move.Namespace))...); err != nil {
		return false, fmt.Errorf("list moves: %w", err)
	}
	named := s.controller()
	for i := range moves.Items {
		other := &moves.Items[i]
		ofOwner := other.Status.Owner != nil && named != nil && other.Status.Owner.UID == named.UID
		if other.UID == s.Move.UID || other.Status.Phase == "" || other.Status.Phase.IsOver() || !ofOwner && other.Spec.Pod.UID != s.Move.Spec.Pod.UID {
			continue
		}
		if other.Status.Phase != v1alpha1.MovePending || isEarlier(other, s.Move) {
			return true, nil
		}
	}
	return false, nil
}

func isEarlier(a, b *v1alpha1.PodMove) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// preflight finds what stands against the move.
func (m *Mover) preflight(ctx context.Context, s *seen) error {
	if cause := move.CheckPod(s.Move, s.Original); cause != nil {
		s.Findings = []move.Cause{*cause}
		return nil
	}
	if named := s.controller(); named != nil && s.Owner == nil {
		s.Findings = []move.Cause{{Reason: v1alpha1.ReasonOwnerLost, Message: fmt.Sprintf("%s %s is gone, or being deleted", named.Kind, named.Name)}}
		return nil
	}
	place, err := m.place(ctx, s)
	if err == nil {
		s.Method, s.Findings = move.Preflight(s.Move, s.Original, s.Owner, place)
	}
	return err
}

func (m *Mover) place(ctx context.Context, s *seen) (place move.Place, err error) {
	namespace := s.Move.Namespace
	key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}
	if place.Offloading, err = local.Find(ctx, m.Client, key, &v1alpha1.NamespaceOffloading{}); err != nil {
		return place, err
	}
	quotas := &corev1.ResourceQuotaList{}
	if err := m.Live.List(ctx, quotas, client.InNamespace(namespace)); err != nil {
		return place, fmt.Errorf("list quotas: %w", err)
	}
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := m.Live.List(ctx, budgets, client.InNamespace(namespace)); err != nil {
		return place, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	place.Quotas, place.Budgets, place.Asks = quotas.Items, budgets.Items, exchange.Count(s.Original)
	if place.Nodes, err = m.nodes(ctx, s.Move.Spec.Destination); err != nil {
		return place, err
	}
	place.Claims, err = m.claims(ctx, s.Original)
	return place, err
}

// nodes are those that the destination allows, with what the pods there ask for.
func (m *Mover) nodes(ctx context.Context, to v1alpha1.MoveDestination) ([]move.Node, error) {
	all, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := m.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if err := m.Client.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var found []move.Node
	asked := map[string]corev1.ResourceList{} // node → what its pods ask for
	for i := range all.Items {
		if node := &all.Items[i]; move.Selects(to, node) {
			asked[node.Name] = corev1.ResourceList{}
			found = append(found, move.Node{Node: node, Ready: exchange.IsReady(node), Asked: asked[node.Name]})
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		sums := asked[pod.Spec.NodeName]
		if sums == nil || offload.Terminal(pod.Status.Phase) {
			continue
		}
		for name, amount := range exchange.Count(pod) {
			sum := sums[name]
			sum.Add(amount)
			sums[name] = sum
		}
	}
	return found, nil
}

func (m *Mover) claims(ctx context.Context, pod *corev1.Pod) ([]move.Claim, error) {
	var found []move.Claim
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		key := client.ObjectKey{Namespace: pod.Namespace, Name: source.ClaimName}
		claim, err := local.Find(ctx, m.Client, key, &corev1.PersistentVolumeClaim{})
		if err != nil || claim == nil {
			return nil, err
		}
		one := move.Claim{Name: claim.Name, AccessModes: claim.Spec.AccessModes}
		if claim.Spec.VolumeName != "" {
			if one.Volume, err = local.Find(ctx, m.Client, client.ObjectKey{Name: claim.Spec.VolumeName}, &corev1.PersistentVolume{}); err != nil {
				return nil, err
			}
		}
		found = append(found, one)
	}
	return found, nil
}

func (m *Mover) now() time.Time { return m.Clock.Now() }
