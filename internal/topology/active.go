// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// activeKey is the key under which the ConfigMap of the gateway says where it is.
const activeKey = "active"

// Active is the gateway that is active, as it says itself.
type Active struct {
	Pod       string       `json:"pod"`
	Node      string       `json:"node"`
	Addresses []netip.Addr `json:"addresses"` // of its pod; its VXLAN is reached at the first
	MTU       int          `json:"mtu"`       // of its own link
}

// Object returns the ConfigMap that says so, in the namespace of the network.
func (a Active) Object(namespace string) (*corev1.ConfigMap, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode which gateway is active: %w", err)
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.GatewayName},
		Data:       map[string]string{activeKey: string(text)},
	}, nil
}

// activeIn reads such a ConfigMap.
func activeIn(object *corev1.ConfigMap) (Active, error) {
	var a Active
	if err := json.Unmarshal([]byte(object.Data[activeKey]), &a); err != nil {
		return a, fmt.Errorf("read key %s of ConfigMap %s/%s: %w", activeKey, object.Namespace, object.Name, err)
	}
	return a, nil
}

func (a Active) gateway() overlay.Gateway {
	return overlay.Gateway{Node: a.Node, Addresses: a.Addresses, MTU: a.MTU}
}
