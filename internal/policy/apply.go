// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Bounds of what an acknowledgement can tell.
const (
	maxCorrections = 32
	maxCorrection  = 256
)

// absent is how a correction writes what is not there.
const absent = "none"

// Apply changes the offer and says what was changed, field by field, in an order that only depends on what it is: such
// as "spec.availability[cpu]: 100 → 10". What it changes it replaces: maps that the offer shares with others stay as
// they are. The largest pod never exceeds what is available.
func (p OfferPatch) Apply(spec *v1alpha1.AdvertisementSpec) (corrections []string) {
	before := *spec
	spec.Availability = replaced(before.Availability, p.Availability, takesAway)
	spec.LargestPod = replaced(before.LargestPod, capped(before.LargestPod, p.LargestPod, spec.Availability), takesAway)
	spec.Labels = replaced(before.Labels, p.Labels, isEmpty)
	spec.Flags = replaced(before.Flags, p.Flags, isEmpty)
	if p.Prices != nil {
		spec.Prices = p.Prices.DeepCopy()
	}
	if p.HideImages {
		spec.Images = nil
	}
	corrections = differences(&before, spec)
	if spec.Prices != nil && spec.Prices.Currency == "" {
		spec.Prices = nil
	}
	if len(corrections) > maxCorrections {
		corrections = append(corrections[:maxCorrections-1], fmt.Sprintf("and %d more", len(corrections)-maxCorrections+1))
	}
	return corrections
}

// Apply changes the pod. Labels and annotations that only Hanse sets stay as they are.
func (p PodPatch) Apply(pod *corev1.Pod) {
	pod.Labels = merged(pod.Labels, p.Labels)
	pod.Annotations = merged(pod.Annotations, p.Annotations)
	pod.Spec.NodeSelector = merged(pod.Spec.NodeSelector, p.NodeSelector)
	if p.PriorityClassName != "" {
		pod.Spec.PriorityClassName = p.PriorityClassName
		pod.Spec.Priority = nil // admission sets it by the class
	}
	if p.RuntimeClassName != "" {
		pod.Spec.RuntimeClassName = &p.RuntimeClassName
	}
}

func merged(have, add map[string]string) map[string]string {
	if len(add) == 0 {
		return have
	}
	all := maps.Clone(have)
	if all == nil {
		all = make(map[string]string, len(add))
	}
	for key, value := range add {
		if !v1alpha1.IsOwn(key) {
			all[key] = value
		}
	}
	return all
}

// capped is the patch of the largest pod, lowered, also where it says nothing, to what is available.
func capped(have, patch, available corev1.ResourceList) corev1.ResourceList {
	lowered := maps.Clone(have)
	if lowered == nil {
		lowered = corev1.ResourceList{}
	}
	maps.Copy(lowered, patch)
	for name, amount := range lowered {
		if most := available[name]; amount.Cmp(most) > 0 {
			lowered[name] = most
		}
	}
	return lowered
}

// takesAway reports whether an amount takes its resource away. Those that every advertisement names become zero.
func takesAway(name corev1.ResourceName, amount resource.Quantity) bool {
	return amount.IsZero() && !slices.Contains(mandatory, name)
}

func isEmpty(_ string, text v1alpha1.Text) bool { return text == "" }

// replaced returns the map with the values of the patch; gone says which values take their key away. What would be one key
// too many is left out.
func replaced[K ~string, V any](have, patch map[K]V, gone func(key K, value V) bool) map[K]V {
	changed := maps.Clone(have)
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		_, found := have[key]
		switch {
		case gone(key, patch[key]):
			delete(changed, key)
		case found, len(changed) < maxEntries:
			if changed == nil {
				changed = map[K]V{}
			}
			changed[key] = patch[key]
		}
	}
	return changed
}

// differences are the corrections that make one offer into the other.
func differences(before, after *v1alpha1.AdvertisementSpec) []string {
	had, has := ptr.Deref(before.Prices, v1alpha1.Prices{}), ptr.Deref(after.Prices, v1alpha1.Prices{})
	lines := slices.Concat(
		differ("spec.availability", before.Availability, after.Availability, shown),
		differ("spec.largestPod", before.LargestPod, after.LargestPod, shown),
	)
	if had.Currency != has.Currency {
		lines = append(lines, correction("spec.prices.currency", cmp.Or(had.Currency, absent), cmp.Or(has.Currency, absent)))
	}
	lines = slices.Concat(lines,
		differ("spec.prices.perHour", had.PerHour, has.PerHour, shown),
		differ("spec.prices.perPlacement", had.PerPlacement, has.PerPlacement, shown),
		differ("spec.labels", before.Labels, after.Labels, quoted),
		differ("spec.flags", before.Flags, after.Flags, quoted),
	)
	if len(after.Images) < len(before.Images) {
		lines = append(lines, correction("spec.images", fmt.Sprint(len(before.Images)), absent))
	}
	return lines
}

// differ says for each key, sorted, what became of its value.
func differ[K ~string, V any](field string, before, after map[K]V, show func(V) string) []string {
	keys := map[K]bool{}
	for _, values := range []map[K]V{before, after} {
		for key := range values {
			keys[key] = true
		}
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, is := absent, absent
		if value, found := before[key]; found {
			was = show(value)
		}
		if value, found := after[key]; found {
			is = show(value)
		}
		if !equality.Semantic.DeepEqual(before[key], after[key]) || was == absent || is == absent {
			lines = append(lines, correction(fmt.Sprintf("%s[%s]", field, printable(string(key), maxQuoted)), was, is))
		}
	}
	return lines
}

func correction(field, before, after string) string {
	return bounded(field+": "+before+" → "+after, maxCorrection)
}

func shown(amount resource.Quantity) string { return amount.String() }

func quoted(text v1alpha1.Text) string { return fmt.Sprintf("%q", printable(string(text), maxQuoted)) }
