package peering

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// How long something that was deleted or changed in a tenant namespace may stay so: what lies in there is not watched,
// because that needs rights in all namespaces. After a change of the Peer it is looked sooner, since others of our
// controllers may have learnt of it later than we, and quotas may not count yet.
const (
	firstRepair  = local.CountingDelay
	repairPeriod = 10 * time.Minute
	repairJitter = 0.2
)

// settleTime is how long it may take until rights that were bound in a new namespace are known to the API server.
const settleTime = 10 * time.Second

// tenantState is how a tenant namespace stands.
type tenantState int

const (
	tenantReady tenantState = iota
	// tenantTaken: a namespace of that name is not the tenant namespace of this peer.
	tenantTaken
	// tenantTerminating: it is being deleted, so that a new one can be made only after that.
	tenantTerminating
	// tenantUnsettled: it was just made, and the API server does not know our rights in it yet.
	tenantUnsettled
	// tenantFailed: the API server refused something.
	tenantFailed
)

// tenants keep the tenant namespaces and what lies in them.
type tenants struct {
	config   Config
	client   client.Client // cached; sees namespaces and messages
	direct   client.Client // not cached; for all that Hanse may read in tenant namespaces only
	counting *local.Counting
}

// A tenantVersion says of what a tenant namespace was last made to look like.
type tenantVersion struct {
	peer       types.UID
	generation int64
	namespace  types.UID
}

// A tenancyRecord says what has been done about a tenant namespace. The zero value is nothing.
type tenancyRecord struct {
	version tenantVersion
	repairs int       // how often it was looked at again since
	repair  time.Time // when it is looked at again
}

// done notes that the namespace was made to look like that, or that it still does.
func (r *tenancyRecord) done(version tenantVersion, now time.Time) {
	pause := repairPeriod
	if r.version == version {
		r.repairs++
	} else {
		*r, pause = tenancyRecord{version: version}, firstRepair
	}
	r.repair = now.Add(wait.Jitter(pause, repairJitter))
}

// ensure makes the tenant namespace of the peer and what belongs in it. What has been done is kept in known, so that it
// need not be looked at again with every probe.
func (t *tenants) ensure(ctx context.Context, peer *v1alpha1.Peer, known *tenancyRecord) (tenantState, error) {
	ns, err := t.ensureNamespace(ctx, peer)
	if err != nil {
		return tenantFailed, err
	}
	if state := stateOf(ns, peer); state != tenantReady {
		*known = tenancyRecord{}
		return state, nil
	}
	now := t.config.Clock.Now()
	version := tenantVersion{peer: peer.UID, generation: peer.Generation, namespace: ns.UID}
	changed := known.version != version
	if !changed && now.Before(known.repair) {
		return tenantReady, nil
	}
	// What a mere provider must not have is looked for when the Peer has changed, and once more.
	if err := t.furnish(ctx, peer, ns, changed || known.repairs == 0); err != nil {
		*known = tenancyRecord{}
		if apierrors.IsForbidden(err) && t.settling(ctx, ns) {
			return tenantUnsettled, nil
		}
		return tenantFailed, err
	}
	known.done(version, now)
	return tenantReady, nil
}

// settling reports whether the namespace is so new that rights in it need not be known yet.
func (t *tenants) settling(ctx context.Context, ns *corev1.Namespace) bool {
	now, err := local.Now(ctx, t.client)
	return err == nil && now.Sub(ns.CreationTimestamp.Time) < settleTime
}

// ensureNamespace returns the namespace of that name, whosever it is. The tombstone of a former peer makes room.
func (t *tenants) ensureNamespace(ctx context.Context, peer *v1alpha1.Peer) (*corev1.Namespace, error) {
	ns := tenantNamespace(peer)
	found := &corev1.Namespace{}
	err := t.client.Get(ctx, client.ObjectKeyFromObject(ns), found)
	if apierrors.IsNotFound(err) {
		err = t.client.Create(ctx, ns)
		if err == nil {
			return ns, nil
		}
		if apierrors.IsAlreadyExists(err) { // the cache is behind
			err = t.direct.Get(ctx, client.ObjectKeyFromObject(ns), found)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", ns.Name, err)
	}
	switch {
	case isTombstone(found, peer.Name):
		return found, t.deleteNamespace(ctx, found)
	case stateOf(found, peer) != tenantReady:
		return found, nil
	default:
		return t.mark(ctx, found, ns)
	}
}

// mark gives the tenant namespace the labels and annotations that it should have: those of a new Peer are not all known
// when its namespace is made.
func (t *tenants) mark(ctx context.Context, found, want *corev1.Namespace) (*corev1.Namespace, error) {
	marked := found.DeepCopy()
	for key, value := range want.Labels {
		metav1.SetMetaDataLabel(&marked.ObjectMeta, key, value)
	}
	for key, value := range want.Annotations {
		metav1.SetMetaDataAnnotation(&marked.ObjectMeta, key, value)
	}
	if maps.Equal(found.Labels, marked.Labels) && maps.Equal(found.Annotations, marked.Annotations) {
		return found, nil
	}
	patch := client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{})
	if err := t.client.Patch(ctx, marked, patch); err != nil {
		return nil, fmt.Errorf("label namespace %s: %w", found.Name, err)
	}
	return marked, nil
}

func (t *tenants) deleteNamespace(ctx context.Context, ns *corev1.Namespace) error {
	if !ns.DeletionTimestamp.IsZero() {
		return nil
	}
	uid := ns.UID
	if err := t.client.Delete(ctx, ns, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete namespace %s: %w", ns.Name, err)
	}
	return nil
}

func stateOf(ns *corev1.Namespace, peer *v1alpha1.Peer) tenantState {
	switch {
	case isTombstone(ns, peer.Name):
		return tenantTerminating
	case !peer.OwnsTenantNamespace(ns):
		return tenantTaken
	case !ns.DeletionTimestamp.IsZero():
		return tenantTerminating
	default:
		return tenantReady
	}
}

// isTombstone reports whether ns is what is left of a former peer of the name.
func isTombstone(ns *corev1.Namespace, peer string) bool {
	return ns.Labels[v1alpha1.LabelType] == v1alpha1.TypeTombstone && ns.Labels[v1alpha1.LabelPeer] == peer &&
		ns.Labels[v1alpha1.LabelManaged] == "true"
}

func tenantNamespace(peer *v1alpha1.Peer) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.TenantNamespace(peer.Name),
		Labels: map[string]string{
			v1alpha1.LabelType:    v1alpha1.TypeTenant,
			v1alpha1.LabelPeer:    peer.Name,
			v1alpha1.LabelManaged: "true",
		},
		Annotations: map[string]string{v1alpha1.AnnotationPeerUID: string(peer.UID)},
	}}
	if peer.Spec.ClusterID != "" {
		ns.Labels[v1alpha1.LabelClusterID] = peer.Spec.ClusterID
	}
	return ns
}
