package placement

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A Decider asks the policies.
type Decider interface {
	// Decide returns the answer to the question.
	Decide(ctx context.Context, question policy.Question, input policy.Input) (policy.Decision, error)
	// OnChange has ring called whenever other policies are in force for the question.
	OnChange(question policy.Question, ring func())
}

// A Controller keeps status.placement and condition Placed of every NamespaceOffloading.
type Controller struct {
	config   Config
	client   client.Client
	decider  Decider
	clock    clock.PassiveClock
	recorder events.EventRecorder
	bell     *bell
	pace     *pace
	// market is what providers offer, as the first decision after the last look at everything found it; nil before that. To
	// read it costs more the more peers there are, and without offloaded namespaces nobody wants it. Only the controller's
	// single worker touches it.
	market *market
}

// New returns a controller that reads our own cluster from a cache and writes to it with the client. It starts nothing.
func New(
	config Config, c client.Client, decider Decider, clk clock.PassiveClock, recorder events.EventRecorder,
) *Controller {
	config.Default()
	controller := &Controller{
		config: config, client: c, decider: decider, clock: clk, recorder: recorder,
		bell: &bell{}, pace: newPace(config.Interval),
	}
	decider.OnChange(policy.Placement, controller.bell.ring)
	return controller
}

// Reconcile looks at one namespace, or at everything.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request == everything {
		return c.lookAtEverything(ctx)
	}
	offloading := &v1alpha1.NamespaceOffloading{}
	if err := c.client.Get(ctx, request.NamespacedName, offloading); err != nil {
		c.pace.forget(request)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !offloading.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	now := c.clock.Now()
	if wait := c.pace.wait(request, now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	wanted, err := c.decide(ctx, offloading)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := c.report(ctx, offloading, wanted, now); err != nil {
		return reconcile.Result{}, err
	}
	if wanted.failed {
		return reconcile.Result{RequeueAfter: c.config.Retry}, nil
	}
	return reconcile.Result{}, nil
}

// lookAtEverything has each namespace looked at, with what providers offer by then.
func (c *Controller) lookAtEverything(ctx context.Context) (reconcile.Result, error) {
	if wait := c.pace.wait(everything, c.clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	offloadings := &v1alpha1.NamespaceOffloadingList{}
	if err := c.client.List(ctx, offloadings); err != nil {
		return reconcile.Result{}, fmt.Errorf("list namespace offloadings: %w", err)
	}
	c.market = nil
	for i := range offloadings.Items {
		c.bell.ringFor(offloadings.Items[i].Namespace)
	}
	return reconcile.Result{RequeueAfter: c.config.LookAgain}, nil
}

// decide asks the policies where the pods of the namespace and of its classes go, and combines that with what its user
// wants.
func (c *Controller) decide(ctx context.Context, offloading *v1alpha1.NamespaceOffloading) (outcome, error) {
	if offloading.Spec.Strategy == v1alpha1.StrategyLocal {
		return outcome{}, nil
	}
	if c.market == nil {
		var err error
		if c.market, err = c.readMarket(ctx); err != nil {
			return outcome{}, err
		}
	}
	namespace, err := c.readNamespace(ctx, offloading.Namespace)
	if err != nil {
		return outcome{}, err
	}
	questions, err := newQuestions(c.market, offloading)
	if err != nil {
		return misread(offloading, err), nil
	}
	answers := make([]answer, len(questions))
	for i, question := range questions {
		if answers[i], err = c.ask(ctx, question, namespace); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "The policies gave no answer about placement", "class", question.class)
			return unanswered(offloading, errors.Is(err, policy.ErrTooSlow)), nil
		}
	}
	return combine(answers), nil
}

func (c *Controller) ask(ctx context.Context, q question, namespace *corev1.Namespace) (answer, error) {
	input, err := policy.NewInput(q.facts(c.market, namespace, c.clock.Now()))
	if err != nil {
		return answer{}, err
	}
	decision, err := c.decider.Decide(ctx, policy.Placement, input)
	if err != nil {
		return answer{}, err
	}
	return q.answer(decision), nil
}

func (c *Controller) readNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return namespace, nil
}
