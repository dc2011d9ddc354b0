// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/trust"
)

// hear keeps a Member for each cluster that is heard through the broker, and takes the broker off those that it does not name any more.
// One that it lies about is still named.
func (m *member) hear(ctx context.Context, seen *scene) {
	named := map[string]bool{}
	var marks []*v1alpha1.Message
	for _, object := range seen.public.List() {
		message := object.(*v1alpha1.Message)
		named[message.Name] = true
		said := m.statement(seen, message)
		if said == nil || said.From == m.ClusterID {
			continue
		}
		if said.Type == trust.Marks {
			marks = append(marks, message)
			continue
		}
		if err := m.takeIn(ctx, seen, said); isRefusal(err) {
			m.refuse(seen, message, err)
		} else {
			named[said.From] = true
			seen.note(err)
		}
	}
	for id, known := range seen.members {
		switch {
		case named[id]:
		case neverHeard(known): // a manager has ended before it wrote the status
			seen.note(m.drop(ctx, known))
		case known.IsKnownThrough(seen.broker.Name):
			seen.note(m.unheard(ctx, seen, known))
		}
	}
	m.heed(ctx, seen, marks)
}

func isRefusal(err error) bool {
	var why *trust.Refusal
	return errors.As(err, &why)
}

func isBroker(name string) func(v1alpha1.MemberBroker) bool {
	return func(b v1alpha1.MemberBroker) bool { return b.Name == name }
}

// takeIn writes what a member says into its Member, which is made if the cluster is new. The error is a Refusal if it is not believed.
func (m *member) takeIn(ctx context.Context, seen *scene, said *trust.Statement) error {
	known, found := seen.members[said.From]
	if !found {
		known = &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: said.From}, Spec: v1alpha1.MemberSpec{PublicKey: said.Key}}
	}
	if err := believes(seen, known, said); err != nil {
		return err
	}
	if left := pauseBefore(known, said, seen); left > 0 {
		seen.soon(left)
		return nil
	}
	status, err := withIntroduction(&known.Status, said, seen)
	if err != nil {
		return &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: err.Error()}
	}
	if !found {
		if err := m.Client.Create(ctx, known); err != nil {
			return fmt.Errorf("create Member %s: %w", said.From, err)
		}
		seen.members[said.From] = known
		seen.charged++
	}
	return m.write(ctx, seen, known, status)
}

// believes says why an introduction is not believed, nil if it is. Its key must be the one that is pinned: that of the Member, and for a new
// one that of the Peer that stands for the cluster. A broker brings nothing that is older than what it has brought before; that of another
// broker may be, since a member speaks to each of its brokers apart.
func believes(seen *scene, known *v1alpha1.Member, said *trust.Statement) error {
	if said.Type != trust.Introduction || len(said.From) > 30 || len(validation.IsDNS1123Label(said.From)) > 0 {
		return &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: "it is no introduction of a cluster"}
	}
	pinned := known.Spec.PublicKey
	if _, found := seen.members[said.From]; !found {
		if seen.charged >= maxMembers {
			return &trust.Refusal{Reason: v1alpha1.ReasonRecipientFull, Message: "there are too many Members of that broker"}
		}
		if peer := peerOf(seen.peers, said.From); peer != nil && peer.Spec.PublicKey != "" {
			pinned = peer.Spec.PublicKey
		}
	}
	return said.Judge(pinned, broughtBy(&known.Status, seen.broker.Name).Sequence)
}

// broughtBy is what is known of the member through the broker.
func broughtBy(status *v1alpha1.MemberStatus, broker string) v1alpha1.MemberBroker {
	if i := slices.IndexFunc(status.Brokers, isBroker(broker)); i >= 0 {
		return status.Brokers[i]
	}
	return v1alpha1.MemberBroker{Name: broker}
}

// pauseBefore is how long to wait until something new of the member is taken in. A member that keeps to the pause is not held up.
func pauseBefore(known *v1alpha1.Member, said *trust.Statement, seen *scene) time.Duration {
	last := broughtBy(&known.Status, seen.broker.Name)
	since := seen.now.Sub(last.Heard.Time)
	if said.Sequence == last.Sequence || since < 0 { // or our clock has gone back
		return 0
	}
	return introductionPause - since
}

// withIntroduction is the status of a Member after the introduction.
func withIntroduction(before *v1alpha1.MemberStatus, said *trust.Statement, seen *scene) (*v1alpha1.MemberStatus, error) {
	status := before.DeepCopy()
	if said.Sequence > status.Sequence {
		offer, err := exchange.ReadMemberOffer(said.Body)
		if err != nil {
			return nil, err
		}
		at, until := metav1.NewTime(time.Unix(0, said.Sequence).Truncate(time.Second)), metav1.NewTime(said.Expires)
		status.Offer, status.Said, status.Expires, status.Sequence = offer, &at, &until, said.Sequence
	}
	if last := broughtBy(status, seen.broker.Name); said.Sequence > last.Sequence && len(status.Brokers) < maxBrokers {
		last.Heard, last.Sequence = metav1.NewTime(seen.now), said.Sequence
		status.Brokers = append(slices.DeleteFunc(status.Brokers, isBroker(last.Name)), last)
		status.LastBroker = ""
	}
	sayWhetherCurrent(status, seen.now)
	return status, nil
}

// peerOf is the Peer that stands for the cluster, nil if there is none. One without roles was only discovered.
func peerOf(all []v1alpha1.Peer, clusterID string) *v1alpha1.Peer {
	i := slices.IndexFunc(all, func(p v1alpha1.Peer) bool {
		return p.Spec.ClusterID == clusterID && !p.Agentless() && len(p.Spec.Roles) > 0
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// unheard takes the broker off a Member. One that no broker names any more is kept, since a broker that withholds a member for a moment
// could else introduce another key under its id.
func (m *member) unheard(ctx context.Context, seen *scene, known *v1alpha1.Member) error {
	status := known.Status.DeepCopy()
	status.Brokers = slices.DeleteFunc(status.Brokers, isBroker(seen.broker.Name))
	if len(status.Brokers) == 0 {
		status.LastBroker = seen.broker.Name
	}
	sayWhetherCurrent(status, seen.now)
	return m.write(ctx, seen, known, status)
}

// isCharged says whether the Member counts among those that are kept of the broker. One that no broker names any more counts for the last
// that has, so that brokers which invent members take away room from themselves alone, and nothing that is pinned has to give way.
func isCharged(known *v1alpha1.Member, broker string) bool {
	return known.IsKnownThrough(broker) || known.Status.LastBroker == broker || neverHeard(known)
}

// neverHeard says whether a Member was made and nothing was written into it.
func neverHeard(known *v1alpha1.Member) bool { return known.Status.Expires == nil }

// isNamed says whether there is a broker that names the Member now.
func isNamed(known *v1alpha1.Member) bool { return known != nil && len(known.Status.Brokers) > 0 }

// write writes the status of a Member. From then on that is what is seen.
func (m *member) write(ctx context.Context, seen *scene, known *v1alpha1.Member, status *v1alpha1.MemberStatus) error {
	written, err := m.writeMember(ctx, known, status)
	if err == nil {
		seen.members[known.Name] = written
	}
	return err
}
