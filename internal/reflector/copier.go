// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// outageDelay is how soon a peer for which there is something to do is looked at again if it does not answer. Until
// then nobody asks it anything: requests to a peer that is down would keep the workers from the others.
const outageDelay = time.Second

// stepsAtOnce is how many steps of one look are taken at a time. The calls that may wait for one peer are enough for a look at each
// kind of a namespace.
const stepsAtOnce = 8

// copier sees to it that the twin of a namespace at one peer has copies of exactly those objects of one kind that pods
// there need.
type copier struct {
	Config
	sources *sources
	teller  *teller
	copies  map[reflection.Kind]*peers.Subject // what is followed in twins
}

func newCopier(c Config) *copier {
	made := &copier{
		Config: c, sources: &sources{metadata: c.Metadata, open: map[place]*watched{}}, teller: newTeller(c.Events), copies: maps.Clone(copies),
	}
	for _, kind := range c.Listed {
		made.copies[kind.Name()] = subject(kind.Name())
	}
	return made
}

// kinds are all kinds that are reflected.
func (c *copier) kinds() []reflection.Kind {
	all := reflection.Kinds(c.Network)
	for _, kind := range c.Listed {
		all = append(all, kind.Name())
	}
	return all
}

// listed returns the listed kind of that name, or nil.
func (c *copier) listed(name reflection.Kind) *reflection.ListedKind {
	i := slices.IndexFunc(c.Listed, func(k reflection.ListedKind) bool { return k.Name() == name })
	if i < 0 {
		return nil
	}
	return &c.Listed[i]
}

// Reconcile brings the objects of one place and their copies at one peer together. What exists on both sides decides;
// nothing is remembered but what users were told.
func (c *copier) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	wanted, err := c.demand(ctx, req)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !wanted.any() {
		c.teller.forget(req)
	}
	link, over, err := c.twinOf(ctx, req, wanted.any())
	if err != nil {
		return reconcile.Result{}, err
	}
	seen, ready, err := c.observe(req, wanted, over)
	if err != nil || over == nil {
		return reconcile.Result{}, errors.Join(err, c.unsay(ctx, req, wanted)) // when there is a twin, its mapping asks again
	}
	if !ready {
		return reconcile.Result{}, nil // whatever is not known yet asks again when it is
	}
	talk := c.teller.begin(req)
	result, err := c.carry(ctx, look{talk, wanted, seen, link, over})
	talk.end(err == nil && result.IsZero())
	return result, err
}

// A look is one at a place at home and its twin at a peer.
type look struct {
	talk   *talk
	wanted demand
	seen   reflection.Sight
	link   *peers.Link
	over   *peers.Mirror // what is seen of the twin
}

// carry does what there is to do, and tells users what cannot be done.
func (c *copier) carry(ctx context.Context, l look) (reconcile.Result, error) {
	req := l.talk.about
	c.tellRefusals(ctx, l)
	if err := errors.Join(c.tellMissing(ctx, l.talk, l.seen), c.tellEvents(ctx, l)); err != nil {
		return reconcile.Result{}, err
	}
	steps := l.wanted.whole(reflection.Plan(l.seen), l.link, req.Namespace)
	switch {
	case len(steps) == 0 && !l.wanted.any():
		c.leave(ctx, req)
	case len(steps) > 0 && l.over.Err() != nil:
		return reconcile.Result{RequeueAfter: outageDelay}, nil //nolint:nilerr // the peer does not answer, which others tell
	}
	result, err := c.act(ctx, l, steps)
	after, backErr := c.bringBack(ctx, l)
	if result.IsZero() {
		result.RequeueAfter = after
	}
	return result, errors.Join(err, backErr)
}

// observe returns what is seen on both sides, and whether that is all there is. What is needed is watched from now on.
func (c *copier) observe(
	req request, wanted demand, over *peers.Mirror,
) (seen reflection.Sight, ready bool, err error) {
	seen.Wanted, seen.Sources = wanted.names, wanted.sources()
	if !wanted.any() || over == nil {
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
	if !wanted.any() || !req.Kind.ByPods() {
		return seen, ready, nil
	}
	source, err := c.sources.follow(req)
	if err != nil {
		return seen, false, err
	}
	ready = ready && source.synced()
	reach := c.Reach.Of(req.Kind)
	seen.Wanted = source.wanted(wanted.names, reach)
	seen.Sources = source.objects(seen.Wanted, req.Namespace, reach)
	return seen, ready, nil
}

// act does what the plan says, some steps at a time, and goes on with the next object where one fails, unless the peer has not
// answered. A twin that is being deleted takes no copies: its mapping says so and asks again, unless the peer has no Hanse.
func (c *copier) act(ctx context.Context, l look, steps []reflection.Step) (reconcile.Result, error) {
	req := l.talk.about
	ends := l.link.TwinEnds(req.Namespace)
	failed, read := make([]error, len(steps)), c.readAhead(req, steps)
	group, answered := errgroup.WithContext(ctx)
	group.SetLimit(stepsAtOnce)
	for i, step := range steps {
		if answered.Err() != nil {
			break
		}
		group.Go(func() error {
			err := c.take(ctx, move{ // a step that others have begun meanwhile ends as it does
				request: req, Step: step, talk: l.talk, needed: l.wanted.names[step.Name], known: l.wanted.known[step.Name].Object,
				ahead: read, twin: l.over.Namespace(), ends: ends, peer: l.link.Client(),
			})
			if err == nil {
				return nil
			}
			failed[i] = fmt.Errorf("%s copy of %s %s: %w", step.Verb, req.Kind, step.Name, err)
			if isAnswer(err) {
				return nil
			}
			return err
		})
	}
	return outcome(failed, group.Wait())
}

// outcome says when a look is to follow of which these steps failed, nil for those that did not, the last of them perhaps because
// the peer did not answer.
func outcome(failed []error, unanswered error) (again reconcile.Result, err error) {
	var busy *peers.BusyError
	if errors.As(unanswered, &busy) { // what else failed is seen again
		return reconcile.Result{RequeueAfter: busy.After}, nil
	}
	for i := range failed {
		if local.IsEnding(failed[i]) {
			again.RequeueAfter, failed[i] = lastRetry, nil
		}
	}
	return again, errors.Join(failed...)
}
