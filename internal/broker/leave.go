// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// leave undoes what was done for a broker that is none any more, and whose Peer may be nil. Every change of any other Peer comes here.
func (m *member) leave(ctx context.Context, name string, peer *v1alpha1.Peer) (reconcile.Result, error) {
	m.looks.end(name)
	result, err := m.takeBack(ctx, name)
	err = errors.Join(err, m.forget(ctx, name))
	if peer != nil && (peer.Spec.Introducer != "" || peer.HasRole(v1alpha1.RoleBroker)) { // asking for it goes on, or it is being deleted
		return result, err
	}
	return result, errors.Join(err, introduced.unsay(ctx, m.Client, peer))
}

// takeBack deletes at the broker what this cluster has said, and then follows it no more. What cannot be deleted, since there is no
// link any more, or the manager has ended meanwhile, does not hold for long.
func (m *member) takeBack(ctx context.Context, broker string) (reconcile.Result, error) {
	link, there := m.Links.Get(broker)
	if !there {
		return reconcile.Result{}, nil
	}
	mail := link.Following(messages, link.TenantNamespace())
	if mail == nil {
		return reconcile.Result{}, nil
	}
	seen := &scene{broker: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: broker}}, link: link, mail: mail, again: lookAgain}
	ours := slices.DeleteFunc(mail.List(), func(o client.Object) bool { return o.(*v1alpha1.Message).Relayed() })
	if len(ours) == 0 {
		for _, namespace := range []string{link.TenantNamespace(), v1alpha1.MembersNamespace} {
			link.UnfollowOne(messages, namespace, "")
		}
		return reconcile.Result{}, nil
	}
	for _, object := range ours {
		seen.note(m.remove(ctx, seen, object.(*v1alpha1.Message)))
	}
	return reconcile.Result{RequeueAfter: seen.again}, errors.Join(seen.problems...)
}

// forget takes a broker that is none any more off all Members.
func (m *member) forget(ctx context.Context, broker string) error {
	seen, err := m.remember(ctx, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: broker}})
	if err != nil {
		return err
	}
	var problems []error
	for _, known := range seen.members {
		if !neverHeard(known) && known.IsKnownThrough(broker) {
			problems = append(problems, m.unheard(ctx, seen, known))
		}
	}
	return errors.Join(problems...)
}
