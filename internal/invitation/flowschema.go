package invitation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// flowSchemaName is the FlowSchema that the chart makes, with an empty list of rules.
const flowSchemaName = "hanse-peers"

// flowSchemas keep the list of consumers in the one FlowSchema by which all of them share a priority level: a consumer
// that floods the API server does not starve anybody else.
type flowSchemas struct {
	client client.Client // reads from a cache
	direct client.Reader // reads from the API server itself: Hanse may read this one by name only
}

// Reconcile writes who the consumers are, if it is not written already.
func (s *flowSchemas) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: wait.Jitter(repairPeriod, 0.2)}
	peers := &v1alpha1.PeerList{}
	if err := s.client.List(ctx, peers); err != nil {
		return reconcile.Result{}, fmt.Errorf("list Peers: %w", err)
	}
	schema := &flowcontrolv1.FlowSchema{}
	err := s.direct.Get(ctx, client.ObjectKey{Name: flowSchemaName}, schema)
	if apierrors.IsNotFound(err) {
		return again, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read FlowSchema %s: %w", flowSchemaName, err)
	}
	rules := flowRules(peers.Items)
	if equality.Semantic.DeepEqual(schema.Spec.Rules, rules) {
		return again, nil
	}
	return again, s.apply(ctx, schema, rules)
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

func (s *flowSchemas) apply(
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
	err := s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), fieldOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write the rules of FlowSchema %s: %w", schema.Name, err)
	}
	return nil
}

// consumerChanges are those by which the list of consumers may change.
var consumerChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Peer), e.ObjectNew.(*v1alpha1.Peer)
	return before.HasRole(v1alpha1.RoleConsumer) != after.HasRole(v1alpha1.RoleConsumer)
}}

func (s *flowSchemas) setup(mgr ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: flowSchemaName}}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("invitation-flowschema").
		Watches(&v1alpha1.Peer{}, one, builder.WithPredicates(consumerChanges)).
		Complete(s)
}
