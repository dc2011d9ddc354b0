package policymaker

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// unknown stands for the question of ConfigMaps whose label names none.
const unknown = "unknown"

// A Maker keeps the policies of this cluster and asks them.
type Maker struct {
	config   Config
	client   client.Client
	live     client.Reader
	clock    clock.PassiveClock
	recorder events.EventRecorder
	desks    map[policy.Question]*desk // filled by New, and never changed
}

// New returns a Maker. c reads from a cache, live from the API server itself. It starts nothing.
func New(config Config, c client.Client, live client.Reader, clk clock.PassiveClock, recorder events.EventRecorder) *Maker {
	config.Default()
	m := &Maker{config: config, client: c, live: live, clock: clk, recorder: recorder, desks: map[policy.Question]*desk{}}
	for _, question := range policy.Questions() {
		m.desks[question] = newDesk(question)
	}
	return m
}

// SetupWithManager registers the controllers of policies and of those that somebody tries with the manager. They are two
// so that trying one never holds up the others.
func (m *Maker) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Join(
		m.config.Validate(),
		ctrl.NewControllerManagedBy(mgr).
			Named("policy").
			Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(m.questionsOf)).
			WatchesRawSource(source.Func(everyQuestion)).
			Complete(m),
		ctrl.NewControllerManagedBy(mgr).
			Named("policy-test").
			For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(m.isTest))).
			Complete(m),
	)
}

// everyQuestion has all questions looked at when the controller starts, also those that there are no policies for.
func everyQuestion(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	for _, request := range everything() {
		queue.Add(request)
	}
	return nil
}

func everything() []reconcile.Request {
	requests := []reconcile.Request{requestFor(unknown)}
	for _, question := range policy.Questions() {
		requests = append(requests, requestFor(string(question)))
	}
	return requests
}

func requestFor(question string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: question}}
}

// questionsOf returns what has to be looked at when a ConfigMap has changed.
func (m *Maker) questionsOf(_ context.Context, o client.Object) []reconcile.Request {
	if o.GetNamespace() != m.config.Namespace {
		return nil
	}
	if o.GetName() == v1alpha1.PolicyStatus {
		return everything()
	}
	value, labelled := o.GetLabels()[v1alpha1.LabelPolicy]
	switch {
	case !labelled:
		return nil
	case isQuestion(value):
		return []reconcile.Request{requestFor(value)}
	default:
		return []reconcile.Request{requestFor(unknown)}
	}
}

// Reconcile brings the policies about the question of that name in force, or answers the ConfigMap of that namespace and
// name.
func (m *Maker) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Namespace != "" {
		return (&tester{maker: m}).test(ctx, request.NamespacedName)
	}
	return reconcile.Result{}, m.enact(ctx, request.Name)
}

// enact brings the policies about one question in force, and reports how they stand.
func (m *Maker) enact(ctx context.Context, question string) error {
	labelled := &corev1.ConfigMapList{}
	err := m.client.List(ctx, labelled, client.InNamespace(m.config.Namespace), client.HasLabels{v1alpha1.LabelPolicy})
	if err != nil {
		return fmt.Errorf("list policies: %w", err)
	}
	before, err := m.readStanding(ctx, question)
	if err != nil {
		return err
	}
	now := standing{Broken: bounded(straysOf(labelled.Items))}
	if d, known := m.desks[policy.Question(question)]; known {
		if now, err = m.enforce(ctx, d, before, labelled.Items); err != nil {
			return err
		}
	}
	return m.report(ctx, question, before, now, labelled.Items)
}

// enforce puts in force what of the wanted modules can be, and returns how things stand then.
func (m *Maker) enforce(ctx context.Context, d *desk, before standing, labelled []corev1.ConfigMap) (standing, error) {
	current := d.current.Load()
	if current == nil {
		current = before.ruling()
	}
	wanted, broken := modulesOf(labelled, d.question)
	next, failed, err := settle(compilerOf(d.question), current, wanted)
	if err != nil {
		return standing{}, fmt.Errorf("bring the policies about %s in force: %w", d.question, err)
	}
	for name, why := range failed {
		broken[name] = why.Error()
	}
	if next != d.current.Load() {
		d.replace(next)
		ctrl.LoggerFrom(ctx).Info("Policies are in force", "question", d.question, "modules", len(next.modules), "broken", len(broken))
	}
	return standingOf(next, broken), nil
}
