package exchange

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	maxImages       = 100
	maxPlacements   = 100
	maxText         = 253
	maxFlagKey      = 317
	maxExtensions   = 16
	maxExtension    = 4096
	maxVersion      = 64
	maxArchitecture = 32
)

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

func judgeQuantities(ad *v1alpha1.AdvertisementSpec) Verdict {
	for _, name := range mandatory {
		if _, found := ad.Availability[name]; !found {
			return refused(v1alpha1.ReasonInvalidQuantity, "spec.availability[%s] is missing", name)
		}
	}
	for _, judged := range []struct {
		field string
		list  corev1.ResourceList
	}{
		{"spec.availability", ad.Availability}, {"spec.largestPod", ad.LargestPod}, {"spec.guarantee", ad.Guarantee},
	} {
		if verdict := judgeResources(judged.field, judged.list); !verdict.Accepted {
			return verdict
		}
	}
	return judgePrices("spec.prices", ad.Prices)
}

func judgeResources(field string, list corev1.ResourceList) Verdict {
	if len(list) > maxNames {
		return refused(v1alpha1.ReasonInvalidField, "%s has %d entries, more than %d", field, len(list), maxNames)
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !validResource(name) {
			return refused(v1alpha1.ReasonInvalidField, "%s[%s] is not the name of a node's resource", field, quoted(string(name)))
		}
		if problem := quantityProblem(name, list[name]); problem != "" {
			quantity := list[name]
			return refused(v1alpha1.ReasonInvalidQuantity, "%s[%s] is %s: %s", field, name, quoted(quantity.String()), problem)
		}
	}
	return accepted()
}

// quantityProblem holds quantities to what the Node of the peer can carry: of all but cpu only whole ones.
func quantityProblem(name corev1.ResourceName, quantity resource.Quantity) string {
	most := MaxQuantity(name)
	switch {
	case quantity.Sign() < 0:
		return "it must not be negative"
	case quantity.Cmp(most) > 0:
		return fmt.Sprintf("no cluster has more than %s", most.String())
	case name != corev1.ResourceCPU && quantity.MilliValue()%1000 != 0:
		return "it must be a whole number"
	default:
		return ""
	}
}

// validResource reports whether a Node can have the resource: a standard one, or one with a domain.
func validResource(name corev1.ResourceName) bool {
	if len(validation.IsQualifiedName(string(name))) > 0 {
		return false
	}
	return slices.Contains(mandatory, name) ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || strings.Contains(string(name), "/")
}

func judgePrices(field string, prices *v1alpha1.Prices) Verdict {
	if prices == nil {
		return accepted()
	}
	if !currencyCode.MatchString(prices.Currency) {
		return refused(v1alpha1.ReasonInvalidField,
			"%s.currency is %s: it must be three capital letters, such as EUR", field, quoted(prices.Currency))
	}
	if verdict := judgeAmounts(field+".perHour", prices.PerHour, maxNames, validResource); !verdict.Accepted {
		return verdict
	}
	if verdict := judgeAmounts(field+".perPlacement", prices.PerPlacement, maxPlacements, validImage); !verdict.Accepted {
		return verdict
	}
	return accepted()
}

func judgeAmounts[Name ~string](field string, amounts map[Name]resource.Quantity, most int, valid func(Name) bool) Verdict {
	if len(amounts) > most {
		return refused(v1alpha1.ReasonInvalidField, "%s has %d entries, more than %d", field, len(amounts), most)
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		shown := quoted(string(name))
		if !valid(name) {
			return refused(v1alpha1.ReasonInvalidField, "%s[%s] is nothing that can have such a price", field, shown)
		}
		if amount := amounts[name]; amount.Sign() < 0 {
			return refused(v1alpha1.ReasonInvalidQuantity,
				"%s[%s] is %s: it must not be negative", field, strings.Trim(shown, `"`), quoted(amount.String()))
		}
	}
	return accepted()
}

func validImage(name string) bool { return name != "" && len(name) <= maxImageNameLength }

func judgeFields(ad *v1alpha1.AdvertisementSpec) Verdict {
	for _, judge := range []func(*v1alpha1.AdvertisementSpec) Verdict{
		judgeImages, judgeNetwork, judgeDescription, judgeFlags, judgeExtensions, judgeNested,
	} {
		if verdict := judge(ad); !verdict.Accepted {
			return verdict
		}
	}
	return accepted()
}

func judgeImages(ad *v1alpha1.AdvertisementSpec) Verdict {
	if len(ad.Images) > maxImages {
		return refused(v1alpha1.ReasonInvalidField, "spec.images has %d entries, more than %d", len(ad.Images), maxImages)
	}
	for i, image := range ad.Images {
		if image.SizeBytes < 0 {
			return refused(v1alpha1.ReasonInvalidQuantity,
				"spec.images[%d].sizeBytes is %d: it must not be negative", i, image.SizeBytes)
		}
		if len(image.Names) == 0 || len(image.Names) > maxImageNames {
			return refused(v1alpha1.ReasonInvalidField,
				"spec.images[%d].names has %d entries: it must have 1 to %d", i, len(image.Names), maxImageNames)
		}
		if slices.ContainsFunc(image.Names, func(name string) bool { return !validImage(name) }) {
			return refused(v1alpha1.ReasonInvalidField,
				"spec.images[%d].names must have 1 to %d characters each", i, maxImageNameLength)
		}
	}
	return accepted()
}

func judgeNetwork(ad *v1alpha1.AdvertisementSpec) Verdict {
	if ad.Network == nil || ad.Network.PodCIDR == "" || isCIDR(ad.Network.PodCIDR) {
		return accepted()
	}
	return refused(v1alpha1.ReasonInvalidField,
		"spec.network.podCIDR is %s: it must be a CIDR, such as 10.244.0.0/16", quoted(ad.Network.PodCIDR))
}

func isCIDR(text string) bool {
	prefix, err := netip.ParsePrefix(text)
	return err == nil && prefix == prefix.Masked() && !prefix.Addr().Is4In6()
}

func judgeDescription(ad *v1alpha1.AdvertisementSpec) Verdict {
	if verdict := judgeLabels("spec.labels", ad.Labels); !verdict.Accepted {
		return verdict
	}
	if len(ad.Architectures) > maxArchitectures {
		return refused(v1alpha1.ReasonInvalidField,
			"spec.architectures has %d entries, more than %d", len(ad.Architectures), maxArchitectures)
	}
	for _, name := range ad.Architectures {
		if name == "" || len(name) > maxArchitecture || len(validation.IsValidLabelValue(name)) > 0 {
			return refused(v1alpha1.ReasonInvalidField, "spec.architectures has %s: that is not an architecture", quoted(name))
		}
	}
	if len(ad.KubernetesVersion) > maxVersion {
		return refused(v1alpha1.ReasonInvalidField, "spec.kubernetesVersion is longer than %d characters", maxVersion)
	}
	return accepted()
}

func judgeLabels(field string, labels map[string]v1alpha1.Text) Verdict {
	if len(labels) > maxNames {
		return refused(v1alpha1.ReasonInvalidField, "%s has %d entries, more than %d", field, len(labels), maxNames)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(string(labels[key]))) > 0 {
			return refused(v1alpha1.ReasonInvalidField,
				"%s[%s] is %s: that is not a label", field, quoted(key), quoted(string(labels[key])))
		}
	}
	return accepted()
}

// judgeFlags looks at sizes only: flags that we do not know are kept and ignored.
func judgeFlags(ad *v1alpha1.AdvertisementSpec) Verdict {
	if len(ad.Flags) > maxNames {
		return refused(v1alpha1.ReasonInvalidField, "spec.flags has %d entries, more than %d", len(ad.Flags), maxNames)
	}
	for _, key := range slices.Sorted(maps.Keys(ad.Flags)) {
		if len(key) > maxFlagKey || longer(string(ad.Flags[key]), maxText) {
			return refused(v1alpha1.ReasonInvalidField,
				"spec.flags[%s] is too long: a key may have %d characters and a value %d", quoted(key), maxFlagKey, maxText)
		}
	}
	return accepted()
}

// longer counts characters, as the API server does.
func longer(text string, most int) bool {
	return len(text) > most && utf8.RuneCountInString(text) > most
}
