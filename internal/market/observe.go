// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
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
	// members are those of members of brokers, which only offers can bring into play; brokers are the Peers through which they are asked.
	members []exchange.Row
	brokers map[string]string
	// at are our Requests for the application: peer → the Request.
	at map[string]*v1alpha1.Request
	// reserves are the peers that take Requests.
	reserves map[string]bool
	// doubts are answers to our Requests that are not believed, and offerDoubts those to our Quotes: peer → why.
	doubts, offerDoubts map[string]*trust.Refusal
	// relayed are our Requests for the application to members that have won and are no peers yet, once they are answered: id → the Request.
	relayed map[string]*v1alpha1.Request
	// quotes are our Quotes for the application, while offers are awaited: peer → the Quote.
	quotes map[string]*v1alpha1.Quote
	// unaccepted are former members that have won, and give no invitation: peer → why.
	unaccepted map[string]string
	// uninvited says that a peer could not be asked for an offer.
	uninvited bool
	// heard are the peers whose Requests are known as they are now.
	heard map[string]bool
	// cutOff are peers that do not answer: peer → since when. gone are those that are peers no more, or about to be.
	cutOff map[string]time.Time
	gone   map[string]bool
	// missing says which component has neither replicas nor a workload that says them.
	missing string
	// pods are those of the application. They are the cache's own.
	pods []*corev1.Pod
	// ready is how many of them are Ready: component and peer → number.
	ready map[place]int32
	// refused are peers whose API server does not take our Request: peer → why.
	refused map[string]string
	// unfit are clusters that have no room for their share of a component: component and peer → why.
	unfit map[place]string
}

// A place is a component in a cluster, which is ours if the peer is empty.
type place struct{ component, peer string }

func (a *applications) observe(ctx context.Context, app *v1alpha1.Application) (*scene, error) {
	seen := &scene{
		app: app, now: a.Clock.Now(), at: map[string]*v1alpha1.Request{}, heard: map[string]bool{}, reserves: map[string]bool{},
		cutOff: map[string]time.Time{}, gone: map[string]bool{}, ready: map[place]int32{}, refused: map[string]string{}, unfit: map[place]string{}, quotes: map[string]*v1alpha1.Quote{},
		brokers: map[string]string{}, relayed: map[string]*v1alpha1.Request{}, unaccepted: map[string]string{}, doubts: map[string]*trust.Refusal{}, offerDoubts: map[string]*trust.Refusal{},
	}
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
	if err := a.fill(ctx, seen); err != nil {
		return nil, err
	}
	at, err := a.countReady(ctx, seen)
	if err != nil {
		return nil, err
	}
	known := map[string]*v1alpha1.Peer{}
	for _, peer := range union(app.Status.AskedAt, at) {
		of, err := local.Find(ctx, a.Client, types.NamespacedName{Name: peer}, &v1alpha1.Peer{})
		if err != nil {
			return nil, err
		}
		seen.know(peer, of)
		known[peer] = of
		if broker := introducerOf(&app.Status, peer); of == nil && broker != "" {
			seen.relayed[peer] = a.Members.Answer(ctx, broker, peer, offload.RequestName(app))
		}
	}
	held := a.hearAnswers(seen, known)
	if err := a.hear(ctx, seen); err != nil {
		return nil, err
	}
	seen.look = func() error { return a.look(ctx, seen, held) }
	return seen, nil
}

// hearAnswers notes our Requests for the application at peers, and what is not believed of their answers. It returns what other Requests of ours
// keep there.
func (a *applications) hearAnswers(seen *scene, known map[string]*v1alpha1.Peer) map[string]corev1.ResourceList {
	held := map[string]corev1.ResourceList{}
	for _, peer := range seen.app.Status.AskedAt {
		mirror := a.follow(peer, requests)
		if mirror == nil {
			continue
		}
		seen.heard[peer] = true
		seen.take(peer, mirror, held)
		if why := a.doubtRequest(known[peer], seen.at[peer]); why != nil {
			seen.doubts[peer] = why
		}
	}
	return held
}

// know notes how the peer stands, which is nil if it is gone.
func (s *scene) know(name string, peer *v1alpha1.Peer) {
	if peer == nil && introducerOf(&s.app.Status, name) != "" {
		return // it is about to be one
	}
	if peer == nil || !peer.DeletionTimestamp.IsZero() || !peer.HasRole(v1alpha1.RoleProvider) {
		s.gone[name] = true
		return
	}
	if why := notIntroduced(peer); why != "" {
		s.unaccepted[name] = why
	}
	reachable := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReachable)
	if reachable != nil && reachable.Status == metav1.ConditionFalse {
		s.cutOff[name] = reachable.LastTransitionTime.Time
	}
}

// countReady counts the pods of the application that are Ready, and returns the peers at which it has pods.
func (a *applications) countReady(ctx context.Context, seen *scene) (peers []string, err error) {
	pods := &corev1.PodList{}
	if err := a.Client.List(ctx, pods, client.InNamespace(seen.app.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		c, peer := componentOf(seen.app, pod), peerOf(pod)
		if c == nil {
			continue
		}
		seen.pods = append(seen.pods, pod)
		if ready := offload.PodCondition(&pod.Status, corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue {
			seen.ready[place{c.Name, peer}]++
		}
		if peer != "" && !slices.Contains(peers, peer) {
			peers = append(peers, peer)
		}
	}
	return peers, nil
}

// peerOf is where the pod runs, empty for our own cluster.
func peerOf(pod *corev1.Pod) string {
	if peer, away := strings.CutPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix); away {
		return peer
	}
	return ""
}

// follow mirrors our Requests or Quotes at the peer. It returns nil while what is there is not known.
func (a *applications) follow(peer string, these *peers.Subject) *peers.Mirror {
	link, ok := a.Links.Get(peer)
	if !ok {
		return nil
	}
	mirror := link.Follow(these, link.TenantNamespace())
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
		seen.know(all.Items[i].Name, &all.Items[i])
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
	return a.findMembers(ctx, seen, all.Items)
}

// count adds up what pods hold: those of the application in this cluster, which it returns, and all others of ours at peers, which it
// adds to held.
func (s *scene) count(pods []corev1.Pod, held map[string]corev1.ResourceList) (own corev1.ResourceList) {
	own = corev1.ResourceList{}
	for i := range pods {
		pod := &pods[i]
		peer, isOwn := peerOf(pod), pod.Namespace == s.app.Namespace && componentOf(s.app, pod) != nil
		switch {
		case pod.Spec.NodeName == "" || offload.Terminal(pod.Status.Phase):
		case peer == "" && isOwn:
			own = quota.Add(own, exchange.Count(pod))
		case peer != "" && !isOwn:
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
	return slices.Contains(app.Status.AskedAt, peer) || isInvited(app, peer)
}
