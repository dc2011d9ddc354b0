// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// each acts on every object of an informer: when it appears, when it changes, and at each resync, which tries again what failed.
func each[T metav1.Object](ctx context.Context, informer cache.SharedIndexInformer, act func(context.Context, T) error) error {
	try := func(seen any) {
		object, ok := seen.(T)
		if !ok {
			return
		}
		if err := act(ctx, object); err != nil {
			klog.FromContext(ctx).Error(err, "Will try again", "name", object.GetName(), "namespace", object.GetNamespace())
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: try, UpdateFunc: func(_, now any) { try(now) }})
	return err
}
