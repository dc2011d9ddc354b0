// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/trust"
)

// heed keeps with each Member what the broker says of it in these Messages, apart from what the member says itself. Of clusters that are not
// known it keeps nothing.
func (m *member) heed(ctx context.Context, seen *scene, told []*v1alpha1.Message) {
	marks := m.marksIn(seen, told)
	for id, known := range seen.members {
		if !known.IsKnownThrough(seen.broker.Name) {
			continue
		}
		if status := withMarks(&known.Status, marks[id], seen); status != nil {
			seen.note(m.write(ctx, seen, known, status))
		}
	}
}

// marksIn are the marks of members in these Messages. Of one that is marked twice the newest count.
func (m *member) marksIn(seen *scene, told []*v1alpha1.Message) map[string]*v1alpha1.MemberMarks {
	marks, newest := map[string]*v1alpha1.MemberMarks{}, map[string]int64{}
	for _, message := range told {
		of := seen.reading(message)
		said := marksBy(seen.broker, of)
		if said == nil {
			m.refuse(seen, message, of.notMarks)
			continue
		}
		for id, each := range said.Members {
			if of.said.Sequence > newest[id] {
				marks[id], newest[id] = &each, of.said.Sequence
			}
		}
	}
	return marks
}

// marksBy reads a statement with marks, once for each version of a Message. What the broker says of itself, what another one says, and what
// makes no sense is refused: then it is nil. That a broker repeats what it has said before is not refused: it could sign it anew.
func marksBy(broker *v1alpha1.Peer, of *reading) *exchange.Marks {
	of.notMarks = of.said.Judge(broker.Spec.PublicKey, 0)
	if of.notMarks == nil && of.said.From != broker.Spec.ClusterID {
		of.notMarks = &trust.Refusal{Reason: v1alpha1.ReasonForged, Message: "marks are said by the broker alone"}
	}
	if of.notMarks == nil && of.marks == nil {
		marks, err := exchange.ReadMarks(of.said.Body, of.said.From, of.said.Expires)
		if err != nil {
			of.notMarks = &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: err.Error()}
		}
		of.marks = marks
	}
	if of.notMarks != nil {
		return nil
	}
	return of.marks
}

// withMarks is the status of a Member with these marks of the broker, which may be nil: nil if it is the same, or other marks came just before.
func withMarks(before *v1alpha1.MemberStatus, marks *v1alpha1.MemberMarks, seen *scene) *v1alpha1.MemberStatus {
	last := broughtBy(before, seen.broker.Name)
	if equality.Semantic.DeepEqual(last.Marks, marks) {
		return nil
	}
	if last.Marked != nil {
		if since := seen.now.Sub(last.Marked.Time); since >= 0 && since < introductionPause { // or our clock has gone back
			seen.soon(introductionPause - since)
			return nil
		}
	}
	status := before.DeepCopy()
	for i := range status.Brokers {
		if of := &status.Brokers[i]; of.Name == last.Name {
			of.Marks, of.Marked = marks.DeepCopy(), &metav1.Time{Time: seen.now.Truncate(time.Second)}
		}
	}
	return status
}
