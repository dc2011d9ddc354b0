package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// The clusters of every story. rostock is a control plane alone and has no Hanse: stories play a hostile peer on it.
var lubeck, hamburg, rostock *cluster

// phase is which stories run in this call of the test binary: those that share the clusters, or those that need them
// alone, or those of the market or the network, which need more of them: of the latter those first that share the connected
// clusters, and then those that need them alone. In phase plan no story runs: each says what it needs.
// hack/stories.sh calls the binary once for each.
var phase = flag.String("phase", "shared", "which stories to run: shared, alone, market, connected or network; plan says what they need")

// Two calls may tell the stories of one phase side by side, each on clusters of its own.
var (
	claims = flag.String("claims", "", "a folder in which calls beside this one note which stories they tell, so that each is told once")
	plain  = flag.Bool("plain", false, "tell only stories that need nothing besides the usual clusters")
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if *phase == "plan" {
		os.Exit(m.Run())
	}
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

// shared marks a story that runs beside others.
func shared(t *testing.T, needs ...string) context.Context {
	t.Helper()
	belongs(t, "shared", needs)
	t.Parallel()
	return t.Context()
}

// alone marks a story that needs lubeck and hamburg for itself, as peers.
func alone(t *testing.T, needs ...string) context.Context {
	t.Helper()
	belongs(t, "alone", needs)
	if err := peerBothWays(t.Context(), lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	return t.Context()
}

// belongs skips the story in other phases than its own. What it needs besides the clusters, such as rostock, hack/stories.sh
// makes only when a story that is selected needs it.
func belongs(t *testing.T, to string, needs []string) {
	t.Helper()
	if *phase != to {
		t.Skip("needs:", to, strings.Join(needs, " "))
	}
	if *plain && len(needs) > 0 {
		t.Skip("is told beside this: it needs", strings.Join(needs, " "))
	}
	if *claims == "" {
		return
	}
	if err := os.Mkdir(filepath.Join(*claims, t.Name()), 0o700); errors.Is(err, os.ErrExist) {
		t.Skip("is told beside this")
	} else if err != nil {
		t.Fatal(err)
	}
}

// setUp connects to the clusters that hack/stories.sh started, installs Hanse and peers them. It can be run again.
func setUp(ctx context.Context) error {
	if err := connectAll(ctx); err != nil {
		return err
	}
	switch *phase {
	case "market":
		return setUpMarket(ctx)
	case "connected", "network":
		return setUpNetwork(ctx)
	}
	for _, c := range []*cluster{lubeck, hamburg} {
		if err := errors.Join(remember(ctx, c, rememberedObjects, c.inventory), collectTraces(ctx, c)); err != nil {
			return err
		}
	}
	if err := installAll(ctx, lubeck, hamburg); err != nil {
		return err
	}
	return peerBothWays(ctx, lubeck, hamburg)
}

// installAll installs Hanse in the clusters, in all at once: most of it is waiting.
func installAll(ctx context.Context, clusters ...*cluster) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range clusters {
		group.Go(func() error { return installWith(ctx, c) })
	}
	return group.Wait()
}

func connectAll(ctx context.Context) error {
	clusters := map[string]**cluster{"lubeck": &lubeck, "hamburg": &hamburg}
	switch *phase {
	case "market":
		clusters["bremen"], clusters["wismar"] = &bremen, &wismar
	case "connected", "network":
		clusters = existing(ctx, map[string]**cluster{
			"lubeck": &lubeck, "hamburg": &hamburg, "bremen": &bremen, "visby": &visby, "stade": &stade, "stralsund": &stralsund,
			"rostock": &rostock,
		})
	default:
		maps.Copy(clusters, existing(ctx, map[string]**cluster{"rostock": &rostock}))
	}
	for name, into := range clusters {
		connected, err := harness.Connect(ctx, name, 0)
		if err != nil {
			return err
		}
		*into = &cluster{Cluster: connected}
	}
	return nil
}

// existing returns those clusters that hack/stories.sh made, because a selected story needs them.
func existing(ctx context.Context, clusters map[string]**cluster) map[string]**cluster {
	maps.DeleteFunc(clusters, func(name string, _ **cluster) bool {
		_, err := harness.Testbed(ctx, "kubeconfig", name)
		return err != nil
	})
	return clusters
}

// installWith installs Hanse, or upgrades it, with the settings of the phase and these values of the chart.
func installWith(ctx context.Context, c *cluster, values ...string) error {
	return c.Install(ctx, append(settings(c), values...)...)
}

// settings are values of the chart that hold for a whole phase. What a story needs and hurts no other is here: a change
// restarts Hanse, and takes the clusters from all others meanwhile.
func settings(c *cluster) []string {
	// Peers are told of the stories' own images, which are of no public registry.
	values := []string{
		"advertising.imagePatterns={hanse.dev/test/*}", "advertising.minInterval=500ms", "advertising.settleInterval=1s", "probePeriod=2s",
	}
	switch *phase {
	case "market":
		return append(values, marketSettings(c)...)
	case "connected", "network":
		return append(values, networkSettings...)
	}
	values = append(values, "tracing.endpoint="+c.collectedAt, "tracing.insecure=true")
	values = append(values, listedSettings...)
	if c == lubeck {
		values = append(values, "defaultOffloading.namespaceSelector=team=sailors", "defaultOffloading.spec.strategy=Remote")
	}
	return values
}

// peerBothWays makes two clusters peers, unless they are. What is left of an earlier peering on one side goes first.
func peerBothWays(ctx context.Context, consumer, provider *cluster) error {
	if consumer.sharesWith(ctx, provider) && provider.sharesWith(ctx, consumer) {
		return nil
	}
	for here, there := range map[*cluster]*cluster{consumer: provider, provider: consumer} {
		if !here.knows(ctx, there) {
			continue
		}
		if _, err := here.Hanse(ctx, "unpeer", there.Name, "--force", "--forget"); err != nil && here.knows(ctx, there) { // it may be going
			return err
		}
	}
	return peer(ctx, consumer, provider)
}

func (c *cluster) knows(ctx context.Context, other *cluster) bool {
	peer, err := c.peer(ctx, other.Name)
	return err == nil && len(peer.Spec.Roles) > 0
}

// sharesWith tells whether each of the two is a provider of the other, as far as this one knows.
func (c *cluster) sharesWith(ctx context.Context, other *cluster) bool {
	peer, err := c.peer(ctx, other.Name)
	return err == nil && slices.Contains(peer.Spec.Roles, v1alpha1.RoleProvider) && slices.Contains(peer.Spec.Roles, v1alpha1.RoleConsumer)
}

// peer has two clusters invite and join each other.
func peer(ctx context.Context, consumer, provider *cluster) error {
	return harness.Peer(ctx, consumer.Cluster, provider.Cluster, "--mutual")
}
