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

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Two clusters see the beginning and the end of a pod at moments that differ by their link and their clocks. So counts agree if they
// differ by no more than a part of the larger one, or than an amount that is nothing much.
var (
	toleratedPart  = inf.NewDec(2, 2) // 0.02 of the larger
	toleratedHours = inf.NewDec(2, 2) // unit hours: 72 seconds of one unit
	toleratedCost  = inf.NewDec(1, 2) // a cent
)

// entriesOfOthers is how many entries are kept for applications that have none of their own: one for each currency.
const entriesOfOthers = 4

// staleCounts is how many periods of counting one side may be behind the other one before it has stopped counting.
const staleCounts = 3

var (
	secondsInHour = inf.NewDec(3600, 0)
	decimalForm   = regexp.MustCompile(`^(0|[1-9][0-9]{0,11})(\.[0-9]{1,9})?$`)
	applicationIs = regexp.MustCompile(`^([a-z0-9]([-./a-z0-9]*[a-z0-9])?|[*])?$`)
	currencyForm  = regexp.MustCompile(`^([A-Z]{3})?$`)
)

const (
	maxApplicationName = 253
	maxResourceName    = 100
)

// AddTo adds what was used to what was counted before. It fails if that is no count.
func (t Tally) AddTo(count *v1alpha1.AccountCount) error {
	sums, err := entriesOf(count)
	if err != nil {
		return err
	}
	for _, key := range slices.SortedFunc(maps.Keys(t.sums), compareKeys) {
		into := placeFor(key, sums)
		if sums[into] == nil {
			sums[into] = newTallied()
		}
		sums[into].addHours(t.sums[key], into.currency == key.currency)
	}
	count.CountedUntil = &metav1.Time{Time: t.Until}
	count.Entries = nil
	for _, key := range slices.SortedFunc(maps.Keys(sums), compareKeys) {
		count.Entries = append(count.Entries, entryFor(key, sums[key]))
	}
	return nil
}

// placeFor is the entry in which what is used counts: that of its application, or of all others in its currency. Where there are too
// many currencies, the last one has no cost.
func placeFor(key entryKey, sums map[entryKey]*tallied) entryKey {
	others := entryKey{v1alpha1.OtherApplications, key.currency}
	switch {
	case sums[key] != nil || len(sums) < v1alpha1.MaxAccountEntries-entriesOfOthers:
		return key
	case sums[others] != nil || len(sums) < v1alpha1.MaxAccountEntries-1:
		return others
	default:
		return entryKey{application: v1alpha1.OtherApplications}
	}
}

func compareKeys(a, b entryKey) int {
	return cmp.Or(strings.Compare(a.application, b.application), strings.Compare(a.currency, b.currency))
}

// addHours adds sums that are in seconds to those that are in hours.
func (t *tallied) addHours(more *tallied, withCost bool) {
	hours := func(seconds *inf.Dec) *inf.Dec {
		return new(inf.Dec).QuoRound(seconds, secondsInHour, priceDecimals, inf.RoundHalfUp)
	}
	for name, seconds := range more.used {
		addTo(t.used, name, hours(seconds))
	}
	for name, seconds := range more.reserved {
		addTo(t.reserved, name, hours(seconds))
	}
	if withCost {
		t.cost.Add(t.cost, hours(more.cost))
	}
}

// entriesOf reads what is counted, in hours. Entries of the same application and currency are one.
func entriesOf(count *v1alpha1.AccountCount) (map[entryKey]*tallied, error) {
	sums := map[entryKey]*tallied{}
	for i := range count.Entries {
		e := &count.Entries[i]
		key := entryKey{e.Application, e.Currency}
		if sums[key] == nil {
			sums[key] = newTallied()
		}
		if err := sums[key].read(e); err != nil {
			return nil, fmt.Errorf("entries[%d].%w", i, err)
		}
	}
	return sums, nil
}

func (t *tallied) read(e *v1alpha1.AccountEntry) error {
	for field, of := range map[string]struct {
		from map[corev1.ResourceName]v1alpha1.Decimal
		to   map[corev1.ResourceName]*inf.Dec
	}{"used": {e.Used, t.used}, "reserved": {e.Reserved, t.reserved}} {
		if len(of.from) > v1alpha1.MaxAccountResources {
			return fmt.Errorf("%s: more than %d resources", field, v1alpha1.MaxAccountResources)
		}
		for name, text := range of.from {
			hours, err := parseDecimal(text)
			if err != nil || len(name) > maxResourceName {
				return fmt.Errorf("%s: not a number of hours of a resource", field)
			}
			addTo(of.to, name, hours)
		}
	}
	if e.Cost == "" {
		return nil
	}
	cost, err := parseDecimal(e.Cost)
	if err != nil {
		return fmt.Errorf("cost: %w", err)
	}
	t.cost.Add(t.cost, cost)
	return nil
}

func parseDecimal(text v1alpha1.Decimal) (*inf.Dec, error) {
	number, ok := new(inf.Dec).SetString(string(text))
	if !ok || !decimalForm.MatchString(string(text)) {
		return nil, fmt.Errorf("%s is not a plain decimal number", quoted(string(text)))
	}
	return number, nil
}

// mostHours is the largest number that an Account holds.
var mostHours = inf.NewDec(999_999_999_999, 0)

// plain is the number as decimal digits, rounded to nine of them behind the point.
func plain(number *inf.Dec) v1alpha1.Decimal {
	if number.Cmp(mostHours) > 0 {
		number = mostHours
	}
	return v1alpha1.Decimal(Digits(new(inf.Dec).Round(number, priceDecimals, inf.RoundHalfUp)))
}

func entryFor(key entryKey, sum *tallied) v1alpha1.AccountEntry {
	e := v1alpha1.AccountEntry{Application: key.application, Currency: key.currency, Used: decimals(sum.used), Reserved: decimals(sum.reserved)}
	if sum.cost.Sign() > 0 {
		e.Cost = plain(sum.cost)
	}
	return e
}

// decimals are those of the first resources, by name, with the usual ones before all others.
func decimals(sums map[corev1.ResourceName]*inf.Dec) map[corev1.ResourceName]v1alpha1.Decimal {
	if len(sums) == 0 {
		return nil
	}
	all := map[corev1.ResourceName]v1alpha1.Decimal{}
	for _, name := range slices.Concat(mandatory, slices.Sorted(maps.Keys(sums))) {
		if sums[name] != nil && (all[name] != "" || len(all) < v1alpha1.MaxAccountResources) {
			all[name] = plain(sums[name])
		}
	}
	return all
}

// CheckCount returns what is wrong with what the other side says that it has counted on that day, nil if it may be believed or not.
func CheckCount(count *v1alpha1.AccountCount, day time.Time) error {
	if len(count.Entries) > v1alpha1.MaxAccountEntries {
		return fmt.Errorf("entries: more than %d", v1alpha1.MaxAccountEntries)
	}
	if until := count.CountedUntil; until != nil && (until.Before(&metav1.Time{Time: day}) || until.After(day.Add(24*time.Hour))) {
		return errors.New("countedUntil: not on that day")
	}
	for i := range count.Entries {
		e := &count.Entries[i]
		if !isApplication(e.Application) {
			return fmt.Errorf("entries[%d].application: not the name of an application", i)
		}
		if !currencyForm.MatchString(e.Currency) {
			return fmt.Errorf("entries[%d].currency: not a currency", i)
		}
	}
	_, err := entriesOf(count)
	return err
}

func isApplication(name string) bool {
	return len(name) <= maxApplicationName && applicationIs.MatchString(name)
}

// An Agreement is what condition Agreed says.
type Agreement struct {
	Status          metav1.ConditionStatus
	Reason, Message string
}

// CompareCounts says whether consumer and provider, which both count in such periods, have counted the same on the day, and nil if that
// cannot be said before one of them has counted as far as the other one. Only sums over all applications are compared: which of them
// a pod belongs to may look different for a moment.
func CompareCounts(consumer, provider *v1alpha1.AccountCount, day time.Time, period time.Duration) *Agreement {
	for _, side := range []struct {
		name  string
		count *v1alpha1.AccountCount
	}{{"consumer", consumer}, {"provider", provider}} {
		if err := CheckCount(side.count, day); err != nil {
			return &Agreement{metav1.ConditionFalse, v1alpha1.ReasonInvalidCount, fmt.Sprintf("The count of the %s is none: %v", side.name, err)}
		}
		if side.count.CountedUntil == nil {
			return &Agreement{metav1.ConditionUnknown, v1alpha1.ReasonNotCounted, fmt.Sprintf("The %s has not counted yet", side.name)}
		}
	}
	behind, who := provider.CountedUntil.Sub(consumer.CountedUntil.Time), "consumer"
	if behind < 0 {
		behind, who = -behind, "provider"
	}
	switch {
	case behind > staleCounts*period:
		return &Agreement{metav1.ConditionUnknown, v1alpha1.ReasonNotCounted, fmt.Sprintf(
			"The %s has not counted for some time: it does not run, or the two do not reach each other, or a clock is wrong", who)}
	case behind > 0:
		return nil
	}
	if found := differences(consumer, provider); len(found) > 0 {
		return &Agreement{metav1.ConditionFalse, v1alpha1.ReasonCountsDiffer, "The counts differ: " + some(found)}
	}
	return &Agreement{metav1.ConditionTrue, v1alpha1.ReasonCountsAgree, "Consumer and provider have counted the same"}
}

const mostDifferences = 6

func some(found []string) string {
	if len(found) > mostDifferences {
		found = append(found[:mostDifferences:mostDifferences], fmt.Sprintf("and %d more", len(found)-mostDifferences))
	}
	return strings.Join(found, "; ")
}

// differences are those of two counts that were checked.
func differences(consumer, provider *v1alpha1.AccountCount) []string {
	a, b := totals(consumer), totals(provider)
	names := slices.Sorted(maps.Keys(a))
	for name := range b {
		if a[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var found []string
	for _, name := range names {
		x, y := cmp.Or(a[name], new(inf.Dec)), cmp.Or(b[name], new(inf.Dec))
		least := toleratedHours
		if strings.HasPrefix(name, costIn) {
			least = toleratedCost
		}
		if !isNear(x, y, least) {
			found = append(found, fmt.Sprintf("%s is %s by the consumer and %s by the provider", name, plain(x), plain(y)))
		}
	}
	return found
}

const costIn = "the cost in "

// totals are sums over all applications: by what is said of them.
func totals(count *v1alpha1.AccountCount) map[string]*inf.Dec {
	all := map[string]*inf.Dec{}
	add := func(name string, more *inf.Dec) {
		all[name] = new(inf.Dec).Add(cmp.Or(all[name], new(inf.Dec)), more)
	}
	sums, _ := entriesOf(count) // checked
	for key, sum := range sums {
		for name, hours := range sum.used {
			add(string(name)+" used", hours)
		}
		for name, hours := range sum.reserved {
			add(string(name)+" reserved", hours)
		}
		if sum.cost.Sign() > 0 {
			add(costIn+key.currency, sum.cost)
		}
	}
	return all
}

func isNear(x, y, least *inf.Dec) bool {
	more := x
	if y.Cmp(x) > 0 {
		more = y
	}
	apart := new(inf.Dec).Sub(x, y)
	apart.Abs(apart)
	return apart.Cmp(least) <= 0 || apart.Cmp(new(inf.Dec).Mul(more, toleratedPart)) <= 0
}
