// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func (w *world) keepFlowSchema() {
	w.t.Helper()
	for _, peer := range []string{"bremen", "danzig", "hamburg"} {
		if err := w.consumers.keep(w.t.Context(), peer); err != nil {
			w.t.Fatal(err)
		}
	}
}

// With a thousand Peers, each of which is looked at twice a minute, reading all of them each time is most of what an idle
// manager does.
func TestConsumersAreListedOnlyWhenOneCameOrWent(t *testing.T) {
	another := newPeer(v1alpha1.RoleConsumer)
	another.Name = "danzig"
	w := newInviteWorld(t, newPeer(v1alpha1.RoleConsumer), another)
	lists := 0
	counted := *w.consumers.deps
	counted.client = interceptor.NewClient(w.client, interceptor.Funcs{
		List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			lists++
			return to.List(ctx, list, options...)
		},
	})
	w.consumers.deps = &counted
	for range 10 {
		w.keepFlowSchema()
	}
	if lists != 1 {
		t.Errorf("Peers were listed %d times", lists)
	}
	if err := w.client.Delete(t.Context(), another); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		w.keepFlowSchema()
	}
	if lists != 2 {
		t.Errorf("Peers were listed %d times after one went", lists)
	}
}

func TestFlowSchemaNamesTheConsumers(t *testing.T) {
	made := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "hanse-peers", UID: "schema-uid"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         900,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "hanse-peers"},
		},
	}
	provider := newPeer(v1alpha1.RoleProvider)
	provider.Name = "bremen"
	another := newPeer(v1alpha1.RoleConsumer)
	another.Name = "danzig"
	w := newInviteWorld(t, made, provider, newPeer(v1alpha1.RoleConsumer), another)
	w.keepFlowSchema()

	got := &flowcontrolv1.FlowSchema{}
	w.get("", "hanse-peers", got)
	want := []flowcontrolv1.PolicyRulesWithSubjects{{
		Subjects: []flowcontrolv1.Subject{
			{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: "system:serviceaccounts:hanse-peer-danzig"}},
			{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: "system:serviceaccounts:hanse-peer-hamburg"}},
		},
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
			Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"},
		}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
	}}
	// The fake takes what is not named in the patch for zero, which the API server does not.
	if diff := cmp.Diff(want, got.Spec.Rules); diff != "" {
		t.Error(diff)
	}
	before := w.writes
	if w.keepFlowSchema(); w.writes != before {
		t.Error("written though nothing changed")
	}

	for _, peer := range []client.Object{another, w.peer()} {
		if err := w.client.Delete(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
	}
	w.keepFlowSchema()
	w.get("", "hanse-peers", got)
	if len(got.Spec.Rules) > 0 {
		t.Errorf("rules without consumers: %v", got.Spec.Rules)
	}
	before = w.writes
	if w.keepFlowSchema(); w.writes != before {
		t.Error("written though nothing changed")
	}
}

func TestMissingFlowSchemaIsNoError(t *testing.T) {
	w := newInviteWorld(t, newPeer(v1alpha1.RoleConsumer))
	if w.keepFlowSchema(); w.writes > 0 {
		t.Error("something was written")
	}
}
