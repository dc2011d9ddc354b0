// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	itsOwnAddress = "the provider gives the Service an address of its own"
	ofLoadBalance = "load balancers are of the cluster that made them"
	withNodePorts = "with the annotation `" + v1alpha1.AnnotationForceRemoteNodePort + "` it is kept"
)

// serviceFields says what becomes of each field of spec, on a Service of type LoadBalancer.
var serviceFields = []fieldLine{
	{"ports", kept, "without their node ports"},
	{"selector", kept, "the provider finds the pods that run there by it"},
	{"clusterIP", left, itsOwnAddress + "; None is kept"},
	{"clusterIPs", left, itsOwnAddress},
	{"type", changed, "to ClusterIP; " + "with the annotation `" + v1alpha1.AnnotationForceRemoteNodePort + "` to NodePort. One of type ExternalName has no copy: its name is asked at home"},
	{"externalIPs", left, "they lead to nodes of home"},
	{"sessionAffinity", kept, ""},
	{"loadBalancerIP", left, ofLoadBalance},
	{"loadBalancerSourceRanges", left, ofLoadBalance},
	{"externalName", left, "a Service with one has no copy: its name is asked at home"},
	{"externalTrafficPolicy", left, withNodePorts},
	{"healthCheckNodePort", left, ofLoadBalance},
	{"publishNotReadyAddresses", kept, ""},
	{"sessionAffinityConfig", kept, ""},
	{"ipFamilies", kept, "a provider that has not the first one refuses the copy, and the Service is reached at home"},
	{"ipFamilyPolicy", changed, "RequireDualStack becomes PreferDualStack"},
	{"allocateLoadBalancerNodePorts", left, ofLoadBalance},
	{"loadBalancerClass", left, ofLoadBalance},
	{"internalTrafficPolicy", kept, "with Local, endpoints that do not run at the provider are not used there"},
	{"trafficDistribution", kept, ""},
}

// wholeService has a value in every field.
func wholeService() *corev1.Service {
	return &corev1.Service{Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{
			Name: "web", Protocol: corev1.ProtocolTCP, AppProtocol: new("http"), Port: 80, TargetPort: intstr.FromString("http"), NodePort: 30080,
		}},
		Selector: map[string]string{"app": "web"}, ClusterIP: "10.96.1.1", ClusterIPs: []string{"10.96.1.1", "fd00::1"},
		Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"192.0.2.1"}, SessionAffinity: corev1.ServiceAffinityClientIP,
		LoadBalancerIP: "192.0.2.2", LoadBalancerSourceRanges: []string{"192.0.2.0/24"}, ExternalName: "web.example.com",
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: 30081, PublishNotReadyAddresses: true,
		SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}},
		IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
		AllocateLoadBalancerNodePorts: new(true), LoadBalancerClass: new("example.com/one"),
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal), TrafficDistribution: new(corev1.ServiceTrafficDistributionPreferClose),
	}}
}

// TestEachFieldOfAServiceIsDecidedAbout fails when a new version of Kubernetes has one that the table does not know.
func TestEachFieldOfAServiceIsDecidedAbout(t *testing.T) {
	source := wholeService()
	source.Spec.Ports[0].NodePort = 0 // which has a test of its own
	expectFields(t, serviceFields, reflect.ValueOf(source.Spec), reflect.ValueOf(serviceOf(source).Spec))
}

func TestNodePortsAreKeptWhereTheAuthorSaysSo(t *testing.T) {
	for name, test := range map[string]struct {
		kind     corev1.ServiceType
		force    string
		want     corev1.ServiceType
		nodePort int32
	}{
		"a load balancer":         {corev1.ServiceTypeLoadBalancer, "", corev1.ServiceTypeClusterIP, 0},
		"node ports":              {corev1.ServiceTypeNodePort, "", corev1.ServiceTypeClusterIP, 0},
		"node ports, forced":      {corev1.ServiceTypeNodePort, "true", corev1.ServiceTypeNodePort, 30080},
		"a load balancer, forced": {corev1.ServiceTypeLoadBalancer, "true", corev1.ServiceTypeNodePort, 30080},
		"another value":           {corev1.ServiceTypeNodePort, "yes", corev1.ServiceTypeClusterIP, 0},
		"none at home":            {corev1.ServiceTypeClusterIP, "true", corev1.ServiceTypeClusterIP, 0},
	} {
		source := wholeService()
		source.Spec.Type, source.Annotations = test.kind, map[string]string{v1alpha1.AnnotationForceRemoteNodePort: test.force}
		if test.kind == corev1.ServiceTypeClusterIP {
			source.Spec.Ports[0].NodePort = 0
		}
		got := serviceOf(source).Spec
		if got.Type != test.want || got.Ports[0].NodePort != test.nodePort {
			t.Errorf("%s: %s with node port %d, want %s with %d", name, got.Type, got.Ports[0].NodePort, test.want, test.nodePort)
		}
	}
}

const pageHead = `# What becomes of each field of a Service

A Service of an offloaded namespace has a copy at each provider that runs pods of the namespace. The copy is made from the fields in
this table of ` + "`spec`" + `, written by ` + "`go test ./internal/reflection -run TestPage -update`" + `, and holds for Kubernetes 1.37. Its status is
the provider's, and its labels are those without a domain of Kubernetes or Hanse. [How Services are
reflected](../how-to/services-of-offloaded-pods.md) says the rest.

| field | | |
|---|---|---|
`

func TestPage(t *testing.T) {
	expectPage(t, "service-fields.md", pageOf(pageHead, serviceFields))
}
