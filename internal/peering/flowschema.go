package peering

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	said []flowcontrolv1.PolicyRulesWithSubjects // what the FlowSchema said when it was read last
	due  time.Time                               // when it is read again though the consumers are the same
}

// keep writes who the consumers are, if it is not written already.
func (s *flowSchema) keep(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	peers := &v1alpha1.PeerList{}
	if err := s.client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Peers: %w", err)
	}
	rules, now := flowRules(peers.Items), s.config.Clock.Now()
	if now.Before(s.due) && equality.Semantic.DeepEqual(s.said, rules) {
		return nil
	}
	schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: flowSchemaName}}
	there, err := s.find(ctx, schema)
	if err == nil && there {
		err = s.patch(ctx, schema, func() { schema.Spec.Rules = rules })
	}
	if err != nil {
		return fmt.Errorf("keep the rules of FlowSchema %s: %w", flowSchemaName, err)
	}
	s.said, s.due = rules, now.Add(wait.Jitter(repairPeriod, repairJitter))
	return nil
}

// flowRules returns the rules by which all requests of the consumers are theirs. A rule cannot be without subjects.
func flowRules(peers []v1alpha1.Peer) []flowcontrolv1.PolicyRulesWithSubjects {
	subjects := []flowcontrolv1.Subject{}
	for i := range peers {
		if peers[i].HasRole(v1alpha1.RoleConsumer) {
			subjects = append(subjects, flowcontrolv1.Subject{
				Kind: flowcontrolv1.SubjectKindGroup,
				Group: &flowcontrolv1.GroupSubject{
					Name: "system:serviceaccounts:" + v1alpha1.TenantNamespace(peers[i].Name),
				},
			})
		}
	}
	if len(subjects) == 0 {
		return nil
	}
	slices.SortFunc(subjects, func(a, b flowcontrolv1.Subject) int { return cmp.Compare(a.Group.Name, b.Group.Name) })
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
