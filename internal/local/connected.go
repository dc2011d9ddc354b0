// SPDX-License-Identifier: Apache-2.0

package local

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// IsConnected says whether a Peer or a Connection says that the pods of the two clusters reach each other.
func IsConnected(object client.Object) bool {
	switch o := object.(type) {
	case *v1alpha1.Peer:
		return o.Connected()
	case *v1alpha1.Connection:
		return o.Connected()
	default:
		return false
	}
}

// Connects lets updates of Peers and Connections through after which a tunnel may work that did not, or the other way around.
var Connects = Turns(IsConnected)

// Turns lets updates of objects through of which it says otherwise than before, and all that come or go.
func Turns[T comparable](says func(client.Object) T) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return says(e.ObjectOld) != says(e.ObjectNew) }}
}
