// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
)

// namespaceOf is where the objects of the kind are at home.
func (k *kind) namespaceOf() string { return "many-" + strings.ToLower(k.name) }

// many measures how long it takes until all objects of the kind are at the provider, each round by the direct client and by Hanse.
// Behind the last one they stay there.
func (w *world) many(ctx context.Context, k *kind, result *Measured) error {
	namespace := k.namespaceOf()
	if err := w.fill(ctx, k, namespace, w.Objects); err != nil {
		return err
	}
	for n := range w.Rounds {
		if n > 0 {
			if err := errors.Join(w.empty(ctx, k, direct), w.endPod(ctx, namespace), w.awaitEmpty(ctx, k, namespace)); err != nil {
				return err
			}
		}
		took, err := w.until(ctx, k, direct, func() (time.Time, error) {
			begin := w.clock.Now()
			return begin, w.writeDirect(ctx, k, result)
		})
		if err != nil {
			return fmt.Errorf("by the direct client: %w", err)
		}
		result.Floor = append(result.Floor, took)
		if took, err = w.until(ctx, k, namespace, func() (time.Time, error) { return w.startPod(ctx, namespace) }); err != nil {
			return fmt.Errorf("by Hanse: %w", err)
		}
		result.Hanse = append(result.Hanse, took)
		w.Say("%d × %s: direct %s, Hanse %s", w.Objects, k.name, result.Floor[n], took)
	}
	return nil
}

// until returns how long it takes from the moment that begin returns until all objects are in the twin of the namespace.
func (w *world) until(ctx context.Context, k *kind, namespace string, begin func() (time.Time, error)) (time.Duration, error) {
	seen, err := w.observe(ctx, k.there, namespace)
	if err != nil {
		return 0, err
	}
	defer closeAll(seen)
	begun, err := begin()
	if err != nil {
		return 0, err
	}
	var last time.Duration
	for _, o := range seen {
		if err := o.Wait(ctx, there, w.Objects); err != nil {
			return 0, err
		}
		for _, at := range o.Moments(there) {
			last = max(last, at.Sub(begun))
		}
	}
	return last, nil
}

// fill makes so many objects of the kind in a namespace at home.
func (w *world) fill(ctx context.Context, k *kind, namespace string, count int) error {
	if _, known := w.twins[namespace]; !known {
		if err := w.offload(ctx, namespace); err != nil {
			return err
		}
	}
	return lab.Each(ctx, count, atOnce, func(ctx context.Context, n int) error {
		return createAll(ctx, w.Consumer, k.objects(namespace, n))
	})
}

// writeDirect writes the copies as Hanse would, and keeps them.
func (w *world) writeDirect(ctx context.Context, k *kind, into *Measured) error {
	into.written = make([]client.Object, w.Objects)
	return lab.Each(ctx, w.Objects, atOnce, func(ctx context.Context, n int) error {
		out, err := copies(k.objects(direct, n), w.twins[direct], w.view)
		if err != nil {
			return err
		}
		into.written[n] = out[0] // of a Service with its slice, that slice
		return createAll(ctx, w.peer, out)
	})
}

func createAll(ctx context.Context, by client.Client, objects []client.Object) error {
	for _, object := range objects {
		if err := by.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// empty deletes what the direct client has written.
func (w *world) empty(ctx context.Context, k *kind, namespace string) error {
	out, err := copies(k.objects(namespace, 0), w.twins[namespace], w.view)
	if err != nil {
		return err
	}
	for _, object := range out {
		err := w.Provider.DeleteAllOf(ctx, object, client.InNamespace(w.twins[namespace]), client.MatchingLabels{v1alpha1.LabelReflected: "true"})
		if err != nil {
			return fmt.Errorf("delete what the direct client has written: %w", err)
		}
	}
	return w.awaitEmpty(ctx, k, namespace)
}

func (w *world) endPod(ctx context.Context, namespace string) error {
	if err := w.Consumer.DeletePods(ctx, namespace); err != nil {
		return err
	}
	return w.Consumer.AwaitNone(ctx, &corev1.PodList{}, namespace)
}

// awaitEmpty waits until nothing is in the twin that is measured.
func (w *world) awaitEmpty(ctx context.Context, k *kind, namespace string) error {
	return lab.Until(ctx, "the twin of "+namespace+" is empty", often, patience, func(ctx context.Context) error {
		for _, list := range k.there {
			if err := w.Provider.List(ctx, list, client.InNamespace(w.twins[namespace])); err != nil {
				return err
			}
			err := meta.EachListItem(list, func(item runtime.Object) error {
				if object, ok := item.(client.Object); ok && isThere(object) {
					return fmt.Errorf("%s is still there", object.GetName())
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
