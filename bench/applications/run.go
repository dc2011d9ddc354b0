// SPDX-License-Identifier: Apache-2.0

package applications

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
	"github.com/hanse-dev/hanse/test/harness"
)

const (
	namespace = "applications"
	nodes     = 10
)

// Milestones.
const (
	answered = "answered"
	placed   = "placed"
)

// Bounds of issue 16.
const (
	aloneBound    = 150 * time.Millisecond
	togetherBound = time.Second
)

// A Config says what to measure.
type Config struct {
	Bed   lab.Testbed
	Count int // Requests, one by one and all at once, and half as many Applications: the quota of a consumer counts late
	Say   func(format string, args ...any)
}

// A Result is what was measured.
type Result struct {
	Config
	Alone, Together        measure.Sample // from the creation of a Request until it is acknowledged
	AppAlone, AppsTogether measure.Sample // from the creation of an Application until it is placed
}

// world is a pair whose consumer offloads a namespace, and what is seen of Requests and Applications.
type world struct {
	Config
	*lab.Pair
	requests, applications *lab.Observer
	clock                  clock.Clock
	signer                 harness.Signer
}

// Run brings two clusters up, measures, and ends them.
func Run(ctx context.Context, config Config) (result Result, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	result = Result{Config: config}
	pair, err := config.Bed.Pair(ctx, lab.PairConfig{Nodes: nodes})
	defer func() { err = errors.Join(err, pair.Close(ctx)) }()
	if err != nil {
		return result, fmt.Errorf("prepare clusters: %w", err)
	}
	w := &world{Config: config, Pair: pair, clock: clock.RealClock{}}
	if err := errors.Join(w.Offload(ctx, fail, namespace, config.Count), w.observe(ctx), w.learn(ctx)); err != nil {
		return result, fmt.Errorf("prepare clusters: %w", err)
	}
	defer w.requests.Close()
	defer w.applications.Close()
	for _, step := range []struct {
		what    string
		count   int
		into    *measure.Sample
		make    func(name string) (client.Object, error)
		in      *lab.Cluster
		seen    *lab.Observer
		reached string
		atOnce  bool
	}{
		{"Requests, one by one", w.Count, &result.Alone, w.request, pair.Provider, w.requests, answered, false},
		{"Requests at once", w.Count, &result.Together, w.request, pair.Provider, w.requests, answered, true},
		{"Applications, one by one", w.Count / 2, &result.AppAlone, w.application, pair.Consumer, w.applications, placed, false},
		{"Applications at once", w.Count / 2, &result.AppsTogether, w.application, pair.Consumer, w.applications, placed, true},
	} {
		kind := "alone"
		if step.atOnce {
			kind = "together"
		}
		var objects []client.Object
		for i := range step.count {
			object, err := step.make(fmt.Sprintf("%s-%d", kind, i))
			if err != nil {
				return result, fmt.Errorf("%s: %w", step.what, err)
			}
			objects = append(objects, object)
		}
		if *step.into, err = w.times(ctx, step.in, objects, watched{step.seen, step.reached}, step.atOnce); err != nil {
			return result, fmt.Errorf("%s: %w", step.what, err)
		}
		config.Say("%s: p50 %s, p99 %s", step.what, step.into.Median(), step.into.P99())
	}
	return result, nil
}

func (w *world) observe(ctx context.Context) (err error) {
	w.requests, err = w.Provider.Observe(ctx, &v1alpha1.RequestList{}, []client.ListOption{client.InNamespace(w.tenant())}, lab.Milestone{
		Name: answered, Reached: func(o client.Object) bool {
			request, ok := o.(*v1alpha1.Request)
			return ok && request.Status.Phase == v1alpha1.RequestAcknowledged
		},
	})
	if err != nil {
		return err
	}
	w.applications, err = w.Consumer.Observe(ctx, &v1alpha1.ApplicationList{}, []client.ListOption{client.InNamespace(namespace)}, lab.Milestone{
		Name: placed, Reached: func(o client.Object) bool {
			app, ok := o.(*v1alpha1.Application)
			return ok && app.Status.Phase == v1alpha1.ApplicationPlaced
		},
	})
	return err
}

func (w *world) tenant() string { return v1alpha1.TenantNamespace(w.Consumer.Name) }

// watched is a milestone of what an observer sees.
type watched struct {
	*lab.Observer

	reached string
}

// times creates objects, one when that before has reached the milestone or all at once, and deletes them. It returns how long each took.
func (w *world) times(ctx context.Context, in *lab.Cluster, objects []client.Object, seen watched, atOnce bool) (measure.Sample, error) {
	begun, were := map[string]time.Time{}, len(seen.Moments(seen.reached))
	for i, object := range objects {
		begun[object.GetName()] = w.clock.Now()
		if err := in.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("create %T: %w", object, err)
		}
		if atOnce {
			continue
		}
		if err := seen.Wait(ctx, seen.reached, were+i+1); err != nil {
			return nil, err
		}
	}
	if err := seen.Wait(ctx, seen.reached, were+len(objects)); err != nil {
		return nil, err
	}
	sample := measure.Between(begun, seen.Moments(seen.reached))
	for _, object := range objects {
		if err := in.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return sample, lab.Until(ctx, "nothing is reserved any more", 100*time.Millisecond, time.Minute, func(ctx context.Context) error {
		left := &v1alpha1.RequestList{}
		err := w.Provider.List(ctx, left, client.InNamespace(w.tenant()))
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("there are %d Requests", len(left.Items))
		}
		return err
	})
}

// learn reads the key of the consumer, and the ids of both.
func (w *world) learn(ctx context.Context) error {
	consumer, provider := &v1alpha1.Peer{}, &v1alpha1.Peer{}
	err := errors.Join(
		w.Provider.Get(ctx, client.ObjectKey{Name: w.Consumer.Name}, consumer),
		w.Consumer.Get(ctx, client.ObjectKey{Name: w.Provider.Name}, provider))
	if err != nil {
		return err
	}
	w.signer, err = harness.NewSigner(ctx, w.Consumer, consumer.Spec.ClusterID, provider.Spec.ClusterID)
	return err
}

// request asks for little, as a consumer does.
func (w *world) request(name string) (client.Object, error) {
	request := &v1alpha1.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant(), Name: name},
		Spec: v1alpha1.RequestSpec{
			Application:    v1alpha1.RequestedApplication{UID: types.UID(name), Name: "bench/" + name},
			Components:     []v1alpha1.RequestedComponent{{Name: "web", Replicas: 1, Resources: little()}},
			ExpirationTime: metav1.NewTime(w.clock.Now().Add(time.Hour)),
		},
	}
	return request, w.signer.Sign(request, w.clock.Now())
}

func (w *world) application(name string) (client.Object, error) {
	return &v1alpha1.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ApplicationSpec{Components: []v1alpha1.ApplicationComponent{
			{Name: "web", PodLabels: map[string]v1alpha1.LabelValue{"app": v1alpha1.LabelValue(name)}, Replicas: 1, Resources: little()},
		}},
	}, nil
}

func little() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
}

// Tables renders what was measured.
func (r *Result) Tables() []measure.Table {
	if len(r.Alone) == 0 {
		return nil
	}
	t := measure.Table{
		Title: "Room that is reserved", Columns: measure.DistributionColumns,
		Notes: []string{
			"Requests: from the call that creates one at the provider until a watch there tells that it is acknowledged.",
			"Applications: from the call that creates one at home until a watch there tells that it is placed; a Request at a provider is part of that.",
		},
	}
	t.Distribution("a Request alone", r.Alone, aloneBound)
	t.Distribution(fmt.Sprintf("%d Requests at once", r.Count), r.Together, togetherBound)
	t.Distribution("an Application alone", r.AppAlone, 0)
	t.Distribution(fmt.Sprintf("%d Applications at once", len(r.AppsTogether)), r.AppsTogether, 0)
	return []measure.Table{t}
}
