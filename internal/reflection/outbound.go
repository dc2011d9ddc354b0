// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Refusal says in words for the author of an object why no copy of it goes to providers.
type Refusal string

// Error implements error.
func (r Refusal) Error() string { return string(r) }

// An Object is one whose copies go to providers.
type Object interface {
	metav1.Object
	runtime.Object
}

// Outbound returns the copy of the ConfigMap or Secret that a twin namespace gets, or a Refusal.
func Outbound(source Object, twin string, reach Reach) (Object, error) {
	size := 0
	var out Object
	switch source := source.DeepCopyObject().(type) {
	case *corev1.ConfigMap:
		size = sizeOf(source.Data) + sizeOf(source.BinaryData)
		out = &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: string(ConfigMap)},
			ObjectMeta: metadata(source, twin), Data: source.Data, BinaryData: source.BinaryData, Immutable: source.Immutable,
		}
	case *corev1.Secret:
		size = sizeOf(source.Data)
		out = &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: string(Secret)},
			ObjectMeta: metadata(source, twin), Data: source.Data, Type: typeOf(source), Immutable: source.Immutable,
		}
	default:
		return nil, fmt.Errorf("objects of type %T are not reflected", source)
	}
	if why := cmp.Or(reach.Stays(source), refusal(source, size)); why != "" {
		return nil, why
	}
	return out, nil
}

// refusal says why an object of so many bytes stays at home, and nothing if it does not.
func refusal(source Object, size int) Refusal {
	secret, isSecret := source.(*corev1.Secret)
	switch {
	case source.GetName() == RootCertificates:
		return "every cluster has its own"
	case isSecret && secret.Type == corev1.SecretTypeBootstrapToken:
		return "it is a token by which nodes join this cluster"
	case size > corev1.MaxSecretSize: // ConfigMaps have the same bound
		return Refusal(fmt.Sprintf("it has %d bytes, and at most %d are taken to another cluster", size, corev1.MaxSecretSize))
	default:
		return ""
	}
}

// typeOf is that of the copy. A token of a service account stays what it is for the pod that reads it, while the provider would
// put a token of its own into a Secret of that type.
func typeOf(source *corev1.Secret) corev1.SecretType {
	if source.Type == corev1.SecretTypeServiceAccountToken {
		return corev1.SecretTypeOpaque
	}
	return source.Type
}

func sizeOf[V string | []byte](data map[string]V) int {
	size := 0
	for key, value := range data {
		size += len(key) + len(value)
	}
	return size
}

// metadata is that of the copy. Annotations stay at home: they speak to controllers, and those at the peer are another's.
// For the same reason labels of Kubernetes, of its projects and of Hanse stay.
func metadata(source metav1.Object, twin string) metav1.ObjectMeta {
	labels := map[string]string{v1alpha1.LabelReflected: "true"}
	for key, value := range source.GetLabels() {
		if !reserved(key) {
			labels[key] = value
		}
	}
	return metav1.ObjectMeta{
		Namespace: twin, Name: source.GetName(), Labels: labels,
		Annotations: map[string]string{
			v1alpha1.AnnotationOriginUID:     string(source.GetUID()),
			v1alpha1.AnnotationOriginVersion: source.GetResourceVersion(),
		},
	}
}

// reserved says whether a label belongs to Kubernetes or to Hanse, so that the provider takes none of that key from us.
func reserved(key string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return false
	}
	for _, domain := range []string{"kubernetes.io", "k8s.io", v1alpha1.Domain} {
		if prefix == domain || strings.HasSuffix(prefix, "."+domain) {
			return true
		}
	}
	return false
}
