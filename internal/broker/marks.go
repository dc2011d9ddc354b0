// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/trust"
)

// marksPrefix begins the names of Messages with marks. No id of a member has a point in it.
const marksPrefix = "marks."

// everyMember is the only request of the marker.
var everyMember = reconcile.Request{NamespacedName: client.ObjectKey{Name: "marks"}}

// A marker says to all members what this broker has counted of them, signed with its own key. Each member belongs to one of a fixed number of
// Messages, so that one that comes or goes changes one of them.
//
// That costs a reader about 200 bytes for each member whose marks change, or whose neighbours' do, and each Message is written once in pauseOf
// at most: with 1,000 members 200 kB in five minutes, which is 700 bytes a second. What members say themselves is about 1,000.
type marker struct {
	Config

	notes *notes
}

func setUpMarker(mgr ctrl.Manager, c Config, n *notes) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{everyMember} })
	return ctrl.NewControllerManagedBy(mgr).
		Named("marks").
		Watches(&v1alpha1.Peer{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.TypedFunc[reconcile.Request](n.start)).
		WithOptions(options()).
		Complete(&marker{c, n})
}

// Reconcile writes the marks of all members that have changed, and those that would end.
func (m *marker) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	members, err := m.members(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	there, err := m.published(ctx)
	if err != nil || len(members)+len(there) == 0 {
		return reconcile.Result{}, err
	}
	now := m.Clock.Now()
	wanted := inMessages(m.notes.marks(members, now))
	pause := pauseOf(len(members))
	again := lookAgain // and what has not been answered by then is known
	var problems []error
	for _, name := range sets.List(sets.KeySet(wanted).Union(sets.KeySet(there))) {
		left, err := m.due(there[name], wanted[name], pause, now)
		if err == nil && left <= 0 {
			left, err = lookSoon, m.write(ctx, name, there[name], wanted[name]) // to see that it is there
		}
		again = min(again, left)
		problems = append(problems, local.IgnoreStale(err))
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(problems...)
}

// members are the ids of those that this broker relays for.
func (m *marker) members(ctx context.Context) (map[string]bool, error) {
	all := &v1alpha1.PeerList{}
	if err := m.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Peers: %w", err)
	}
	ids := map[string]bool{}
	for i := range all.Items {
		if isMember(&all.Items[i]) && all.Items[i].Spec.ClusterID != "" {
			ids[all.Items[i].Spec.ClusterID] = true
		}
	}
	return ids, nil
}

// published are the Messages with marks that there are, by their names.
func (m *marker) published(ctx context.Context) (map[string]*v1alpha1.Message, error) {
	all := &v1alpha1.MessageList{}
	if err := m.Client.List(ctx, all, client.InNamespace(v1alpha1.MembersNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Messages: %w", err)
	}
	found := map[string]*v1alpha1.Message{}
	for i := range all.Items {
		if strings.HasPrefix(all.Items[i].Name, marksPrefix) {
			found[all.Items[i].Name] = &all.Items[i]
		}
	}
	return found, nil
}

// pauseOf is the least time between two versions of a Message with marks: the longer the more members there are, so that what each reads of
// marks in a second is bounded.
func pauseOf(members int) time.Duration {
	return max(introductionPause, time.Duration(members)*marksPause)
}

// inMessages shares the marks out over Messages, by their names. Of more members than fit into one the last by name are left out: there
// would have to be thousands.
func inMessages(all map[string]v1alpha1.MemberMarks) map[string]exchange.Marks {
	shared := map[string]exchange.Marks{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		hash := sha256.Sum256([]byte(id))
		name := marksPrefix + strconv.Itoa(int(hash[0])%marksMessages)
		if shared[name].Members == nil {
			shared[name] = exchange.Marks{Members: map[string]v1alpha1.MemberMarks{}}
		}
		if len(shared[name].Members) < exchange.MaxMarked {
			shared[name].Members[id] = all[id]
		}
	}
	return shared
}

// due is how long to wait until these marks are to be written in place of what the Message says, which may be nil.
func (m *marker) due(before *v1alpha1.Message, marks exchange.Marks, pause time.Duration, now time.Time) (time.Duration, error) {
	said := m.said(before)
	if said == nil || len(marks.Members) == 0 {
		return 0, nil
	}
	body, err := json.Marshal(marks)
	if err != nil {
		return 0, fmt.Errorf("encode marks: %w", err)
	}
	age := now.Sub(time.Unix(0, said.Sequence))
	switch {
	case string(body) == string(said.Body):
		return said.Expires.Sub(now) - marksLife/2, nil
	case age < 0: // our clock has gone back
		return 0, nil
	default:
		return pause - age, nil
	}
}

// said is what we have said in the Message, nil if that is nothing.
func (m *marker) said(message *v1alpha1.Message) *trust.Statement {
	if message == nil {
		return nil
	}
	said, err := trust.VerifyStatement(&message.Spec.SignedStatement, message.Spec.To)
	if err != nil || !m.isOurs(said) {
		return nil
	}
	return said
}

// write says the marks in the Message of that name, which is deleted if there are none.
func (m *marker) write(ctx context.Context, name string, before *v1alpha1.Message, marks exchange.Marks) error {
	if len(marks.Members) == 0 {
		asSeen := client.Preconditions{UID: &before.UID}
		if err := m.Client.Delete(ctx, before.DeepCopy(), asSeen); err != nil {
			return fmt.Errorf("delete Message %s: %w", name, err)
		}
		return nil
	}
	now := m.Clock.Now()
	statement := trust.Statement{Type: trust.Marks, From: m.ClusterID, Sequence: trust.NextSequence(now, m.said(before)), Expires: now.Add(marksLife)}
	signed, err := trust.SignStatement(m.Key, statement, marks)
	if err != nil {
		return err
	}
	message := &v1alpha1.Message{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.MembersNamespace, Name: name}, Spec: v1alpha1.MessageSpec{SignedStatement: *signed}}
	if before == nil {
		err = m.Client.Create(ctx, message)
	} else {
		message.ResourceVersion = before.ResourceVersion
		err = m.Client.Update(ctx, message)
	}
	if err != nil && whyNot(v1alpha1.MembersNamespace, err) == nil { // where there is no such namespace this cluster is no broker
		return fmt.Errorf("write Message %s: %w", name, err)
	}
	return nil
}
