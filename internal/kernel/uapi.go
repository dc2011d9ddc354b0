// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// encodeUAPI writes a configuration in the text that wireguard-go reads: https://www.wireguard.com/xplatform/.
func encodeUAPI(c wgtypes.Config) string {
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	if c.PrivateKey != nil {
		line("private_key", hex.EncodeToString(c.PrivateKey[:]))
	}
	if c.ListenPort != nil {
		line("listen_port", *c.ListenPort)
	}
	if c.FirewallMark != nil {
		line("fwmark", *c.FirewallMark)
	}
	for _, p := range c.Peers {
		encodePeer(p, line)
	}
	return b.String()
}

func encodePeer(p wgtypes.PeerConfig, line func(key string, value any)) {
	line("public_key", hex.EncodeToString(p.PublicKey[:]))
	if p.Remove {
		line("remove", true)
		return
	}
	if p.UpdateOnly {
		line("update_only", true)
	}
	if p.Endpoint != nil {
		line("endpoint", p.Endpoint)
	}
	if p.ReplaceAllowedIPs {
		line("replace_allowed_ips", true)
	}
	for _, r := range p.AllowedIPs {
		line("allowed_ip", &r)
	}
	if p.PersistentKeepaliveInterval != nil { // last, because it may send something
		line("persistent_keepalive_interval", int(p.PersistentKeepaliveInterval.Seconds()))
	}
}

// decodeUAPI reads the text in which wireguard-go says what it has.
func decodeUAPI(text string) (*wgtypes.Device, error) {
	d := &wgtypes.Device{Type: wgtypes.Userspace}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if err := decodeLine(d, key, value); err != nil {
			return nil, fmt.Errorf("read %s of WireGuard: %w", key, err)
		}
	}
	return d, nil
}

func decodeLine(d *wgtypes.Device, key, value string) (err error) {
	switch key {
	case "private_key":
		d.PrivateKey, err = decodeKey(value)
	case "listen_port":
		d.ListenPort, err = strconv.Atoi(value)
	case "fwmark":
		d.FirewallMark, err = strconv.Atoi(value)
	case "public_key":
		var p wgtypes.Peer
		p.PublicKey, err = decodeKey(value)
		d.Peers = append(d.Peers, p)
	default:
		if len(d.Peers) > 0 {
			return decodePeerLine(&d.Peers[len(d.Peers)-1], key, value)
		}
	}
	return err
}

func decodePeerLine(p *wgtypes.Peer, key, value string) (err error) {
	switch key {
	case "endpoint":
		var e netip.AddrPort
		e, err = netip.ParseAddrPort(value)
		p.Endpoint = net.UDPAddrFromAddrPort(e)
	case "allowed_ip":
		var r *net.IPNet
		if _, r, err = net.ParseCIDR(value); err == nil {
			p.AllowedIPs = append(p.AllowedIPs, *r)
		}
	case "last_handshake_time_sec":
		return decodeTime(&p.LastHandshakeTime, value, time.Second)
	case "last_handshake_time_nsec":
		return decodeTime(&p.LastHandshakeTime, value, time.Nanosecond)
	case "rx_bytes":
		p.ReceiveBytes, err = strconv.ParseInt(value, 10, 64)
	case "tx_bytes":
		p.TransmitBytes, err = strconv.ParseInt(value, 10, 64)
	case "persistent_keepalive_interval":
		var seconds int
		seconds, err = strconv.Atoi(value)
		p.PersistentKeepaliveInterval = time.Duration(seconds) * time.Second
	}
	return err
}

// decodeTime adds a part of a time since 1970 to it. All parts zero means never.
func decodeTime(t *time.Time, value string, unit time.Duration) error {
	count, err := strconv.ParseInt(value, 10, 64)
	if err != nil || count == 0 {
		return err
	}
	if t.IsZero() {
		*t = time.Unix(0, 0)
	}
	*t = t.Add(time.Duration(count) * unit)
	return nil
}

func decodeKey(value string) (wgtypes.Key, error) {
	bytes, err := hex.DecodeString(value)
	if err != nil {
		return wgtypes.Key{}, err
	}
	return wgtypes.NewKey(bytes)
}
