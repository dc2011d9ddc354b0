// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/policy"
)

const fieldOwner = client.FieldOwner("hanse-namespaces")

// offloadings keeps the status of each NamespaceOffloading. A request names one, or is everything.
type offloadings struct {
	Config

	queue workqueue.TypedInterface[reconcile.Request] // of the controller; set when it starts
	pace  pace
	// market is what providers offer, as the first decision after the last look at everything found it; nil before that. To
	// read it costs more the more peers there are, and without offloaded namespaces nobody wants it. Only the controller's
	// single worker touches it.
	market *market
}

// start has everything looked at when the controller starts, and whenever the policies have changed.
func (c *offloadings) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.queue = queue
	c.Decider.OnChange(policy.Placement, func() { queue.Add(everything) })
	queue.Add(everything)
	return nil
}

// Reconcile looks at one NamespaceOffloading, or at everything.
func (c *offloadings) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request == everything {
		return c.lookAtEverything(ctx)
	}
	offloading, err := local.Find(ctx, c.Client, request.NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil || offloading == nil || !offloading.DeletionTimestamp.IsZero() {
		delete(c.pace, request)
		return reconcile.Result{}, err
	}
	seen, err := c.observe(ctx, offloading)
	if err != nil {
		return reconcile.Result{}, err
	}
	again, err := c.place(ctx, request, &seen)
	if err == nil {
		err = c.agree(ctx, &seen)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, c.store(ctx, offloading, statusOf(seen, c.Clock.Now()))
}

// lookAtEverything has each namespace looked at, with what providers offer by then.
func (c *offloadings) lookAtEverything(ctx context.Context) (reconcile.Result, error) {
	if wait := c.pace.wait(everything, c.Clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	requests, err := offloaded(ctx, c.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.market = nil
	for _, request := range requests {
		c.queue.Add(request)
	}
	return reconcile.Result{RequeueAfter: lookAgain}, nil
}

// observe gathers what each peer that the offloading selects has answered.
func (c *offloadings) observe(ctx context.Context, offloading *v1alpha1.NamespaceOffloading) (facts, error) {
	seen := facts{offloading: offloading}
	seen.placement, seen.invalid = offload.NewPlacement(offloading)
	if seen.invalid != nil {
		return seen, nil //nolint:nilerr // the status of the NamespaceOffloading tells the user; trying again cannot help
	}
	policies, err := c.networkPolicies(ctx, offloading.Namespace)
	if err != nil {
		return facts{}, err
	}
	seen.policies = policies
	all := &v1alpha1.PeerList{}
	if err := c.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return facts{}, fmt.Errorf("list peers: %w", err)
	}
	nodes, err := virtualNodes(ctx, c.Client)
	if err != nil {
		return facts{}, err
	}
	byName := make(map[string]*corev1.Node, len(nodes)) // name of a virtual node → the node
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	for i := range all.Items {
		peer := &all.Items[i]
		of := situation{
			offloading: offloading, peer: peer, node: byName[v1alpha1.VirtualNodeName(peer.Name)], placement: seen.placement,
		}
		if of.need() == needed {
			seen.clusters = append(seen.clusters, c.cluster(peer, offloading))
		}
	}
	return seen, nil
}

// networkPolicies returns the names of those in the namespace, sorted.
func (c *offloadings) networkPolicies(ctx context.Context, namespace string) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(networkingv1.SchemeGroupVersion.WithKind("NetworkPolicyList"))
	if err := c.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NetworkPolicies: %w", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// cluster says how the offloading to one peer stands.
func (c *offloadings) cluster(peer *v1alpha1.Peer, offloading *v1alpha1.NamespaceOffloading) v1alpha1.ClusterOffloading {
	hasMappings := peer.Protocol().Mappings
	link, ok := usable(c.Links, peer.Name, !hasMappings)
	cluster := v1alpha1.ClusterOffloading{Peer: peer.Name, State: statePending}
	switch {
	case !ok:
		cluster.Message = "There is no connection to the peer: see the conditions of its Peer"
		return cluster
	case hasMappings:
		return standing(cluster, link.Mapping(offloading.Namespace), twinName(offloading))
	case len(peer.Spec.Namespaces) > 0: // where an administrator has chosen one namespace for all pods
		cluster.State, cluster.Twin = stateReady, peer.Spec.Namespaces[0]
	}
	return cluster
}

// place adds to the facts where new pods go: what the policies say of the pods of the namespace and of its classes, combined
// with what its user wants. It returns when to look at that again. Policies are asked about one namespace at most once in an
// interval. In between, what was decided last stays.
func (c *offloadings) place(ctx context.Context, request reconcile.Request, seen *facts) (again time.Duration, err error) {
	offloading := seen.offloading
	seen.placed = outcome{placement: offloading.Status.Placement, condition: placedOf(offloading)}
	if wait := c.pace.wait(request, c.Clock.Now()); wait > 0 {
		return wait, nil
	}
	switch {
	case seen.invalid != nil:
		seen.placed.condition = condition(v1alpha1.ConditionPlaced, v1alpha1.ReasonInvalidField, seen.invalid.Error())
		seen.placed.condition.ObservedGeneration = offloading.Generation
		return 0, nil //nolint:nilerr // the status tells the user; trying again cannot help
	case seen.placement.Strategy() == v1alpha1.StrategyLocal:
		seen.placed = outcome{}
		return 0, nil
	case c.market == nil:
		if c.market, err = c.readMarket(ctx); err != nil {
			return 0, err
		}
	}
	namespace, err := local.Find(ctx, c.Client, client.ObjectKey{Name: offloading.Namespace}, &corev1.Namespace{})
	if err != nil || namespace == nil {
		return 0, err
	}
	questions := newQuestions(c.market, seen.placement, offloading)
	answers := make([]decision, len(questions))
	for i, question := range questions {
		question.refusing = refusing(seen.clusters)
		if answers[i], err = c.ask(ctx, question, namespace); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "The policies gave no answer about placement", "class", question.name())
			seen.placed = unanswered(offloading, questions, errors.Is(err, policy.ErrTooSlow))
			return askAgain, nil
		}
	}
	seen.placed = combine(offloading, answers)
	return 0, nil
}

func (c *offloadings) ask(ctx context.Context, q question, namespace *corev1.Namespace) (decision, error) {
	input, err := policy.NewInput(q.facts(c.market, namespace, c.Clock.Now()))
	if err != nil {
		return decision{}, err
	}
	said, err := c.Decider.Decide(ctx, policy.Placement, input)
	if err != nil {
		return decision{}, err
	}
	decided := q.decide(said)
	decided.ExcludedBehind = c.excludedBehind(ctx, q, namespace)
	return decided, nil
}

// excludedBehind are the ids of the clusters behind providers that policies exclude. Only that is asked about them: what they
// are worth and which is the best is the matter of the provider. Without an answer all are excluded.
func (c *offloadings) excludedBehind(ctx context.Context, q question, namespace *corev1.Namespace) []string {
	if c.market.behind == nil || !c.Decider.HasPolicies(policy.Placement) {
		return nil
	}
	facts := q.facts(c.market, namespace, c.Clock.Now())
	facts.Table = c.market.behind
	said := policy.Decision{}
	input, err := policy.NewInput(facts)
	if err == nil {
		said, err = c.Decider.Decide(ctx, policy.Placement, input)
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The policies gave no answer about clusters behind providers", "class", q.name())
	}
	excluded := slices.DeleteFunc(slices.Clone(c.market.behindIDs), func(id string) bool {
		if err != nil || said.Outcome != policy.Allow {
			return false
		}
		return said.Ranking == nil || !hasKey(said.Ranking.Exclude, id)
	})
	slices.Sort(excluded)
	return excluded[:min(len(excluded), maxExcludedBehind)]
}

func hasKey(of map[string]string, key string) bool {
	_, has := of[key]
	return has
}

// store writes the status if it differs from the one that is there, and tells of a change.
//
// It is a patch of what differs and nothing that is applied: versions before had two owners of the status, and what another
// owner has applied does not go away by applying less.
func (c *offloadings) store(
	ctx context.Context, offloading *v1alpha1.NamespaceOffloading, status v1alpha1.NamespaceOffloadingStatus,
) error {
	if equality.Semantic.DeepEqual(offloading.Status, status) {
		return nil
	}
	changed := offloading.DeepCopy()
	changed.Status = status
	err := c.Client.Status().Patch(ctx, changed, client.MergeFrom(offloading), fieldOwner)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	c.announce(ctx, offloading, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPlaced))
	return nil
}

// announce tells the user, and us, where new pods go now. That only weights have moved is in the status and needs no event.
func (c *offloadings) announce(ctx context.Context, offloading *v1alpha1.NamespaceOffloading, now *metav1.Condition) {
	before := meta.FindStatusCondition(offloading.Status.Conditions, v1alpha1.ConditionPlaced)
	if now == nil || (before != nil && before.Status == now.Status && before.Reason == now.Reason && before.Message == now.Message) {
		return
	}
	kind, reason := corev1.EventTypeNormal, v1alpha1.ConditionPlaced
	if now.Status != metav1.ConditionTrue {
		kind, reason = corev1.EventTypeWarning, now.Reason
	}
	c.Events.Eventf(offloading, nil, kind, reason, "Place", "%s", now.Message)
	ctrl.LoggerFrom(ctx).Info("Placement changed", "status", now.Status, "reason", now.Reason, "message", now.Message)
}
