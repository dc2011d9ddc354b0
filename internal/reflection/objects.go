// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// hashLength is how much of a hash makes the name of a ShadowObject one that no other object has.
const hashLength = 10

// ShadowName returns the name of the ShadowObject of an object.
func ShadowName(kind Kind, name string) string {
	sum := sha256.Sum256([]byte(string(kind) + "/" + name))
	suffix := "-" + hex.EncodeToString(sum[:])[:hashLength]
	readable := strings.ToLower(string(kind)) + "." + name
	readable = readable[:min(len(readable), validation.DNS1123SubdomainMaxLength-len(suffix))]
	return strings.TrimRight(readable, "-.") + suffix
}

// shadowOf returns the ShadowObject of an object with that content, or a Refusal.
func shadowOf(source metav1.Object, name Kind, kind schema.GroupVersionKind, content any) (*v1alpha1.ShadowObject, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	if len(text) > v1alpha1.MaxShadowObjectBytes {
		return nil, Refusal(fmt.Sprintf("it has %d bytes, and at most %d are taken to another cluster", len(text), v1alpha1.MaxShadowObjectBytes))
	}
	out := &v1alpha1.ShadowObject{ObjectMeta: metadata(source, ""), Spec: v1alpha1.ShadowObjectSpec{
		Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Name: source.GetName(), Object: string(text),
	}}
	out.Name = ShadowName(name, source.GetName())
	out.Labels[v1alpha1.LabelKind] = string(name)
	return out, nil
}

// Objection returns why the provider has not made what it was asked for last by the ShadowObject or the ShadowEndpointSlice, or "".
func Objection(message metav1.Object) string {
	var c *metav1.Condition
	switch m := message.(type) {
	case *v1alpha1.ShadowObject:
		c = v1alpha1.Objection(m.Status.Conditions, v1alpha1.ConditionApplied)
	case *v1alpha1.ShadowEndpointSlice:
		c = v1alpha1.Objection(m.Status.Conditions, v1alpha1.ConditionAccepted)
	}
	if c == nil || c.ObservedGeneration != message.GetGeneration() {
		return ""
	}
	return c.Reason + ": " + c.Message
}

// isOf says whether the ShadowObject is a copy of the object of that UID, and the provider has made its object.
func isOf(shadow *v1alpha1.ShadowObject, source types.UID) bool {
	return shadow.Annotations[v1alpha1.AnnotationOriginUID] == string(source) &&
		meta.IsStatusConditionTrue(shadow.Status.Conditions, v1alpha1.ConditionApplied)
}

// AddressesAt returns at which addresses the provider says that the object of that UID is reached there, with commas between them.
// What is neither an address nor a name is left out.
func AddressesAt(shadow *v1alpha1.ShadowObject, source types.UID) string {
	if shadow == nil || !isOf(shadow, source) {
		return ""
	}
	told := shadow.Status.Addresses
	var good []string
	for _, text := range told[:min(len(told), v1alpha1.MaxShadowAddresses)] {
		if _, err := netip.ParseAddr(text); err == nil || len(validation.IsDNS1123Subdomain(text)) == 0 {
			good = append(good, text)
		}
	}
	slices.Sort(good)
	return strings.Join(slices.Compact(good), ",")
}

// StatusAt returns the status that the provider tells of the object of that UID, or nil if it tells none that can be read.
func StatusAt(shadow *v1alpha1.ShadowObject, source types.UID) map[string]any {
	text := shadow.Status.Object
	if !isOf(shadow, source) || text == "" || len(text) > v1alpha1.MaxShadowStatusBytes {
		return nil
	}
	status, err := decode(text)
	if err != nil {
		return nil
	}
	return status
}
