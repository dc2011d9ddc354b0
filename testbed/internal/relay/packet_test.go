// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	one4, two4 = netip.MustParseAddr("10.212.1.11"), netip.MustParseAddr("10.212.2.11")
	one6, two6 = netip.MustParseAddr("fd00:212::1:11"), netip.MustParseAddr("fd00:212::2:11")
)

// frame4 is an IPv4 packet of a length in a frame, as far as the relay looks at it.
func frame4(source, destination netip.Addr, length int) []byte {
	frame := make([]byte, ethernetHeader+length)
	frame[12], frame[13] = 0x08, 0x00
	copy(frame[26:], source.AsSlice())
	copy(frame[30:], destination.AsSlice())
	return frame
}

func frame6(source, destination netip.Addr, protocol byte, payload ...byte) []byte {
	frame := make([]byte, ethernetHeader+headerIPv6)
	frame[12], frame[13] = 0x86, 0xdd
	frame[20] = protocol
	copy(frame[22:], source.AsSlice())
	copy(frame[38:], destination.AsSlice())
	return append(frame, payload...)
}

func with(frame []byte, position int, value byte) []byte {
	frame[position] = value
	return frame
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name  string
		frame []byte
		want  packet // none if it is zero
	}{
		{"IPv4", frame4(one4, two4, 1500), packet{one4, two4, 1500}},
		{"IPv6", frame6(one6, two6, 17, 1, 2, 3), packet{one6, two6, 43}},
		{"ICMPv6 that travels", frame6(one6, two6, protocolICMPv6, 128), packet{one6, two6, 41}},
		{"the search for a neighbour does not", frame6(one6, two6, protocolICMPv6, 135), packet{}},
		{"for several receivers", with(frame4(one4, two4, 100), 0, 0x33), packet{}},
		{"ARP", with(frame4(one4, two4, 28), 13, 0x06), packet{}},
		{"half a header of IPv4", frame4(one4, two4, 30)[:ethernetHeader+19], packet{}},
		{"half a header of IPv6", frame6(one6, two6, 17)[:ethernetHeader+39], packet{}},
		{"half a frame", make([]byte, 13), packet{}},
		{"nothing", nil, packet{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := parse(test.frame)
			if ok != (test.want != packet{}) {
				t.Errorf("ok is %v", ok)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(packet{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(frame4(one4, two4, 1500))
	f.Add(frame6(one6, two6, protocolICMPv6, 135))
	f.Fuzz(func(t *testing.T, frame []byte) {
		found, ok := parse(frame)
		if ok && (found.length != len(frame)-ethernetHeader || !found.source.IsValid() || !found.destination.IsValid()) {
			t.Errorf("got %+v of %x", found, frame)
		}
	})
}
