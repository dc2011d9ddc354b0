// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A member is this cluster as a member of its brokers.
type member struct {
	Config

	direct client.Client // reads from the API server: Secrets are in no cache
	looks  looks
}

func (m *member) setUp(mgr ctrl.Manager) error {
	ofBroker := handler.EnqueueRequestsFromMapFunc(m.brokersOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("member").
		Watches(&v1alpha1.Peer{}, ofBroker).
		Watches(&v1alpha1.Advertisement{}, ofBroker).
		Watches(&v1alpha1.Quote{}, ofBroker).
		Watches(&v1alpha1.Request{}, ofBroker).
		Watches(&v1alpha1.Application{}, ofBroker).
		WatchesRawSource(peers.Changes(m.Links, messages, func(_ context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
			queue.AddAfter(brokerRequest(change.Link.Peer()), settle)
		})).
		WatchesRawSource(peers.LinkChanges(m.Links, func(_ context.Context, peer string, queue peers.Queue[reconcile.Request]) {
			queue.Add(brokerRequest(peer))
		})).
		WithOptions(options()).
		Complete(m)
}

func brokerRequest(peer string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: peer}}
}

// brokersOf are the brokers that an object has to do with: a Peer itself, its introducer and who has introduced it, that to which we
// advertise what we have, that through which a member has asked us, and those through which we have asked members.
func (m *member) brokersOf(_ context.Context, object client.Object) []reconcile.Request {
	switch object := object.(type) {
	case *v1alpha1.Peer:
		requests := []reconcile.Request{brokerRequest(object.Name)}
		for _, other := range []string{object.Spec.Introducer, object.Annotations[v1alpha1.AnnotationIntroducedBy]} {
			if other != "" {
				requests = append(requests, brokerRequest(other))
			}
		}
		return requests
	case *v1alpha1.Advertisement:
		if object.Name == m.ClusterID {
			return []reconcile.Request{brokerRequest(object.Labels[v1alpha1.LabelPeer])}
		}
	case *v1alpha1.Application:
		return brokersOfAuction(object)
	case *v1alpha1.Quote, *v1alpha1.Request:
		if object.GetLabels()[v1alpha1.LabelFrom] != "" {
			return []reconcile.Request{brokerRequest(strings.TrimPrefix(object.GetNamespace(), v1alpha1.TenantNamespacePrefix))}
		}
	}
	return nil
}

// brokersOfAuction are those through which members were asked for the application.
func brokersOfAuction(app *v1alpha1.Application) (requests []reconcile.Request) {
	if app.Status.Auction == nil {
		return nil
	}
	for _, offer := range app.Status.Auction.Offers {
		if request := brokerRequest(offer.Broker); offer.Broker != "" && !slices.Contains(requests, request) {
			requests = append(requests, request)
		}
	}
	return requests
}

// A scene is what is known when a broker is looked at.
type scene struct {
	broker *v1alpha1.Peer
	now    time.Time
	link   *peers.Link
	mail   *peers.Mirror // our tenant namespace at the broker: what we say, and what is said to us
	public *peers.Mirror // what is said to all
	// before are the readings of the last look, and readings those of this one.
	before, readings aLook
	peers            []v1alpha1.Peer
	// members are the Members that there are, by their ids.
	members map[string]*v1alpha1.Member
	// charged is how many of them count among those that are kept of the broker.
	charged int
	// answered are our Messages with answers that somebody has asked for and that still may count.
	answered map[string]bool
	again    time.Duration
	// problems are what has gone wrong.
	problems []error
}

// soon has the broker looked at again, and sooner than it would be.
func (s *scene) soon(after time.Duration) { s.again = min(s.again, max(after, time.Millisecond)) }

// note keeps what has gone wrong, if time alone does not mend it.
func (s *scene) note(err error) {
	var busy *peers.BusyError
	switch {
	case err == nil:
	case errors.As(err, &busy):
		s.soon(busy.After)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err): // what was seen is old
		s.soon(lookSoon)
	default:
		s.problems = append(s.problems, err)
	}
}

// Reconcile does for one broker what this cluster does as its member.
func (m *member) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	broker, err := local.Find(ctx, m.Client, request.NamespacedName, &v1alpha1.Peer{})
	if err != nil {
		return reconcile.Result{}, err
	}
	if broker == nil || !broker.HasRole(v1alpha1.RoleBroker) || !broker.DeletionTimestamp.IsZero() {
		return m.leave(ctx, request.Name, broker)
	}
	seen, err := m.observe(ctx, broker)
	if err != nil {
		return reconcile.Result{}, err
	}
	why := m.connect(seen)
	if why == nil {
		seen.before, seen.readings = m.looks.begin(broker.Name)
		seen.note(m.introduce(ctx, seen))
		m.hear(ctx, seen)
		m.answerAll(ctx, seen, trust.HandOver, m.invite)
		m.answerAll(ctx, seen, trust.Quote, m.quoted)
		m.answerAll(ctx, seen, trust.Offer, m.check)
		m.answerAll(ctx, seen, trust.Request, m.requested)
		m.answerAll(ctx, seen, trust.Acknowledgement, m.check)
		m.answerAll(ctx, seen, trust.Release, m.released)
		m.askAll(ctx, seen)
		m.clearUp(ctx, seen)
		why = m.introduced(seen)
	}
	if !broker.AwaitsInvitation() {
		seen.note(introduced.say(ctx, m.Client, broker, *why))
	}
	return reconcile.Result{RequeueAfter: seen.again}, errors.Join(seen.problems...)
}

func (m *member) observe(ctx context.Context, broker *v1alpha1.Peer) (*scene, error) {
	seen, err := m.remember(ctx, broker)
	if err != nil {
		return nil, err
	}
	all := &v1alpha1.PeerList{}
	if err := m.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Peers: %w", err)
	}
	seen.peers = all.Items
	return seen, nil
}

// remember observes the Members alone.
func (m *member) remember(ctx context.Context, broker *v1alpha1.Peer) (*scene, error) {
	seen := &scene{broker: broker, now: m.Clock.Now(), members: map[string]*v1alpha1.Member{}, answered: map[string]bool{}, readings: aLook{}, again: lookAgain}
	known := &v1alpha1.MemberList{}
	if err := m.Client.List(ctx, known, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Members: %w", err)
	}
	for i := range known.Items {
		seen.members[known.Items[i].Name] = &known.Items[i]
		if isCharged(&known.Items[i], broker.Name) {
			seen.charged++
		}
	}
	return seen, nil
}

// connect follows what lies at the broker, and returns why nothing can be done through it now, nil if something can.
func (m *member) connect(seen *scene) *metav1.Condition {
	var there bool
	if seen.link, there = m.Links.Get(seen.broker.Name); !there {
		return waits("There is no connection to the broker: see its conditions Reachable and Session")
	}
	seen.mail = seen.link.Follow(messages, seen.link.TenantNamespace())
	seen.public = seen.link.Follow(messages, v1alpha1.MembersNamespace)
	err := cmp.Or(seen.mail.Err(), seen.public.Err())
	switch {
	case apierrors.IsForbidden(err):
		return waits("The broker does not let this cluster read what its members say: its Peer there needs the role Member " +
			"(`kubectl hanse invite NAME --member`), and Hanse there the value broker.enabled")
	case err != nil:
		return waits(fmt.Sprintf("What lies at the broker cannot be read: %v", err))
	case !seen.mail.HasSynced() || !seen.public.HasSynced():
		return waits("What lies at the broker was not read yet")
	}
	return nil
}

func waits(why string) *metav1.Condition {
	return &metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPending, Message: why}
}

// statement reads what a Message at the broker says. What is refused is counted, once for each version of the Message.
func (m *member) statement(seen *scene, message *v1alpha1.Message) *trust.Statement {
	said, err := seen.read(message)
	if err != nil {
		m.refuse(seen, message, err)
		return nil
	}
	seen.soon(said.Expires.Sub(seen.now))
	return said
}

// own returns our Message of that name at the broker, and what it says: nil if there is none that holds. Nobody else can sign for us.
func (m *member) own(seen *scene, name string) (*v1alpha1.Message, *trust.Statement) {
	object, _ := seen.mail.Named(name)
	message, _ := object.(*v1alpha1.Message)
	if message == nil {
		return nil, nil
	}
	said, err := seen.read(message)
	if err != nil || !m.isOurs(said) {
		return message, nil
	}
	return message, said
}

// send says something through the broker, in place of what the Message there says.
func (m *member) send(ctx context.Context, seen *scene, name string, s trust.Statement, body any) error {
	s.From = m.ClusterID
	signed, err := trust.SignStatement(m.Key, s, body)
	if err != nil {
		return err
	}
	return m.put(ctx, seen, name, s.To, signed)
}

// put says through the broker what was signed.
func (*member) put(ctx context.Context, seen *scene, name, to string, signed *v1alpha1.SignedStatement) (err error) {
	there, _ := seen.mail.Named(name)
	wanted := &v1alpha1.Message{ObjectMeta: metav1.ObjectMeta{Namespace: seen.link.TenantNamespace(), Name: name}, Spec: v1alpha1.MessageSpec{To: to, SignedStatement: *signed}}
	if there == nil {
		err = seen.link.Client().Create(ctx, wanted)
	} else {
		wanted.ObjectMeta = *there.(*v1alpha1.Message).ObjectMeta.DeepCopy()
		err = seen.link.Client().Update(ctx, wanted)
	}
	if err != nil {
		return fmt.Errorf("write Message %s at broker %s: %w", name, seen.broker.Name, err)
	}
	return nil
}

// clearUp deletes those of our Messages for one member that do not hold any more, and questions of which nobody wants an answer. Room that
// nobody wants is given back.
func (m *member) clearUp(ctx context.Context, seen *scene) {
	for _, object := range seen.mail.List() {
		message := object.(*v1alpha1.Message)
		if message.Relayed() || message.Name == v1alpha1.MessageIntroduction {
			continue
		}
		_, said := m.own(seen, message.Name)
		switch {
		case said != nil && said.Type == trust.Request:
			seen.note(m.release(ctx, seen, message, said))
		case said == nil || !seen.isWanted(message.Name, said):
			seen.note(m.remove(ctx, seen, message))
		}
	}
}

// release gives back what was asked for, if no Application waits for it: it has found another place, or the member is a peer by now, of which
// the same was asked.
func (m *member) release(ctx context.Context, seen *scene, message *v1alpha1.Message, said *trust.Statement) error {
	asked, err := exchange.ReadSignedRequest(said.Body)
	if err != nil {
		return m.remove(ctx, seen, message)
	}
	namespace, name, _ := strings.Cut(asked.Request.Application.Name, "/")
	app, err := local.Find(ctx, m.Client, client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.Application{})
	if err != nil || app != nil && app.UID == asked.Request.Application.UID && awaits(app, said.To) {
		return err
	}
	return m.send(ctx, seen, message.Name, trust.Statement{
		Type: trust.Release, To: said.To, Sequence: trust.NextSequence(seen.now, said), Expires: said.Expires,
	}, exchange.SignedRelease{Name: asked.Name})
}

// awaits reports whether the application is to have room at the cluster, and has none yet.
func awaits(app *v1alpha1.Application, clusterID string) bool {
	return app.DeletionTimestamp.IsZero() && slices.ContainsFunc(app.Status.Components, func(c v1alpha1.PlacedComponent) bool {
		return c.Peer == clusterID && !c.Acknowledged
	})
}

// isWanted reports whether what we have said to one member still is of use to somebody.
func (s *scene) isWanted(name string, said *trust.Statement) bool {
	switch said.Type {
	case trust.HandOver:
		return s.wants(said.To)
	case trust.Quote:
		asked, err := exchange.ReadSignedQuote(said.Body)
		if err != nil || !asked.Quote.Deadline.After(s.now) {
			return false
		}
		s.soon(asked.Quote.Deadline.Sub(s.now))
		return true
	case trust.Offer, trust.Acknowledgement:
		return s.answered[name]
	default:
		return true
	}
}

// wants reports whether an invitation of the cluster is asked for through the broker.
func (s *scene) wants(clusterID string) bool {
	return slices.ContainsFunc(s.peers, func(p v1alpha1.Peer) bool {
		return p.Spec.Introducer == s.broker.Name && p.Spec.ClusterID == clusterID && p.DeletionTimestamp.IsZero()
	})
}

// remove deletes the Message, unless it was written anew since it was seen.
func (m *member) remove(ctx context.Context, seen *scene, message *v1alpha1.Message) error {
	asSeen := client.Preconditions{UID: &message.UID, ResourceVersion: &message.ResourceVersion}
	if err := seen.link.Client().Delete(ctx, message.DeepCopy(), asSeen); err != nil {
		return fmt.Errorf("delete Message %s at broker %s: %w", message.Name, seen.broker.Name, err)
	}
	return nil
}
