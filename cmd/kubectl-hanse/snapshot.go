// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// A part of a snapshot, as users call it.
type part string

const (
	partInfo         part = "the cluster's id"
	partPolicies     part = "policies"
	partPeers        part = "peers"
	partOffers       part = "offers"
	partMembers      part = "members of brokers"
	partOffloadings  part = "namespace offloadings"
	partNodes        part = "all nodes"
	partVirtualNodes part = "nodes"
	partPodsAway     part = "pods on virtual nodes"
	partNamespaces   part = "namespaces of peers"
	partShadowPods   part = "pods of peers"
	partDaemonSets   part = "DaemonSets"
	partServices     part = "Services"
	partDeployments  part = "Deployments"
	partOwnPods      part = "Hanse's own pods"
	partAPIServers   part = "pods of the API server"
	partEvents       part = "events"
	partConnections  part = "connections"
	partVolumes      part = "volumes"
	partShadowClaims part = "claims of peers"
	partRequests     part = "Requests of peers"
	partAccounts     part = "Accounts"
	partWarnings     part = "warnings of Services and claims"
)

// A snapshot is what a verb knows of the cluster, read in one pass. Views are made from it, and read nothing themselves.
// A part that could not be read, such as for lack of rights, is empty, and the error lies beside it.
type snapshot struct {
	scope       scope
	now         time.Time
	clusterID   string
	version     string                    // of Hanse in the cluster
	policies    map[string]policyStanding // what policies are asked → those that answer
	peers       v1alpha1.PeerList
	offers      v1alpha1.AdvertisementList
	members     v1alpha1.MemberList
	offloadings v1alpha1.NamespaceOffloadingList
	nodes       corev1.NodeList // all, or the virtual ones
	podsAway    []corev1.Pod
	namespaces  corev1.NamespaceList // that Hanse keeps for peers
	shadowPods  v1alpha1.ShadowPodList
	daemonSets  appsv1.DaemonSetList
	services    corev1.ServiceList
	deployments appsv1.DeploymentList
	ownPods     corev1.PodList
	apiServers  corev1.PodList
	events      eventsv1.EventList
	warnings    eventsv1.EventList // of a namespace
	stored      []local.Stored     // our data at peers
	claims      v1alpha1.ShadowClaimList
	requests    v1alpha1.RequestList
	accounts    v1alpha1.AccountList
	connections v1alpha1.ConnectionList
	errs        map[part]error
}

// A scope is what a snapshot is about.
type scope struct {
	system    string    // the namespace of Hanse
	namespace string    // of users; none is all
	pod       types.UID // whose events are read
}

// take reads parts of the cluster in their order.
func take(ctx context.Context, c client.Client, about scope, now time.Time, parts ...part) *snapshot {
	s := &snapshot{scope: about, now: now, errs: map[part]error{}}
	for _, p := range parts {
		if err := s.read(ctx, c, p); err != nil {
			s.errs[p] = fmt.Errorf("read %s: %w", p, err)
		}
	}
	slices.SortFunc(s.peers.Items, func(a, b v1alpha1.Peer) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.members.Items, func(a, b v1alpha1.Member) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.offloadings.Items, func(a, b v1alpha1.NamespaceOffloading) int { return cmp.Compare(a.Namespace, b.Namespace) })
	slices.SortFunc(s.nodes.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, events := range [][]eventsv1.Event{s.events.Items, s.warnings.Items} {
		slices.SortFunc(events, func(a, b eventsv1.Event) int {
			return cmp.Or(timeOf(&a).Compare(timeOf(&b)), cmp.Compare(a.Name, b.Name))
		})
	}
	return s
}

// timeOf is when an event happened last.
func timeOf(e *eventsv1.Event) time.Time {
	times := []time.Time{e.CreationTimestamp.Time, e.DeprecatedLastTimestamp.Time, e.EventTime.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

func (s *snapshot) read(ctx context.Context, c client.Client, p part) error {
	list := func(into client.ObjectList, options ...client.ListOption) func() error {
		return func() error { return c.List(ctx, into, options...) }
	}
	system, users := client.InNamespace(s.scope.system), client.InNamespace(s.scope.namespace)
	return map[part]func() error{
		partInfo:         func() error { return s.readInfo(ctx, c) },
		partPolicies:     func() error { return s.readPolicies(ctx, c) },
		partPodsAway:     func() error { return s.readPodsAway(ctx, c) },
		partPeers:        list(&s.peers),
		partOffers:       list(&s.offers),
		partMembers:      list(&s.members),
		partConnections:  list(&s.connections),
		partOffloadings:  list(&s.offloadings, users),
		partNodes:        list(&s.nodes),
		partVirtualNodes: list(&s.nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}),
		partNamespaces:   list(&s.namespaces, client.HasLabels{v1alpha1.LabelType}),
		partShadowPods:   list(&s.shadowPods),
		partShadowClaims: list(&s.claims),
		partRequests:     list(&s.requests),
		partAccounts:     list(&s.accounts),
		partVolumes:      func() error { return s.readStored(ctx, c) },
		partDaemonSets:   list(&s.daemonSets),
		partServices:     list(&s.services, users),
		partDeployments:  list(&s.deployments, system, client.MatchingLabels{install.PartOfLabel: install.PartOf}),
		partOwnPods:      list(&s.ownPods, system, client.MatchingLabels{install.PartOfLabel: install.PartOf}),
		partAPIServers:   list(&s.apiServers, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "kube-apiserver"}),
		partWarnings:     list(&s.warnings, users, client.MatchingFields{"type": corev1.EventTypeWarning}),
		partEvents:       list(&s.events, users, client.MatchingFields{"regarding.uid": string(s.scope.pod)}),
	}[p]()
}

// readInfo reads which cluster this is. Without it Hanse may be starting, and the rest still tells something.
func (s *snapshot) readInfo(ctx context.Context, c client.Client) error {
	info := &corev1.ConfigMap{}
	_, err := read(ctx, c, s.scope.system, v1alpha1.ClusterInfo, info)
	s.clusterID, s.version = info.Data[v1alpha1.ClusterInfoID], info.Data[v1alpha1.ClusterInfoVersion]
	return err
}

// readStored reads what data of ours is at peers.
func (s *snapshot) readStored(ctx context.Context, c client.Client) (err error) {
	s.stored, err = local.StoredAt(ctx, c, func(reflection.Handle) bool { return true })
	return err
}

// readPolicies reads how the policies stand. There is nothing of questions that the manager has not told about.
func (s *snapshot) readPolicies(ctx context.Context, c client.Client) error {
	status := &corev1.ConfigMap{}
	if _, err := read(ctx, c, s.scope.system, v1alpha1.PolicyStatus, status); err != nil {
		return err
	}
	s.policies = map[string]policyStanding{}
	for question, text := range status.Data {
		var standing policyStanding
		if err := json.Unmarshal([]byte(text), &standing); err != nil {
			return fmt.Errorf("decode %s in ConfigMap %s: %w", question, status.Name, err)
		}
		s.policies[question] = standing
	}
	return nil
}

// readPodsAway reads the pods on virtual nodes. Those of one namespace are found even by who may not see nodes.
func (s *snapshot) readPodsAway(ctx context.Context, c client.Client) error {
	if s.scope.namespace != "" {
		pods := &corev1.PodList{}
		err := c.List(ctx, pods, client.InNamespace(s.scope.namespace))
		s.podsAway = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !s.isVirtual(p.Spec.NodeName) })
		return err
	}
	for _, node := range s.virtualNodes() {
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return err
		}
		s.podsAway = append(s.podsAway, pods.Items...)
	}
	return nil
}

// err is the first error of the parts, nil if all could be read.
func (s *snapshot) err(parts ...part) error {
	for _, p := range parts {
		if s.errs[p] != nil {
			return s.errs[p]
		}
	}
	return nil
}

// errButHidden is the first error that is not about rights, and hidden names the parts that the user may not see.
func (s *snapshot) errButHidden(parts ...part) (hidden []string, err error) {
	for _, p := range parts {
		switch err := s.errs[p]; {
		case apierrors.IsForbidden(err):
			hidden = append(hidden, string(p))
		case err != nil:
			return nil, err
		}
	}
	return hidden, nil
}

// find returns the first for which it is so, nil if there is none.
func find[T any](items []T, is func(*T) bool) *T {
	for i := range items {
		if is(&items[i]) {
			return &items[i]
		}
	}
	return nil
}

func (s *snapshot) peer(name string) *v1alpha1.Peer {
	return find(s.peers.Items, func(p *v1alpha1.Peer) bool { return p.Name == name })
}

// connection is the tunnel to a peer, nil if there is none.
func (s *snapshot) connection(peer string) *v1alpha1.Connection {
	return find(s.connections.Items, func(c *v1alpha1.Connection) bool { return c.Namespace == v1alpha1.TenantNamespace(peer) })
}

func (s *snapshot) node(name string) *corev1.Node {
	return find(s.nodes.Items, func(n *corev1.Node) bool { return n.Name == name })
}

// isVirtual tells virtual nodes by their names. Who may not see nodes has to believe the prefix.
func (s *snapshot) isVirtual(node string) bool {
	if apierrors.IsForbidden(s.errs[partVirtualNodes]) {
		return strings.HasPrefix(node, v1alpha1.VirtualNodePrefix)
	}
	return slices.Contains(s.virtualNodes(), node)
}

// namesOf are the names of things in order, each once. What has none is left out.
func namesOf[T any](items []T, name func(*T) string) []string {
	var names []string
	for i := range items {
		if found := name(&items[i]); found != "" {
			names = append(names, found)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// virtualNodes names the virtual nodes that are or should be there: a pod may outlive the object of its node.
func (s *snapshot) virtualNodes() []string {
	there := namesOf(s.nodes.Items, func(n *corev1.Node) string { return n.Name })
	expected := namesOf(s.peers.Items, func(p *v1alpha1.Peer) string { return v1alpha1.VirtualNodeName(p.Name) })
	return slices.Compact(slices.Sorted(slices.Values(append(there, expected...))))
}

// podsOn names the pods on a virtual node.
func (s *snapshot) podsOn(node string) []string {
	return namesOf(s.podsAway, func(pod *corev1.Pod) string {
		if pod.Spec.NodeName != node {
			return ""
		}
		return client.ObjectKeyFromObject(pod).String()
	})
}

// namespacesOf names the namespaces of one type that a peer has here, of all peers if none is named.
func (s *snapshot) namespacesOf(kind, peer string) []string {
	return namesOf(s.namespaces.Items, func(ns *corev1.Namespace) string {
		if ns.Labels[v1alpha1.LabelType] != kind || peer != "" && ns.Labels[v1alpha1.LabelPeer] != peer {
			return ""
		}
		return ns.Name
	})
}

// podsOf names the pods that a peer has here.
func (s *snapshot) podsOf(peer string) []string {
	twins := s.namespacesOf(v1alpha1.TypeTwin, peer)
	return namesOf(s.shadowPods.Items, func(pod *v1alpha1.ShadowPod) string {
		if !slices.Contains(twins, pod.Namespace) {
			return ""
		}
		return client.ObjectKeyFromObject(pod).String()
	})
}

// volumesAt names our claims and snapshots whose data is at the peer.
func (s *snapshot) volumesAt(peer string) []string {
	return names(slices.DeleteFunc(slices.Clone(s.stored), func(at local.Stored) bool { return at.At.Peer != peer }))
}

// brokenClaimsOf names the claims of a peer that are not kept here as it asks, with the cause.
func (s *snapshot) brokenClaimsOf(peer string) []string {
	twins := s.namespacesOf(v1alpha1.TypeTwin, peer)
	return namesOf(s.claims.Items, func(claim *v1alpha1.ShadowClaim) string {
		ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
		if !slices.Contains(twins, claim.Namespace) || ready == nil || ready.Message == "" {
			return ""
		}
		return client.ObjectKeyFromObject(claim).String() + " (" + printable(ready.Message) + ")"
	})
}

// reservationsOf says what is reserved here for a peer, of each of its Requests.
func (s *snapshot) reservationsOf(peer string) []string {
	return namesOf(s.requests.Items, func(request *v1alpha1.Request) string {
		if request.Namespace != v1alpha1.TenantNamespace(peer) || len(request.Locked()) == 0 {
			return ""
		}
		return fmt.Sprintf("%s (%s, until %s)", request.Name, amounts(request.Locked()), date(request.Status.ValidUntil))
	})
}

// twinsAt names the namespaces that a peer has for ours, as far as it has told.
func (s *snapshot) twinsAt(peer string) []string {
	return namesOf(s.offloadings.Items, func(o *v1alpha1.NamespaceOffloading) string {
		cluster := clusterOf(o, peer)
		if cluster == nil {
			return ""
		}
		return cluster.Twin
	})
}

// clusterOf is how the offloading of a namespace to a peer stands.
func clusterOf(o *v1alpha1.NamespaceOffloading, peer string) *v1alpha1.ClusterOffloading {
	if o == nil {
		return nil
	}
	return find(o.Status.Clusters, func(c *v1alpha1.ClusterOffloading) bool { return c.Peer == peer })
}

// offloadingsOf are the offloading of a namespace, or of all if none is named.
func (s *snapshot) offloadingsOf(namespace string) []v1alpha1.NamespaceOffloading {
	return slices.DeleteFunc(slices.Clone(s.offloadings.Items), func(o v1alpha1.NamespaceOffloading) bool {
		return namespace != "" && o.Namespace != namespace
	})
}

// table is the exchange table, made of our copies of what the providers advertise. What we offer to a peer lies beside
// its copy, under our own cluster id, and is no row.
func (s *snapshot) table() exchange.Table {
	copies := slices.DeleteFunc(slices.Clone(s.offers.Items), func(offer v1alpha1.Advertisement) bool {
		return !slices.ContainsFunc(s.peers.Items, func(p v1alpha1.Peer) bool {
			return p.HasRole(v1alpha1.RoleProvider) && offer.Namespace == v1alpha1.TenantNamespace(p.Name) && offer.Name == p.Spec.ClusterID
		})
	})
	return exchange.NewTable(copies, s.now).WithLinks(s.peers.Items)
}

// readyOf is the condition Ready, or one that says that there is none.
func readyOf(conditions []metav1.Condition) metav1.Condition {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return *ready
	}
	return metav1.Condition{Reason: v1alpha1.ReasonPending, Message: "Hanse has not looked at it yet"}
}

// unplaced is why no cluster was chosen for the new pods of a namespace, if so.
func unplaced(o *v1alpha1.NamespaceOffloading) string {
	placed := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionPlaced)
	if placed == nil || placed.Status != metav1.ConditionFalse {
		return ""
	}
	return placed.Reason + ": " + placed.Message
}
