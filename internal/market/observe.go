package market

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

// scene is what a decision about an Application rests on.
type scene struct {
	app *v1alpha1.Application
	now time.Time
	// placement is nil if the namespace is not offloaded.
	placement *offload.Placement
	// look finds rows and reserves. Only who chooses clusters asks for them: all pods and offers are read.
	look func() error
	// rows are those of clusters that take pods, with what is free in them for the application. That of this cluster has no Peer.
	rows []exchange.Row
	// at are our Requests for the application: peer → the Request.
	at map[string]*v1alpha1.Request
	// reserves are the peers that take Requests.
	reserves map[string]bool
	// heard are the peers whose Requests are known as they are now.
	heard map[string]bool
}

func (a *applications) observe(ctx context.Context, app *v1alpha1.Application) (*scene, error) {
	seen := &scene{app: app, now: a.Clock.Now(), at: map[string]*v1alpha1.Request{}, heard: map[string]bool{}, reserves: map[string]bool{}}
	key := types.NamespacedName{Namespace: app.Namespace, Name: v1alpha1.NamespaceOffloadingName}
	offloading, err := local.Find(ctx, a.Client, key, &v1alpha1.NamespaceOffloading{})
	if err != nil {
		return nil, err
	}
	if offloading != nil && offloading.DeletionTimestamp.IsZero() {
		if placement, err := offload.NewPlacement(offloading); err == nil { // else its own status tells the user
			seen.placement = &placement
		}
	}
	held := map[string]corev1.ResourceList{}
	for _, peer := range app.Status.AskedAt {
		if mirror := a.follow(peer); mirror != nil {
			seen.heard[peer] = true
			seen.take(peer, mirror, held)
		}
	}
	seen.look = func() error { return a.look(ctx, seen, held) }
	return seen, nil
}

// follow mirrors our Requests at the peer. It returns nil while what is there is not known.
func (a *applications) follow(peer string) *peers.Mirror {
	link, ok := a.Links.Get(peer)
	if !ok {
		return nil
	}
	mirror := link.Follow(requests, link.TenantNamespace())
	if !mirror.HasSynced() || link.Err() != nil {
		return nil
	}
	return mirror
}

// take notes our Request for the application, and adds what others of ours keep there.
func (s *scene) take(peer string, mirror *peers.Mirror, held map[string]corev1.ResourceList) {
	for _, object := range mirror.List() {
		request, ok := object.(*v1alpha1.Request)
		switch {
		case !ok:
		case request.Name == offload.RequestName(s.app):
			s.at[peer] = request
		default:
			kept := quota.SubtractWithNonNegativeResult(request.Locked(), request.Status.Used)
			held[peer] = quota.Add(held[peer], kept)
		}
	}
}

// look finds the rows, less what our pods and other Requests hold there.
func (a *applications) look(ctx context.Context, seen *scene, held map[string]corev1.ResourceList) error {
	ads, all, pods := &v1alpha1.AdvertisementList{}, &v1alpha1.PeerList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{ads, all, pods} {
		if err := a.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	for i := range all.Items {
		seen.reserves[all.Items[i].Name] = all.Items[i].Protocol().Requests
	}
	own := seen.count(pods.Items, held)
	copies := slices.DeleteFunc(slices.Clone(ads.Items), func(ad v1alpha1.Advertisement) bool { return ad.Name == a.ClusterID })
	for _, row := range exchange.NewTable(copies, seen.now).WithLinks(all.Items).Rows {
		if less := held[row.Peer]; len(less) > 0 {
			row.Offer.Availability = quota.SubtractWithNonNegativeResult(row.Offer.Availability, less)
		}
		seen.rows = append(seen.rows, row)
	}
	home := exchange.Row{ClusterID: a.ClusterID, Accepted: true, Open: true, Offer: a.Home.Home()}
	home.Offer.Availability = quota.Add(home.Offer.Availability, own)
	seen.rows = append(seen.rows, home)
	return nil
}

// count adds up what pods hold: those of the application in this cluster, which it returns, and all others of ours at peers, which it
// adds to held.
func (s *scene) count(pods []corev1.Pod, held map[string]corev1.ResourceList) (own corev1.ResourceList) {
	own = corev1.ResourceList{}
	for i := range pods {
		pod := &pods[i]
		peer, away := strings.CutPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
		isOwn := pod.Namespace == s.app.Namespace && componentOf(s.app, pod) != nil
		switch {
		case pod.Spec.NodeName == "" || offload.Terminal(pod.Status.Phase):
		case !away && isOwn:
			own = quota.Add(own, exchange.Count(pod))
		case away && !isOwn:
			held[peer] = quota.Add(held[peer], exchange.Count(pod))
		}
	}
	return own
}

// componentOf is the first component whose labels the pod has.
func componentOf(app *v1alpha1.Application, pod *corev1.Pod) *v1alpha1.ApplicationComponent {
	i := slices.IndexFunc(app.Spec.Components, func(c v1alpha1.ApplicationComponent) bool {
		return offload.HasLabels(pod, c.PodLabels)
	})
	if i < 0 {
		return nil
	}
	return &app.Spec.Components[i]
}

func asked(app *v1alpha1.Application, peer string) bool {
	return slices.Contains(app.Status.AskedAt, peer)
}

// placedAt returns, for each peer, which components are placed there.
func placedAt(components []v1alpha1.PlacedComponent) map[string][]string {
	found := map[string][]string{}
	for _, c := range components {
		if c.Peer != "" {
			found[c.Peer] = append(found[c.Peer], c.Name)
		}
	}
	return found
}

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
