// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"github.com/hanse-dev/hanse/testbed/internal/component"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

const metricsUser = "system:metrics-server"

// metrics lists what makes metrics-server, which is no pod but a process beside the API server, a part of the API.
func metrics(c *plan.Cluster) []Object {
	return []Object{
		clusterRole("testbed:metrics-server",
			rule("", "get", "nodes/metrics"),
			rule("", "get,list,watch", "nodes,pods")),
		clusterRoleBinding("testbed:metrics-server", "testbed:metrics-server", metricsUser),
		clusterRoleBinding("testbed:metrics-server-delegates", "system:auth-delegator", metricsUser),
		{
			Path: "/apis/" + rbac + "/v1/namespaces/kube-system/rolebindings/testbed:metrics-server",
			Body: object{
				"apiVersion": rbac + "/v1", "kind": "RoleBinding",
				"metadata": object{"name": "testbed:metrics-server", "namespace": "kube-system"},
				"roleRef":  object{"apiGroup": rbac, "kind": "Role", "name": "extension-apiserver-authentication-reader"},
				"subjects": []object{{"apiGroup": rbac, "kind": "User", "name": metricsUser}},
			},
		},
		{
			Path: "/api/v1/namespaces/kube-system/services/metrics-server",
			Body: object{
				"apiVersion": "v1", "kind": "Service",
				"metadata": object{"name": "metrics-server", "namespace": "kube-system"},
				"spec":     object{"ports": []object{{"name": "https", "port": 443, "targetPort": component.MetricsPort}}},
			},
		},
		{
			Path: "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/metrics-server-testbed",
			Body: object{
				"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
				"metadata": object{
					"name": "metrics-server-testbed", "namespace": "kube-system",
					"labels": object{"kubernetes.io/service-name": "metrics-server"},
				},
				"addressType": addressType(c.Address()),
				"endpoints":   []object{{"addresses": []string{c.Address().String()}, "conditions": object{"ready": true}}},
				"ports":       []object{{"name": "https", "port": component.MetricsPort}},
			},
		},
		{
			Path: "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io",
			Body: object{
				"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
				"metadata": object{"name": "v1beta1.metrics.k8s.io"},
				"spec": object{
					"service": object{"name": "metrics-server", "namespace": "kube-system"}, "group": "metrics.k8s.io",
					"version": "v1beta1", "insecureSkipTLSVerify": true, "groupPriorityMinimum": 100, "versionPriority": 100,
				},
			},
		},
	}
}
