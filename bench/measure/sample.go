// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"slices"
	"time"
)

// A Sample is how long the same thing took each time.
type Sample []time.Duration

// Quantile returns the smallest duration that at least the share q of the sample does not exceed (nearest rank).
// Of an empty sample it is 0.
func (s Sample) Quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the middle of the sample.
func (s Sample) Median() time.Duration { return s.Quantile(0.5) }

// P99 returns what 99 of 100 do not exceed.
func (s Sample) P99() time.Duration { return s.Quantile(0.99) }

// Max returns the longest.
func (s Sample) Max() time.Duration { return s.Quantile(1) }

// Between returns how long it took from one moment to another, for each key that has both.
func Between(from, to map[string]time.Time) Sample {
	var s Sample
	for key, start := range from {
		if end, ok := to[key]; ok {
			s = append(s, end.Sub(start))
		}
	}
	return s
}

// Span returns the time from the first moment of from to the last of to.
func Span(from, to map[string]time.Time) time.Duration {
	var first, last time.Time
	for _, at := range from {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	for _, at := range to {
		if at.After(last) {
			last = at
		}
	}
	return last.Sub(first)
}

// Mean returns the arithmetic mean of numbers, 0 of none.
func Mean(numbers []float64) float64 {
	if len(numbers) == 0 {
		return 0
	}
	sum := 0.0
	for _, n := range numbers {
		sum += n
	}
	return sum / float64(len(numbers))
}
