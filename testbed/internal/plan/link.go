// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Link says how bad the connection is between the nodes of a cluster and those of another, or of everybody outside.
type Link struct {
	Peer    string         `json:"peer,omitempty"`    // the other cluster; empty for everybody whom no other link names
	Subnets []netip.Prefix `json:"subnets,omitempty"` // where the other cluster's nodes have their addresses
	Impairment
}

// Impairment is what happens to packets, in each direction by itself. A zero means nothing of that kind.
type Impairment struct {
	Loss  float64       `json:"loss,omitempty"`  // the share of packets that get lost, from 0 to 1
	Delay time.Duration `json:"delay,omitempty"` // how much later each packet arrives
	Rate  int64         `json:"rate,omitempty"`  // bits per second
	MTU   int           `json:"mtu,omitempty"`   // bytes of the largest IP packet; larger ones get lost and nobody is told
}

// Bounds of what may be asked for: every IPv4 link takes packets of 68 bytes, and nothing larger than 1,500 comes along.
const (
	minMTU   = 68
	maxMTU   = 1500
	maxDelay = time.Minute
	minRate  = 1000
)

// Validate tells what cannot be.
func (i Impairment) Validate() error {
	switch {
	case i == Impairment{}:
		return errors.New("say what is bad about the link: --loss, --delay, --rate or --mtu")
	case i.Loss < 0 || i.Loss > 1 || math.IsNaN(i.Loss):
		return fmt.Errorf("loss of %s: want 0%% to 100%%", percent(i.Loss))
	case i.Delay < 0 || i.Delay > maxDelay:
		return fmt.Errorf("delay of %s: want 0s to %s", i.Delay, maxDelay)
	case i.Rate != 0 && i.Rate < minRate:
		return fmt.Errorf("rate of %d bit/s: want 1kbit or more", i.Rate)
	case i.MTU != 0 && (i.MTU < minMTU || i.MTU > maxMTU):
		return fmt.Errorf("MTU of %d: want %d to %d", i.MTU, minMTU, maxMTU)
	}
	return nil
}

func (i Impairment) String() string {
	var parts []string
	if i.Loss > 0 {
		parts = append(parts, "loss "+percent(i.Loss))
	}
	if i.Delay > 0 {
		parts = append(parts, "delay "+i.Delay.String())
	}
	if i.Rate > 0 {
		parts = append(parts, fmt.Sprintf("rate %dbit", i.Rate))
	}
	if i.MTU > 0 {
		parts = append(parts, fmt.Sprintf("mtu %d", i.MTU))
	}
	return strings.Join(parts, ", ")
}

func percent(share float64) string {
	return strconv.FormatFloat(100*share, 'g', 6, 64) + "%"
}

// ParseLoss reads a share of packets, like 5%.
func ParseLoss(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is no share of packets, like 5%%", text)
	}
	return share / 100, nil
}

// rateUnits are looked for in this order, because each of them ends with the last.
var rateUnits = []struct {
	name string
	bits float64
}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}}

// ParseRate reads bits per second, like 50mbit.
func ParseRate(text string) (int64, error) {
	for _, unit := range rateUnits {
		number, ok := strings.CutSuffix(strings.ToLower(text), unit.name)
		if !ok {
			continue
		}
		if value, err := strconv.ParseFloat(number, 64); err == nil && value > 0 && value*unit.bits < math.MaxInt32*1e3 {
			return int64(value * unit.bits), nil
		}
	}
	return 0, fmt.Errorf("%q is no rate, like 50mbit", text)
}

// WithLink are the links with the given one in place of that with the same peer, or without that if nothing is bad about it.
func WithLink(links []Link, link Link) []Link {
	links = slices.DeleteFunc(slices.Clone(links), func(other Link) bool { return other.Peer == link.Peer })
	if link.Impairment == (Impairment{}) {
		return links
	}
	return append(links, link)
}
