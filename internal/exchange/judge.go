// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// Bounds are the limits of what is believed.
type Bounds struct {
	// ClockSkew is by how much the sender's clock and ours may differ. A clock that is behind by more does no harm as long
	// as what it says has not expired.
	ClockSkew time.Duration
}

// DefaultBounds returns the bounds that hold unless an administrator sets others.
func DefaultBounds() Bounds { return Bounds{ClockSkew: 15 * time.Minute} }

// A Verdict says whether an advertisement can be used. The message names the field and what is wrong with it; it is the
// same every time that the same is wrong, and carries no time.
type Verdict struct {
	Accepted        bool
	Reason, Message string
}

// Judge says whether the offer of a peer can be used now. The clusterID is the one that the peer must have; previous is
// the offer of it that was accepted last, or nil.
func Judge(
	ad *v1alpha1.AdvertisementSpec, b Bounds, clusterID string, previous *v1alpha1.AdvertisementSpec, now time.Time,
) Verdict {
	err := cmp.Or(judgeIdentity(ad, clusterID, previous), judgeTimes(ad, b, previous, now), judgeForm(ad), judgeMeaning(ad))
	if err == nil {
		return Verdict{Accepted: true, Reason: v1alpha1.ReasonAccepted}
	}
	because := refusal{reason: v1alpha1.ReasonInvalidField}
	errors.As(err, &because)
	return Verdict{Reason: because.reason, Message: sanitize.Text(err.Error(), maxMessage)}
}

// A refusal says why an advertisement cannot be used.
type refusal struct {
	error

	reason string
}

func (r refusal) Unwrap() error { return r.error }

func refused(reason, format string, args ...any) error {
	return refusal{fmt.Errorf(format, args...), reason}
}

func judgeIdentity(ad *v1alpha1.AdvertisementSpec, clusterID string, previous *v1alpha1.AdvertisementSpec) error {
	switch {
	case ad.ClusterID != clusterID:
		return refused(v1alpha1.ReasonClusterIDMismatch,
			"spec.clusterID is %s but the peer is cluster %q", quoted(ad.ClusterID), clusterID)
	case ad.Sequence < 0:
		return refused(v1alpha1.ReasonInvalidField, "spec.sequence must not be negative")
	case previous != nil && SaidBefore(ad.Sequence, previous.Sequence):
		return refused(v1alpha1.ReasonStale, "spec.sequence is lower than that of the advertisement in use")
	default:
		return nil
	}
}

func judgeTimes(ad *v1alpha1.AdvertisementSpec, b Bounds, previous *v1alpha1.AdvertisementSpec, now time.Time) error {
	switch {
	case ad.Timestamp.IsZero():
		return refused(v1alpha1.ReasonInvalidField, "spec.timestamp is missing")
	case ad.TimeToLive.IsZero():
		return refused(v1alpha1.ReasonInvalidField, "spec.timeToLive is missing")
	case !ad.TimeToLive.After(ad.Timestamp.Time):
		return refused(v1alpha1.ReasonInvalidField, "spec.timeToLive must be later than spec.timestamp")
	case ad.Timestamp.Sub(now) > b.ClockSkew:
		return refused(v1alpha1.ReasonClockSkew,
			"spec.timestamp is ahead of the receiver's clock by more than %s: check the clocks of both clusters", b.ClockSkew)
	case ad.TimeToLive.After(now):
		return nil
	case now.Sub(ad.Timestamp.Time) > b.ClockSkew && !couldHaveAged(ad, previous):
		return refused(v1alpha1.ReasonClockSkew, "spec.timestamp is behind the receiver's clock by more than %s and spec.timeToLive "+
			"has passed: check the clocks of both clusters, and whether Hanse runs in the sender's", b.ClockSkew)
	default:
		return refused(v1alpha1.ReasonExpired,
			"spec.timeToLive has passed by the receiver's clock: if the advertisement is new, check the clocks of both clusters")
	}
}

// couldHaveAged reports whether a message that has expired by our clock may have been in time when it was made: it is the
// one that we know, or one that was made after it while we were cut off. If its clock has gone back since, or if we have
// never had a message of that cluster that was in time, the clocks are to be suspected.
func couldHaveAged(ad, previous *v1alpha1.AdvertisementSpec) bool {
	return previous != nil && !ad.Timestamp.Before(&previous.Timestamp)
}

// judgeForm holds the offer to what the API says about its fields: see schema.
func judgeForm(ad *v1alpha1.AdvertisementSpec) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ad)
	if err != nil {
		return refused(v1alpha1.ReasonInvalidField, "spec cannot be written: %v", err)
	}
	return offerSchema().walk("spec", object, (*schema).checkValue)
}

// judgeMeaning judges what the API has no words for. Whether nested offers go in circles is another question, see Loops.
func judgeMeaning(ad *v1alpha1.AdvertisementSpec) error {
	for _, name := range mandatory {
		if _, found := ad.Availability[name]; !found {
			return refused(v1alpha1.ReasonInvalidQuantity, "spec.availability[%s] is missing", name)
		}
	}
	err := cmp.Or(
		judgeResources("spec.availability", ad.Availability),
		judgeResources("spec.largestPod", ad.LargestPod),
		judgeResources("spec.guarantee", ad.Guarantee),
		judgePrices("spec.prices", ad.Prices),
		judgeNetwork("spec.network", ad.Network),
		judgeLabels("spec.labels", ad.Labels),
	)
	for i := 0; i < len(ad.Nested) && err == nil; i++ {
		field, nested := fmt.Sprintf("spec.nested[%d]", i), &ad.Nested[i]
		err = cmp.Or(
			judgeResources(field+".availability", nested.Availability),
			judgePrices(field+".prices", nested.Prices),
			judgeLabels(field+".labels", nested.Labels),
		)
	}
	return err
}

const (
	maxMessage = 1024
	maxQuoted  = 80
)

// quoted makes what a peer wrote fit to be shown: printable, ASCII and short.
func quoted(text string) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%+q...", text[:maxQuoted])
	}
	return fmt.Sprintf("%+q", text)
}

const maxPlacements = 100

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

func judgeResources(field string, list corev1.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !validResource(name) {
			return refused(v1alpha1.ReasonInvalidField, "%s[%s] is not the name of a node's resource", field, quoted(string(name)))
		}
		quantity := list[name]
		if err := checkQuantity(name, quantity); err != nil {
			return refused(v1alpha1.ReasonInvalidQuantity, "%s[%s] is %s: %w", field, name, quoted(quantity.String()), err)
		}
	}
	return nil
}

// checkQuantity holds quantities to what the Node of the peer can carry: of all but cpu only whole ones.
func checkQuantity(name corev1.ResourceName, quantity resource.Quantity) error {
	most := MaxQuantity(name)
	switch {
	case quantity.Sign() < 0:
		return errors.New("it must not be negative")
	case quantity.Cmp(most) > 0:
		return fmt.Errorf("no cluster has more than %s", most.String())
	case name != corev1.ResourceCPU && quantity.MilliValue()%1000 != 0:
		return errors.New("it must be a whole number")
	default:
		return nil
	}
}

// validResource reports whether a Node can have the resource: a standard one, or one with a domain.
func validResource(name corev1.ResourceName) bool {
	return len(validation.IsQualifiedName(string(name))) == 0 && QuotaKey(name) != ""
}

func judgePrices(field string, prices *v1alpha1.Prices) error {
	if prices == nil {
		return nil
	}
	if !currencyCode.MatchString(prices.Currency) {
		return refused(v1alpha1.ReasonInvalidField,
			"%s.currency is %s: it must be three capital letters, such as EUR", field, quoted(prices.Currency))
	}
	return cmp.Or(
		judgeAmounts(field+".perHour", prices.PerHour, maxNames, validResource),
		judgeAmounts(field+".perPlacement", prices.PerPlacement, maxPlacements, validImage),
	)
}

func judgeAmounts[Name ~string](field string, amounts map[Name]resource.Quantity, most int, valid func(Name) bool) error {
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
	return nil
}

func validImage(name string) bool { return name != "" && len(name) <= maxImageNameLength }

func judgeLabels(field string, labels map[string]v1alpha1.Text) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(string(labels[key]))) > 0 {
			return refused(v1alpha1.ReasonInvalidField,
				"%s[%s] is %s: that is not a label", field, quoted(key), quoted(string(labels[key])))
		}
	}
	return nil
}
