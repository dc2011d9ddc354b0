// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// Config says where policies lie and how long they may take.
type Config struct {
	// Namespace is Hanse's own: ConfigMaps elsewhere are no policies. Default hanse-system.
	Namespace string
	// Deadline is how long the policies may take to answer. Default 50 ms. Some questions may take a multiple of it, see
	// policy.Question.Slowness.
	Deadline time.Duration
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.Namespace = cmp.Or(c.Namespace, v1alpha1.SystemNamespace)
	c.Deadline = cmp.Or(c.Deadline, 50*time.Millisecond)
}

// Validate reports what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.Deadline <= 0 {
		return errors.New("the deadline of policies must be positive")
	}
	return nil
}

// unknown stands for the question of ConfigMaps whose label names none.
const unknown = "unknown"

// A Maker keeps the policies of this cluster compiled, and evaluates them.
type Maker struct {
	config   Config
	client   client.Client
	live     client.Reader
	clock    clock.PassiveClock
	recorder events.EventRecorder
	points   map[policy.Question]*point // filled by New, never changed
}

// New returns a Maker. c reads from a cache, live from the API server itself. It starts nothing.
func New(config Config, c client.Client, live client.Reader, clk clock.PassiveClock, recorder events.EventRecorder) *Maker {
	config.Default()
	m := &Maker{config: config, client: c, live: live, clock: clk, recorder: recorder, points: map[policy.Question]*point{}}
	for _, question := range policy.Questions() {
		m.points[question] = &point{question: question, ready: make(chan struct{})}
		showOutcomes(question)
	}
	return m
}

// SetupWithManager registers the controller of policies with the manager.
func (m *Maker) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Join(
		m.config.Validate(),
		ctrl.NewControllerManagedBy(mgr).
			Named("policy").
			Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(m.questionsOf)).
			WatchesRawSource(source.Func(everyQuestion)).
			Complete(m),
	)
}

// everyQuestion has the controller look at all questions when it starts, also at those without policies.
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

// questionsOf returns the questions to look at when a ConfigMap has changed.
func (m *Maker) questionsOf(_ context.Context, o client.Object) []reconcile.Request {
	if o.GetNamespace() != m.config.Namespace {
		return nil
	}
	if o.GetName() == v1alpha1.PolicyStatus {
		return everything()
	}
	question, labelled := o.GetLabels()[v1alpha1.LabelPolicy]
	if !labelled {
		return nil
	}
	if !isQuestion(question) {
		question = unknown
	}
	return []reconcile.Request{requestFor(question)}
}

// Reconcile puts the policies about the question of that name in force, and reports their status.
func (m *Maker) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	question := request.Name
	labelled := &corev1.ConfigMapList{}
	err := m.client.List(ctx, labelled, client.InNamespace(m.config.Namespace), client.HasLabels{v1alpha1.LabelPolicy})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list policies: %w", err)
	}
	before, err := m.readStatus(ctx, question)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := questionStatus{Broken: bounded(unknownOf(labelled.Items))}
	if p, known := m.points[policy.Question(question)]; known {
		if now, err = m.enforce(ctx, p, before, labelled.Items); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, m.report(ctx, question, before, now, labelled.Items)
}

// enforce puts those of the wanted modules in force that compile together, and returns the resulting status.
func (m *Maker) enforce(ctx context.Context, p *point, before questionStatus, labelled []corev1.ConfigMap) (questionStatus, error) {
	current := p.current.Load()
	if current == nil {
		current = &revision{question: p.question, sources: before.Sources}
	}
	wanted, broken := sourcesOf(labelled, p.question)
	next, failed, err := current.advance(wanted)
	if err != nil {
		return questionStatus{}, fmt.Errorf("put the policies about %s in force: %w", p.question, err)
	}
	maps.Copy(broken, failed)
	if next != p.current.Load() {
		p.replace(next)
		ctrl.LoggerFrom(ctx).Info("Policies are in force", "question", p.question, "modules", len(next.sources), "broken", len(broken))
	}
	return statusOf(next, broken), nil
}
