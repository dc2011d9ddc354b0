// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	wireguard "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// openDevice makes WireGuard of the kernel on the interface of that name, takes over the one that is there, or runs WireGuard in
// this process if the kernel has none.
func openDevice(name string, mtu int, log logr.Logger) (device, error) {
	link, err := netlink.LinkByName(name)
	switch {
	case err == nil && link.Type() == "wireguard":
		return openKernelDevice(name)
	case err == nil:
		return nil, fmt.Errorf("interface %s is not of WireGuard: another process has it", name)
	case !isNoLink(err):
		return nil, fmt.Errorf("look for interface %s: %w", name, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	err = netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return openProcessDevice(name, mtu, log)
	}
	if err != nil {
		return nil, fmt.Errorf("make interface %s: %w", name, err)
	}
	return openKernelDevice(name)
}

// kernelDevice is WireGuard of the kernel.
type kernelDevice struct {
	client *wgctrl.Client
	name   string
}

func openKernelDevice(name string) (device, error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("open the control of WireGuard: %w", err)
	}
	return kernelDevice{client, name}, nil
}

func (d kernelDevice) configure(c wgtypes.Config) error {
	return d.client.ConfigureDevice(d.name, c)
}

func (d kernelDevice) read() (*wgtypes.Device, error) { return d.client.Device(d.name) }

func (d kernelDevice) close() error { return d.client.Close() }

// tunDevice is what interfaces of processes are made by.
const tunDevice = "/dev/net/tun"

// processDevice is WireGuard in this process. Its interface lives as long as the process.
type processDevice struct{ wireguard *wireguard.Device }

func openProcessDevice(name string, mtu int, log logr.Logger) (device, error) {
	if _, err := os.Stat(tunDevice); err != nil { // what is missing then can be told from the error
		return nil, fmt.Errorf("the kernel has no WireGuard, and no TUN: %w", err)
	}
	link, err := tun.CreateTUN(name, mtu)
	if err != nil {
		return nil, fmt.Errorf("make interface %s: %w", name, err)
	}
	log = log.WithValues("interface", name)
	d := wireguard.NewDevice(link, conn.NewDefaultBind(), &wireguard.Logger{
		Verbosef: func(format string, args ...any) { log.V(2).Info(fmt.Sprintf(format, args...)) },
		Errorf:   func(format string, args ...any) { log.V(1).Info(fmt.Sprintf(format, args...)) },
	})
	if err := d.Up(); err != nil {
		d.Close()
		return nil, fmt.Errorf("start WireGuard: %w", err)
	}
	return processDevice{d}, nil
}

func (d processDevice) configure(c wgtypes.Config) error { return d.wireguard.IpcSet(encodeUAPI(c)) }

func (d processDevice) read() (*wgtypes.Device, error) {
	text, err := d.wireguard.IpcGet()
	if err != nil {
		return nil, err
	}
	return decodeUAPI(text)
}

func (d processDevice) close() error {
	d.wireguard.Close()
	return nil
}
