// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// maxEndpoints is how many endpoints a gateway may tell of.
	maxEndpoints = 8
	// maxNodeEndpoints is how many nodes peers are told of through which they reach a gateway that has no address of its own: they
	// need not know how many nodes there are.
	maxNodeEndpoints = 3
)

// gatewayKey returns the public key of the gateway, and makes the private one if there is none: deleting the Secret is how an
// administrator has another one made.
func (k *networkKeeper) gatewayKey(ctx context.Context) (string, error) {
	kept := secret(k.config.Namespace, v1alpha1.GatewayName)
	name := client.ObjectKeyFromObject(kept)
	err := k.direct.Get(ctx, name, kept)
	if apierrors.IsNotFound(err) {
		if kept.Data, err = newGatewayKey(); err == nil {
			err = k.direct.Create(ctx, kept)
		}
	}
	if err != nil {
		return "", fmt.Errorf("keep Secret %s: %w", name, err)
	}
	private, err := base64.StdEncoding.Strict().DecodeString(string(kept.Data[v1alpha1.GatewaySecretKey]))
	if err != nil {
		return "", fmt.Errorf("read key %s of Secret %s: %w: delete the Secret to have another one made", v1alpha1.GatewaySecretKey, name, err)
	}
	key, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil {
		return "", fmt.Errorf("read key %s of Secret %s: %w: delete the Secret to have another one made", v1alpha1.GatewaySecretKey, name, err)
	}
	return base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()), nil
}

func newGatewayKey() (map[string][]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{v1alpha1.GatewaySecretKey: []byte(base64.StdEncoding.EncodeToString(key.Bytes()))}, nil
}

// endpoints returns where peers reach the gateway, the best first: as the administrator says, else by its Service. None means
// that it only dials.
func (c *Config) endpoints(service *corev1.Service, nodes []*corev1.Node) []v1alpha1.HostPort {
	found := slices.Clone(c.GatewayEndpoints)
	if len(found) == 0 && service != nil {
		found = append(atLoadBalancer(service), atNodes(service, nodes)...)
	}
	var told []v1alpha1.HostPort
	for _, endpoint := range found[:min(len(found), maxEndpoints)] {
		told = append(told, v1alpha1.HostPort(endpoint))
	}
	return told
}

// atLoadBalancer returns the endpoints that a load balancer gives the Service.
func atLoadBalancer(service *corev1.Service) []string {
	var found []string
	for _, port := range service.Spec.Ports {
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			if host := cmp.Or(ingress.IP, ingress.Hostname); host != "" {
				found = append(found, net.JoinHostPort(host, strconv.Itoa(int(port.Port))))
			}
		}
	}
	return found
}

// atNodes returns the endpoints of a Service that is reached by a port of each node: at the addresses that nodes have outside, or at
// those inside if none has. Both families of a node are told.
func atNodes(service *corev1.Service, nodes []*corev1.Node) []string {
	if service.Spec.Type != corev1.ServiceTypeNodePort {
		return nil
	}
	hosts := addressesOf(nodes, corev1.NodeExternalIP, service.Spec.IPFamilies)
	if len(hosts) == 0 {
		hosts = addressesOf(nodes, corev1.NodeInternalIP, service.Spec.IPFamilies)
	}
	var found []string
	for _, port := range service.Spec.Ports {
		for _, host := range hosts {
			if port.NodePort > 0 {
				found = append(found, net.JoinHostPort(host, strconv.Itoa(int(port.NodePort))))
			}
		}
	}
	return found
}

// addressesOf returns the addresses of that kind of the first nodes that have some, as far as a Service of these families is reached
// there. One that names no family is taken to have both.
func addressesOf(nodes []*corev1.Node, kind corev1.NodeAddressType, families []corev1.IPFamily) []string {
	var found []string
	told := 0
	for _, node := range nodes {
		var its []string
		for _, address := range node.Status.Addresses {
			ip, err := netip.ParseAddr(address.Address)
			if err == nil && address.Type == kind && (len(families) == 0 || slices.Contains(families, familyOf(ip))) {
				its = append(its, address.Address)
			}
		}
		if len(its) > 0 && told < maxNodeEndpoints {
			found, told = append(found, its...), told+1
		}
	}
	return found
}

func familyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
