package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The clusters of every story. rostock is a control plane alone and has no Hanse: stories play a hostile peer on it.
var lubeck, hamburg, rostock *cluster

// phase is which stories run in this call of the test binary: those that share the clusters, or those that need them
// alone, or those of the market, which need more of them. hack/stories.sh calls it once for each.
var phase = flag.String("phase", "shared", "which stories to run: shared, alone or market")

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if os.Getenv("HANSE_E2E") == "" {
		fmt.Println("stories need real clusters: run make e2e")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := setUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "set up the clusters:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// setUp connects to the clusters that hack/stories.sh started, installs Hanse and peers them. It can be run again.
func setUp(ctx context.Context) error {
	if err := connectAll(ctx); err != nil {
		return err
	}
	if *phase == "market" {
		return setUpMarket(ctx)
	}
	for _, c := range []*cluster{lubeck, hamburg} {
		if err := install(ctx, c); err != nil {
			return err
		}
	}
	return peerBothWays(ctx, lubeck, hamburg)
}

func connectAll(ctx context.Context) error {
	clusters := map[string]**cluster{"lubeck": &lubeck, "hamburg": &hamburg}
	if *phase == "market" {
		clusters["bremen"], clusters["wismar"] = &bremen, &wismar
	} else {
		clusters["rostock"] = &rostock
	}
	for name, into := range clusters {
		var err error
		if *into, err = connect(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func install(ctx context.Context, c *cluster) error {
	if err := c.rememberObjects(ctx); err != nil {
		return err
	}
	return installWith(ctx, c, tellTestImages)
}

// tellTestImages lets peers know of the stories' own images, which are of no public registry.
const tellTestImages = "advertising.imagePatterns={hanse.dev/test/*}"

// installWith installs Hanse, or upgrades it, with these values of the chart.
func installWith(ctx context.Context, c *cluster, values ...string) error {
	image, err := os.ReadFile(filepath.Join(root, "bin", "hanse.image"))
	if err != nil {
		return err
	}
	args := []string{"install", "--cluster-id", c.name, "--image", trimmed(image), "--wait"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	_, err = c.hanse(ctx, args...)
	return err
}

// peerBothWays makes two clusters peers, unless they are. What is left of an earlier peering on one side goes first.
func peerBothWays(ctx context.Context, consumer, provider *cluster) error {
	if consumer.knows(ctx, provider) && provider.knows(ctx, consumer) {
		return nil
	}
	for here, there := range map[*cluster]*cluster{consumer: provider, provider: consumer} {
		if !here.knows(ctx, there) {
			continue
		}
		if _, err := here.hanse(ctx, "unpeer", there.name, "--force", "--forget"); err != nil {
			return err
		}
	}
	return peer(ctx, consumer, provider)
}

func (c *cluster) knows(ctx context.Context, other *cluster) bool {
	peer, err := c.peer(ctx, other.name)
	return err == nil && len(peer.Spec.Roles) > 0
}

// peer has two clusters invite and join each other. Each administrator uses the own cluster only.
func peer(ctx context.Context, consumer, provider *cluster) error {
	token, err := provider.hanse(ctx, "invite", consumer.name, "--mutual")
	if err != nil {
		return err
	}
	_, err = consumer.hanse(ctx, "join", strings.TrimSpace(token), "--mutual")
	return err
}

// shared marks a story that runs beside others.
func shared(t *testing.T) context.Context {
	t.Helper()
	if *phase != "shared" {
		t.Skip("runs in the shared phase")
	}
	t.Parallel()
	return t.Context()
}

// alone marks a story that needs the clusters for itself.
func alone(t *testing.T) context.Context {
	t.Helper()
	if *phase != "alone" {
		t.Skip("runs in the alone phase")
	}
	return t.Context()
}
