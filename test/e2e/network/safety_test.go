// SPDX-License-Identifier: Apache-2.0

package network

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
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A wish is what one pod tries to reach.
type wish struct {
	what    string
	from    *framework.NetworkPod
	host    string // address:port that speaks TCP
	allowed bool
}

// try connects once.
func (w wish) try(ctx context.Context) error {
	host, port, err := net.SplitHostPort(w.host)
	if err != nil {
		return err
	}
	_, err = w.from.Run(ctx, fmt.Sprintf("nc -w 1 %s %s </dev/null", host, port))
	return err
}

func expectWishes(t *testing.T, wishes []wish) {
	t.Helper()
	for _, w := range wishes {
		if w.allowed {
			framework.Eventually(t, w.what, w.try)
		}
	}
	for _, w := range wishes { // when all that is allowed works, what does not is refused
		if !w.allowed && w.try(t.Context()) == nil {
			t.Errorf("%s: %s reaches %s", w.what, w.from.Pod, w.host)
		}
	}
}

// A pod of lubeck that runs at hamburg reaches its home and the Internet, and nothing of hamburg; and is reached by its home and
// by nobody at hamburg. hamburg opens what it wants to.
func TestIsolationByDefault(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	guest := lubeck.StartNetworkPod(t, ns, "guest", hamburg)
	home := lubeck.StartNetworkPod(t, ns, "home", nil, framework.OnNode(lubeck.WorkerNames(t)[0]))
	local := hamburg.CreateNamespace(t)
	theirs := hamburg.StartNetworkPod(t, local, "theirs", nil, mirror)
	svc := hamburg.CreateService(t, local, "theirs", map[string]string{"app": "theirs"})
	node, err := hamburg.AddressOfNode(ctx, hamburg.WorkerNames(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	guestThere := guestAddress(t, hamburg, "guest")
	homeSeen := lubeck.TranslateToPeer(ctx, t, hamburg, home.Address)
	apiServer := hamburg.ClusterIP(t, "default", "kubernetes")
	expectWishes(t, []wish{
		{"the guest reaches its home", guest, homeSeen + ":8080", true},
		{"the home reaches its guest", home, guest.Address + ":8080", true},
		{"the guest reaches the Internet", guest, internet(t, hamburg), true},
		{"hamburg's own pod reaches its own", theirs, theirs.Address + ":8080", true},
		{"hamburg's own pod reaches its own at another port", theirs, theirs.Address + ":9000", true},
		{"hamburg's own pod reaches its Service", theirs, svc.Spec.ClusterIP + ":80", true},
		{"hamburg's own pod reaches its API server", theirs, apiServer + ":443", true},
		{"hamburg's own pod reaches its node", theirs, node + ":10250", true},

		{"a guest and a pod of the provider", guest, theirs.Address + ":8080", false},
		{"a guest and a Service of the provider", guest, svc.Spec.ClusterIP + ":80", false},
		{"a guest and the API server of the provider", guest, apiServer + ":443", false},
		{"a guest and a node of the provider", guest, node + ":10250", false},
		{"a pod of the provider and a guest", theirs, guestThere + ":8080", false},
		{"a pod of the provider and a home of guests", theirs, homeSeen + ":8080", false},
		{"the home of guests and a pod of the provider", home, hamburg.TranslateToPeer(ctx, t, lubeck, theirs.Address) + ":8080", false},
	})

	hamburg.OpenNetwork(t, lubeck, v1alpha1.Opening{
		From: v1alpha1.OpeningSide{PeerNamespace: ns}, To: v1alpha1.OpeningSide{Namespace: local}, Ports: []v1alpha1.OpeningPort{{Port: 8080}},
	})
	expectWishes(t, []wish{
		{"a guest reaches what was opened", guest, theirs.Address + ":8080", true},
		{"a guest and another port", guest, theirs.Address + ":9000", false},
		{"a pod of the provider and a guest, still", theirs, guestThere + ":8080", false},
	})
}

// internet serves on this machine, outside of all clusters, and returns where.
func internet(t *testing.T, c *framework.Cluster) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Listener = c.Listen(t)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// guestAddress returns the address that a pod of a peer has at the cluster where it runs.
func guestAddress(t *testing.T, c *framework.Cluster, app string) string {
	t.Helper()
	list := &corev1.PodList{}
	if err := c.List(t.Context(), list, client.MatchingLabels{"app": app}, client.HasLabels{v1alpha1.LabelHomeUID}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Status.PodIP == "" {
		t.Fatalf("%d guests are called %s in %s: %s", len(list.Items), app, c.Name, framework.Summarize(list.Items))
	}
	return list.Items[0].Status.PodIP
}

// Pods of two tenants of hamburg do not reach each other, whatever nodes they are on; those of one tenant do.
func TestTenantsApart(t *testing.T) {
	framework.Begin(t)
	framework.AwaitConnected(t, bremen, hamburg)
	ours, others := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote), bremen.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	first := lubeck.StartNetworkPods(t, ours, map[string]*framework.Cluster{"ours-1": hamburg, "ours-2": hamburg})
	second := bremen.StartNetworkPods(t, others, map[string]*framework.Cluster{"others-1": hamburg, "others-2": hamburg})
	wishes := []wish{
		{"pods of one tenant", first["ours-1"], guestAddress(t, hamburg, "ours-2") + ":8080", true},
		{"pods of the other tenant", second["others-1"], guestAddress(t, hamburg, "others-2") + ":8080", true},
	}
	for _, a := range first {
		for _, b := range second {
			wishes = append(wishes,
				wish{"pods of two tenants", a, guestAddress(t, hamburg, b.Pod) + ":8080", false},
				wish{"pods of two tenants", b, guestAddress(t, hamburg, a.Pod) + ":8080", false})
		}
	}
	expectWishes(t, wishes)
}
