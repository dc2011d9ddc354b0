// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// made is the milestone of a record that is there.
const made = "made"

// comeback is how soon a kubelet that was killed did its work again.
type comeback struct {
	recorded measure.Sample // from its start to the record of a new pod at the provider
	ready    measure.Sample // from its start to that pod Ready at home
}

// restart kills the kubelet while pods run, creates a pod, and starts the kubelet again, several times.
func (w *world) restart(ctx context.Context) ([]measure.Table, error) {
	if err := w.grow(ctx, w.Running); err != nil {
		return nil, err
	}
	records, err := w.Provider.Observe(ctx, &v1alpha1.ShadowPodList{}, []client.ListOption{client.InNamespace(w.Twin)},
		lab.Milestone{Name: made, Reached: lab.Created})
	if err != nil {
		return nil, err
	}
	defer records.Close()
	var c comeback
	for range w.Restarts {
		if err := w.restartOnce(ctx, records, &c); err != nil {
			return []measure.Table{c.table(w.Running)}, err
		}
	}
	return []measure.Table{c.table(w.Running)}, nil
}

func (w *world) restartOnce(ctx context.Context, records *lab.Observer, c *comeback) error {
	if err := w.settle(ctx); err != nil {
		return err
	}
	w.Kubelet.Kill()
	name := fmt.Sprintf("pod-%d", w.made)
	if err := errors.Join(w.create(ctx, 1), w.pods.Wait(ctx, bound, w.made)); err != nil {
		return err
	}
	if err := w.startKubelet(ctx); err != nil {
		return err
	}
	if err := errors.Join(w.pods.Wait(ctx, ready, w.made), records.Wait(ctx, made, w.made)); err != nil {
		return err
	}
	c.recorded = append(c.recorded, records.Moments(made)[name].Sub(w.Kubelet.Started))
	c.ready = append(c.ready, w.pods.Moments(ready)[name].Sub(w.Kubelet.Started))
	w.Say("started again: the new pod is Ready after %s", c.ready[len(c.ready)-1])
	return nil
}

func (w *world) startKubelet(ctx context.Context) error {
	started, err := w.Consumer.StartKubelet(ctx, w.fail)
	if err == nil {
		w.Kubelet = started
	}
	return err
}

// A relisting is what the kubelet did after it was started while many pods ran.
type relisting struct {
	pods     int
	idle     time.Duration // from its start until it was idle
	looks    int           // at pods
	requests map[string][]audit.Request
	usage    lab.Usage
}

// afterwards is for how long at least it is followed what a kubelet does that was started.
const afterwards = 30 * time.Second

// relist kills the kubelet while many pods run, starts it again, and follows what it asks for.
func (w *world) relist(ctx context.Context) ([]measure.Table, error) {
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	if _, err := w.logs.next(); err != nil {
		return nil, err
	}
	w.Kubelet.Kill()
	if err := w.startKubelet(ctx); err != nil {
		return nil, err
	}
	r := relisting{pods: w.made}
	err := w.Kubelet.Settle(ctx, func(m lab.Metrics) error {
		if r.looks = int(m.Sum("controller_runtime_reconcile_total", `controller="pod"`)); r.looks < r.pods {
			return fmt.Errorf("it has looked at %d of %d pods", r.looks, r.pods)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.idle = w.clock.Since(w.Kubelet.Started)
	if err := lab.Rest(ctx, max(0, afterwards-r.idle)); err != nil {
		return nil, err
	}
	if r.requests, err = w.logs.next(); err != nil {
		return nil, err
	}
	r.usage, err = w.Kubelet.Usage()
	return r.tables(w.Consumer.Name, w.Provider.Name), err
}
