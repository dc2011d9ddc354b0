// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// sides are what this cluster is in Accounts of the direction, and what the peer is.
func (b *books) sides() (ours, theirs string) {
	if b.direction == v1alpha1.AccountLent {
		return "provider", "consumer"
	}
	return "consumer", "provider"
}

// sign signs our counts that are not signed as they are.
func (a *accountant) sign(seen *books) error {
	if !seen.peer.Protocol().Accounts {
		return nil
	}
	by, _ := seen.sides()
	for _, account := range seen.current() {
		count := account.Own()
		if count.CountedUntil == nil {
			continue
		}
		body, to := exchange.CountToSign(count, by, account.Day()), seen.peer.Spec.ClusterID
		signed := trust.Expected{Type: trust.Account, From: a.ClusterID, Pinned: trust.PublicKeyOf(a.Key), To: to, Same: body.Same}
		if _, err := signed.Verify(count.Signed); err == nil {
			continue
		}
		// Nobody asks for how long it holds: a cluster stands by its count also later.
		said := trust.Statement{Type: trust.Account, From: a.ClusterID, To: to, Expires: seen.now.Add(day)}
		var err error
		if count.Signed, err = trust.SignNext(a.Key, seen.now, said, count.Signed, body); err != nil {
			return fmt.Errorf("sign Account %s: %w", account.Name, err)
		}
	}
	return nil
}

// unsigned says why what lies there is not the count of the peer for our Account, nil if the peer has signed it, or it is no count whoever has
// written it.
func (a *accountant) unsigned(seen *books, account *v1alpha1.Account, count *v1alpha1.AccountCount) *exchange.Agreement {
	if isNothing := count.CountedUntil == nil && len(count.Entries) == 0; isNothing || exchange.CheckCount(count, account.Day()) != nil {
		return nil
	}
	_, by := seen.sides()
	body := exchange.CountToSign(count, by, account.Day())
	_, err := trust.Expected{
		Type: trust.Account, From: seen.peer.Spec.ClusterID, Pinned: seen.peer.Spec.PublicKey, To: a.ClusterID, Same: body.Same,
	}.Verify(count.Signed)
	if err == nil {
		return nil
	}
	why := &trust.Refusal{}
	errors.As(err, &why)                                                     // which it is
	if said := agreedIn(account); said == nil || said.Reason != why.Reason { // it is looked at again and again
		peers.StatementsRefused.WithLabelValues(seen.peer.Name, why.Reason).Inc()
	}
	if why.Reason == v1alpha1.ReasonUnsigned {
		return &exchange.Agreement{Status: metav1.ConditionUnknown, Reason: why.Reason, Message: fmt.Sprintf(
			"What lies there as the count of the %s is not signed: it may run an older version of Hanse", by)}
	}
	return &exchange.Agreement{Status: metav1.ConditionFalse, Reason: why.Reason, Message: fmt.Sprintf(
		"What lies there as the count of the %s is not believed: %s. Its own manager writes it anew when it counts again", by, why.Message)}
}
