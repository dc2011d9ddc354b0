// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// A kind is one whose objects are reflected.
type kind struct {
	name     string
	resource string // as the API server at home calls it
	// home makes the objects at home of one number, the one that is changed last.
	home func(meta metav1.ObjectMeta) []client.Object
	// there are what these become at the provider, of which the last tells of a change.
	there []client.ObjectList
}

var kinds = []kind{
	{"ConfigMap", "configmaps", single(configMap), []client.ObjectList{&corev1.ConfigMapList{}}},
	{"Secret", "secrets", single(secret), []client.ObjectList{&corev1.SecretList{}}},
	{"Service", "services", single(service), []client.ObjectList{&corev1.ServiceList{}}},
	{"EndpointSlice", "endpointslices", withSlice, []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}}},
}

func single(one func(metav1.ObjectMeta) client.Object) func(metav1.ObjectMeta) []client.Object {
	return func(meta metav1.ObjectMeta) []client.Object { return []client.Object{one(meta)} }
}

// payload is what a ConfigMap or Secret holds.
var payload = strings.Repeat("0123456789abcdef", 32)

func configMap(meta metav1.ObjectMeta) client.Object {
	return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"payload": payload}}
}

func secret(meta metav1.ObjectMeta) client.Object {
	return &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"payload": []byte(payload)}}
}

// service has no selector, so that nobody makes endpoints for it.
func service(meta metav1.ObjectMeta) client.Object {
	return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
	}}
}

// withSlice is a Service with the slice of an endpoint that runs at home.
func withSlice(meta metav1.ObjectMeta) []client.Object {
	labels := map[string]string{discoveryv1.LabelServiceName: meta.Name}
	for key, value := range meta.Labels {
		labels[key] = value
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(initial))}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.244.1.7"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, NodeName: new("worker"),
		}},
	}
	slice.Labels = labels
	return []client.Object{service(meta), slice}
}

// initial is the value of all objects, a number by which changes are seen, until they are changed.
const initial = 1

// labelValue has the value where nothing else of the object has it.
const labelValue = "value"

// prefix is that of the names of what is measured.
const prefix = "object-"

// objects are those at home of the number.
func (k *kind) objects(namespace string, n int) []client.Object {
	name := fmt.Sprintf("%s%d", prefix, n)
	objects := k.home(metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{labelValue: strconv.Itoa(initial)},
	})
	return objects
}

// setValue changes the object.
func setValue(object client.Object, value int) {
	switch o := object.(type) {
	case *discoveryv1.EndpointSlice:
		o.Ports[0].Port = new(int32(value)) //nolint:gosec // a port
	case *v1alpha1.ShadowEndpointSlice:
		o.Spec.Ports[0].Port = new(int32(value)) //nolint:gosec // a port
	default:
		object.GetLabels()[labelValue] = strconv.Itoa(value)
	}
}

// valueOf is what the object was changed to.
func valueOf(object client.Object) int {
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok && len(slice.Ports) > 0 {
		return int(*slice.Ports[0].Port)
	}
	value, _ := strconv.Atoi(object.GetLabels()[labelValue])
	return value
}

// isThere tells whether the object at the provider is one that is measured. Names of EndpointSlices have something before ours.
func isThere(object client.Object) bool { return strings.Contains(object.GetName(), prefix) }

func isChanged(object client.Object) bool { return isThere(object) && valueOf(object) != initial }

// copies are what Hanse writes into the twin for the objects at home, in its order.
func copies(home []client.Object, twin string, view reflection.View) ([]client.Object, error) {
	var (
		services []corev1.Service
		parts    []discoveryv1.EndpointSlice
		all      []client.Object
	)
	for _, object := range home {
		switch o := object.(type) {
		case *corev1.Service:
			services = append(services, *o)
		case *discoveryv1.EndpointSlice:
			parts = append(parts, *o)
		default:
			out, err := reflection.Outbound(o, twin, reflection.ReachAll)
			if err != nil {
				return nil, err
			}
			all = append(all, out)
		}
	}
	reflected := reflection.Services(services, parts, view)
	for _, some := range []map[string]reflection.Copy{reflected.Slices, reflected.Services} {
		for _, copied := range some {
			copied.Object.SetNamespace(twin)
			all = append(all, copied.Object)
		}
	}
	return all, nil
}
