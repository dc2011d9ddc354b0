// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// definitions installs those that administrators keep in ConfigMaps, when a peer asks for an object of such a kind and there is none. It changes
// none that is there.
type definitions struct {
	client    client.Client
	namespace string // Hanse's own
	clock     clock.PassiveClock

	mu    sync.Mutex
	tried map[schema.GroupKind]attempt // the last one, since a thousand objects may wait for one definition
}

type attempt struct {
	at  time.Time
	how string
}

// install says how it went. A kind is tried as often as it is looked at.
func (d *definitions) install(ctx context.Context, kind reflection.ListedKind) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, ok := d.tried[kind.GroupKind()]; ok && d.clock.Since(last.at) < local.DefinitionDelay {
		return last.how
	}
	err := d.create(ctx, kind)
	how := "it is being installed"
	switch {
	case apierrors.IsAlreadyExists(err):
		how = "it has one without that version, which is left as it is"
	case err != nil:
		how = sanitize.Text(fmt.Sprintf("the one that its administrator keeps in ConfigMap %q cannot be installed: %v", kind.Definition, err), maxClaimMessage)
		ctrl.LoggerFrom(ctx).Info("Cannot install a definition", "kind", kind.Name(), "ConfigMap", kind.Definition, "cause", err.Error())
	default:
		ctrl.LoggerFrom(ctx).Info("Installed a definition", "kind", kind.Name(), "ConfigMap", kind.Definition)
	}
	if d.tried == nil {
		d.tried = map[schema.GroupKind]attempt{}
	}
	d.tried[kind.GroupKind()] = attempt{d.clock.Now(), how}
	return how
}

func (d *definitions) create(ctx context.Context, kind reflection.ListedKind) error {
	kept := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: d.namespace, Name: kind.Definition}
	if err := d.client.Get(ctx, key, kept, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	definition, err := reflection.DefinitionIn(kept.Data, kind)
	if err != nil {
		return err
	}
	return d.client.Create(ctx, definition)
}
