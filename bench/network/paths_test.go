// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFiguresOfBenchmarksAreRead(t *testing.T) {
	out := []byte(`goos: linux
BenchmarkThroughput/streams=4-2   12  1414874645 ns/op  280.9 bare:MB/s  1.000 bare:ratio  222.5 addresses=10000:MB/s
BenchmarkRoundTrip-2              12   145675908 ns/op  156.2 bare:us
PASS
`)
	want := Figures{
		"Throughput/streams=4": {"bare": {"MB/s": 280.9, "ratio": 1}, "addresses=10000": {"MB/s": 222.5}},
		"RoundTrip":            {"bare": {"us": 156.2}},
	}
	got, err := parseFigures(out)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	for name, text := range map[string]string{
		"a number that is none":  "BenchmarkRoundTrip-2 1 5 ns/op x bare:us",
		"a value without a unit": "BenchmarkRoundTrip-2 1 5 ns/op 7",
	} {
		if got, err := parseFigures([]byte(text)); err == nil {
			t.Errorf("%s is read as %v", name, got)
		}
	}
}

func TestEachWayIsHeldAgainstItsFloor(t *testing.T) {
	r := Result{Config: Config{Rounds: 3}, Figures: Figures{
		"Throughput/streams=1": {
			bare:       {"MB/s": 200, "ratio": 1},
			translated: {"MB/s": 196, "ratio": 0.96},
			addresses:  {"MB/s": 195, "ratio": 0.95},
			peers:      {"MB/s": 180, "ratio": 0.90},
		},
		"RoundTrip": {bare: {"us": 100}, translated: {"us": 151}, addresses: {"us": 150}, peers: {"us": 160}},
	}}
	want := [][]string{
		{"Throughput/streams=1/translated", "196 MB/s", "200 MB/s", "0.96 ×", "≥ 0.95 ×", "within"},
		{"Throughput/streams=1/addresses=10000", "195 MB/s", "196 MB/s", "0.99 ×", "≥ 0.97 ×", "within"},
		{"Throughput/streams=1/peers=100", "180 MB/s", "196 MB/s", "0.94 ×", "≥ 0.97 ×", "OVER"},
		{"RoundTrip/translated", "151 µs", "100 µs", "51.0 µs more", "≤ 50.0 µs", "OVER"},
		{"RoundTrip/addresses=10000", "150 µs", "151 µs", "-1.00 µs more", "≤ 4.53 µs", "within"},
		{"RoundTrip/peers=100", "160 µs", "151 µs", "9.00 µs more", "≤ 4.53 µs", "OVER"},
	}
	if diff := cmp.Diff(want, r.Tables()[0].Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
