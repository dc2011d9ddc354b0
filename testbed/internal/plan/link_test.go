// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseLoss(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       float64
		wantErr    string
	}{
		{"a percentage", "5%", 0.05, ""},
		{"a part of one", "0.1%", 0.001, ""},
		{"everything", "100%", 1, ""},
		{"a number of nothing", "5", 0, "no share of packets"},
		{"no number", "much%", 0, "no share of packets"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseLoss(test.text)
			expect(t, got, err, test.want, test.wantErr)
		})
	}
}

func TestParseRate(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       int64
		wantErr    string
	}{
		{"bits", "9600bit", 9600, ""},
		{"thousands", "64kbit", 64_000, ""},
		{"millions", "50mbit", 50_000_000, ""},
		{"as some write it", "1.5Gbit", 1_500_000_000, ""},
		{"without a unit", "50", 0, "no rate"},
		{"nothing at all", "0mbit", 0, "no rate"},
		{"less than nothing", "-1mbit", 0, "no rate"},
		{"more than there is", "1e300gbit", 0, "no rate"},
		{"not a number", "nanmbit", 0, "no rate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseRate(test.text)
			expect(t, got, err, test.want, test.wantErr)
		})
	}
}

func TestImpairmentIsValid(t *testing.T) {
	for _, test := range []struct {
		name    string
		of      Impairment
		wantErr string
	}{
		{"all of it", Impairment{Loss: 1, Delay: time.Second, Rate: 1000, MTU: 1280}, ""},
		{"nothing", Impairment{}, "say what is bad"},
		{"more than all packets", Impairment{Loss: 1.01}, "want 0% to 100%"},
		{"fewer than none", Impairment{Loss: -0.01}, "loss of -1%"},
		{"no number", Impairment{Loss: math.NaN()}, "want 0% to 100%"},
		{"before it was sent", Impairment{Delay: -time.Second}, "delay of -1s"},
		{"too late", Impairment{Delay: time.Hour}, "want 0s to 1m0s"},
		{"less than 1 kbit/s", Impairment{Rate: 999}, "want 1kbit or more"},
		{"no packet is that small", Impairment{MTU: 20}, "MTU of 20"},
		{"no packet is that large", Impairment{MTU: 9000}, "MTU of 9000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect(t, 0, test.of.Validate(), 0, test.wantErr)
		})
	}
}

func TestImpairmentSaysWhatIsBad(t *testing.T) {
	got := Impairment{Loss: 0.005, Delay: 100 * time.Millisecond, Rate: 50_000_000, MTU: 1280}.String()
	if want := "loss 0.5%, delay 100ms, rate 50000000bit, mtu 1280"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWithLink(t *testing.T) {
	slow, lossy := Impairment{Delay: time.Second}, Impairment{Loss: 0.5}
	links := []Link{{Impairment: slow}, {Peer: "hamburg", Impairment: slow}}
	for _, test := range []struct {
		name string
		link Link
		want []Link
	}{
		{"another peer", Link{Peer: "bremen", Impairment: lossy}, append(links[:2:2], Link{Peer: "bremen", Impairment: lossy})},
		{"the same peer", Link{Peer: "hamburg", Impairment: lossy}, []Link{links[0], {Peer: "hamburg", Impairment: lossy}}},
		{"everybody", Link{Impairment: lossy}, []Link{links[1], {Impairment: lossy}}},
		{"nothing bad any more", Link{Peer: "hamburg"}, links[:1]},
		{"nothing bad with a stranger", Link{Peer: "bremen"}, links},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, WithLink(links, test.link)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
