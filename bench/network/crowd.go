// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
)

// nobody is an address at which no gateway is.
const nobody = "192.0.2.1:51820"

// settled is after how long memory is read.
const settled = 20 * time.Second

// crowd gives the provider's gateway more peers, which are never there, and waits until it has said of each how it is. The manager
// knows none of them, so it must end first.
func (e *experiment) crowd(ctx context.Context) error {
	e.Say("a gateway gets %d peers", e.Peers)
	e.provider.manager.Stop()
	real := &v1alpha1.Connection{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(e.Consumer.Name), Name: v1alpha1.ConnectionName}
	if err := e.Provider.Get(ctx, key, real); err != nil {
		return err
	}
	for n := range e.Peers - 1 {
		if err := e.provider.stranger(ctx, n, real.Spec.Ours); err != nil {
			return err
		}
	}
	err := lab.Until(ctx, "the gateway knows all peers", time.Second, 5*patience, func(ctx context.Context) error {
		all := &v1alpha1.ConnectionList{}
		if err := e.Provider.List(ctx, all); err != nil {
			return err
		}
		judged := 0
		for _, c := range all.Items {
			if down := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionConnected); down != nil {
				judged++
			}
		}
		if judged < e.Peers {
			return fmt.Errorf("it has said of %d peers how they are, of %d", judged, e.Peers)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return lab.Rest(ctx, settled)
}

// stranger makes the Connection to a peer that is never there.
func (s *side) stranger(ctx context.Context, number int, ours []v1alpha1.RangeMapping) error {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	namespace := &corev1.Namespace{}
	namespace.Name = v1alpha1.TenantNamespace(fmt.Sprintf("stranger-%d", number))
	if err := s.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create Namespace %s: %w", namespace.Name, err)
	}
	c := &v1alpha1.Connection{Spec: v1alpha1.ConnectionSpec{
		PublicKey: base64.StdEncoding.EncodeToString(key), Endpoints: []v1alpha1.HostPort{nobody}, Ours: ours,
		Theirs: []v1alpha1.RangeMapping{
			{Own: "10.244.0.0/16", Seen: v1alpha1.CIDR(fmt.Sprintf("250.%d.0.0/16", number))},
			{Own: "10.96.0.0/16", Seen: v1alpha1.CIDR(fmt.Sprintf("251.%d.0.0/16", number))},
		},
		GatewayAddresses: []v1alpha1.IP{v1alpha1.IP(fmt.Sprintf("251.%d.0.0", number))},
		Nameservers:      []v1alpha1.IP{v1alpha1.IP(fmt.Sprintf("251.%d.0.10", number))},
	}}
	c.Namespace, c.Name = namespace.Name, v1alpha1.ConnectionName
	if err := s.Create(ctx, c); err != nil {
		return fmt.Errorf("create Connection in %s: %w", c.Namespace, err)
	}
	return nil
}
