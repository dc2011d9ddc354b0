package peering

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// expectInvitationEnded waits until the invitation that was used is good for nothing: API servers remember tokens for 10 s.
func expectInvitationEnded(t *testing.T, g *framework.Guest) {
	t.Helper()
	key := types.NamespacedName{Namespace: g.Invitation.Namespace, Name: v1alpha1.PeeringClaimName}
	framework.Eventually(t, "the invitation ends once it was used", func(ctx context.Context) error {
		if err := g.Before.Get(ctx, key, &v1alpha1.PeeringClaim{}); err == nil {
			return errors.New("it can still be used")
		}
		return nil
	})
}
