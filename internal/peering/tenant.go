// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// quotaName is what every ResourceQuota of Hanse's is called.
const quotaName = "hanse"

// countMappings is the name under which a quota counts what a consumer may make in its tenant namespace. Of PeeringClaims
// there can be only one anyway.
const countMappings = corev1.ResourceName("count/namespacemappings.hanse.dev")

// countExports is the name under which a quota counts ExportedServices: those of the consumer, and as many of ours.
const countExports = corev1.ResourceName("count/exportedservices.hanse.dev")

// countRequests is the name under which a quota counts the Requests of the consumer.
const countRequests = corev1.ResourceName("count/requests.hanse.dev")

// countQuotes is the name under which a quota counts the Quotes of the consumer.
const countQuotes = corev1.ResourceName("count/quotes.hanse.dev")

// countMessages is the name under which a quota counts the Messages of a member, and those that are relayed to it.
const countMessages = corev1.ResourceName("count/messages.hanse.dev")

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

// tenantStep keeps the tenant namespace of the peer and what belongs in it, but for what comes with an invitation.
type tenantStep struct {
	*deps

	counting *local.Counting
}

// Reconcile implements step.
func (t *tenantStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if o.deleted() {
		return result{}, nil
	}
	if err := t.hold(ctx, o.peer); err != nil {
		return result{stop: true}, err
	}
	o.tenant, o.tenantErr = t.ensure(ctx, o)
	switch o.tenant {
	case tenantReady:
		return result{again: o.known.tenant.due}, nil
	case tenantUnsettled:
		return result{again: o.now.Add(settlePause)}, nil
	default:
		return result{again: o.now.Add(firstRepair)}, o.tenantErr
	}
}

// hold puts our finalizer on the Peer before anything is made for it, and gives an agentless peer its id, which it cannot tell
// itself.
func (t *tenantStep) hold(ctx context.Context, peer *v1alpha1.Peer) error {
	if controllerutil.ContainsFinalizer(peer, v1alpha1.FinalizerPeer) && peer.Spec.ClusterID != "" {
		return nil // as almost always, and known without comparing the whole Peer
	}
	err := t.patch(ctx, peer, func() {
		controllerutil.AddFinalizer(peer, v1alpha1.FinalizerPeer)
		if peer.Agentless() {
			peer.Spec.ClusterID = cmp.Or(peer.Spec.ClusterID, v1alpha1.AgentlessClusterID(t.config.ClusterID, peer.Name))
		}
	})
	if err != nil {
		return fmt.Errorf("add finalizer: %w", err)
	}
	return nil
}

// ensure makes the tenant namespace and what belongs in it. What has been done is kept, so that it need not be looked at
// again with every probe.
func (t *tenantStep) ensure(ctx context.Context, o *observation) (tenantState, error) {
	ns, err := t.ensureNamespace(ctx, o)
	if err != nil {
		return tenantFailed, err
	}
	known := &o.known.tenant
	o.namespace = nil
	if state := ownedBy(ns, o.peer); state != tenantReady {
		*known = gate{}
		return state, nil
	}
	o.namespace = ns
	seen := fmt.Sprintln(o.peer.UID, o.peer.Generation, ns.UID)
	if !known.open(seen, o.now) {
		return tenantReady, nil
	}
	if err := t.furnish(ctx, o.peer, ns); err != nil {
		*known = gate{}
		if apierrors.IsForbidden(err) && t.settling(ctx, ns) {
			return tenantUnsettled, nil
		}
		return tenantFailed, err
	}
	pause := repairPeriod
	if known.seen != seen {
		pause = firstRepair
	}
	*known = gate{seen, o.now.Add(wait.Jitter(pause, repairJitter))}
	return tenantReady, nil
}

// furnish makes what belongs in the tenant namespace. The bindings of our own service accounts come first: they are
// what gives the right to the rest.
func (t *tenantStep) furnish(ctx context.Context, peer *v1alpha1.Peer, ns *corev1.Namespace) error {
	kubelet := accountSubject(t.config.Namespace, t.config.KubeletServiceAccount)
	err := errors.Join(
		t.bind(ctx, ns.Name, v1alpha1.ClusterRoleManagerInTenant, t.managerSubject()),
		t.bind(ctx, ns.Name, v1alpha1.ClusterRoleKubeletInTenant, kubelet),
	)
	if err != nil {
		return err
	}
	if peer.HasRole(v1alpha1.RoleConsumer) {
		return t.receive(ctx, peer, ns.Name)
	}
	return t.disown(ctx, ns.Name)
}

// receive introduces this cluster to a consumer, and bounds what the consumer can make. Who the consumer is and what it
// may do is the matter of its invitation.
func (t *tenantStep) receive(ctx context.Context, peer *v1alpha1.Peer, namespace string) error {
	info := configMap(namespace, v1alpha1.ClusterInfo)
	return errors.Join(
		t.put(ctx, info, func() { info.Data = t.config.clusterInfo() }),
		t.bound(ctx, peer, namespace),
		t.keepSample(ctx, namespace),
	)
}

// bound limits the number of objects that the peer makes, as soon as Kubernetes can count them.
func (t *tenantStep) bound(ctx context.Context, peer *v1alpha1.Peer, namespace string) error {
	if wait, err := t.counting.Wait(ctx); err != nil || wait > 0 {
		return err
	}
	quota := tenantQuota(namespace)
	hard := corev1.ResourceList{
		countMappings: *resource.NewQuantity(int64(namespacesOf(peer)), resource.DecimalSI),
		countExports:  *resource.NewQuantity(2*v1alpha1.MaxExportedServices, resource.DecimalSI),
		countRequests: *resource.NewQuantity(v1alpha1.MaxRequests, resource.DecimalSI),
		countQuotes:   *resource.NewQuantity(v1alpha1.MaxQuotes, resource.DecimalSI),
		countMessages: *resource.NewQuantity(v1alpha1.MaxMessages, resource.DecimalSI),
	}
	return t.put(ctx, quota, func() { quota.Spec.Hard = hard })
}

// keepSample keeps what the peer measures by in its tenant namespace, as long as this cluster measures too.
func (t *tenantStep) keepSample(ctx context.Context, namespace string) error {
	kept := configMap(namespace, v1alpha1.BandwidthSample)
	if t.config.BandwidthInterval == 0 {
		return t.remove(ctx, kept)
	}
	return t.put(ctx, kept, func() { kept.Data = map[string]string{v1alpha1.BandwidthSampleKey: sample()} })
}

// namespacesOf is how many namespaces the peer may have here.
func namespacesOf(peer *v1alpha1.Peer) int32 {
	if peer.Spec.Limits == nil {
		return v1alpha1.DefaultLimitNamespaces
	}
	return ptr.Deref(peer.Spec.Limits.Namespaces, v1alpha1.DefaultLimitNamespaces)
}

// disown takes away what a consumer has here, but for what it is advertised and for its twins, which are others'. All
// its tokens end.
func (t *tenantStep) disown(ctx context.Context, namespace string) error {
	return errors.Join(
		t.unbind(ctx, namespace, v1alpha1.ClusterRolePeerTenant, v1alpha1.ClusterRolePeerInvitation),
		t.remove(ctx, append(ofConsumer(namespace), identityOfConsumer(namespace)...)...),
	)
}

// ofConsumer are the objects that a consumer has in its tenant namespace, but for those that say who it is.
func ofConsumer(namespace string) []client.Object {
	return []client.Object{
		serviceAccount(namespace, v1alpha1.InvitationServiceAccount), secret(namespace, v1alpha1.InvitationSecret), claim(namespace),
		configMap(namespace, v1alpha1.ClusterInfo), configMap(namespace, v1alpha1.BandwidthSample), tenantQuota(namespace),
	}
}

func identityOfConsumer(namespace string) []client.Object {
	return []client.Object{serviceAccount(namespace, v1alpha1.PeerServiceAccount), secret(namespace, v1alpha1.SessionSecret)}
}

// settling reports whether the namespace is so new that rights in it need not be known yet.
func (d *deps) settling(ctx context.Context, ns *corev1.Namespace) bool {
	now, err := local.Now(ctx, d.client)
	return err == nil && now.Sub(ns.CreationTimestamp.Time) < settleTime
}

// ensureNamespace returns the namespace of that name, whoever owns it. The tombstone of a former peer makes room.
func (t *tenantStep) ensureNamespace(ctx context.Context, o *observation) (*corev1.Namespace, error) {
	want := tenantNamespace(o.peer)
	ns := o.namespace
	if ns == nil {
		var err error
		ns, err = existing(ctx, t.direct, namespaceOf(o.peer.Name))
		if err != nil {
			return nil, err
		}
		if ns == nil {
			return want, t.client.Create(ctx, want)
		}
	}
	switch {
	case isTombstone(ns, o.peer.Name):
		return ns, t.removeExactly(ctx, ns)
	case ownedBy(ns, o.peer) != tenantReady:
		return ns, nil
	default:
		return ns, t.mark(ctx, ns, want.Labels, want.Annotations)
	}
}

// mark gives the tenant namespace the labels and annotations that it should have: those of a new Peer are not all known
// when its namespace is made.
func (d *deps) mark(ctx context.Context, ns *corev1.Namespace, wanted, annotations map[string]string) error {
	err := d.patch(ctx, ns, func() {
		ns.Labels, ns.Annotations = labels.Merge(ns.Labels, wanted), labels.Merge(ns.Annotations, annotations)
	})
	if err != nil {
		return fmt.Errorf("label namespace %s: %w", ns.Name, err)
	}
	return nil
}

// ownedBy says how the namespace stands to the peer.
func ownedBy(ns *corev1.Namespace, peer *v1alpha1.Peer) tenantState {
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

// tenantNamespace is the tenant namespace of the peer as it is to be.
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
