package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// outageDelay is how soon a peer for which there is something to do is looked at again if it does not answer. Until
// then nobody asks it anything: requests to a peer that is down would keep the workers from the others.
const outageDelay = time.Second

// copier sees to it that the twin of a namespace at one peer has copies of exactly those objects of one kind that pods
// there refer to.
type copier struct {
	Config
	sources *sources
	teller  *teller
}

func newCopier(c Config) *copier {
	return &copier{Config: c, sources: &sources{metadata: c.Metadata, open: map[place]*watched{}}, teller: newTeller(c.Events)}
}

// Reconcile brings the objects of one place and their copies at one peer together. What exists on both sides decides;
// nothing is remembered but what users were told.
func (c *copier) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	wanted, err := c.wanted(ctx, req)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(wanted) == 0 {
		c.teller.forget(req)
	}
	link, over, err := c.twinOf(ctx, req, len(wanted) > 0)
	if err != nil {
		return reconcile.Result{}, err
	}
	seen, ready, err := c.observe(req, wanted, over)
	if err != nil || over == nil {
		return reconcile.Result{}, err // when there is a twin, its mapping asks again
	}
	if !ready {
		return reconcile.Result{}, nil // whatever is not known yet asks again when it is
	}
	talk := c.teller.begin(req)
	result, err := c.carry(ctx, talk, seen, link, over)
	talk.end(err == nil && result.IsZero())
	return result, err
}

// carry does what there is to do, and tells users what cannot be done.
func (c *copier) carry(
	ctx context.Context, talk *talk, seen reflection.Sight, link *peers.Link, over *peers.Mirror,
) (reconcile.Result, error) {
	req := talk.about
	if err := c.tellMissing(ctx, talk, seen); err != nil {
		return reconcile.Result{}, err
	}
	steps := reflection.Plan(seen)
	switch {
	case len(steps) == 0 && len(seen.Wanted) == 0:
		c.leave(req)
	case len(steps) > 0 && over.Err() != nil:
		return reconcile.Result{RequeueAfter: outageDelay}, nil //nolint:nilerr // the peer does not answer, which others tell
	}
	return c.act(ctx, talk, link, over, steps)
}

// wanted returns the names that pods of the namespace on the peer's virtual node refer to.
func (c *copier) wanted(ctx context.Context, req request) (map[string]bool, error) {
	pods, err := c.podsOf(ctx, req)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, pod := range pods {
		for _, reference := range needs(pod) {
			if reference.Kind == req.Kind {
				wanted[reference.Name] = true
			}
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	return wanted, c.onlyIfVirtual(ctx, v1alpha1.VirtualNodeName(req.Peer), wanted)
}

// podsOf returns the pods of the namespace on the peer's node. They are the cache's own and must not be changed.
func (c *copier) podsOf(ctx context.Context, req request) ([]*corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	node := v1alpha1.VirtualNodeName(req.Peer)
	var there []*corev1.Pod
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == node {
			there = append(there, &pods.Items[i])
		}
	}
	return there, nil
}

// onlyIfVirtual empties what is wanted if the Node is a real one, whose name only looks like a virtual one's.
func (c *copier) onlyIfVirtual(ctx context.Context, name string, wanted map[string]bool) error {
	node := &corev1.Node{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Node %s: %w", name, err)
	}
	if err == nil && node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
		clear(wanted)
	}
	return nil
}

// observe returns what is seen on both sides, and whether that is all there is. What is needed is watched from now on.
func (c *copier) observe(
	req request, wanted map[string]bool, over *peers.Mirror,
) (seen reflection.Sight, ready bool, err error) {
	seen.Wanted = wanted
	if len(wanted) == 0 || over == nil {
		c.sources.leave(req)
	}
	if over == nil {
		return seen, false, nil
	}
	ready = over.HasSynced()
	seen.Found = map[string]metav1.Object{}
	for _, object := range over.List() {
		seen.Found[object.GetName()] = object
	}
	if len(wanted) == 0 {
		return seen, ready, nil
	}
	source, err := c.sources.follow(req)
	if err != nil {
		return seen, false, err
	}
	ready = ready && source.synced()
	seen.Sources = source.objects(wanted, req.Namespace)
	return seen, ready, nil
}

// act does what the plan says, and goes on with the next object where one fails, unless the peer has not answered. A twin that
// is being deleted takes no copies: its mapping says so and asks again, unless the peer has no Hanse.
func (c *copier) act(
	ctx context.Context, talk *talk, link *peers.Link, over *peers.Mirror, steps []reflection.Step,
) (reconcile.Result, error) {
	req := talk.about
	var again reconcile.Result
	var failed []error
	ends := link.TwinEnds(req.Namespace)
	for _, step := range steps {
		err := c.take(ctx, move{request: req, Step: step, talk: talk, twin: over.Namespace(), ends: ends, peer: link.Client()})
		switch {
		case err == nil:
			continue
		case isOfEnd(err):
			again.RequeueAfter = lastRetry
			continue
		}
		failed = append(failed, fmt.Errorf("%s copy of %s %s: %w", step.Verb, req.Kind, step.Name, err))
		if !isAnswer(err) {
			break
		}
	}
	return again, errors.Join(failed...)
}
