package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A wish is what one pod tries to reach.
type wish struct {
	what    string
	from    *party
	host    string // address:port that speaks TCP
	allowed bool
}

// try connects once.
func (w wish) try(ctx context.Context) error {
	host, port, err := net.SplitHostPort(w.host)
	if err != nil {
		return err
	}
	_, err = w.from.run(ctx, fmt.Sprintf("nc -w 1 %s %s </dev/null", host, port))
	return err
}

func expectWishes(t *testing.T, wishes []wish) {
	t.Helper()
	for _, w := range wishes {
		if w.allowed {
			eventually(t, w.what, w.try)
		}
	}
	for _, w := range wishes { // when all that is allowed works, what does not is refused
		if !w.allowed && w.try(t.Context()) == nil {
			t.Errorf("%s: %s reaches %s", w.what, w.from.pod, w.host)
		}
	}
}

// A pod of lubeck that runs at hamburg reaches its home and the Internet, and nothing of hamburg; and is reached by its home and
// by nobody at hamburg. hamburg opens what it wants to.
func TestIsolationByDefault(t *testing.T) {
	ctx := network(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	guest := lubeck.party(t, ns, "guest", hamburg)
	home := lubeck.party(t, ns, "home", nil, atHome(lubeck.workers(t)[0]))
	local := hamburg.namespace(t)
	theirs := hamburg.party(t, local, "theirs", nil, mirror)
	svc := hamburg.service(t, local, "theirs", map[string]string{"app": "theirs"})
	node, err := hamburg.addressOf(ctx, hamburg.workers(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	guestThere := hamburg.guestAddress(t, "guest")
	homeSeen := lubeck.seenBy(ctx, t, hamburg, home.address)
	apiServer := hamburg.clusterIP(t, "default", "kubernetes")
	expectWishes(t, []wish{
		{"the guest reaches its home", guest, homeSeen + ":8080", true},
		{"the home reaches its guest", home, guest.address + ":8080", true},
		{"the guest reaches the Internet", guest, internet(t, hamburg), true},
		{"hamburg's own pod reaches its own", theirs, theirs.address + ":8080", true},
		{"hamburg's own pod reaches its own at another port", theirs, theirs.address + ":9000", true},
		{"hamburg's own pod reaches its Service", theirs, svc.Spec.ClusterIP + ":80", true},
		{"hamburg's own pod reaches its API server", theirs, apiServer + ":443", true},
		{"hamburg's own pod reaches its node", theirs, node + ":10250", true},

		{"a guest and a pod of the provider", guest, theirs.address + ":8080", false},
		{"a guest and a Service of the provider", guest, svc.Spec.ClusterIP + ":80", false},
		{"a guest and the API server of the provider", guest, apiServer + ":443", false},
		{"a guest and a node of the provider", guest, node + ":10250", false},
		{"a pod of the provider and a guest", theirs, guestThere + ":8080", false},
		{"a pod of the provider and a home of guests", theirs, homeSeen + ":8080", false},
		{"the home of guests and a pod of the provider", home, hamburg.seenBy(ctx, t, lubeck, theirs.address) + ":8080", false},
	})

	hamburg.open(t, lubeck, v1alpha1.Opening{
		From: v1alpha1.OpeningSide{PeerNamespace: ns}, To: v1alpha1.OpeningSide{Namespace: local}, Ports: []v1alpha1.OpeningPort{{Port: 8080}},
	})
	expectWishes(t, []wish{
		{"a guest reaches what was opened", guest, theirs.address + ":8080", true},
		{"a guest and another port", guest, theirs.address + ":9000", false},
		{"a pod of the provider and a guest, still", theirs, guestThere + ":8080", false},
	})
}

// internet serves on this machine, outside of all clusters, and returns where.
func internet(t *testing.T, c *cluster) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Listener = c.listen(t)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// guestAddress returns the address that a pod of a peer has at the cluster where it runs.
func (c *cluster) guestAddress(t *testing.T, app string) string {
	t.Helper()
	list := &corev1.PodList{}
	if err := c.List(t.Context(), list, client.MatchingLabels{"app": app}, client.HasLabels{v1alpha1.LabelHomeUID}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Status.PodIP == "" {
		t.Fatalf("%d guests are called %s in %s: %s", len(list.Items), app, c.Name, summary(list.Items))
	}
	return list.Items[0].Status.PodIP
}

func (c *cluster) clusterIP(t *testing.T, ns, name string) string {
	t.Helper()
	svc := &corev1.Service{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, svc); err != nil {
		t.Fatal(err)
	}
	return svc.Spec.ClusterIP
}

// open lets through what the Peer says, until the story ends.
func (c *cluster) open(t *testing.T, to *cluster, openings ...v1alpha1.Opening) {
	t.Helper()
	c.setNetwork(t, to, &v1alpha1.PeerNetwork{Open: openings})
}

// setNetwork has the Peer say so, until the story ends.
func (c *cluster) setNetwork(t *testing.T, to *cluster, network *v1alpha1.PeerNetwork) {
	t.Helper()
	set := func(ctx context.Context, network *v1alpha1.PeerNetwork) error {
		peer, err := c.peer(ctx, to.Name)
		if err != nil {
			return err
		}
		before := peer.DeepCopy()
		peer.Spec.Network = network
		return c.Patch(ctx, peer, client.MergeFrom(before))
	}
	if err := set(t.Context(), network); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.Background(), nil); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// Pods of two tenants of hamburg do not reach each other, whatever nodes they are on; those of one tenant do.
func TestTenantsApart(t *testing.T) {
	connected(t)
	awaitConnected(t, bremen, hamburg)
	ours, others := lubeck.offloaded(t, v1alpha1.StrategyRemote), bremen.offloaded(t, v1alpha1.StrategyRemote)
	first := lubeck.parties(t, ours, map[string]*cluster{"ours-1": hamburg, "ours-2": hamburg})
	second := bremen.parties(t, others, map[string]*cluster{"others-1": hamburg, "others-2": hamburg})
	wishes := []wish{
		{"pods of one tenant", first["ours-1"], hamburg.guestAddress(t, "ours-2") + ":8080", true},
		{"pods of the other tenant", second["others-1"], hamburg.guestAddress(t, "others-2") + ":8080", true},
	}
	for _, a := range first {
		for _, b := range second {
			wishes = append(wishes,
				wish{"pods of two tenants", a, hamburg.guestAddress(t, b.pod) + ":8080", false},
				wish{"pods of two tenants", b, hamburg.guestAddress(t, a.pod) + ":8080", false})
		}
	}
	expectWishes(t, wishes)
}
