// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// resyncPeriod is how often the credentials of a link are compared with what is used, when nothing else happens to its
// Peer: `hanse kubelet` may read those Secrets by name only, so it cannot watch them.
const resyncPeriod = 5 * time.Minute

// reasonNameTaken is the reason of the event on a Peer whose virtual node cannot exist.
const reasonNameTaken = "NodeNameTaken"

// ports is where virtual nodes get the ports of their kubelet API.
type ports interface {
	// Open returns the port on which the node is served: the wanted one, if it is free.
	Open(ctx context.Context, node string, wanted int32) (endpoint, error)
	// Close ends what is served for the node.
	Close(node string)
}

// nodeController makes the virtual node of each peer. Requests are names of Peers.
type nodeController struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	events events.EventRecorder
	ports  ports
	links  *peers.Links
}

// Reconcile makes the virtual node look as the peer's accepted advertisement says, or takes it away.
func (c *nodeController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	seen, err := observeNode(ctx, c.client, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	seen.link, seen.over, seen.flaps = c.links.State(req.Name), c.links.OverBudget(req.Name), c.links.Flaps(req.Name)
	switch {
	case seen.ad != nil:
		err = c.keep(ctx, seen)
	case seen.refused && seen.node != nil:
		// Also an empty node stays, so that an offer that is refused now and then does not have it made anew each time.
		err = c.closeToPods(ctx, seen)
	default:
		err = c.withdraw(ctx, seen)
	}
	// The Node is there for the scheduler before the link is, and whatever is wrong with the link.
	return c.linkTo(ctx, req.Name, seen, err)
}

// linkTo keeps the link for as long as there is something to do over it: until the last pod of a peer that we leave
// has ended there. A peer that we leave by force is not asked for anything any more.
func (c *nodeController) linkTo(
	ctx context.Context, name string, seen nodeFacts, nodeErr error,
) (reconcile.Result, error) {
	if seen.peer == nil || unpeeredByForce(seen.peer) || seen.node == nil && !consumed(seen.peer) {
		c.links.Close(name)
		return reconcile.Result{}, nodeErr
	}
	link, err := c.links.Ensure(ctx, seen.peer)
	if err == nil {
		link.Mappings() // are followed from now on
		err = unfollowIdle(ctx, c.client, link)
	}
	if errors.Is(err, peers.ErrCredentialsMissing) || errors.Is(err, peers.ErrCredentialsInvalid) {
		// The Peer's conditions say so, and its change or the resync brings us back.
		err = nil
	}
	if err = errors.Join(nodeErr, err); err != nil {
		return reconcile.Result{}, err
	}
	again := wait.Jitter(resyncPeriod, 0.2)
	if seen.flaps > 0 {
		again = min(again, seen.flaps)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

func (c *nodeController) keep(ctx context.Context, seen nodeFacts) error {
	name := v1alpha1.VirtualNodeName(seen.peer.Name)
	var wanted int32
	if seen.node != nil {
		wanted = seen.node.Status.DaemonEndpoints.KubeletEndpoint.Port
	}
	at, err := c.ports.Open(ctx, name, wanted)
	if err != nil {
		return err
	}
	desired := desiredNode(seen.peer, &seen.ad.Spec, at)
	desired.Status.Conditions = linkConditions(seen.link, seen.over, desired.Status.Conditions, seen.node == nil)
	pods, err := podsOn(ctx, c.client, name, "")
	if err != nil {
		return err
	}
	if refuses := refusesPods(pods, seen.node); refuses != nil {
		desired.Status.Conditions = append(desired.Status.Conditions, *refuses)
	}
	if flaps := flapsOf(seen.flaps > 0, seen.node); flaps != nil {
		desired.Status.Conditions = append(desired.Status.Conditions, *flaps)
	}
	if seen.node == nil {
		return c.create(ctx, seen.peer, desired)
	}
	return c.update(ctx, seen.node, desired)
}

func (c *nodeController) create(ctx context.Context, peer *v1alpha1.Peer, desired *corev1.Node) error {
	fresh := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: desired.Name}}
	err := c.client.Create(ctx, mergeNode(fresh, desired, metav1.NewTime(c.clock.Now())))
	if apierrors.IsAlreadyExists(err) {
		return c.adopt(ctx, peer, desired)
	}
	if err != nil {
		return fmt.Errorf("create Node %s: %w", desired.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Created virtual node", "cpu", desired.Status.Allocatable.Cpu())
	return nil
}

// adopt handles a Node that our cache does not show: it is too new, somebody took our label off, or it is not ours.
func (c *nodeController) adopt(ctx context.Context, peer *v1alpha1.Peer, desired *corev1.Node) error {
	current := &corev1.Node{}
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(desired), current); err != nil {
		return fmt.Errorf("read Node %s: %w", desired.Name, err)
	}
	if current.Spec.ProviderID != desired.Spec.ProviderID {
		c.events.Eventf(peer, current, corev1.EventTypeWarning, reasonNameTaken, "CreateNode",
			"Node %s exists and does not stand for this peer: give the Peer another name", current.Name)
		return reconcile.TerminalError(fmt.Errorf("node %s is not ours", current.Name))
	}
	return c.update(ctx, current, desired)
}

func (c *nodeController) update(ctx context.Context, current, desired *corev1.Node) error {
	merged := mergeNode(current, desired, metav1.NewTime(c.clock.Now()))
	if !equality.Semantic.DeepEqual(current.ObjectMeta, merged.ObjectMeta) ||
		!equality.Semantic.DeepEqual(current.Spec, merged.Spec) {
		// Taints are one list with several writers, so the patch must be of the list that we saw.
		patch := client.MergeFromWithOptions(current.DeepCopy(), client.MergeFromWithOptimisticLock{})
		if err := c.client.Patch(ctx, merged.DeepCopy(), patch); err != nil {
			return fmt.Errorf("update Node %s: %w", current.Name, err)
		}
	}
	return c.show(ctx, current, &merged.Status)
}

// show writes the status of the node, if it is another one than before.
func (c *nodeController) show(ctx context.Context, current *corev1.Node, status *corev1.NodeStatus) error {
	if equality.Semantic.DeepEqual(current.Status, *status) {
		return nil
	}
	changed := current.DeepCopy()
	changed.Status = *status
	if err := c.client.Status().Patch(ctx, changed.DeepCopy(), client.StrategicMergeFrom(current)); err != nil {
		return fmt.Errorf("update status of Node %s: %w", current.Name, err)
	}
	if cut := v1alpha1.CutOff(changed); cut != nil && !v1alpha1.IsCutOff(current) {
		c.events.Eventf(current, nil, corev1.EventTypeWarning, cut.Reason, "Observe",
			"%s. Its pods stay as long as they tolerate it", cut.Message)
	}
	return nil
}

// withdraw closes the virtual node to new pods, and deletes it when it has none.
func (c *nodeController) withdraw(ctx context.Context, seen nodeFacts) error {
	node := seen.node
	if node == nil {
		return nil
	}
	needed, err := c.needed(ctx, seen)
	if err != nil {
		return err
	}
	if needed {
		return c.closeToPods(ctx, seen)
	}
	c.ports.Close(node.Name)
	precondition := client.Preconditions{UID: &node.UID}
	if err := c.client.Delete(ctx, node, precondition); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Node %s: %w", node.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted virtual node", "Node", node.Name)
	return nil
}

// needed says whether the node has pods that run at the peer, or should. Without its Peer nobody can do anything about
// its pods: then it goes at once, and Kubernetes collects them as those of a node that was taken away.
func (c *nodeController) needed(ctx context.Context, seen nodeFacts) (bool, error) {
	if seen.peer == nil {
		return false, nil
	}
	pods, err := podsOn(ctx, c.client, seen.node.Name, "")
	if err != nil {
		return false, err
	}
	byForce := unpeeredByForce(seen.peer)
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		_, stays := staysHome(&pod)
		return !stays && (!byForce || !deletedAtOnce(&pod))
	}), nil
}

func (c *nodeController) closeToPods(ctx context.Context, seen nodeFacts) error {
	node := seen.node
	if _, err := c.ports.Open(ctx, node.Name, node.Status.DaemonEndpoints.KubeletEndpoint.Port); err != nil {
		return err
	}
	closed := node.DeepCopy()
	closed.Spec.Taints = closedTaints()
	// The pods that it has are as well as its peer, offer or no offer.
	closed.Status.Conditions = linkConditions(seen.link, seen.over, []corev1.NodeCondition{readyNode(), networkCondition(seen.peer)}, false)
	return c.update(ctx, node, closed)
}

// nodeFacts are what decides about a virtual node.
type nodeFacts struct {
	peer *v1alpha1.Peer          // nil if there is none
	ad   *v1alpha1.Advertisement // nil if none is accepted, or we do not consume from the peer (any more)
	node *corev1.Node            // nil if there is none
	// refused says that the peer still offers something, which was accepted before or may be yet: the node is kept for it.
	refused bool
	// link says whether the peer answers.
	link peers.State
	// over says why nothing more is taken from the peer, if so.
	over error
	// flaps says for how long yet it is told that the peer changes its mind too often.
	flaps time.Duration
}

// observeNode reads what decides about the virtual node of the peer of that name.
func observeNode(ctx context.Context, reader client.Reader, name string) (nodeFacts, error) {
	seen := nodeFacts{}
	node := &corev1.Node{}
	key := client.ObjectKey{Name: v1alpha1.VirtualNodeName(name)}
	if err := reader.Get(ctx, key, node); err == nil {
		seen.node = node
	} else if !apierrors.IsNotFound(err) {
		return seen, fmt.Errorf("read Node %s: %w", key.Name, err)
	}
	peer := &v1alpha1.Peer{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
		return seen, client.IgnoreNotFound(err)
	}
	seen.peer = peer
	if !consumed(peer) {
		return seen, nil
	}
	ad, err := advertisementOf(ctx, reader, peer)
	switch {
	case err != nil || ad == nil:
		return seen, err
	case accepted(ad):
		seen.ad = ad
	default:
		seen.refused = refused(ad)
	}
	return seen, nil
}

// consumed says whether the peer is a provider of ours, and is to stay one.
func consumed(peer *v1alpha1.Peer) bool {
	return peer.HasRole(v1alpha1.RoleProvider) && peer.Spec.ClusterID != "" && peer.DeletionTimestamp.IsZero() && !peer.IsSecond()
}

// accepted says whether the offer is in force.
func accepted(ad *v1alpha1.Advertisement) bool {
	return meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted)
}

// refused says whether the peer offers something that is not accepted. An offer that has expired is none any more.
func refused(ad *v1alpha1.Advertisement) bool {
	found := meta.FindStatusCondition(ad.Status.Conditions, v1alpha1.ConditionAccepted)
	return found != nil && found.Status == metav1.ConditionFalse && found.Reason != v1alpha1.ReasonExpired
}

// advertisementOf returns our copy of what the peer offers, accepted or not, or nil if it offers nothing (any more).
func advertisementOf(ctx context.Context, reader client.Reader, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
	if peer.Spec.ClusterID == "" {
		return nil, nil
	}
	ad := &v1alpha1.Advertisement{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}
	if err := reader.Get(ctx, key, ad); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !ad.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return ad, nil
}

// unpeeredByForce says whether we leave the peer by force: nothing is asked of it any more.
func unpeeredByForce(peer *v1alpha1.Peer) bool {
	return !peer.DeletionTimestamp.IsZero() && peer.Parting().Mode != v1alpha1.PartingAgreed
}

// deletedAtOnce says whether the pod was deleted without any grace: nothing but finalizers of others keeps its object.
func deletedAtOnce(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return !pod.DeletionTimestamp.IsZero() && grace != nil && *grace == 0
}
