// SPDX-License-Identifier: Apache-2.0

package invitations

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

func TestInvitationWorksOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	invitation := hamburg.Invite(t, "visby-once")
	bearer, _ := hamburg.As(t, invitation.Token)

	// Two clusters claim it at the same moment.
	errs := make([]error, 2)
	claims := make([]*v1alpha1.PeeringClaim, 2)
	var both sync.WaitGroup
	for i := range claims {
		claims[i], _, _ = framework.NewClaim(t, invitation, fmt.Sprintf("visby-%d", i))
		both.Go(func() { errs[i] = bearer.Create(ctx, claims[i]) })
	}
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("one of two should win: %v, %v", errs[0], errs[1])
	}
	winner := 0
	if errs[0] != nil {
		winner = 1
	}
	if !apierrors.IsAlreadyExists(errs[1-winner]) {
		t.Errorf("the loser gets %v", errs[1-winner])
	}
	framework.Eventually(t, "hamburg pins id and key of the winner", func(ctx context.Context) error {
		peer, err := hamburg.Peer(ctx, "visby-once")
		if err != nil {
			return err
		}
		if peer.Spec.ClusterID != claims[winner].Spec.ClusterID || peer.Spec.PublicKey != claims[winner].Spec.PublicKey {
			return fmt.Errorf("cluster id %q, key %q", peer.Spec.ClusterID, peer.Spec.PublicKey)
		}
		return nil
	})

	// The invitation allows no more than that.
	tenant := invitation.Namespace
	for what, err := range map[string]error{
		"read another claim":        bearer.Get(ctx, types.NamespacedName{Namespace: "hanse-peer-lubeck", Name: "claim"}, &v1alpha1.PeeringClaim{}),
		"list claims":               bearer.List(ctx, &v1alpha1.PeeringClaimList{}, client.InNamespace(tenant)),
		"read advertisements":       bearer.List(ctx, &v1alpha1.AdvertisementList{}, client.InNamespace(tenant)),
		"read Secrets":              bearer.List(ctx, &corev1.SecretList{}, client.InNamespace(tenant)),
		"ask for a namespace":       bearer.Create(ctx, framework.Mapping(tenant, "mine")),
		"read pods":                 bearer.List(ctx, &corev1.PodList{}),
		"delete the claim":          bearer.Delete(ctx, claims[winner].DeepCopy()),
		"create a token of its own": bearer.SubResource("token").Create(ctx, account(tenant, v1alpha1.InvitationServiceAccount), &authenticationv1.TokenRequest{}),
	} {
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: framework.Named(namespace, name)}
}

func TestInvitationExpires(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	invitation := hamburg.Invite(t, "visby-late")
	expire(t, "visby-late")
	invitation.Expires = time.Now().Add(-time.Second)
	framework.Eventually(t, "hamburg says that the invitation has expired", func(ctx context.Context) error {
		return hamburg.PeerLacks(ctx, "visby-late", v1alpha1.ConditionJoined, v1alpha1.ReasonInvitationExpired)
	})
	bearer, _ := hamburg.As(t, invitation.Token)
	claim, _, _ := framework.NewClaim(t, invitation, "visby")
	framework.Eventually(t, "its token is void", func(ctx context.Context) error {
		err := bearer.Create(ctx, claim.DeepCopy(), client.DryRunAll)
		if err == nil {
			return errors.New("it is still accepted")
		}
		if !apierrors.IsUnauthorized(err) {
			return err
		}
		return nil
	})
	token, err := invitation.Format()
	if err != nil {
		t.Fatal(err)
	}
	_, err = lubeck.Hanse(ctx, "join", token, "--as", "visby-late", "--timeout", "20s")
	if err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("join says %v", err)
	}
	if _, err := lubeck.Peer(ctx, "visby-late"); !apierrors.IsNotFound(err) {
		t.Errorf("join left a Peer behind: %v", err)
	}

	second := hamburg.Invite(t, "visby-late", "--renew")
	if second.ID == invitation.ID {
		t.Error("--renew returns the same invitation again")
	}
	hamburg.Join(t, second, "visby-late").ExpectInvitationEnded(t)
}

// expire lets the time of an invitation pass at once: a test that gave it little time would depend on the speed of the machine.
func expire(t *testing.T, peer string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: framework.Named(v1alpha1.TenantNamespace(peer), v1alpha1.InvitationSecret)}
	past := time.Now().Add(-time.Second).UTC().Format(time.RFC3339)
	hamburg.MustPatch(t, secret, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationExpires, past))
	// The manager does not watch Secrets. It reads this one when the Peer changes.
	hamburg.MustPatch(t, &v1alpha1.Peer{ObjectMeta: framework.Named("", peer)}, `{"spec":{"invitation":{"timeToLive":"2h"}}}`)
}

func TestClaimOfATakenIDIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	before, err := hamburg.Peer(ctx, "lubeck")
	if err != nil {
		t.Fatal(err)
	}
	invitation := hamburg.Invite(t, "visby-liar")
	bearer, _ := hamburg.As(t, invitation.Token)
	claim, _, _ := framework.NewClaim(t, invitation, "lubeck")
	if err := bearer.Create(ctx, claim); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, bearer, claim, v1alpha1.ReasonClusterIDTaken)
	if claim.Status.Session != nil {
		t.Error("the claim got a session")
	}
	after, err := hamburg.Peer(ctx, "lubeck")
	if err != nil || after.Generation != before.Generation || after.UID != before.UID {
		t.Errorf("the real lubeck was disturbed: %v", err)
	}
}

// awaitRefusal waits until the claim is refused for that reason.
func awaitRefusal(t *testing.T, bearer client.Client, claim *v1alpha1.PeeringClaim, reason string) {
	t.Helper()
	framework.Eventually(t, "the claim is refused with a reason", func(ctx context.Context) error {
		if err := bearer.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		accepted := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionAccepted)
		if accepted == nil || accepted.Status != metav1.ConditionFalse || accepted.Reason != reason {
			return fmt.Errorf("conditions: %+v", claim.Status.Conditions)
		}
		return nil
	})
}

// TestWeakKeyIsRefused: the standard library accepts a signature of zeros for a key that is a point of order 1.
func TestWeakKeyIsRefused(t *testing.T) {
	t.Parallel()
	invitation := hamburg.Invite(t, "visby-weak")
	bearer, _ := hamburg.As(t, invitation.Token)
	claim, _, _ := framework.NewClaim(t, invitation, "visby-weak")
	weak := append([]byte{1}, make([]byte, 31)...)
	claim.Spec.PublicKey = base64.StdEncoding.EncodeToString(weak)
	claim.Spec.Proof = base64.StdEncoding.EncodeToString(append(weak, make([]byte, 32)...))
	if err := bearer.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, bearer, claim, v1alpha1.ReasonProofInvalid)
	peer, err := hamburg.Peer(t.Context(), "visby-weak")
	if err != nil || peer.Spec.PublicKey != "" {
		t.Errorf("the key %q is pinned, %v", peer.Spec.PublicKey, err)
	}
}

// TestWrongJoinChangesNothing: lubeck, which is a peer already, uses an invitation that hamburg made for somebody else.
func TestWrongJoinChangesNothing(t *testing.T) {
	ctx := t.Context()
	before, err := lubeck.Peer(ctx, "hamburg")
	if err != nil {
		t.Fatal(err)
	}
	token, err := hamburg.Invite(t, "visby-else").Format()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := lubeck.Hanse(ctx, "join", token); err == nil || !strings.Contains(err.Error()+out, "Peer lubeck") {
		t.Errorf("join says %v %s", err, out)
	}

	// The same by objects alone, which no client checks.
	offered := &corev1.Secret{
		ObjectMeta: framework.Named(v1alpha1.TenantNamespace("hamburg"), v1alpha1.JoinSecret), StringData: map[string]string{v1alpha1.InvitationToken: token},
	}
	lubeck.MustCreate(t, offered)
	lubeck.MustPatch(t, before.DeepCopy(), fmt.Sprintf(`{"metadata":{"annotations":{%q:"visby-else"}}}`, v1alpha1.AnnotationJoin))
	framework.Eventually(t, "the session remains, and its condition says that the invitation is useless", hasSession(v1alpha1.ReasonClusterIDTaken))
	if err := lubeck.Delete(ctx, offered); err != nil {
		t.Fatal(err)
	}
	lubeck.MustPatch(t, before.DeepCopy(), fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationJoin))
	framework.Eventually(t, "all is as before", hasSession(v1alpha1.ReasonReady))
	hamburg.MustHanse(t, "unpeer", "visby-else", "--force", "--forget")
}

// hasSession checks that lubeck has a session with hamburg, for that reason, and is Ready.
func hasSession(reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		peer, err := lubeck.Peer(ctx, "hamburg")
		if err != nil {
			return err
		}
		session := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession)
		if session == nil || session.Status != metav1.ConditionTrue || session.Reason != reason {
			return fmt.Errorf("Session is %+v", session)
		}
		return lubeck.PeerHas(ctx, "hamburg", v1alpha1.ConditionReady)
	}
}
