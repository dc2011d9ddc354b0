package policy

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
	c := &changes{}
	spec.Availability = c.resources("spec.availability", spec.Availability, p.Availability)
	spec.LargestPod = c.resources("spec.largestPod", spec.LargestPod, capped(spec.LargestPod, p.LargestPod, spec.Availability))
	spec.Prices = c.prices(spec.Prices, p.Prices)
	spec.Labels = c.texts("spec.labels", spec.Labels, p.Labels)
	spec.Flags = c.texts("spec.flags", spec.Flags, p.Flags)
	if p.HideImages && len(spec.Images) > 0 {
		c.note("spec.images", fmt.Sprint(len(spec.Images)), absent)
		spec.Images = nil
	}
	return c.told()
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

// changes notes what was changed.
type changes struct{ lines []string }

func (c *changes) note(field, before, after string) {
	c.lines = append(c.lines, bounded(field+": "+before+" → "+after, maxCorrection))
}

func (c *changes) told() []string {
	if len(c.lines) <= maxCorrections {
		return c.lines
	}
	return append(c.lines[:maxCorrections-1], fmt.Sprintf("and %d more", len(c.lines)-maxCorrections+1))
}

func (c *changes) resources(field string, have, patch corev1.ResourceList) corev1.ResourceList {
	changed := maps.Clone(have)
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		before, found := have[name]
		after := patch[name]
		taken := after.IsZero() && !always(name)
		switch {
		case taken && !found, found && !taken && before.Cmp(after) == 0:
			continue
		case !found && len(changed) >= maxEntries:
			continue
		case taken:
			delete(changed, name)
		default:
			if changed == nil {
				changed = corev1.ResourceList{}
			}
			changed[name] = after
		}
		c.note(fmt.Sprintf("%s[%s]", field, name), shown(before, found), shown(after, !taken))
	}
	return changed
}

func (c *changes) texts(field string, have map[string]v1alpha1.Text, patch map[string]string) map[string]v1alpha1.Text {
	changed := maps.Clone(have)
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		before, found := have[key]
		after := v1alpha1.Text(patch[key])
		switch {
		case found && before == after, !found && (after == "" || len(changed) >= maxEntries):
			continue
		case after == "":
			delete(changed, key)
		default:
			if changed == nil {
				changed = map[string]v1alpha1.Text{}
			}
			changed[key] = after
		}
		c.note(fmt.Sprintf("%s[%s]", field, printable(key, maxQuoted)), quoted(before, found), quoted(after, after != ""))
	}
	return changed
}

func (c *changes) prices(have, patch *v1alpha1.Prices) *v1alpha1.Prices {
	if patch == nil {
		return have
	}
	before, after := v1alpha1.Prices{}, *patch
	if have != nil {
		before = *have
	}
	if before.Currency != after.Currency {
		c.note("spec.prices.currency", orAbsent(before.Currency), orAbsent(after.Currency))
	}
	amountChanges(c, "spec.prices.perHour", before.PerHour, after.PerHour)
	amountChanges(c, "spec.prices.perPlacement", before.PerPlacement, after.PerPlacement)
	if after.Currency == "" {
		return nil
	}
	return after.DeepCopy()
}

func amountChanges[K ~string](c *changes, field string, before, after map[K]resource.Quantity) {
	names := maps.Clone(before)
	if names == nil {
		names = map[K]resource.Quantity{}
	}
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, had := before[name]
		is, has := after[name]
		if had != has || was.Cmp(is) != 0 {
			c.note(fmt.Sprintf("%s[%s]", field, printable(string(name), maxQuoted)), shown(was, had), shown(is, has))
		}
	}
}

func shown(amount resource.Quantity, found bool) string {
	if !found {
		return absent
	}
	return amount.String()
}

func quoted(text v1alpha1.Text, found bool) string {
	if !found {
		return absent
	}
	return fmt.Sprintf("%q", printable(string(text), maxQuoted))
}

func orAbsent(text string) string {
	if text == "" {
		return absent
	}
	return text
}
