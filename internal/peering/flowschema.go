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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	if err == nil && there && !equality.Semantic.DeepEqual(schema.Spec.Rules, rules) {
		err = s.apply(ctx, schema, rules)
	}
	if err == nil {
		s.said, s.due = rules, now.Add(wait.Jitter(repairPeriod, repairJitter))
	}
	return err
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

func (s *flowSchema) apply(
	ctx context.Context, schema *flowcontrolv1.FlowSchema, rules []flowcontrolv1.PolicyRulesWithSubjects,
) error {
	list := []any{} // an empty list is said, too: what is left out stays as it is
	for i := range rules {
		rule, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rules[i])
		if err != nil {
			return fmt.Errorf("convert rules: %w", err)
		}
		list = append(list, rule)
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"rules": list}}}
	patch.SetGroupVersionKind(flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"))
	patch.SetName(schema.Name)
	patch.SetUID(schema.UID) // changes it, and never makes one
	err := s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), invitationOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write the rules of FlowSchema %s: %w", schema.Name, err)
	}
	return nil
}
