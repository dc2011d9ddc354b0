package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// sessionMargin is how long before the end of a session one should know. A session of 30 days is renewed daily.
	sessionMargin = 7 * 24 * time.Hour
	// rangeDelay is how long it may take until a new node has its range.
	rangeDelay = time.Minute
)

// checkVersion checks that this client is of the version that runs.
func (s *snapshot) checkVersion(ours string) finding {
	const name = "versions"
	switch err := s.err(partInfo); {
	case err != nil:
		return topicVersions.unknown(name, err)
	case s.clusterID == "":
		return topicVersions.warning(name, "the manager has not said yet which cluster and version this is",
			"wait until the manager runs, and check again")
	case s.version != ours:
		return topicVersions.warning(name, fmt.Sprintf("this client is %s and the cluster runs %s", ours, s.version),
			"use the client of the version that runs, or upgrade with `kubectl hanse install`")
	default:
		return topicVersions.ok(name, "cluster %s runs %s, as this client", s.clusterID, ours)
	}
}

// checkPolicies checks that all policies of the administrator can be used.
func (s *snapshot) checkPolicies() finding {
	const name = "policies of yours"
	if err := s.err(partPolicies); err != nil {
		return topicModules.unknown(name, err)
	}
	if len(s.policies) == 0 {
		return topicModules.skipped(name, "the manager has not said yet which are in force")
	}
	var broken []string
	for _, b := range brokenPolicies(s.policies) {
		broken = append(broken, b.Name+" ("+b.Message+")")
	}
	if len(broken) > 0 {
		return topicModules.warning(name, "broken: "+some(broken), "repair them: what was good before is in force meanwhile")
	}
	modules := 0
	for _, standing := range s.policies {
		modules += len(standing.Modules)
	}
	return topicModules.ok(name, "%s in force", count(modules, "module"))
}

// checkPeers checks every peer, and what is left of former ones.
func (s *snapshot) checkPeers() []finding {
	var findings []finding
	for i := range s.peers.Items {
		findings = append(findings, s.checkPeer(&s.peers.Items[i])...)
	}
	switch err := s.err(partPeers); {
	case err != nil:
		findings = append(findings, topicPeer.unknown("peers", err))
	case len(findings) == 0:
		findings = append(findings, topicPeer.ok("peers", "there are none"))
	}
	if err := s.err(partNamespaces); err != nil {
		return append(findings, topicTombstone.unknown("tombstones", err))
	}
	for i := range s.namespaces.Items {
		ns := &s.namespaces.Items[i]
		if ns.Labels[v1alpha1.LabelType] == v1alpha1.TypeTombstone {
			findings = append(findings, topicTombstone.warning("namespace "+ns.Name,
				fmt.Sprintf("it keeps the record of a forced unpeering until %s, for the case that the peer comes back",
					orElse(ns.Annotations[v1alpha1.AnnotationExpires], "it expires")),
				"nothing; if the peer never comes back: kubectl delete namespace "+ns.Name))
		}
	}
	return findings
}

// checkPeer checks one peer.
func (s *snapshot) checkPeer(peer *v1alpha1.Peer) []finding {
	if len(peer.Spec.Roles) == 0 {
		return []finding{topicPeer.skipped(peer.Name, "found in the network, and no peer yet")}
	}
	var findings []finding
	for _, condition := range sortedConditions(peer) {
		findings = append(findings, conditionFinding(peer, condition))
	}
	if len(findings) == 0 {
		findings = append(findings, topicPeer.failed(peer.Name, "Hanse has not looked at it yet", "see whether hanse-manager runs"))
	}
	for _, found := range []*finding{s.sessionFinding(peer), s.invitationFinding(peer)} {
		if found != nil {
			findings = append(findings, *found)
		}
	}
	if peer.HasRole(v1alpha1.RoleConsumer) && peer.Access() != v1alpha1.AccessOpen {
		verb := "uncordon"
		if peer.Access() == v1alpha1.AccessSuspended {
			verb = "resume"
		}
		findings = append(findings, topicAccess.warning(peer.Name+": access", "it is "+string(peer.Access()),
			fmt.Sprintf("if that is over: kubectl hanse %s %s", verb, peer.Name)))
	}
	return findings
}

// tolerable are the reasons with which a condition may be False for a while without anything being wrong.
var tolerable = []string{
	v1alpha1.ReasonInvited, v1alpha1.ReasonJoining, v1alpha1.ReasonSessionShortened, v1alpha1.ReasonRenewalFailed,
	v1alpha1.ReasonParting, v1alpha1.ReasonPeerCordoned, v1alpha1.ReasonPeerDraining,
}

func conditionFinding(peer *v1alpha1.Peer, condition metav1.Condition) finding {
	name := peer.Name + ": " + condition.Type
	found := condition.Reason
	if condition.Message != "" {
		found += ": " + condition.Message
	}
	fix := fmt.Sprintf("the message says what to do; all of it: kubectl hanse status %s", peer.Name)
	switch {
	case condition.Status == metav1.ConditionTrue:
		return topicPeer.ok(name, "%s", orElse(condition.Message, condition.Reason))
	case condition.Type == v1alpha1.ConditionConnected, condition.Status == metav1.ConditionUnknown,
		condition.Reason == v1alpha1.ReasonAgentless, condition.Reason == v1alpha1.ReasonNotInvited:
		return topicPeer.skipped(name, found)
	case slices.Contains(tolerable, condition.Reason):
		return topicPeer.warning(name, found, fix)
	default:
		return topicPeer.failed(name, found, fix)
	}
}

// sessionFinding tells when our credentials at the peer end.
func (s *snapshot) sessionFinding(peer *v1alpha1.Peer) *finding {
	if peer.Status.Session == nil || peer.Status.Session.Expires == nil || !peer.HasRole(v1alpha1.RoleProvider) {
		return nil
	}
	name, expires := peer.Name+": session", peer.Status.Session.Expires.Time
	at := expires.UTC().Format(time.RFC3339)
	found := topicSession.ok(name, "our credentials there are good until %s, and renewed by themselves", at)
	switch left := expires.Sub(s.now); {
	case left <= 0:
		found = topicSession.failed(name, "our credentials there ended at "+at,
			"have its administrator run `kubectl hanse invite NAME --renew` there, and join with that")
	case left < sessionMargin:
		found = topicSession.warning(name, "our credentials there end at "+at+" unless they are renewed before",
			fmt.Sprintf("see condition Session: kubectl hanse status %s", peer.Name))
	}
	return &found
}

// invitationFinding tells of an invitation that waits to be used.
func (s *snapshot) invitationFinding(peer *v1alpha1.Peer) *finding {
	status := peer.Status.Invitation
	if status == nil || status.Expires == nil || meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined) {
		return nil
	}
	name, at := peer.Name+": invitation", status.Expires.UTC().Format(time.RFC3339)
	found := topicInvitation.warning(name, "it waits to be used until "+at, "have its administrator join, or unpeer it")
	if !status.Expires.After(s.now) {
		found = topicInvitation.failed(name, "it ended unused at "+at,
			fmt.Sprintf("kubectl hanse invite %s --renew, or kubectl hanse unpeer %s", peer.Name, peer.Name))
	}
	return &found
}

// checkNodes checks the virtual nodes.
func (s *snapshot) checkNodes() []finding {
	if err := s.err(partNodes); err != nil {
		return []finding{topicNode.unknown("virtual nodes", err)}
	}
	var findings []finding
	for i := range s.nodes.Items {
		if isVirtualNode(&s.nodes.Items[i]) {
			findings = append(findings, nodeFinding(&s.nodes.Items[i]))
		}
	}
	if len(findings) == 0 {
		findings = append(findings, topicNode.ok("virtual nodes", "there are none"))
	}
	return findings
}

func isVirtualNode(node *corev1.Node) bool {
	return node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
}

// checkNodeOf checks the virtual node of one peer.
func (s *snapshot) checkNodeOf(peer *v1alpha1.Peer) []finding {
	name := v1alpha1.VirtualNodeName(peer.Name)
	node := s.node(name)
	switch err := s.err(partVirtualNodes); {
	case !peer.HasRole(v1alpha1.RoleProvider):
		return nil
	case err != nil:
		return []finding{topicNode.unknown("Node "+name, err)}
	case node == nil:
		return []finding{topicNode.warning("Node "+name, "there is none", "it comes with the peer's first accepted offer: see condition Advertised")}
	default:
		return []finding{nodeFinding(node)}
	}
}

func nodeFinding(node *corev1.Node) finding {
	name := "Node " + node.Name
	withdrawn := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintWithdrawn })
	switch {
	case !isNodeReady(node):
		return topicNode.failed(name, "it is not ready", "see the conditions of its Peer, and whether hanse-kubelet runs")
	case withdrawn:
		return topicNode.warning(name, "it takes no more pods, since its offer has ended or was withdrawn", "see the conditions of its Peer")
	default:
		return topicNode.ok(name, "ready")
	}
}

// checkDaemonSets looks for those that would have a pod for every virtual node, where it cannot run. A policy keeps new
// ones away; one that is older than the installation is changed by the policy with its next update.
func (s *snapshot) checkDaemonSets() finding {
	const name = "DaemonSets"
	if err := s.err(partDaemonSets); err != nil {
		return topicDaemonSets.unknown(name, err)
	}
	var found []string
	for i := range s.daemonSets.Items {
		if comesToVirtualNodes(&s.daemonSets.Items[i]) {
			found = append(found, client.ObjectKeyFromObject(&s.daemonSets.Items[i]).String())
		}
	}
	if len(found) == 0 {
		return topicDaemonSets.ok(name, "none comes to virtual nodes unasked")
	}
	slices.Sort(found)
	return topicDaemonSets.warning(name, "they tolerate every taint, and come to virtual nodes: "+some(found),
		"kubectl rollout restart daemonset -n NAMESPACE NAME, by which the policy of Hanse keeps them away")
}

func comesToVirtualNodes(set *appsv1.DaemonSet) bool {
	if set.Annotations[v1alpha1.AnnotationAllowOnVirtualNodes] == "true" {
		return false // somebody wants that
	}
	pod := &set.Spec.Template.Spec
	if _, chosen := pod.NodeSelector[v1alpha1.LabelType]; chosen {
		return false
	}
	return toleratesVirtualNodes(pod) && !avoidsVirtualNodes(pod)
}

func toleratesVirtualNodes(pod *corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		everyKey := t.Key == "" && t.Operator == corev1.TolerationOpExists
		return (everyKey || t.Key == v1alpha1.TaintVirtualNode) && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	})
}

// avoidsVirtualNodes reports whether the affinity keeps the pod away: every term must, since one is enough to get in.
func avoidsVirtualNodes(pod *corev1.PodSpec) bool {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil ||
		pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return !slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == v1alpha1.LabelType && (e.Operator == corev1.NodeSelectorOpDoesNotExist ||
				e.Operator == corev1.NodeSelectorOpNotIn && slices.Contains(e.Values, v1alpha1.TypeVirtualNode))
		})
	})
}

// checkOffloadings checks that the namespaces that users offload are.
func (s *snapshot) checkOffloadings() []finding {
	const name = "offloaded namespaces"
	if err := s.err(partOffloadings); err != nil {
		return []finding{topicOffloading.unknown(name, err)}
	}
	var findings []finding
	for i := range s.offloadings.Items {
		if found := offloadingFinding(&s.offloadings.Items[i]); found != nil {
			findings = append(findings, *found)
		}
	}
	switch all, ready := len(s.offloadings.Items), len(s.offloadings.Items)-len(findings); {
	case all == 0:
		findings = append(findings, topicOffloading.ok(name, "there are none"))
	case ready > 0:
		findings = slices.Insert(findings, 0, topicOffloading.ok(name, "ready: %d of %d", ready, all))
	}
	return findings
}

// offloadingFinding tells of one that is not ready, or that finds no cluster for its pods. What a user has asked for and
// cannot have is no failure of the cluster's.
func offloadingFinding(offloading *v1alpha1.NamespaceOffloading) *finding {
	name := "namespace " + offloading.Namespace
	ready := readyOf(offloading.Status.Conditions)
	var found finding
	switch {
	case ready.Status != metav1.ConditionTrue:
		found = topicOffloading.warning(name, ready.Reason+": "+ready.Message, "kubectl hanse status shows how each peer stands")
	case unplaced(offloading) != "":
		found = topicOffloading.warning(name, unplaced(offloading), "kubectl hanse policy explain placement "+offloading.Namespace)
	default:
		return nil
	}
	return &found
}

// checkRanges checks that Kubernetes still has a range of pod addresses for each node: a virtual one takes one as well.
func (s *snapshot) checkRanges() finding {
	const name = "pod ranges of nodes"
	if err := s.err(partNodes); err != nil {
		return topicRanges.unknown(name, err)
	}
	taken, virtual := 0, 0
	var without []string
	for i := range s.nodes.Items {
		node := &s.nodes.Items[i]
		switch {
		case node.Spec.PodCIDR != "" && isVirtualNode(node):
			virtual++
			taken++
		case node.Spec.PodCIDR != "":
			taken++
		case s.now.Sub(node.CreationTimestamp.Time) > rangeDelay:
			without = append(without, node.Name)
		}
	}
	switch {
	case taken == 0:
		return topicRanges.skipped(name, "Kubernetes gives nodes no ranges here: the network plugin does that")
	case len(without) > 0:
		return topicRanges.failed(name, "these have none, so the cluster's range is used up: "+some(without),
			"unpeer clusters, or give kube-controller-manager a larger --cluster-cidr or a longer --node-cidr-mask-size")
	default:
		return topicRanges.ok(name, "%s, of which virtual nodes take %d", count(taken, "range"), virtual)
	}
}

// flagOf is the value of a flag of one of the pod's containers.
func flagOf(pod *corev1.PodSpec, flag string) string {
	for i := range pod.Containers {
		words := slices.Concat(pod.Containers[i].Command, pod.Containers[i].Args)
		for j, word := range words {
			if value, found := strings.CutPrefix(word, flag+"="); found {
				return value
			}
			if word == flag && j+1 < len(words) {
				return words[j+1]
			}
		}
	}
	return ""
}
