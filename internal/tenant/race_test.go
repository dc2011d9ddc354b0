// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// apiServer counts the pods that there are, and shows the controller those that were announced.
type apiServer struct {
	mu        sync.Mutex
	alive     map[string]*corev1.Pod
	announced map[string]bool
	most      int
}

func (a *apiServer) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return c.Create(ctx, o, opts...)
	}
	pod.UID = types.UID("pod-" + pod.Name)
	if err := c.Create(ctx, o, opts...); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.alive[pod.Name] = pod.DeepCopy()
	a.most = max(a.most, len(a.alive))
	return nil
}

func (a *apiServer) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	a.mu.Lock()
	shown := a.announced[key.Name]
	a.mu.Unlock()
	if _, ok := o.(*corev1.Pod); ok && !shown {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return c.Get(ctx, key, o, opts...)
}

// turn announces the pods that are new, and lets those end that were announced before. It returns their events.
func (a *apiServer) turn(ctx context.Context, c client.Client) ([]*corev1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var events []*corev1.Pod
	for name, pod := range a.alive {
		pod = pod.DeepCopy()
		if a.announced[name] {
			delete(a.alive, name)
			pod.Status.Phase = corev1.PodSucceeded
			if err := c.Status().Update(ctx, pod); err != nil {
				return nil, err
			}
		}
		a.announced[name] = true
		events = append(events, pod)
	}
	return events, nil
}

func (a *apiServer) busy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.alive) > 0
}

// queue is that of a controller: each name once, until somebody takes it.
type queue struct {
	mu    sync.Mutex
	names map[reconcile.Request]bool
}

func (q *queue) AddAfter(request reconcile.Request, _ time.Duration) { q.Add(request) }

func (q *queue) Add(request reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names[request] = true
}

func (q *queue) take() []reconcile.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []reconcile.Request
	for request := range q.names {
		out = append(out, request)
	}
	clear(q.names)
	return out
}

// Fifty workers make pods that the cache does not show yet, while others end.
func TestParallelWorkersNeverExceedTheLimit(t *testing.T) {
	const records, limit = 60, 7
	shadows := make([]client.Object, 0, records)
	requests := &queue{names: map[reconcile.Request]bool{}}
	for i := range records {
		shadow := asking(fmt.Sprintf("pod-%02d", i), "100m")
		shadows = append(shadows, shadow)
		requests.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(shadow)})
	}
	w := newWorld(t, append(shadows, limited("cpu", fmt.Sprintf("%dm", limit*100)), lubeck.namespace(""))...)
	server := &apiServer{alive: map[string]*corev1.Pod{}, announced: map[string]bool{}}
	c := interceptor.NewClient(w.Home.Server, interceptor.Funcs{Create: server.create, Get: server.get})
	k := newShadowPodReconciler(w.config(), c, w.Home.Server, w.Home.Server)
	k.queue = requests

	for batch := requests.take(); len(batch) > 0 || server.busy(); batch = requests.take() {
		var working sync.WaitGroup
		working.Go(func() { work(t, k, batch) })
		events, err := server.turn(t.Context(), w.Home.Server)
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range events {
			for _, request := range k.podChanged(t.Context(), pod) {
				requests.Add(request)
			}
		}
		working.Wait()
	}
	if server.most != limit {
		t.Errorf("there were %d pods at once, want %d", server.most, limit)
	}
	if len(k.ledger.accounts)+len(k.ledger.used)+len(k.ledger.waiting) != 0 {
		t.Errorf("all have ended, and the ledger holds %v, %v, %v", k.ledger.accounts, k.ledger.used, k.ledger.waiting)
	}
	for _, o := range shadows {
		shadow := &v1alpha1.ShadowPod{}
		if !w.Home.Find(shadow, o.GetNamespace(), o.GetName()) || shadow.Status.Phase != string(corev1.PodSucceeded) {
			t.Errorf("%s is %q", o.GetName(), shadow.Status.Phase)
		}
	}
}

// work reconciles all of them at the same time, by as many workers as there are.
func work(t *testing.T, k *shadowPodReconciler, requests []reconcile.Request) {
	t.Helper()
	const workers = 50
	var group sync.WaitGroup
	todo := make(chan reconcile.Request)
	for range workers {
		group.Go(func() {
			for request := range todo {
				if _, err := k.Reconcile(t.Context(), request); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, request := range requests {
		todo <- request
	}
	close(todo)
	group.Wait()
}
