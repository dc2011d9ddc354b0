// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/reflection"
)

const (
	// atOnce is how many writes the direct client makes at a time, as Hanse does.
	atOnce = 8
	direct = "direct" // the namespace into whose twin the direct client writes
	first  = "first"  // the namespace of the pair, which stays empty
	room   = 10       // for pods
	// mebibytes is the room that the provider has for copies: how much fits in there is not what is measured.
	mebibytes = 1024
	often     = 100 * time.Millisecond
	patience  = 2 * time.Minute
	manager   = "hanse-manager" // as it calls itself to API servers
)

// Milestones.
const (
	bound   = "bound"
	there   = "there"
	changed = "changed"
)

// A world is a pair of clusters with a network between them, as far as the API servers know, and a direct client beside Hanse.
type world struct {
	Config
	*lab.Pair
	log     *audit.Log // of the API server at home
	watches audit.Watches
	peer    client.WithWatch // writes into twins as Hanse may
	twins   map[string]string
	view    reflection.View
	clock   clock.Clock
}

func open(ctx context.Context, config Config, fail context.CancelCauseFunc) (*world, error) {
	w := &world{Config: config, watches: audit.Watches{}, twins: map[string]string{}, clock: clock.RealClock{}}
	var err error
	if w.Pair, err = w.Bed.Pair(ctx, lab.PairConfig{
		Nodes: lab.NodesFor(room), SchedulerQPS: w.SchedulerQPS,
		Values: []string{"gateway.enabled=true"},
		// No gateway runs: that packets arrive is measured elsewhere.
		ManagerFlags: []string{"--gateway", "--gateway-endpoint=192.0.2.1:51820", "--pod-cidr=10.244.0.0/16", "--reflect=ConfigMap=All,Secret=All"},
	}); err != nil {
		return w, err
	}
	// Before Hanse starts, so that each of its watches is seen to begin.
	if w.log, err = audit.Open(w.Consumer.AuditLog()); err != nil {
		return w, err
	}
	if err := w.Offload(ctx, fail, first, room); err != nil {
		return w, err
	}
	return w, w.openDirect(ctx)
}

// openDirect makes the direct client and its twin.
func (w *world) openDirect(ctx context.Context) error {
	peer := &v1alpha1.Peer{}
	if err := w.Provider.Get(ctx, client.ObjectKey{Name: w.Consumer.Name}, peer); err != nil {
		return fmt.Errorf("read Peer %s: %w", w.Consumer.Name, err)
	}
	before := peer.DeepCopy()
	peer.Spec.Limits = ptr.To(ptr.Deref(peer.Spec.Limits, v1alpha1.PeerLimits{}))
	peer.Spec.Limits.Mebibytes = new(int32(mebibytes))
	if err := w.Provider.Patch(ctx, peer, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("give Peer %s room: %w", w.Consumer.Name, err)
	}
	var err error
	if w.peer, err = w.Provider.As(ctx, v1alpha1.TenantNamespace(w.Consumer.Name), v1alpha1.PeerServiceAccount); err != nil {
		return err
	}
	if err := w.offload(ctx, direct); err != nil {
		return err
	}
	return lab.Until(ctx, "the clusters have a Connection", often, patience, func(ctx context.Context) error {
		c := &v1alpha1.Connection{}
		key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(w.Provider.Name), Name: v1alpha1.ConnectionName}
		err := w.Consumer.Get(ctx, key, c)
		ours := overlay.Mappings(c.Spec.Ours)
		w.view = reflection.View{
			Node: v1alpha1.VirtualNodeName(w.Provider.Name), Reach: reflection.ReachAll,
			Seen: func(home netip.Addr) (netip.Addr, bool) { return overlay.Seen(ours, home) },
		}
		return err
	})
}

// offload makes a namespace at home with a twin.
func (w *world) offload(ctx context.Context, namespace string) error {
	var err error
	w.twins[namespace], err = w.OffloadNamespace(ctx, namespace, room)
	return err
}

// observe watches what there is in the twin of the namespace of all lists.
func (w *world) observe(ctx context.Context, lists []client.ObjectList, namespace string) ([]*lab.Observer, error) {
	var all []*lab.Observer
	for _, list := range lists {
		o, err := w.Provider.Observe(ctx, list.DeepCopyObject().(client.ObjectList), []client.ListOption{client.InNamespace(w.twins[namespace])}, //nolint:forcetypeassert // a list's copy is one
			lab.Milestone{Name: there, Reached: isThere}, lab.Milestone{Name: changed, Reached: isChanged})
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func closeAll(observers []*lab.Observer) {
	for _, o := range observers {
		o.Close()
	}
}

// startPod creates the pod for which the objects of the namespace are needed at the provider, and returns when it was bound.
func (w *world) startPod(ctx context.Context, namespace string) (time.Time, error) {
	pods, err := w.Consumer.Observe(ctx, &corev1.PodList{}, []client.ListOption{client.InNamespace(namespace)},
		lab.Milestone{Name: bound, Reached: lab.Bound})
	if err != nil {
		return time.Time{}, err
	}
	defer pods.Close()
	pod := lab.Pod(namespace, "user")
	pod.Spec.AutomountServiceAccountToken = new(false) // its token would be one Secret more
	// No gateway runs, so that the virtual node's network counts as unavailable.
	pod.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists}}
	if err := w.Consumer.Create(ctx, pod); err != nil {
		return time.Time{}, fmt.Errorf("create Pod: %w", err)
	}
	err = pods.Wait(ctx, bound, 1)
	return pods.Moments(bound)[pod.Name], err
}

// openWatches counts the watches that Hanse's manager has open at home, by resource and namespace.
func (w *world) openWatches() (map[audit.Kind]int, error) {
	requests, err := w.log.Next()
	if err != nil {
		return nil, err
	}
	w.watches.Follow(requests)
	counts := map[audit.Kind]int{}
	for _, r := range w.watches {
		if r.Agent == manager {
			counts[audit.Kind{Resource: r.Resource, Namespace: r.Namespace}]++
		}
	}
	return counts, nil
}

func (w *world) close(ctx context.Context) error {
	if w.Pair == nil {
		return nil
	}
	return w.Close(ctx)
}
