// SPDX-License-Identifier: Apache-2.0

package kube

import "github.com/hanse-dev/hanse/testbed/internal/plan"

// ingress lists what makes Traefik the controller of the Ingresses that name no class. It is a pod, as in most clusters, so that it
// reaches what pods reach. Its program is on the machine's disk, which nodes share.
func ingress(c *plan.Cluster) []Object {
	const (
		name  = "traefik"
		group = "networking.k8s.io"
	)
	labels := object{"app": name}
	in := object{"name": name, "namespace": name}
	return []Object{
		clusterRole("testbed:traefik",
			rule("", "get,list,watch", "services,secrets,nodes"),
			rule("discovery.k8s.io", "list,watch", "endpointslices"),
			rule(group, "get,list,watch", "ingresses,ingressclasses"),
			rule(group, "update", "ingresses/status")),
		clusterRoleBinding("testbed:traefik", "testbed:traefik", "system:serviceaccount:traefik:traefik"),
		{
			Path: "/apis/" + group + "/v1/ingressclasses/" + name,
			Body: object{
				"apiVersion": group + "/v1", "kind": "IngressClass",
				"metadata": object{"name": name, "annotations": object{"ingressclass.kubernetes.io/is-default-class": "true"}},
				"spec":     object{"controller": "traefik.io/ingress-controller"},
			},
		},
		{Path: "/api/v1/namespaces/" + name, Body: object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}}},
		{
			Path: "/api/v1/namespaces/traefik/serviceaccounts/" + name,
			Body: object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": in},
		},
		{
			Path: "/api/v1/namespaces/traefik/services/" + name,
			Body: object{
				"apiVersion": "v1", "kind": "Service", "metadata": in,
				"spec": object{"type": "NodePort", "selector": labels, "ports": []object{
					{"name": "http", "port": 80, "nodePort": 30080}, {"name": "https", "port": 443, "nodePort": 30443},
				}},
			},
		},
		{
			Path: "/apis/apps/v1/namespaces/traefik/deployments/" + name,
			Body: object{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": in,
				"spec": object{"selector": object{"matchLabels": labels}, "template": object{
					"metadata": object{"labels": labels}, "spec": traefik(c),
				}},
			},
		},
	}
}

func traefik(c *plan.Cluster) object {
	return object{
		"serviceAccountName": "traefik", "terminationGracePeriodSeconds": 1,
		"containers": []object{{
			"name": "traefik", "image": "hanse.dev/test/busybox:v1",
			"command": []string{
				"/traefik", "--ping", "--entrypoints.traefik.address=:8080", "--entrypoints.http.address=:80", "--entrypoints.https.address=:443",
				"--entrypoints.https.http.tls", // with the certificates of the Secrets that Ingresses name
				"--providers.kubernetesingress.ingressendpoint.ip=" + c.Workers()[0].Address().String(),
				"--global.checknewversion=false",
			},
			"readinessProbe": object{"httpGet": object{"path": "/ping", "port": 8080}, "periodSeconds": 1},
			"volumeMounts":   []object{{"name": "program", "mountPath": "/traefik", "readOnly": true}},
		}},
		"volumes": []object{{"name": "program", "hostPath": object{"path": c.Traefik(), "type": "File"}}},
	}
}
