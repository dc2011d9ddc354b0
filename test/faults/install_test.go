package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// install installs Hanse in each cluster, with a wrong clock where the plan says so, and peers the consumer with all
// providers. It can be done again.
func install(ctx context.Context, clusters map[string]*cluster, p plan) error {
	image, err := os.ReadFile(filepath.Join(root, "bin", "hanse.image"))
	if err != nil {
		return err
	}
	for _, name := range everyone {
		args := []string{"install", "--cluster-id", name, "--image", strings.TrimSpace(string(image)), "--wait", "--set", "probePeriod=2s"}
		if name == p.skewed {
			for _, process := range []string{"manager", "kubelet"} {
				args = append(args, "--set", fmt.Sprintf("%s.extraArgs={--clock-offset=%s}", process, p.offset))
			}
		}
		if _, err := clusters[name].hanse(ctx, args...); err != nil {
			return err
		}
	}
	home := clusters[consumer]
	for _, name := range providers {
		if err := peer(ctx, home, clusters[name]); err != nil {
			return err
		}
	}
	return again(ctx, home.peersReady)
}

// peer lets home consume from the provider, unless it does.
func peer(ctx context.Context, home, provider *cluster) error {
	err := home.Get(ctx, client.ObjectKey{Name: provider.name}, &v1alpha1.Peer{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		return err
	}
	token, err := provider.hanse(ctx, "invite", home.name)
	if err != nil {
		return err
	}
	_, err = home.hanse(ctx, "join", strings.TrimSpace(token))
	return err
}

func (c *cluster) peersReady(ctx context.Context) error {
	for _, name := range providers {
		peer := &v1alpha1.Peer{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("peer %s is not Ready: %+v", name, peer.Status.Conditions)
		}
	}
	return nil
}
