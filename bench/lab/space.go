// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"k8s.io/utils/clock"
)

// A Space is a network namespace on the bridge that joins all clusters of the testbed, such as that of a pod or of a node.
type Space struct {
	Name    string
	Address netip.Addr
}

// NewSpace makes a Space with a name of at most 15 bytes. Its number, from 2, must be that of no other one. Close it.
func (c *Cluster) NewSpace(ctx context.Context, name string, number byte) (*Space, error) {
	host, err := c.HostAddress(ctx)
	if err != nil {
		return nil, err
	}
	machine, err := netip.ParseAddr(host)
	if err != nil || !machine.Is4() {
		return nil, fmt.Errorf("the machine's address towards %s is %q, want one of IPv4", c.Name, host)
	}
	bridge, err := linkOf(ctx, machine)
	if err != nil {
		return nil, err
	}
	bytes := machine.As4() // no cluster has an address beside that of the machine
	bytes[3] = number
	s := &Space{Name: name, Address: netip.AddrFrom4(bytes)}
	err = run(ctx,
		"ip netns add "+name,
		fmt.Sprintf("ip link add %s type veth peer name eth0 netns %s", name, name),
		fmt.Sprintf("ip link set %s master %s up", name, bridge),
		fmt.Sprintf("ip -n %s link set lo up", name),
		fmt.Sprintf("ip -n %s link set eth0 up", name),
		fmt.Sprintf("ip -n %s address add %s/16 dev eth0", name, s.Address),
		fmt.Sprintf("ip -n %s route add default via %s", name, machine),
		fmt.Sprintf("nsenter --net=%s sysctl -qw net.ipv4.ip_forward=1", s.path()),
	)
	if err == nil { // as the pod of a gateway has it
		err = s.command("sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647").Run()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make network namespace %s: %w", name, err), s.Close(ctx))
	}
	return s, nil
}

// linkOf returns the link of this machine that has the address.
func linkOf(ctx context.Context, a netip.Addr) (string, error) {
	out, err := exec.CommandContext(ctx, "ip", "-o", "address", "show", "to", a.String()).Output() //nolint:gosec // an address
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 2 {
		return "", errors.Join(fmt.Errorf("find the link that has %s: %q", a, out), err)
	}
	return fields[1], nil
}

func run(ctx context.Context, commands ...string) error {
	for _, command := range commands {
		words := strings.Fields(command)
		if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil { //nolint:gosec // written above
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
	}
	return nil
}

func (s *Space) path() string { return "/run/netns/" + s.Name }

// command is one in the space. Its process is that of the program itself.
func (s *Space) command(program string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + s.path(), program}, args...)...) //nolint:gosec,noctx // ends when told to
}

// Close takes the space away. What runs in it must have ended.
func (s *Space) Close(ctx context.Context) error {
	return run(context.WithoutCancel(ctx), "ip netns delete "+s.Name)
}

// Route leads what is for an address through a link of the space.
func (s *Space) Route(ctx context.Context, to, via netip.Addr, link string) error {
	return run(ctx, fmt.Sprintf("ip -n %s route replace %s via %s dev %s onlink src %s", s.Name, to, via, link, s.Address))
}

func (s *Space) do(f func() error) error { return InNetns(s.path(), f) }

// InNetns runs a function in the network namespace that the file stands for, in a thread of its own, which ends with it. Sockets
// that the function opens stay in there.
func InNetns(path string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		handle, err := netns.GetFromPath(path)
		if err == nil {
			err = errors.Join(netns.Set(handle), handle.Close())
		}
		if err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", path, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// echoEvery is how often an echo is asked for until one comes back.
const echoEvery = 10 * time.Millisecond

// AwaitEcho asks an address for echoes until one comes back, and returns when that was.
func (s *Space) AwaitEcho(ctx context.Context, to netip.Addr) (at time.Time, err error) {
	real := clock.RealClock{}
	err = s.do(func() error {
		conn, err := icmp.ListenPacket("udp4", "0.0.0.0")
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		packet := make([]byte, 1500)
		for sequence := 0; ctx.Err() == nil; sequence++ {
			request := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{Seq: sequence & 0xffff}}
			bytes, err := request.Marshal(nil)
			if err != nil {
				return err
			}
			_, _ = conn.WriteTo(bytes, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0))) // there may be no route yet
			if err := conn.SetReadDeadline(real.Now().Add(echoEvery)); err != nil {
				return err
			}
			if n, _, err := conn.ReadFrom(packet); err == nil && isEchoReply(packet[:n]) {
				at = real.Now()
				return nil
			}
		}
		return fmt.Errorf("%s sends no echo to %s: %w", to, s.Name, context.Cause(ctx))
	})
	return at, err
}

func isEchoReply(packet []byte) bool {
	message, err := icmp.ParseMessage(ipv4.ICMPTypeEcho.Protocol(), packet)
	return err == nil && message.Type == ipv4.ICMPTypeEchoReply
}

// Flood sends so many bytes to the port of an address that nobody listens at, as fast as they are taken.
func (s *Space) Flood(to netip.AddrPort, bytes int) error {
	const size = 1200
	return s.do(func() error {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		packet := make([]byte, size)
		for range bytes / size {
			_, _ = conn.Write(packet) // what is refused now and then is of no interest
		}
		return nil
	})
}
