// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/sanitize"
	"github.com/hanse-dev/hanse/internal/trust"
)

// maxWords bounds what is repeated of others' words.
const maxWords = 256

// introduce says to all members what this cluster has to spare. It is what is advertised to the broker: that lies in our own cluster, for
// this purpose alone if the broker is no consumer of ours.
func (m *member) introduce(ctx context.Context, seen *scene) error {
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(seen.broker.Name), Name: m.ClusterID}
	ad, err := local.Find(ctx, m.Client, key, &v1alpha1.Advertisement{})
	if err != nil {
		return err
	}
	offer := v1alpha1.MemberOffer{} // policies may have this cluster offer nothing
	if ad != nil {
		offer = exchange.MemberOfferOf(&ad.Spec)
	}
	body, err := json.Marshal(offer)
	if err != nil {
		return fmt.Errorf("encode our offer: %w", err)
	}
	_, said := m.own(seen, v1alpha1.MessageIntroduction)
	if said != nil {
		age := seen.now.Sub(time.Unix(0, said.Sequence))
		same := string(body) == string(said.Body)
		switch {
		case same && said.Expires.Sub(seen.now) > introductionLife/2:
			seen.soon(said.Expires.Sub(seen.now) - introductionLife/2)
			return nil
		case age >= 0 && age < introductionPause:
			seen.soon(introductionPause - age)
			return nil
		}
	}
	statement := trust.Statement{Type: trust.Introduction, Sequence: trust.NextSequence(seen.now, said), Expires: seen.now.Add(introductionLife)}
	return m.send(ctx, seen, v1alpha1.MessageIntroduction, statement, json.RawMessage(body))
}

// introduced says of the broker whether its members know us.
func (m *member) introduced(seen *scene) *metav1.Condition {
	message, said := m.own(seen, v1alpha1.MessageIntroduction)
	if said == nil {
		return waits("This cluster has not introduced itself yet")
	}
	switch lost := notRelayed(message); {
	case message.Status.ObservedGeneration == 0:
		return waits("The broker has not told its members of this cluster yet")
	case lost != "":
		return waits("The broker does not tell its members of this cluster: " + lost)
	}
	return &metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonIntroduced, Message: "Members of the broker know this cluster: see `kubectl get members`",
	}
}

// notRelayed is why the broker does not relay our Message, in its words, "" if it does or has not said.
func notRelayed(message *v1alpha1.Message) string {
	relayed := meta.FindStatusCondition(message.Status.Conditions, v1alpha1.ConditionRelayed)
	if relayed == nil || relayed.Status == metav1.ConditionTrue {
		return ""
	}
	return sanitize.Text(cmp.Or(relayed.Message, relayed.Reason, "it does not say why"), maxWords)
}
