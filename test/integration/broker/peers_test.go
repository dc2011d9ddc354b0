// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// patchBroker changes the Peer for hamburg.
func patchBroker(t *testing.T, c *framework.Cluster, patch string) {
	t.Helper()
	c.MustPatch(t, &v1alpha1.Peer{ObjectMeta: framework.Named("", "hamburg")}, patch)
}

// runPod runs a pod of the cluster at this provider and at no other.
func runPod(t *testing.T, c, provider *framework.Cluster) *corev1.Pod {
	t.Helper()
	ns := c.MustOffloadTo(t, provider)
	c.MustCreate(t, framework.Pod(ns, "guest"))
	home := &c.AwaitReadyPods(t, ns, "guest", 1)[0]
	framework.ExpectSamePod(t, home, provider.MustRemotePod(t, home))
	return home
}

// TestHandOverOutlivesBroker: a member becomes a provider of another one through the broker, if it accepts that. Otherwise the condition
// of the Peer gives the reason. The two stay peers when the broker is gone: pods stay, and new ones start.
func TestHandOverOutlivesBroker(t *testing.T) {
	begin(t)
	lubeck.MustCreate(t, &v1alpha1.Peer{ObjectMeta: framework.Named("", "wismar"), Spec: v1alpha1.PeerSpec{
		ClusterID: "wismar", Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, Introducer: "hamburg",
	}})
	framework.Eventually(t, "the Peer says that wismar does not accept lubeck", func(ctx context.Context) error {
		return lubeck.PeerLacks(ctx, "wismar", v1alpha1.ConditionIntroduced, v1alpha1.ReasonNotAccepted)
	})
	lubeck.MustHanse(t, "unpeer", "wismar")
	patchBroker(t, wismar, `{"spec":{"acceptMembers":["lub*"]}}`)
	lubeck.MustHanse(t, "join", "--member", "wismar")
	if err := lubeck.PeerHas(t.Context(), "wismar", v1alpha1.ConditionReady); err != nil {
		t.Error(err)
	}
	home := runPod(t, lubeck, wismar)

	hamburg.PauseServer(t, "manager")
	hamburg.PauseServer(t, "kubelet")
	wismar.MustHanse(t, "unpeer", "hamburg", "--force", "--forget")
	hamburg.StopAPIServer(t)
	runPod(t, lubeck, wismar)
	pod, err := lubeck.Pod(t.Context(), home.Namespace, home.Name)
	if err != nil {
		t.Fatal(err)
	}
	if pod.UID != home.UID || !framework.IsPodReady(pod) {
		t.Errorf("the pod from before is now %s", framework.Summary([]corev1.Pod{*pod}))
	}
	framework.ExpectSamePod(t, pod, wismar.MustRemotePod(t, pod))
}

// TestBrokerOutboundOnly: a member whose API server no other cluster reaches is known through a broker, and uses another member as its
// provider. It opens all connections, and no other cluster has credentials for it.
func TestBrokerOutboundOnly(t *testing.T) {
	toWismar.block(t)
	before := toWismar.connections()
	begin(t)
	expectNoPeer(t, lubeck, "wismar")
	expectNoPeer(t, wismar, "lubeck")
	link := &corev1.Secret{ObjectMeta: framework.Named(v1alpha1.TenantNamespace("wismar"), v1alpha1.LinkSecret)}
	if err := hamburg.Gone(t.Context(), link); err != nil {
		t.Errorf("hamburg has credentials for wismar: %v", err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: framework.Named(v1alpha1.TenantNamespace("hamburg"), v1alpha1.PeerServiceAccount)}
	if err := wismar.Gone(t.Context(), account); err != nil {
		t.Errorf("wismar has an account for hamburg: %v", err)
	}
	patchBroker(t, lubeck, `{"spec":{"acceptMembers":["wismar"]}}`)
	wismar.MustHanse(t, "join", "--member", "lubeck")
	runPod(t, wismar, lubeck)
	if opened := toWismar.connections() - before; opened > 0 {
		t.Errorf("other clusters have opened %d connections to wismar", opened)
	}
}

// TestBrokerRelaysRequest: a member that has won an auction gets a Request through the broker before it is a peer. If it refuses the
// Request, it does not become a peer, and another offer wins. If it acknowledges the Request, it reserves the resources at once. It
// reserves them only once when the two are peers.
func TestBrokerRelaysRequest(t *testing.T) {
	begin(t)
	setPrices(t, hamburg, "0.02")
	setPrices(t, bremen, "0.02")
	wismar.SetConfigMap(t, "hanse-prices", nil, map[string]string{"currency": "EUR", "cpu": "0.01"})
	patchBroker(t, wismar, `{"spec":{"acceptMembers":["lubeck"]}}`)
	patchBroker(t, lubeck, `{"spec":{"askMembers":["wis*"]}}`)
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	expectRequestDenied(t, ns)

	toWismar.block(t) // lubeck reaches wismar only through hamburg
	app := placeByAuction(t, ns)
	relayed := &v1alpha1.Request{}
	framework.Eventually(t, "wismar has reserved the resources for the relayed Request, and lubeck has a Peer for wismar", func(ctx context.Context) error {
		key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.RelayedName("lubeck", offload.RequestName(app))}
		if err := wismar.Get(ctx, key, relayed); err != nil {
			return err
		}
		if relayed.Status.Reserved.Cpu().String() != "100m" || relayed.Labels[v1alpha1.LabelFrom] != "lubeck" {
			return fmt.Errorf("its labels are %v, its status is %+v", relayed.Labels, relayed.Status)
		}
		_, err := lubeck.Peer(ctx, "wismar")
		return err
	})
	if _, err := wismar.RequestOf(t.Context(), app, lubeck); !apierrors.IsNotFound(err) {
		t.Errorf("lubeck has a Request at wismar before the two are peers: %v", err)
	}
	toWismar.unblock()
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if peers := framework.ComponentPeers(app); !slices.Equal(peers, []string{"wismar", "wismar"}) {
		t.Errorf("its components are at %v", peers)
	}
	if request, err := wismar.RequestOf(t.Context(), app, lubeck); err != nil || request.Status.Reserved.Cpu().String() != "100m" {
		t.Errorf("the Request of lubeck as a peer is %+v (%v)", request.Status, err)
	}
	framework.Eventually(t, "wismar deletes the relayed Request", func(ctx context.Context) error { return wismar.Gone(ctx, relayed) })
	lubeck.DeleteAndWait(t, app)
}

// expectRequestDenied places an Application while a policy of wismar denies Requests of lubeck. wismar does not become a peer.
func expectRequestDenied(t *testing.T, ns string) {
	t.Helper()
	closed := wismar.SetPolicy(t, "request", "package hanse.request\n\ndeny contains \"closed on Thursdays\" if input.member == \"lubeck\"\n")
	app := placeByAuction(t, ns)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	refused := slices.ContainsFunc(app.Status.Refusals, func(r v1alpha1.ApplicationRefusal) bool {
		return r.Peer == "wismar" && strings.Contains(r.Message, "closed on Thursdays")
	})
	if peers := framework.ComponentPeers(app); slices.Contains(peers, "wismar") || !refused || len(app.Status.Refusals) != 1 {
		t.Errorf("its components are at %v, refusals are %+v", peers, app.Status.Refusals)
	}
	expectNoPeer(t, lubeck, "wismar")
	lubeck.DeleteAndWait(t, app)
	if err := wismar.Delete(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
}

// setPrices sets the price of a core for an hour, in euros, and waits until lubeck has the offer with that price.
func setPrices(t *testing.T, provider *framework.Cluster, core string) {
	t.Helper()
	provider.SetPrices(t, lubeck, core)
	lubeck.AwaitPrice(t, provider, core)
}

// placeByAuction creates an Application of two components, whose clusters an auction selects.
func placeByAuction(t *testing.T, ns string) *v1alpha1.Application {
	t.Helper()
	ceiling := &v1alpha1.Price{Amount: resource.MustParse("1"), Currency: "EUR"}
	app := framework.Application(ns, &v1alpha1.ApplicationPlacement{MaxPrice: ceiling}, "50m", "front", "back")
	app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionAlways, Deadline: &metav1.Duration{Duration: time.Minute}}
	lubeck.MustCreate(t, app)
	return app
}
