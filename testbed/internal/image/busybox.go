// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"strings"

	"github.com/hanse-dev/hanse/testbed/internal/run"
)

// BusyboxTag is the tag of the image with a shell and the usual tools.
const BusyboxTag = "hanse.dev/test/busybox:v1"

// Busybox describes an image of a statically linked busybox of this machine: a shell, and a link for each of its tools.
func Busybox(ctx context.Context, binary string) (Spec, error) {
	list, err := run.Output(ctx, binary, "--list")
	if err != nil {
		return Spec{}, err
	}
	spec := Spec{
		Tag: BusyboxTag, Cmd: []string{"/bin/sh"}, WorkDir: "/",
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
		Files: []File{
			{Path: "/bin/busybox", Source: binary},
			{Path: "/etc", Folder: true},
			{Path: "/root", Folder: true, Mode: 0o700},
			{Path: "/tmp", Folder: true, Mode: 0o1777},
			{Path: "/var/tmp", Folder: true, Mode: 0o1777},
		},
	}
	for _, tool := range strings.Fields(string(list)) {
		if tool != "busybox" {
			spec.Files = append(spec.Files, File{Path: "/bin/" + tool, Link: "busybox"})
		}
	}
	return spec, nil
}
