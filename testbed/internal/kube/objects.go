// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// Object is a Kubernetes object together with the path that it is found at.
type Object struct {
	Path string
	Body map[string]any
}

type object = map[string]any

// Base lists the objects that each cluster has from the start: cluster DNS, and the rights of the components whose
// rights Kubernetes itself does not bring along.
func Base(c *plan.Cluster) []Object {
	objects := []Object{
		clusterRoleBinding("testbed:kubelet-api-admin", "system:kubelet-api-admin", "kube-apiserver-kubelet-client"),
	}
	if c.Rootless {
		return objects
	}
	if c.HasMetrics() {
		objects = append(objects, metrics(c)...)
	}
	if c.HasStorage() {
		objects = append(objects, storage()...)
	}
	if c.HasSnapshots() {
		objects = append(objects, snapshots()...)
	}
	if c.HasIngress() {
		objects = append(objects, ingress(c)...)
	}
	if c.Options.Multicluster {
		objects = append(objects,
			clusterRole("testbed:coredns-multicluster", rule("multicluster.x-k8s.io", "list,watch", "serviceimports")),
			clusterRoleBinding("testbed:coredns-multicluster", "testbed:coredns-multicluster", "system:coredns"))
	}
	objects = append(objects,
		clusterRole("testbed:coredns",
			rule("", "list,watch", "endpoints,services,pods,namespaces"),
			rule("discovery.k8s.io", "list,watch", "endpointslices")),
		clusterRoleBinding("testbed:coredns", "testbed:coredns", "system:coredns"),
		dnsService(c.DNS()),
	)
	for _, address := range c.Addresses() {
		objects = append(objects, dnsEndpoints(address))
	}
	return objects
}

func rule(group, verbs, resources string) object {
	return object{
		"apiGroups": []string{group}, "verbs": strings.Split(verbs, ","), "resources": strings.Split(resources, ","),
	}
}

const rbac = "rbac.authorization.k8s.io"

func clusterRole(name string, rules ...object) Object {
	return Object{
		Path: "/apis/" + rbac + "/v1/clusterroles/" + url.PathEscape(name),
		Body: object{"apiVersion": rbac + "/v1", "kind": "ClusterRole", "metadata": object{"name": name}, "rules": rules},
	}
}

func clusterRoleBinding(name, role, user string) Object {
	return Object{
		Path: "/apis/" + rbac + "/v1/clusterrolebindings/" + url.PathEscape(name),
		Body: object{
			"apiVersion": rbac + "/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": name},
			"roleRef":  object{"apiGroup": rbac, "kind": "ClusterRole", "name": role},
			"subjects": []object{{"apiGroup": rbac, "kind": "User", "name": user}},
		},
	}
}

// dnsService has no selector: cluster DNS is no pod, but a process beside the API server. It has an address of each family, the
// main one first.
func dnsService(addresses []netip.Addr) Object {
	return Object{
		Path: "/api/v1/namespaces/kube-system/services/kube-dns",
		Body: object{
			"apiVersion": "v1", "kind": "Service",
			"metadata": object{"name": "kube-dns", "namespace": "kube-system", "labels": dnsLabels()},
			"spec": object{"clusterIP": addresses[0].String(), "clusterIPs": addresses, "ipFamilyPolicy": "PreferDualStack", "ports": []object{
				{"name": "dns", "protocol": "UDP", "port": 53}, {"name": "dns-tcp", "protocol": "TCP", "port": 53},
			}},
		},
	}
}

func dnsEndpoints(address netip.Addr) Object {
	name := "kube-dns-testbed-" + strings.ToLower(addressType(address))
	labels := dnsLabels()
	labels["kubernetes.io/service-name"] = "kube-dns"
	labels["endpointslice.kubernetes.io/managed-by"] = manager
	return Object{
		Path: "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/" + name,
		Body: object{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
			"metadata":    object{"name": name, "namespace": "kube-system", "labels": labels},
			"addressType": addressType(address),
			"endpoints":   []object{{"addresses": []string{address.String()}, "conditions": object{"ready": true}}},
			"ports": []object{
				{"name": "dns", "protocol": "UDP", "port": 53}, {"name": "dns-tcp", "protocol": "TCP", "port": 53},
			},
		},
	}
}

// addressType is what EndpointSlices call the family of an address.
func addressType(address netip.Addr) string {
	if address.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

func dnsLabels() object {
	return object{"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}
}

// NodePath is where the Node of that name is.
func NodePath(name string) string {
	return "/api/v1/nodes/" + name
}

// SimulatedName is the name of the nth simulated node, from 1.
func SimulatedName(c *plan.Cluster, n int) string {
	return fmt.Sprintf("%s-simulated-%d", c.Name, n)
}

// SimulatedSelector selects the simulated nodes by their label.
const SimulatedSelector = "type=kwok"

// simulatedResources are what a simulated node says that it has.
var simulatedResources = object{"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "1000"}

// SimulatedNode is a Node that KWOK keeps up and runs nothing on.
func SimulatedNode(c *plan.Cluster, n int) Object {
	name := SimulatedName(c, n)
	return Object{
		Path: NodePath(name),
		Body: object{
			"apiVersion": "v1", "kind": "Node",
			"metadata": object{
				"name": name,
				"labels": object{
					"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
				},
				"annotations": object{"kwok.x-k8s.io/node": "fake"},
			},
			"status": object{"allocatable": simulatedResources, "capacity": simulatedResources},
		},
	}
}

// Node is what the testbed reads of a Node.
type Node struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		PodCIDRs []netip.Prefix `json:"podCIDRs"` // none until they are assigned
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

// Readiness is nil for a node that is ready, and otherwise says why it is not.
func (n Node) Readiness() error {
	for _, condition := range n.Status.Conditions {
		if condition.Type != "Ready" {
			continue
		}
		if condition.Status == "True" {
			return nil
		}
		return fmt.Errorf("node %s is not ready: %s", n.Metadata.Name, condition.Message)
	}
	return fmt.Errorf("node %s is not ready: it has not said anything yet", n.Metadata.Name)
}

// Nodes lists the Nodes that a label selector selects.
func Nodes(ctx context.Context, client *Client, selector string) ([]Node, error) {
	var list struct {
		Items []Node `json:"items"`
	}
	err := client.Get(ctx, "/api/v1/nodes?labelSelector="+url.QueryEscape(selector), &list)
	return list.Items, err
}
