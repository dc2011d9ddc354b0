// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// flowSchemaName is the FlowSchema that the chart makes, with an empty list of rules.
const flowSchemaName = "hanse-peers"

// flowSchema keeps the list of consumers in the one FlowSchema by which all of them share a priority level: a consumer
// that floods the API server does not starve anybody else.
type flowSchema struct {
	*deps

	mu   sync.Mutex
	said sets.Set[string] // Peers that are consumers by what the FlowSchema said when it was written last
	due  time.Time        // when it is read again though nothing has changed
}

// keep writes who the consumers are, unless what is written holds for the Peer of that name. Few Peers gain or lose a role,
// and each is looked at often, so the others are read only if this one has.
func (s *flowSchema) keep(ctx context.Context, name string) error {
	peer := &v1alpha1.Peer{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: name}, peer, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Peer %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.config.Clock.Now()
	if now.Before(s.due) && s.said.Has(name) == peer.HasRole(v1alpha1.RoleConsumer) {
		return nil
	}
	peers := &v1alpha1.PeerList{}
	if err := s.client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Peers: %w", err)
	}
	consumers := consumersOf(peers.Items)
	schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: flowSchemaName}}
	there, err := s.find(ctx, schema)
	if err == nil && there {
		err = s.patch(ctx, schema, func() { schema.Spec.Rules = flowRules(consumers) })
	}
	if err != nil {
		return fmt.Errorf("keep the rules of FlowSchema %s: %w", flowSchemaName, err)
	}
	s.said, s.due = consumers, now.Add(wait.Jitter(repairPeriod, repairJitter))
	return nil
}

func consumersOf(peers []v1alpha1.Peer) sets.Set[string] {
	consumers := sets.New[string]()
	for i := range peers {
		if peers[i].HasRole(v1alpha1.RoleConsumer) {
			consumers.Insert(peers[i].Name)
		}
	}
	return consumers
}

// flowRules returns the rules by which all requests of the consumers are theirs. A rule cannot be without subjects.
func flowRules(consumers sets.Set[string]) []flowcontrolv1.PolicyRulesWithSubjects {
	if consumers.Len() == 0 {
		return nil
	}
	subjects := make([]flowcontrolv1.Subject, 0, consumers.Len())
	for _, name := range sets.List(consumers) {
		subjects = append(subjects, flowcontrolv1.Subject{
			Kind:  flowcontrolv1.SubjectKindGroup,
			Group: &flowcontrolv1.GroupSubject{Name: "system:serviceaccounts:" + v1alpha1.TenantNamespace(name)},
		})
	}
	return []flowcontrolv1.PolicyRulesWithSubjects{{
		Subjects: subjects,
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
			Verbs:        []string{flowcontrolv1.VerbAll},
			APIGroups:    []string{flowcontrolv1.APIGroupAll},
			Resources:    []string{flowcontrolv1.ResourceAll},
			ClusterScope: true,
			Namespaces:   []string{flowcontrolv1.NamespaceEvery},
		}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{
			Verbs: []string{flowcontrolv1.VerbAll}, NonResourceURLs: []string{flowcontrolv1.NonResourceAll},
		}},
	}}
}
