// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/reflection"
)

const (
	// aheadFrom is how many objects of a place must be due before they are read in pages: a request for each takes nearly as long as the
	// write of its copy.
	aheadFrom = 50
	// aheadPage is how many objects a page has. Each may have a megabyte, and two pages are kept.
	aheadPage = 20
)

// ahead reads objects of one place before a look needs them, a page at a time, in the order of their names, in which the steps of a look
// are begun. A nil one has nothing.
type ahead struct {
	live      client.Reader
	namespace string
	empty     func() client.ObjectList

	mu    sync.Mutex
	pages [2]map[string]client.Object // the last one, and the one before, of which a step that began earlier may want something
	last  string                      // the last name of the last page
	next  string                      // where the next one begins
	ended bool                        // there is no further page, or it could not be read
}

// readAhead returns what reads the objects of the steps ahead, or nil if they are not worth it: they are few, or few of those that are there.
func (c *copier) readAhead(req request, steps []reflection.Step) *ahead {
	source := c.sources.watched(req)
	due := 0
	for i := range steps {
		if steps[i].Verb != reflection.Delete {
			due++
		}
	}
	if source == nil || due < aheadFrom || len(source.informer.GetStore().ListKeys()) > 2*due {
		return nil
	}
	read := &ahead{live: c.Live, namespace: req.Namespace, empty: func() client.ObjectList { return &corev1.ConfigMapList{} }}
	if req.Kind == reflection.Secret {
		read.empty = func() client.ObjectList { return &corev1.SecretList{} }
	}
	return read
}

// find returns the object, which is the caller's, or nil if it must be read by itself.
func (a *ahead) find(ctx context.Context, name string) client.Object {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name > a.last && !a.ended {
		a.turn(ctx)
	}
	for _, page := range a.pages {
		if object := page[name]; object != nil {
			delete(page, name)
			return object
		}
	}
	return nil
}

// turn reads the next page. What fails here fails again, and is told, when the object is read by itself.
func (a *ahead) turn(ctx context.Context) {
	page := map[string]client.Object{}
	list := a.empty()
	err := a.live.List(ctx, list, client.InNamespace(a.namespace), client.Limit(aheadPage), client.Continue(a.next))
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				page[object.GetName()], a.last = object, object.GetName()
			}
			return nil
		})
	}
	a.next, a.pages = list.GetContinue(), [2]map[string]client.Object{page, a.pages[0]}
	a.ended = err != nil || a.next == ""
}
