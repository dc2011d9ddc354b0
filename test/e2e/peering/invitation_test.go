package peering

import (
	stdcmp "cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestInvitationWorksOnce(t *testing.T) {
	ctx := framework.Begin(t)
	invitation := hamburg.CreateInvitation(t, "visby-once")
	bearer, _ := hamburg.ClientWithToken(t, invitation.Token)

	// Two clusters claim it at the same moment.
	errs := make([]error, 2)
	claims := make([]*v1alpha1.PeeringClaim, 2)
	keys := make(map[string]any)
	var both sync.WaitGroup
	for i := range claims {
		claim, key, _ := framework.NewClaim(t, invitation, fmt.Sprintf("visby-%d", i))
		claims[i], keys[claim.Spec.ClusterID] = claim, key
		both.Go(func() { errs[i] = bearer.Create(ctx, claim) })
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
		t.Errorf("the loser was told %v", errs[1-winner])
	}
	framework.Eventually(t, "hamburg takes the winner for its peer", func(ctx context.Context) error {
		peer, err := hamburg.GetPeer(ctx, "visby-once")
		if err != nil {
			return err
		}
		if peer.Spec.ClusterID != claims[winner].Spec.ClusterID || peer.Spec.PublicKey != claims[winner].Spec.PublicKey {
			return fmt.Errorf("cluster id %q, key %q", peer.Spec.ClusterID, peer.Spec.PublicKey)
		}
		return nil
	})

	// The invitation gives no more than that.
	for what, err := range map[string]error{
		"read another claim":     bearer.Get(ctx, types.NamespacedName{Namespace: "hanse-peer-lubeck", Name: "claim"}, &v1alpha1.PeeringClaim{}),
		"list claims":            bearer.List(ctx, &v1alpha1.PeeringClaimList{}, client.InNamespace(invitation.Namespace)),
		"read advertisements":    bearer.List(ctx, &v1alpha1.AdvertisementList{}, client.InNamespace(invitation.Namespace)),
		"read Secrets":           bearer.List(ctx, &corev1.SecretList{}, client.InNamespace(invitation.Namespace)),
		"ask for a namespace":    bearer.Create(ctx, framework.NewMapping(invitation.Namespace, "mine")),
		"read pods":              bearer.List(ctx, &corev1.PodList{}),
		"take the claim back":    bearer.Delete(ctx, claims[winner].DeepCopy()),
		"make a token of itself": bearer.SubResource("token").Create(ctx, framework.NewServiceAccount(invitation.Namespace, v1alpha1.InvitationServiceAccount), &authenticationv1.TokenRequest{}),
	} {
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestInvitationExpires(t *testing.T) {
	ctx := framework.Begin(t)
	invitation := hamburg.CreateInvitation(t, "visby-late")
	expireInvitation(t, hamburg, "visby-late")
	invitation.Expires = time.Now().Add(-time.Second)
	framework.Eventually(t, "hamburg says that the invitation has expired", func(ctx context.Context) error {
		return hamburg.CheckPeerCondition(ctx, "visby-late", v1alpha1.ConditionJoined, v1alpha1.ReasonInvitationExpired)
	})
	bearer, _ := hamburg.ClientWithToken(t, invitation.Token)
	claim, _, _ := framework.NewClaim(t, invitation, "visby")
	framework.Eventually(t, "nobody can use it any more", func(ctx context.Context) error {
		err := bearer.Create(ctx, claim.DeepCopy(), client.DryRunAll)
		if err == nil {
			return errors.New("it still works")
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
		t.Errorf("joining says %v", err)
	}
	if _, err := lubeck.GetPeer(ctx, "visby-late"); !apierrors.IsNotFound(err) {
		t.Errorf("joining left a Peer behind: %v", err)
	}

	// Asked again, hamburg gives another.
	second := hamburg.CreateInvitation(t, "visby-late", "--renew")
	if second.ID == invitation.ID {
		t.Error("it is the same invitation again")
	}
	expectInvitationEnded(t, hamburg.JoinAsGuest(t, second, "visby-late"))
}

// expireInvitation lets the time of an invitation pass at once: a story that gave it little time would depend on how fast
// the machine is.
func expireInvitation(t *testing.T, c *framework.Cluster, peer string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.InvitationSecret}}
	past := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationExpires, time.Now().Add(-time.Second).UTC().Format(time.RFC3339))
	if err := c.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(past))); err != nil {
		t.Fatal(err)
	}
	// The manager does not watch Secrets. It looks at this one when the Peer changes.
	if _, err := c.Kubectl(t.Context(), "patch", "peer", peer, "--type", "merge", "-p", `{"spec":{"invitation":{"timeToLive":"2h"}}}`); err != nil {
		t.Fatal(err)
	}
}

func TestSomebodyElseWithOurIDIsNotLetIn(t *testing.T) {
	ctx := framework.Begin(t)
	before, err := hamburg.GetPeer(ctx, "lubeck")
	if err != nil {
		t.Fatal(err)
	}
	invitation := hamburg.CreateInvitation(t, "visby-liar")
	bearer, _ := hamburg.ClientWithToken(t, invitation.Token)
	claim, _, _ := framework.NewClaim(t, invitation, "lubeck")
	if err := bearer.Create(ctx, claim); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, bearer, claim, v1alpha1.ReasonClusterIDTaken)
	if claim.Status.Session != nil {
		t.Error("it got a session")
	}
	after, err := hamburg.GetPeer(ctx, "lubeck")
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
		for _, c := range claim.Status.Conditions {
			if c.Type == v1alpha1.ConditionAccepted && c.Status == metav1.ConditionFalse && c.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", claim.Status.Conditions)
	})
}

// The standard library verifies a signature of zeros for a key that is a point of order 1.
func TestKeyThatEverybodyCanSignForIsNotLetIn(t *testing.T) {
	framework.Begin(t)
	invitation := hamburg.CreateInvitation(t, "visby-weak")
	bearer, _ := hamburg.ClientWithToken(t, invitation.Token)
	claim, _, _ := framework.NewClaim(t, invitation, "visby-weak")
	weak := append([]byte{1}, make([]byte, 31)...)
	claim.Spec.PublicKey = base64.StdEncoding.EncodeToString(weak)
	claim.Spec.Proof = base64.StdEncoding.EncodeToString(append(weak, make([]byte, 32)...))
	if err := bearer.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, bearer, claim, v1alpha1.ReasonProofInvalid)
	peer, err := hamburg.GetPeer(t.Context(), "visby-weak")
	if err != nil || peer.Spec.PublicKey != "" {
		t.Errorf("the key %q is pinned, %v", peer.Spec.PublicKey, err)
	}
}

// An invitation that hamburg made for somebody else, used by lubeck, which is its peer already.
func TestAWrongJoinChangesNothing(t *testing.T) {
	ctx := framework.Begin(t)
	before, err := lubeck.GetPeer(ctx, "hamburg")
	if err != nil {
		t.Fatal(err)
	}
	token, err := hamburg.CreateInvitation(t, "visby-else").Format()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := lubeck.Hanse(ctx, "join", token); err == nil || !strings.Contains(err.Error()+out, "Peer lubeck") {
		t.Errorf("joining says %v %s", err, out)
	}

	joinsInVain(t, lubeck, before, token)
	if _, err := hamburg.Hanse(ctx, "unpeer", "visby-else", "--force", "--forget"); err != nil {
		t.Error(err)
	}
}

// joinsInVain brings the invitation to hamburg by objects alone, which no client checks, and takes it back.
func joinsInVain(t *testing.T, c *framework.Cluster, before *v1alpha1.Peer, token string) {
	t.Helper()
	ctx := t.Context()
	tenant := v1alpha1.TenantNamespace("hamburg")
	offered := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.JoinSecret}, StringData: map[string]string{v1alpha1.InvitationToken: token},
	}
	if err := c.Create(ctx, offered); err != nil {
		t.Fatal(err)
	}
	announce := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationJoin+`":"visby-else"}}}`))
	if err := c.Patch(ctx, before.DeepCopy(), announce); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the session stands, beside an invitation in vain", sessionStands(c, v1alpha1.ReasonClusterIDTaken))
	if err := c.Delete(ctx, offered); err != nil {
		t.Fatal(err)
	}
	calm := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationJoin+`":null}}}`))
	if err := c.Patch(ctx, before.DeepCopy(), calm); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "all is as before", sessionStands(c, v1alpha1.ReasonReady))
}

// sessionStands checks that the session with hamburg stands and says so with that reason.
func sessionStands(c *framework.Cluster, reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		peer, err := c.GetPeer(ctx, "hamburg")
		if err != nil {
			return err
		}
		session := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession)
		if session == nil || session.Status != metav1.ConditionTrue || session.Reason != reason {
			return fmt.Errorf("Session is %+v", session)
		}
		if !meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("Ready is %+v", meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady))
		}
		return nil
	}
}

func TestUnpeerRevokes(t *testing.T) {
	ctx := framework.Begin(t)
	g := hamburg.PeerWithGuest(t, "visby-leaver")
	own := framework.NewServiceAccount(g.Invitation.Namespace, v1alpha1.PeerServiceAccount)
	request := func(bound string, life time.Duration) *authenticationv1.TokenRequest {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(life.Seconds()))}}
		if bound != "" {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: bound}
		}
		return r
	}
	const month = 30 * 24 * time.Hour
	for what, bad := range map[string]*authenticationv1.TokenRequest{
		"one that lives longer": request(v1alpha1.SessionSecret, 2*month),
		"one that is not bound": request("", month),
		"one bound elsewhere":   request(v1alpha1.ClusterInfo, month),
	} {
		if err := g.SubResource("token").Create(ctx, own, bad); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("minting %s: %v", what, err)
		}
	}
	good := request(v1alpha1.SessionSecret, month)
	if err := g.SubResource("token").Create(ctx, own, good); err != nil {
		t.Fatalf("renewing: %v", err)
	}
	renewed, _ := hamburg.ClientWithToken(t, good.Status.Token)
	key := types.NamespacedName{Namespace: g.Invitation.Namespace, Name: v1alpha1.ClusterInfo}
	if err := renewed.Get(ctx, key, &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}

	expectInvitationEnded(t, g)
	if _, err := hamburg.Hanse(ctx, "unpeer", "visby-leaver", "--force", "--forget"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]client.Client{"old": g.Client, "renewed": renewed} {
		framework.Eventually(t, "the "+name+" token is worth nothing: API servers remember tokens for 10 s", func(ctx context.Context) error {
			err := c.Get(ctx, key, &corev1.ConfigMap{})
			if apierrors.IsUnauthorized(err) {
				return nil
			}
			return fmt.Errorf("the answer is %w", stdcmp.Or(err, errors.New("the object")))
		})
	}
}

func TestTokenRenewal(t *testing.T) {
	ctx := framework.Begin(t)
	home, remote := lubeck.RunPodAt(t, hamburg)
	ready := func() metav1.Condition {
		peer, err := lubeck.GetPeer(ctx, "hamburg")
		if err != nil {
			t.Fatal(err)
		}
		return *meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
	}
	if err := framework.Install(ctx, lubeck, "renewalPeriod=3s"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := framework.Install(context.Background(), lubeck); err != nil {
			t.Error(err)
		}
	})
	framework.Eventually(t, "hamburg is Ready", func(ctx context.Context) error { return lubeck.CheckPeerReady(ctx, "hamburg") })
	stable := ready()
	seen := map[string]bool{}
	framework.Eventually(t, "four tokens, one after the other", func(ctx context.Context) error {
		link := &corev1.Secret{}
		key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.LinkSecret}
		if err := lubeck.Get(ctx, key, link); err != nil {
			return err
		}
		seen[string(link.Data[v1alpha1.LinkSecretKey])] = true
		if len(seen) < 4 {
			return fmt.Errorf("%d so far", len(seen))
		}
		return nil
	})
	if now := ready(); now.LastTransitionTime != stable.LastTransitionTime || now.Status != metav1.ConditionTrue {
		t.Errorf("the peer was disturbed: %+v, then %+v", stable, now)
	}
	if err := lubeck.CheckExec(ctx, home); err != nil {
		t.Error(err)
	}
	framework.ExpectSamePod(t, home, hamburg.MustGetRemotePod(t, home))
	if now := hamburg.MustGetRemotePod(t, home); now.UID != remote.UID {
		t.Errorf("the remote pod was replaced")
	}
}

func TestRenewAfterOutage(t *testing.T) {
	ctx := framework.Begin(t)
	home, remote := lubeck.RunPodAt(t, hamburg)
	// The tokens end as they do when an outage was longer than their life, while nobody can be told.
	framework.CutOff(t)
	session := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: v1alpha1.SessionSecret}}
	if err := hamburg.Delete(ctx, session); err != nil {
		t.Fatal(err)
	}
	framework.MustTestbed(t, "heal", "lubeck", "hamburg")
	framework.Eventually(t, "lubeck is told that its session has ended", func(ctx context.Context) error {
		return lubeck.CheckPeerCondition(ctx, "hamburg", v1alpha1.ConditionAuthenticated, v1alpha1.ReasonUnauthorized)
	})
	token, err := hamburg.Hanse(ctx, "invite", "lubeck", "--renew")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lubeck.Hanse(ctx, "join", strings.TrimSpace(token), "--as", "hamburg"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "hamburg is Ready again", func(ctx context.Context) error { return lubeck.CheckPeerReady(ctx, "hamburg") })
	framework.Eventually(t, "the pod is Ready and the same", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, home.Namespace, home.Name)
		if err != nil {
			return err
		}
		if now.UID != home.UID || !framework.IsPodReady(now) {
			return fmt.Errorf("uid %s, ready %v", now.UID, framework.IsPodReady(now))
		}
		return nil
	})
	now := hamburg.MustGetRemotePod(t, home)
	if diff := cmp.Diff(framework.ContainerIDs(remote), framework.ContainerIDs(now)); diff != "" || now.UID != remote.UID {
		t.Errorf("the remote pod was replaced: %s", diff)
	}
	// That the Peer is Ready is what the manager found. The kubelet takes the new session when it sees that.
	framework.Eventually(t, "commands run again", func(ctx context.Context) error { return lubeck.CheckExec(ctx, home) })
}
