// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
)

// theirs is the provider's Account of the day, an empty one if it has none, and nil if that is not known.
func (b *books) theirs(account *v1alpha1.Account) (*v1alpha1.Account, error) {
	if b.link == nil || b.state != peers.Up || !b.peer.Protocol().Accounts {
		return nil, nil
	}
	name := v1alpha1.AccountName(v1alpha1.AccountLent, account.Day())
	mirror := b.link.FollowOne(counts, b.link.TenantNamespace(), name)
	if err := mirror.Err(); err != nil || !mirror.HasSynced() {
		return nil, err
	}
	object, _ := mirror.Named(name)
	if theirs, ok := object.(*v1alpha1.Account); ok {
		return theirs, nil
	}
	return &v1alpha1.Account{}, nil
}

// claim tells the provider what we have counted, once it has Accounts for that, and follows no longer what is closed.
func (a *accountant) claim(ctx context.Context, seen *books) error {
	if seen.direction != v1alpha1.AccountBorrowed || seen.link == nil {
		return nil
	}
	for _, days := range []int{2, 3} {
		name := v1alpha1.AccountName(v1alpha1.AccountLent, seen.now.AddDate(0, 0, -days))
		seen.link.UnfollowOne(counts, seen.link.TenantNamespace(), name)
	}
	for _, account := range seen.current() {
		theirs, err := seen.theirs(account)
		if err != nil || theirs == nil || theirs.UID == "" || equality.Semantic.DeepEqual(theirs.Spec, account.Spec) {
			continue
		}
		there := &v1alpha1.Account{}
		there.Namespace, there.Name = theirs.Namespace, theirs.Name
		if err := local.ApplySpec(ctx, seen.link.Client(), fieldOwner, there, &account.Spec); err != nil {
			return fmt.Errorf("tell %s what was used: %w", seen.peer.Name, err)
		}
	}
	return nil
}
