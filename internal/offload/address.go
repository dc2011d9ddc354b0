package offload

import "net/netip"

// AddressMap maps the addresses of a peer's pods, by their prefix, to those under which this cluster sees them. The
// zero value maps nothing.
type AddressMap struct {
	// From is the peer's pod range as the peer sees it.
	From netip.Prefix
	// To is the range in which this cluster sees it, at least as large.
	To netip.Prefix
}

// Map returns the address under which this cluster sees a pod of the peer, and whether there is one.
func (m AddressMap) Map(addr netip.Addr) (netip.Addr, bool) {
	from, to := m.From.Masked(), m.To.Masked()
	if !from.IsValid() || !to.IsValid() || from.Addr().BitLen() != to.Addr().BitLen() || to.Bits() > from.Bits() {
		return netip.Addr{}, false
	}
	addr = addr.Unmap().WithZone("")
	if !from.Contains(addr) {
		return netip.Addr{}, false
	}
	bits := addr.AsSlice()
	for i, b := range to.Addr().AsSlice() {
		// The host part of from is at most as long as that of to, so the prefixes never overlap the host's bits.
		bits[i] = bits[i]&^from.Addr().AsSlice()[i] | b
	}
	mapped, ok := netip.AddrFromSlice(bits)
	return mapped, ok
}
