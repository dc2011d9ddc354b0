// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// ServiceName returns the name of the Service whose cluster IP is that of the ServiceImport.
func ServiceName(key Key) string {
	sum := sha256.Sum256([]byte(key.Namespace + "/" + key.Name))
	return "hanse-" + hex.EncodeToString(sum[:])[:12]
}

// IsOurs says whether the object is one that Hanse makes of multi-cluster Services.
func IsOurs(object metav1.Object) bool { return object.GetLabels()[v1alpha1.LabelClusterSet] == "true" }

// Import returns the ServiceImport of the key, at the addresses of the Service that stands for it, which may be nil.
func (m *Merged) Import(key Key, service *corev1.Service) *mcsv1beta1.ServiceImport {
	out := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{}, Annotations: maps.Clone(m.Annotations),
		},
		Spec: mcsv1beta1.ServiceImportSpec{Type: m.Type, Ports: m.Ports},
	}
	maps.Copy(out.Labels, m.Labels)
	out.Labels[v1alpha1.LabelClusterSet] = "true"
	if out.Spec.Ports == nil {
		out.Spec.Ports = []mcsv1beta1.ServicePort{} // the definition wants a list
	}
	if m.Type == mcsv1beta1.Headless {
		return out
	}
	out.Spec.SessionAffinity, out.Spec.SessionAffinityConfig = m.affinity()
	if service != nil {
		out.Spec.IPs, out.Spec.IPFamilies = service.Spec.ClusterIPs, service.Spec.IPFamilies
	}
	return out
}

func (m *Merged) affinity() (corev1.ServiceAffinity, *corev1.SessionAffinityConfig) {
	if m.SessionAffinity != corev1.ServiceAffinityClientIP {
		return corev1.ServiceAffinityNone, nil
	}
	seconds := ptr.Deref(m.AffinitySeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	return m.SessionAffinity, &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
}

// Service returns the Service that stands for the ServiceImport, and nil for one that needs none.
func (m *Merged) Service(key Key) *corev1.Service {
	if m.Type == mcsv1beta1.Headless || len(m.Ports) == 0 {
		return nil
	}
	out := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: ServiceName(key), Labels: marks(key)},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack)},
	}
	out.Spec.SessionAffinity, out.Spec.SessionAffinityConfig = m.affinity()
	for _, p := range m.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol, TargetPort: intstr.FromInt32(p.Port),
		})
	}
	return out
}

func marks(key Key) map[string]string {
	return map[string]string{v1alpha1.LabelClusterSet: "true", mcsv1beta1.LabelServiceName: key.Name}
}

// EndpointSlices returns those of the export, by their names.
func (e *Export) EndpointSlices(key Key, headless bool) map[string]*discoveryv1.EndpointSlice {
	all := map[string]*discoveryv1.EndpointSlice{}
	count := map[discoveryv1.AddressType]int{}
	for _, slice := range e.Slices {
		// The family of a slice cannot change, so the name has it.
		name := fmt.Sprintf("%s-%s-%s-%d", ServiceName(key), e.Cluster, strings.ToLower(string(slice.AddressType)), count[slice.AddressType])
		count[slice.AddressType]++
		out := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: key.Namespace, Name: name, Labels: marks(key)},
			AddressType: slice.AddressType, Ports: slice.Ports,
		}
		out.Labels[mcsv1beta1.LabelSourceCluster] = e.Cluster
		out.Labels[discoveryv1.LabelManagedBy] = v1alpha1.ClusterSetManager
		if !headless {
			out.Labels[discoveryv1.LabelServiceName] = ServiceName(key)
		}
		for _, endpoint := range slice.Endpoints {
			endpoint.NodeName, endpoint.TargetRef, endpoint.DeprecatedTopology = nil, nil, nil // which nobody may say of a peer
			out.Endpoints = append(out.Endpoints, endpoint)
		}
		all[name] = out
	}
	return all
}

// Unready returns the slice with no endpoint that is ready.
func Unready(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := slice.DeepCopy()
	for i := range out.Endpoints {
		out.Endpoints[i].Conditions.Ready, out.Endpoints[i].Conditions.Serving = new(false), new(false)
	}
	return out
}
