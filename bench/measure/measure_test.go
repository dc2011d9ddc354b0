// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantile(t *testing.T) {
	hundred := make(Sample, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100-i) * time.Second
	}
	tests := []struct {
		name   string
		sample Sample
		q      float64
		want   time.Duration
	}{
		{name: "nothing", q: 0.5, want: 0},
		{name: "one value is every quantile", sample: Sample{time.Second}, q: 0.99, want: time.Second},
		{name: "the median of two is the smaller", sample: Sample{3, 1}, q: 0.5, want: 1},
		{name: "the p99 of a hundred is the second largest", sample: hundred, q: 0.99, want: 99 * time.Second},
		{name: "the maximum", sample: hundred, q: 1, want: 100 * time.Second},
		{name: "the minimum", sample: hundred, q: 0, want: time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.sample.Quantile(tt.q); got != tt.want {
				t.Errorf("Quantile(%v) = %s, want %s", tt.q, got, tt.want)
			}
		})
	}
}

func TestBetweenAndSpan(t *testing.T) {
	zero := time.Unix(1000, 0)
	from := map[string]time.Time{"a": zero, "b": zero.Add(time.Second), "lost": zero.Add(-time.Second)}
	to := map[string]time.Time{"a": zero.Add(5 * time.Second), "b": zero.Add(3 * time.Second), "stranger": zero}
	between := Between(from, to)
	if diff := cmp.Diff([]time.Duration{2 * time.Second, 5 * time.Second}, []time.Duration{between.Quantile(0), between.Max()}); diff != "" || len(between) != 2 {
		t.Errorf("Between (-want +got):\n%s", diff)
	}
	if got := Span(from, to); got != 6*time.Second {
		t.Errorf("Span = %s, want 6s", got)
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for want, got := range map[string]string{
		"1.50 ms":         Duration(1500 * time.Microsecond),
		"299 ms":          Duration(299 * time.Millisecond),
		"12.3 s":          Duration(12345 * time.Millisecond),
		"-5.00 ms":        Duration(-5 * time.Millisecond),
		"0":               Duration(0),
		"2.80 ×":          Number(2.8, "×"),
		"640 MiB":         Number(640.4, "MiB"),
		"0.0041 s of CPU": Number(0.0041, "s of CPU"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTableTellsWhatIsOverItsBound(t *testing.T) {
	table := Table{Title: "T", Columns: FigureColumns, Notes: []string{"n"}}
	table.Figure("ratio", 2.5, "×", 2.8)
	table.Figure("writes", 11, "", 10)
	table.Figure("memory", 50, "MiB", 0)
	table.Count("none", 0, 0)
	table.Count("lists", 2, 1)
	var b strings.Builder
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `## T

| what   | measured | bound    |        |
| ------ | -------- | -------- | ------ |
| ratio  | 2.50 ×   | ≤ 2.80 × | within |
| writes | 11.0     | ≤ 10.0   | OVER   |
| memory | 50.0 MiB |          |        |
| none   | 0        | ≤ 0      | within |
| lists  | 2        | ≤ 1      | OVER   |

* n

`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
