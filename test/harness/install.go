// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Install installs Hanse from bin/hanse.image in the cluster, or upgrades it, with these values of the chart alone.
func (c *Cluster) Install(ctx context.Context, values ...string) error {
	return c.InstallImage(ctx, "hanse.image", values...)
}

// InstallImage is Install with the image whose name is in that file of the folder bin.
func (c *Cluster) InstallImage(ctx context.Context, file string, values ...string) error {
	image, err := os.ReadFile(filepath.Join(Root, "bin", file))
	if err != nil {
		return err
	}
	args := []string{"install", "--cluster-id", c.Name, "--image", strings.TrimSpace(string(image)), "--reset-values", "--wait"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	_, err = c.Hanse(ctx, args...)
	return err
}

// Peer has the provider invite the consumer, and the consumer join, each with these flags, such as --mutual. Each
// administrator uses the own cluster only.
func Peer(ctx context.Context, consumer, provider *Cluster, flags ...string) error {
	token, err := provider.Hanse(ctx, slices.Concat([]string{"invite", consumer.Name}, flags)...)
	if err != nil {
		return err
	}
	_, err = consumer.Hanse(ctx, slices.Concat([]string{"join", strings.TrimSpace(token)}, flags)...)
	return err
}
