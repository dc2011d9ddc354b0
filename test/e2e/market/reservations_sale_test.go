// SPDX-License-Identifier: Apache-2.0

package market

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
	"github.com/hanse-dev/hanse/test/harness"
)

// Five guests make a thousand Requests for far more than there is, 335 at a time, and give back what they have got, while the
// provider's manager and its API server are killed again and again. The audit log tells what was promised at each moment.
func TestNoDoubleSale(t *testing.T) {
	ctx := framework.Begin(t)
	const berth, total = corev1.ResourceName("example.com/docks"), 400 // for 80 pods at most
	const guests, each = 5, 67                                         // Kubernetes counts one whose making was cut off, for a while: a quota is not used up
	hamburg.AddExtendedResource(t, string(berth), total)
	crowd := make([]*framework.Guest, guests)
	for i := range crowd {
		crowd[i] = hamburg.PeerWithGuest(t, fmt.Sprintf("visby-crowd-%d", i))
	}
	t.Cleanup(func() { hamburg.ForgetGuests(t, crowd) })
	for _, g := range crowd {
		g.AwaitOffered(t, berth, total)
	}
	sold := &sale{provider: hamburg, of: berth}
	from, began := hamburg.AuditOffset(t), time.Now()
	manager, server := func() { hamburg.KillHanse(t, "manager") }, func() { sold.killServer(t) }
	for round, kills := range [][]func(){{manager, server}, {manager}, {server, manager}} {
		asking := sold.askAll(ctx, t, crowd, round, each)
		for i, kill := range kills {
			sold.awaitAnswers(t, round, guests*each*(1+2*i)/6)
			kill()
		}
		if asking.Wait(); t.Failed() {
			t.FailNow()
		}
		sold.awaitAnswers(t, round, guests*each)
	}
	sold.look(ctx, t)
	sold.read(t, from)
	most, left := sold.sum()
	t.Logf("at most %d of %d were sold at a time, in %s", most, total, time.Since(began).Round(time.Millisecond))
	if most != total {
		t.Errorf("by the audit log %d of %d were sold at a time", most, total)
	}
	if now := sold.reserved(ctx, t); left != now {
		t.Errorf("by the audit log %d are sold in the end, and the Requests say %d", left, now)
	}
}

// askAll has each guest make so many Requests for five berths or ten, many at once, and give back one of the last round for each.
func (s *sale) askAll(ctx context.Context, t *testing.T, crowd []*framework.Guest, round, each int) *sync.WaitGroup {
	t.Helper()
	const workers = 4
	asking := &sync.WaitGroup{}
	for n, g := range crowd {
		order := rand.Perm(each)
		for worker := range workers {
			asking.Go(func() {
				for i := worker; i < each; i += workers {
					number := strconv.Itoa(order[i])
					next := g.NewRequest(ofRound(round)+number, s.of, 1)
					next.Spec.Components[0].Resources[s.of] = *resource.NewQuantity(int64(5+5*((n+i)%2)), resource.DecimalSI)
					if err := swap(ctx, g, g.NewRequest(ofRound(round-1)+number, s.of, 1), g.Sign(next)); err != nil {
						t.Errorf("%s asks: %v", g.ID, err)
					}
				}
			})
		}
	}
	return asking
}

// ofRound is what the names of Requests of the round begin with.
func ofRound(round int) string { return fmt.Sprintf("r%d-", round) }

// swap deletes one Request and makes another one, however often the provider's API server is away or has not counted yet what is gone.
func swap(ctx context.Context, g *framework.Guest, last, next *v1alpha1.Request) error {
	return harness.Until(ctx, framework.WaitTimeout, func(ctx context.Context) error {
		if err := client.IgnoreNotFound(g.Delete(ctx, last)); err != nil {
			return err
		}
		if err := g.Create(ctx, next.DeepCopy()); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

// A sale is what a provider has promised of a resource, and when that changed. The audit log is written in the order in which requests
// were answered, which is not quite the order in which they had effect. So more is taken as promised from when that was answered, and
// less from when that was asked for.
type sale struct {
	provider *framework.Cluster
	of       corev1.ResourceName

	promised map[types.NamespacedName]map[int64]promise // Request → resourceVersion → what it had reserved
	returned map[types.NamespacedName]time.Time         // Request → when its deletion was asked for
	seen     []promise                                  // after the API server was killed: it may have written what it did not live to log
}

// A promise is what a version of a Request has reserved.
type promise struct {
	name            types.NamespacedName
	version, amount int64
	asked, answered time.Time
}

// promiseOf returns what the Request has reserved, if it is one for the resource.
func (s *sale) promiseOf(request *v1alpha1.Request, asked, answered time.Time) (p promise, is bool) {
	if len(request.Spec.Components) == 0 {
		return p, false
	}
	_, is = request.Spec.Components[0].Resources[s.of]
	version, err := strconv.ParseInt(request.ResourceVersion, 10, 64)
	amount := request.Locked()[s.of]
	return promise{client.ObjectKeyFromObject(request), version, amount.Value(), asked, answered}, is && err == nil
}

// list returns the Requests for the resource that there are now.
func (s *sale) list(ctx context.Context) ([]v1alpha1.Request, error) {
	all := &v1alpha1.RequestList{}
	err := s.provider.List(ctx, all)
	return slices.DeleteFunc(all.Items, func(r v1alpha1.Request) bool {
		_, is := s.promiseOf(&r, time.Time{}, time.Time{})
		return !is
	}), err
}

// reserved is how much they say is reserved.
func (s *sale) reserved(ctx context.Context, t *testing.T) (sum int64) {
	t.Helper()
	all, err := s.list(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		amount := all[i].Locked()[s.of]
		sum += amount.Value()
	}
	return sum
}

// awaitAnswers waits until so many Requests of the round have an answer.
func (s *sale) awaitAnswers(t *testing.T, round, count int) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%d Requests of round %d are answered", count, round), func(ctx context.Context) error {
		all, err := s.list(ctx)
		if err != nil {
			return err
		}
		answers := 0
		for i := range all {
			if strings.HasPrefix(all[i].Name, ofRound(round)) && all[i].Status.ObservedGeneration > 0 {
				answers++
			}
		}
		if answers < count {
			return fmt.Errorf("%d of %d are", answers, len(all))
		}
		return nil
	})
}

// killServer kills the provider's API server and starts it again. So it does with the controller manager, which would wait for longer
// after each outage before it looks again, and meanwhile count no quota and end no namespace.
func (s *sale) killServer(t *testing.T) {
	t.Helper()
	framework.MustTestbed(t, "kill", s.provider.Name, "controller-manager")
	framework.MustTestbed(t, "kill", s.provider.Name, "apiserver")
	s.provider.StartAPIServer(t)
	framework.MustTestbed(t, "start", s.provider.Name, "controller-manager")
	s.look(t.Context(), t)
}

// look takes down what is promised now.
func (s *sale) look(ctx context.Context, t *testing.T) {
	t.Helper()
	asked := time.Now()
	all, err := s.list(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if p, is := s.promiseOf(&all[i], asked, time.Now()); is {
			s.seen = append(s.seen, p)
		}
	}
}

// read takes down what the audit log tells, and of what was seen that of which it does not tell.
func (s *sale) read(t *testing.T, from int64) {
	t.Helper()
	s.promised, s.returned = map[types.NamespacedName]map[int64]promise{}, map[types.NamespacedName]time.Time{}
	deletions := map[types.UID]*auditv1.Event{} // id in the log → a deletion that had effect, or may have had: then nobody lived to say so
	for event := range s.provider.AuditEventsFrom(t, from) {
		if event.ObjectRef == nil || event.ObjectRef.APIGroup != v1alpha1.GroupVersion.Group || event.ObjectRef.Resource != "requests" {
			continue
		}
		switch code, done := framework.ResponseCode(event); {
		case event.Verb != "delete":
			s.hear(event)
		case done && code >= http.StatusMultipleChoices:
			delete(deletions, event.AuditID)
		default:
			deletions[event.AuditID] = event
		}
	}
	for _, event := range deletions {
		name, at := types.NamespacedName{Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name}, event.RequestReceivedTimestamp.Time
		if before, is := s.returned[name]; !is || at.Before(before) {
			s.returned[name] = at
		}
	}
	t.Logf("the audit log tells of %d Requests, of which %d were deleted", len(s.promised), len(s.returned))
	for _, p := range s.seen {
		s.note(p)
	}
}

// hear takes down what the answer to a write says, if it is a Request.
func (s *sale) hear(event *auditv1.Event) {
	request := &v1alpha1.Request{}
	if event.ResponseObject == nil || json.Unmarshal(event.ResponseObject.Raw, request) != nil {
		return
	}
	if p, is := s.promiseOf(request, event.RequestReceivedTimestamp.Time, event.StageTimestamp.Time); is {
		s.note(p)
	}
}

// note takes down a promise, unless it is known.
func (s *sale) note(p promise) {
	versions := s.promised[p.name]
	if versions == nil {
		versions = map[int64]promise{}
		s.promised[p.name] = versions
	}
	if _, known := versions[p.version]; !known {
		versions[p.version] = p
	}
}

// sum returns the most that was promised at a time, and what is promised in the end.
func (s *sale) sum() (most, left int64) {
	type change struct {
		at time.Time
		by int64
	}
	var changes []change
	for name, versions := range s.promised {
		before := int64(0)
		for _, version := range slices.Sorted(maps.Keys(versions)) {
			p := versions[version]
			at := p.answered
			if p.amount < before {
				at = p.asked
			}
			changes = append(changes, change{at, p.amount - before})
			before = p.amount
		}
		if at, is := s.returned[name]; is {
			changes = append(changes, change{at, -before})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	for _, c := range changes {
		left += c.by
		most = max(most, left)
	}
	return most, left
}
