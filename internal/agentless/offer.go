// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
)

// retryInterval is how soon a peer is asked again that could not tell what it has.
const retryInterval = 10 * time.Second

// Config is what an administrator may set of the offers that are made for peers without Hanse.
type Config struct {
	// ClusterID is the id of this cluster.
	ClusterID string
	// Interval is how often a peer is asked what it has.
	Interval time.Duration
	// TimeToLive is for how long an offer lives when the peer does not answer any more.
	TimeToLive time.Duration
	// LabelKeys are the labels of nodes that are told where all nodes of the peer agree.
	LabelKeys []string
	// Clock says when to ask.
	Clock clock.Clock
}

// Offers returns the way by which a peer without Hanse looks as if it made an advertisement, of what can be read there, and takes
// copies of ConfigMaps and Secrets if the Peer says so. It is a peers.Config.Adapt for the process that takes in advertisements.
func Offers(config Config) func(*peers.Link, *v1alpha1.Peer) (*peers.Transport, error) {
	return func(link *peers.Link, peer *v1alpha1.Peer) (*peers.Transport, error) {
		from := surveyor{config: config, reader: link.Client(), peer: peer.DeepCopy()}
		made := &peers.Transport{Client: link.Client(), Feed: func(context.Context, *peers.Feed) {}}
		if peer.Protocol().Copies && from.isOurs() {
			made = newCopyView(link, peer.Spec.ClusterID, peer.Spec.Namespaces).transport()
		}
		others := made.Feed
		made.Feed = func(ctx context.Context, feed *peers.Feed) {
			if feed.Subject().Example.GetObjectKind().GroupVersionKind().Kind == "Advertisement" {
				feed.Go(func() { from.keepOffering(ctx, feed) })
			} else {
				others(ctx, feed)
			}
		}
		return made, nil
	}
}

// isOurs says whether no other home knows the peer by its id. Two homes that call a cluster the same would take each other's pods
// and copies there for their own.
func (s surveyor) isOurs() bool {
	return s.peer.Spec.ClusterID == v1alpha1.AgentlessClusterID(s.config.ClusterID, s.peer.Name)
}

// noOffer is the error for a peer that answers, and of which this cluster can make no offer.
type noOffer struct{ reason, message string }

// Error implements error.
func (e noOffer) Error() string { return e.message }

// NoOffer returns what to tell the administrator of this cluster.
func (e noOffer) NoOffer() (reason, message string) { return e.reason, e.message }

// keepOffering shows the newest offer of the peer, or why there is none, until ctx ends.
func (s surveyor) keepOffering(ctx context.Context, feed *peers.Feed) {
	message := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: feed.Namespace(), Name: s.peer.Spec.ClusterID}}
	for {
		pause := retryInterval
		offer, err := s.offer(ctx)
		if feed.Fail(err); err == nil {
			pause = s.config.Interval
			s.say(message, offer)
			feed.Replace([]client.Object{undecoded(message)})
		}
		select {
		case <-ctx.Done():
			return
		case <-s.config.Clock.After(pause):
		}
	}
}

// say makes the offer the next message. Only new terms make it a full one, which wants an answer.
func (s surveyor) say(message *v1alpha1.Advertisement, offer *v1alpha1.AdvertisementSpec) {
	now := s.config.Clock.Now()
	before := message.Spec
	message.Spec = *offer
	message.Spec.Sequence = max(now.UnixMilli(), before.Sequence+1)
	message.Spec.FullSequence = before.FullSequence
	message.Spec.Timestamp = metav1.NewTime(now.Truncate(time.Second))
	message.Spec.TimeToLive = metav1.NewTime(message.Spec.Timestamp.Add(s.config.TimeToLive))
	if !exchange.SameTerms(&before, &message.Spec) {
		message.Spec.FullSequence = message.Spec.Sequence
	}
	message.ResourceVersion = strconv.FormatInt(message.Spec.Sequence, 10)
}

// undecoded returns the message as it would come from an API server.
func undecoded(message *v1alpha1.Advertisement) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(message)
	utilruntime.Must(err) // our own type can be encoded
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Advertisement"))
	return object
}

// offer returns what the peer can be believed to have for us.
func (s surveyor) offer(ctx context.Context) (*v1alpha1.AdvertisementSpec, error) {
	if !s.isOurs() {
		return nil, noOffer{v1alpha1.ReasonClusterIDMismatch, "spec.clusterID is set. A cluster without Hanse has no id, and gets " +
			"one from Hanse: make the Peer anew without it"}
	}
	found, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	offer, unknown := found.offer(s.peer, s.config.LabelKeys)
	if unknown != "" {
		return nil, noOffer{v1alpha1.ReasonAgentless, unknown}
	}
	return offer, nil
}

// podsUnlessSaid is how many pods are offered where no quota says how many there may be: as many as one node has by
// default.
const podsUnlessSaid = 110

// always are the resources that every offer names.
var always = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
}

// offer returns what the peer can be believed to have for us, without times, or in words for the administrator why that
// cannot be known.
func (s survey) offer(peer *v1alpha1.Peer, labelKeys []string) (*v1alpha1.AdvertisementSpec, string) {
	limits := s.limits(peer.Name)
	if s.ledger == nil {
		return s.offerOfQuotas(peer, limits)
	}
	capacity, claims := s.ledger.Capacity(nil), exchange.Claims{Limits: limits}
	offer := s.ledger.Describe(labelKeys, nil).Offer
	offer.ClusterID = peer.Spec.ClusterID
	offer.Availability = complete(capacity.Availability(peer.Name, claims))
	offer.LargestPod = capacity.LargestPod(peer.Name, claims)
	return &offer, ""
}

// offerOfQuotas makes an offer of what the quotas of the namespace leave.
func (s survey) offerOfQuotas(peer *v1alpha1.Peer, limits corev1.ResourceList) (*v1alpha1.AdvertisementSpec, string) {
	namespace := peer.Spec.Namespaces[0]
	_, cpu := limits[corev1.ResourceCPU]
	_, memory := limits[corev1.ResourceMemory]
	switch {
	case s.hidden:
		return nil, "Nobody can tell what the peer has: its user may list neither nodes and pods of all namespaces nor " +
			"resourcequotas in namespace " + namespace + ". Have its administrator allow one of the two"
	case !cpu || !memory:
		return nil, "Nobody can tell what the peer has: its user may not list nodes and pods of all namespaces, and no " +
			"ResourceQuota of namespace " + namespace + " limits both requests.cpu and requests.memory. Have its " +
			"administrator allow that, or make such a quota"
	}
	if _, named := limits[corev1.ResourcePods]; !named {
		limits[corev1.ResourcePods] = *resource.NewQuantity(podsUnlessSaid, resource.DecimalSI)
	}
	return &v1alpha1.AdvertisementSpec{ClusterID: peer.Spec.ClusterID, Availability: complete(limits)}, ""
}

// complete names all that an offer always names.
func complete(list corev1.ResourceList) corev1.ResourceList {
	for _, name := range always {
		if _, named := list[name]; !named {
			list[name] = resource.Quantity{Format: resource.DecimalSI}
		}
	}
	return list
}

// limits returns the most that we may have by the quotas: what they leave, and what our own pods hold of them. What no
// quota names is missing.
func (s survey) limits(peer string) corev1.ResourceList {
	held := s.own.Capacity(nil).Held(peer)
	limits := corev1.ResourceList{}
	for i := range s.quotas {
		for name, left := range leftOf(&s.quotas[i]) {
			left.Add(held[name])
			if least, named := limits[name]; !named || left.Cmp(least) < 0 {
				limits[name] = left
			}
		}
	}
	return limits
}

// leftOf returns what the quota leaves of what pods ask for. One that counts only some pods says nothing.
func leftOf(quota *corev1.ResourceQuota) corev1.ResourceList {
	if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
		return nil
	}
	left := corev1.ResourceList{}
	for key, hard := range quota.Spec.Hard {
		name, asked := exchange.CountedBy(key)
		if !asked {
			continue
		}
		rest := hard.DeepCopy()
		rest.Sub(quota.Status.Used[key])
		if rest.Sign() < 0 {
			rest = resource.Quantity{Format: hard.Format}
		}
		if least, twice := left[name]; !twice || rest.Cmp(least) < 0 {
			left[name] = rest
		}
	}
	return left
}

// What is read of a peer at most.
const (
	pageSize   = 500
	maxObjects = 50_000
)

// A survey is what a peer lets us read about its capacity.
type survey struct {
	ledger *exchange.Ledger // of its nodes and all its pods; nil if we may not read them
	own    *exchange.Ledger // of our own pods in the namespace that pods run in
	quotas []corev1.ResourceQuota
	// hidden says that we may not read the namespace's quotas either.
	hidden bool
}

// surveyor reads capacity at a peer.
type surveyor struct {
	config Config
	reader client.Reader
	peer   *v1alpha1.Peer
}

// look reads what it may. That it may not is no error.
func (s surveyor) look(ctx context.Context) (survey, error) {
	seen, whole := survey{own: exchange.NewLedger()}, exchange.NewLedger()
	err := s.read(ctx, &corev1.NodeList{}, whole, "")
	if err == nil {
		err = s.read(ctx, &corev1.PodList{}, whole, "")
	}
	switch {
	case err == nil:
		seen.ledger = whole
	case !apierrors.IsForbidden(err):
		return seen, fmt.Errorf("read nodes and pods of the peer: %w", err)
	}
	namespace := client.InNamespace(s.peer.Spec.Namespaces[0]) // that pods run in
	quotas := &corev1.ResourceQuotaList{}
	err = s.reader.List(ctx, quotas, namespace, client.Limit(pageSize))
	if seen.hidden = apierrors.IsForbidden(err); err != nil && !seen.hidden {
		return seen, fmt.Errorf("read quotas of namespace %s of the peer: %w", namespace, err)
	}
	if seen.quotas = quotas.Items; len(seen.quotas) == 0 {
		return seen, nil
	}
	// One node of its own stands for all, since a quota counts also what has no node yet.
	quotaNode := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "quota"}}
	seen.own.SetNode(quotaNode)
	err = s.read(ctx, &corev1.PodList{}, seen.own, quotaNode.Name, namespace,
		client.MatchingLabels{v1alpha1.LabelAgentless: s.peer.Spec.ClusterID})
	if err != nil {
		return seen, fmt.Errorf("read our pods in namespace %s of the peer: %w", namespace, err)
	}
	return seen, nil
}

// read enters nodes or pods into the ledger, page by page; pods as if they ran on the node, if one is named.
func (s surveyor) read(ctx context.Context, kind client.ObjectList, into *exchange.Ledger, node string, of ...client.ListOption) error {
	seen, next := 0, ""
	for {
		list := kind.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert // a copy is of the same kind
		if err := s.reader.List(ctx, list, append(of, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		// An empty page counts too, so that a list of nothing but pages ends.
		if seen += max(meta.LenList(list), pageSize/10); seen > maxObjects {
			return fmt.Errorf("the peer lists more than %d objects", maxObjects)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			switch object := item.(type) {
			case *corev1.Node:
				_, _ = exchange.TrimNode(object) // of a node it says no error
				into.SetNode(object)
			case *corev1.Pod:
				object.Spec.NodeName = cmp.Or(node, object.Spec.NodeName)
				into.SetPod(object, s.owner(object))
			}
			return nil
		})
		if next = list.GetContinue(); err != nil || next == "" {
			return err
		}
	}
}

// owner returns the peer if the pod is ours: one with our mark, in a namespace where we make pods.
func (s surveyor) owner(pod *corev1.Pod) string {
	if pod.Labels[v1alpha1.LabelAgentless] == s.peer.Spec.ClusterID && slices.Contains(s.peer.Spec.Namespaces, pod.Namespace) {
		return s.peer.Name
	}
	return ""
}
