// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// DefinitionDelay is how soon a kind without a definition is looked for again.
const DefinitionDelay = 10 * time.Second

// Metadata returns an empty object by which the metadata of objects of the kind is read and watched.
func Metadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// AwaitDefinitions returns when the API server has definitions of all the kinds, or with the error of the context.
func AwaitDefinitions(ctx context.Context, mapper meta.RESTMapper, kinds ...schema.GroupVersionKind) error {
	said := false
	return wait.PollUntilContextCancel(ctx, DefinitionDelay, true, func(context.Context) (bool, error) {
		for _, kind := range kinds {
			if _, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
				if !said {
					log.FromContext(ctx).Info("Waiting for the definition of a kind", "kind", kind.String(), "cause", err.Error())
				}
				said = true
				return false, nil
			}
		}
		return true, nil
	})
}

// WatchWhenDefined returns a source of the metadata of all objects of the kind, from when the API server has a definition of it.
// No controller waits for that.
func WatchWhenDefined[R comparable](
	in cache.Cache, mapper meta.RESTMapper, kind schema.GroupVersionKind, to handler.TypedEventHandler[client.Object, R],
) source.TypedSource[R] {
	return source.TypedFunc[R](func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[R]) error {
		watch := source.TypedKind[client.Object](in, Metadata(kind), to, predicate.TypedResourceVersionChangedPredicate[client.Object]{})
		go func() {
			if err := AwaitDefinitions(ctx, mapper, kind); err != nil {
				return // the process ends
			}
			log.FromContext(ctx).Info("Watching objects of a kind that administrators have listed", "kind", kind.String())
			if err := watch.Start(ctx, queue); err != nil {
				log.FromContext(ctx).Error(err, "Cannot watch objects of a kind", "kind", kind.String())
			}
		}()
		return nil
	})
}

// SetupWhenDefined has the manager set up controllers from when the API server has definitions of all the kinds, and the manager leads.
func SetupWhenDefined(mgr ctrl.Manager, setup func(ctrl.Manager) error, kinds ...schema.GroupVersionKind) error {
	return mgr.Add(&feature{mgr, setup, kinds})
}

// A feature is what can be done where its kinds are defined.
type feature struct {
	mgr   ctrl.Manager
	setup func(ctrl.Manager) error
	kinds []schema.GroupVersionKind
}

// Start implements manager.Runnable.
func (f *feature) Start(ctx context.Context) error {
	if err := AwaitDefinitions(ctx, f.mgr.GetRESTMapper(), f.kinds...); err != nil {
		return nil //nolint:nilerr // the process ends
	}
	return f.setup(f.mgr)
}

// NeedLeaderElection has only the leader start controllers.
func (*feature) NeedLeaderElection() bool { return true }
