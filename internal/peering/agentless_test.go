// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// agentless is a world with a peer without Hanse, which answers as allow says.
func agentless(t *testing.T, allow func(*authorizationv1.ResourceAttributes) (bool, error)) *world {
	t.Helper()
	peer := peerOf(v1alpha1.RoleProvider)
	peer.Spec = v1alpha1.PeerSpec{
		Roles: peer.Spec.Roles, Mode: v1alpha1.ModeAgentless, Namespaces: []string{"blue", "green"},
	}
	w := newWorld(t, peer)
	w.lead(interceptor.NewClient(w.away.Client, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review := o.(*authorizationv1.SelfSubjectAccessReview)
			allowed, err := allow(review.Spec.ResourceAttributes)
			review.Status.Allowed = allowed
			return err
		},
	}))
	return w
}

func TestAgentlessPeerIsAskedForOurRights(t *testing.T) {
	asked := map[string]bool{}
	w := agentless(t, func(right *authorizationv1.ResourceAttributes) (bool, error) {
		asked[right.Verb+" "+right.Namespace+"/"+right.Resource] = true
		return true, nil
	})
	w.reconcile()
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAuthenticated, v1alpha1.ConditionCompatible} {
		w.expect(kind, yes, v1alpha1.ReasonReady)
	}
	w.expect(v1alpha1.ConditionConnected, no, v1alpha1.ReasonAgentless)
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonNoAdvertisement)
	for _, right := range []string{
		"watch blue/pods", "create blue/replicasets", "create blue/jobs", "delete green/pods", "patch green/replicasets",
	} {
		if !asked[right] {
			t.Errorf("not asked for %s", right)
		}
	}
	if got := w.peer().Spec.ClusterID; got != v1alpha1.AgentlessClusterID(w.config.ClusterID, "hamburg") {
		t.Errorf("the peer is called %q", got)
	}
	if w.asked() > 0 || !w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("it cannot introduce itself, and its tenant namespace must exist")
	}
	w.expectNoWrites()

	w.linked()
	w.partBy(v1alpha1.PartingForced)
	w.finish()
	if w.exists("", tenant, &corev1.Namespace{}) {
		t.Error("there is a tombstone for a cluster that could not read it")
	}
}

func TestRightsForCopiesAreAskedForWhereThereAreToBeSome(t *testing.T) {
	for name, test := range map[string]struct {
		copies v1alpha1.PeerCopies
		want   metav1.ConditionStatus
		says   string
	}{
		"none":          {"", yes, ""},
		"configuration": {v1alpha1.CopiesConfiguration, no, "to update secrets in namespace blue"},
	} {
		t.Run(name, func(t *testing.T) {
			w := agentless(t, func(right *authorizationv1.ResourceAttributes) (bool, error) {
				return right.Resource != "secrets" || right.Verb != "update", nil
			})
			peer := w.peer()
			peer.Spec.Copies = test.copies
			w.update(peer)
			w.reconcile()
			got := meta.FindStatusCondition(w.peer().Status.Conditions, v1alpha1.ConditionAuthenticated)
			if got == nil || got.Status != test.want || !strings.Contains(got.Message, test.says) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestCopiesAreDroppedWhereThereAreToBeNone(t *testing.T) {
	w := agentless(t, func(*authorizationv1.ResourceAttributes) (bool, error) { return true, nil })
	id := v1alpha1.AgentlessClusterID(w.config.ClusterID, "hamburg")
	ours := metav1.ObjectMeta{Namespace: "green", Name: "a", Labels: map[string]string{v1alpha1.LabelAgentless: id}}
	theirs := metav1.ObjectMeta{Namespace: "green", Name: "b", Labels: map[string]string{v1alpha1.LabelAgentless: "agentless-2"}}
	w.away.Put(&corev1.Secret{ObjectMeta: ours}, &corev1.ConfigMap{ObjectMeta: ours}, &corev1.Secret{ObjectMeta: theirs})
	w.reconcile()
	left := append(w.away.Names(&corev1.SecretList{}, "green"), w.away.Names(&corev1.ConfigMapList{}, "green")...)
	if diff := cmp.Diff([]string{"b"}, left); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsWrongWithAnAgentlessPeerIsSaid(t *testing.T) {
	for name, test := range map[string]struct {
		allowed bool
		err     error
		kind    string
		reason  string
		says    string
	}{
		"a right is missing": {
			false, nil, v1alpha1.ConditionAuthenticated, v1alpha1.ReasonForbidden, "replicasets in namespace blue",
		},
		"unauthorized": {false, unauthorized, v1alpha1.ConditionAuthenticated, v1alpha1.ReasonUnauthorized, "does not accept"},
		"no answer":    {false, context.DeadlineExceeded, v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable, "timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			w := agentless(t, func(*authorizationv1.ResourceAttributes) (bool, error) { return test.allowed, test.err })
			w.reconcile()
			w.expect(test.kind, no, test.reason)
			w.expect(v1alpha1.ConditionReady, no, test.reason)
			got := meta.FindStatusCondition(w.peer().Status.Conditions, test.kind)
			if !strings.Contains(got.Message, test.says) {
				t.Errorf("%q does not say %q", got.Message, test.says)
			}
			w.expectNoWrites()
		})
	}
}

func TestWhatIsLeftAtAnAgentlessPeerIsEnded(t *testing.T) {
	w := agentless(t, func(*authorizationv1.ResourceAttributes) (bool, error) { return true, nil })
	peer := w.peer()
	peer.Spec.ClusterID, peer.Spec.Copies = "agentless-1", v1alpha1.CopiesConfiguration
	w.update(peer)
	w.linked()
	w.reconcile()
	ours := metav1.ObjectMeta{
		Namespace: "green", Name: "web-0-x", Labels: map[string]string{v1alpha1.LabelAgentless: "agentless-1"},
	}
	theirs := metav1.ObjectMeta{Namespace: "green", Name: "web", Labels: map[string]string{v1alpha1.LabelAgentless: "agentless-2"}}
	w.away.Put(
		&appsv1.ReplicaSet{ObjectMeta: ours}, &batchv1.Job{ObjectMeta: ours}, &corev1.Pod{ObjectMeta: ours},
		&appsv1.ReplicaSet{ObjectMeta: theirs}, &corev1.Secret{ObjectMeta: ours},
	)
	w.part()
	w.reconcile()
	if got := w.waitsFor(); !strings.Contains(got, "what is left of ours there") {
		t.Errorf("it waits for %q", got)
	}
	if len(w.away.Names(&corev1.SecretList{}, "green")) == 0 {
		t.Error("its pods lose the Secret before they have ended")
	}
	w.finish()
	left := append(w.away.Names(&appsv1.ReplicaSetList{}, "green"), w.away.Names(&corev1.SecretList{}, "green")...)
	if diff := cmp.Diff([]string{"web"}, left); diff != "" {
		t.Error(diff)
	}
}
