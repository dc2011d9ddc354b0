// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/install"
)

const (
	// sessionMargin is how long before the end of a session one should know. A session of 30 days is renewed daily.
	sessionMargin = 7 * 24 * time.Hour
	// crashMemory is for how long a container that ended counts as one that crashes.
	crashMemory = 10 * time.Minute
	// rangeDelay is how long it may take until a new node has its range.
	rangeDelay = time.Minute
)

// checkVersion checks that this client is of the version that runs.
func (s *snapshot) checkVersion(about subject, ours string) []finding {
	switch {
	case s.clusterID == "":
		return about.warning("the manager has not said yet which cluster and version this is", "wait until the manager runs, and check again")
	case s.version != ours:
		return about.warning(fmt.Sprintf("this client is %s and the cluster runs %s", ours, s.version),
			"use the client of the version that runs, or upgrade with `kubectl hanse install`")
	default:
		return about.ok("cluster %s runs %s, as this client", s.clusterID, ours)
	}
}

// checkPolicies checks that all policies of the administrator can be used.
func (s *snapshot) checkPolicies(about subject) []finding {
	if len(s.policies) == 0 {
		return about.skipped("the manager has not said yet which are in force")
	}
	broken := namesOf(brokenPolicies(s.policies), func(b *brokenPolicy) string { return b.Name + " (" + b.Message + ")" })
	if len(broken) > 0 {
		return about.warning("broken: "+some(broken), "repair them: what was good before is in force meanwhile")
	}
	modules := 0
	for _, standing := range s.policies {
		modules += len(standing.Modules)
	}
	return about.ok("%s in force", count(modules, "module"))
}

// each looks at one thing after the other.
func each[T any](items []T, look func(*T) []finding) []finding {
	var findings []finding
	for i := range items {
		findings = append(findings, look(&items[i])...)
	}
	return findings
}

// checkTombstone tells of a namespace that is left of a former peer.
func checkTombstone(ns *corev1.Namespace) []finding {
	if ns.Labels[v1alpha1.LabelType] != v1alpha1.TypeTombstone {
		return nil
	}
	return subject{topicTombstone, "namespace " + ns.Name}.warning(
		fmt.Sprintf("it keeps the record of a forced unpeering until %s, for the case that the peer comes back",
			orElse(ns.Annotations[v1alpha1.AnnotationExpires], "it expires")),
		"nothing; if the peer never comes back: kubectl delete namespace "+ns.Name)
}

// checkPeer checks one peer.
func (s *snapshot) checkPeer(peer *v1alpha1.Peer) []finding {
	about := func(t topic, what string) subject { return subject{t, peer.Name + what} }
	if len(peer.Spec.Roles) == 0 {
		return about(topicPeer, "").skipped("found in the network, and no peer yet")
	}
	var findings []finding
	for _, condition := range sortedConditions(peer) {
		findings = append(findings, checkCondition(about(topicPeer, ": "+condition.Type), peer, condition)...)
	}
	if len(findings) == 0 {
		findings = about(topicPeer, "").failed("Hanse has not looked at it yet", "see whether hanse-manager runs")
	}
	findings = slices.Concat(findings, s.checkSession(about(topicSession, ": session"), peer),
		s.checkInvitation(about(topicInvitation, ": invitation"), peer))
	if peer.HasRole(v1alpha1.RoleConsumer) && peer.Access() != v1alpha1.AccessOpen {
		verb := "uncordon"
		if peer.Access() == v1alpha1.AccessSuspended {
			verb = "resume"
		}
		findings = append(findings, about(topicAccess, ": access").warning("it is "+string(peer.Access()),
			fmt.Sprintf("if that is over: kubectl hanse %s %s", verb, peer.Name))...)
	}
	return findings
}

// tolerable are the reasons with which a condition may be False for a while without anything being wrong.
var tolerable = []string{
	v1alpha1.ReasonInvited, v1alpha1.ReasonJoining, v1alpha1.ReasonSessionShortened, v1alpha1.ReasonRenewalFailed,
	v1alpha1.ReasonParting, v1alpha1.ReasonPeerCordoned, v1alpha1.ReasonPeerDraining,
}

func checkCondition(about subject, peer *v1alpha1.Peer, condition metav1.Condition) []finding {
	found := strings.TrimSuffix(condition.Reason+": "+condition.Message, ": ")
	fix := "the message says what to do; all of it: kubectl hanse status " + peer.Name
	switch {
	case condition.Status == metav1.ConditionTrue && slices.Contains(refusals, condition.Reason):
		return about.warning(found, fix) // a session stands, beside an invitation that was not used
	case condition.Status == metav1.ConditionTrue:
		return about.ok("%s", orElse(condition.Message, condition.Reason))
	case condition.Type == v1alpha1.ConditionConnected && !v1alpha1.WantsNetwork(condition.Reason), condition.Status == metav1.ConditionUnknown,
		condition.Reason == v1alpha1.ReasonAgentless, condition.Reason == v1alpha1.ReasonNotInvited:
		return about.skipped(found)
	case slices.Contains(tolerable, condition.Reason):
		return about.warning(found, fix)
	default:
		return about.failed(found, fix)
	}
}

// checkSession tells when our credentials at the peer end.
func (s *snapshot) checkSession(about subject, peer *v1alpha1.Peer) []finding {
	session := peer.Status.Session
	if session == nil || session.Expires == nil || !peer.HasRole(v1alpha1.RoleProvider) {
		return nil
	}
	at := session.Expires.UTC().Format(time.RFC3339)
	switch left := session.Expires.Sub(s.now); {
	case left <= 0:
		return about.failed("our credentials there ended at "+at,
			"have its administrator run `kubectl hanse invite NAME --renew` there, and join with that")
	case left < sessionMargin:
		return about.warning("our credentials there end at "+at+" unless they are renewed before", "see condition Session: kubectl hanse status "+peer.Name)
	default:
		return about.ok("our credentials there are good until %s, and renewed by themselves", at)
	}
}

// checkInvitation tells of an invitation that waits to be used.
func (s *snapshot) checkInvitation(about subject, peer *v1alpha1.Peer) []finding {
	invitation := peer.Status.Invitation
	if invitation == nil || invitation.Expires == nil || meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined) {
		return nil
	}
	at := invitation.Expires.UTC().Format(time.RFC3339)
	if invitation.Expires.After(s.now) {
		return about.warning("it waits to be used until "+at, "have its administrator join, or unpeer it")
	}
	return about.failed("it ended unused at "+at, fmt.Sprintf("kubectl hanse invite %s --renew, or kubectl hanse unpeer %s", peer.Name, peer.Name))
}

func isVirtualNode(node *corev1.Node) bool {
	return node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
}

// checkNodeOf checks the virtual node of one peer.
func (s *snapshot) checkNodeOf(peer *v1alpha1.Peer) []finding {
	about := subject{topicNode, "Node " + v1alpha1.VirtualNodeName(peer.Name)}
	node := s.node(v1alpha1.VirtualNodeName(peer.Name))
	switch err := s.err(partVirtualNodes); {
	case !peer.HasRole(v1alpha1.RoleProvider):
		return nil
	case err != nil:
		return about.unknown(err)
	case node == nil:
		return about.warning("there is none", "it comes with the peer's first accepted offer: see condition Advertised")
	default:
		return s.checkNode(node)
	}
}

// checkNode checks a node, if it is virtual. That it takes no pods is no failure: somebody may want that.
func (s *snapshot) checkNode(node *corev1.Node) []finding {
	about := subject{topicNode, "Node " + node.Name}
	closed := s.nodeFactsOf(node.Name).closed()
	switch {
	case !isVirtualNode(node):
		return nil
	case closed == nil && refusal(node) != "":
		return about.warning(refusal(node), "kubectl hanse explain pod NAME says what helps")
	case closed == nil:
		return about.ok("ready")
	case !exchange.IsReady(node):
		return about.failed("it is not ready: "+closed.Message, "see the conditions of its Peer, and whether hanse-kubelet runs")
	default:
		return about.warning("it takes no new pods: "+closed.Message, closed.Fix)
	}
}

// refusal is what the node says of pods that its peer refuses, if there are any.
func refusal(node *corev1.Node) string {
	says := find(node.Status.Conditions, func(c *corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeRefusesPods && c.Status == corev1.ConditionTrue
	})
	if says == nil {
		return ""
	}
	return says.Message
}

// checkServices looks for those that reach only some of their pods, or none, because no network leads to the others.
func (s *snapshot) checkServices(about subject) []finding {
	found := namesOf(s.services.Items, func(service *corev1.Service) string {
		if !slices.ContainsFunc(s.podsAway, func(pod corev1.Pod) bool { return s.isOutOfReach(service, &pod) }) {
			return ""
		}
		return client.ObjectKeyFromObject(service).String()
	})
	if len(found) == 0 {
		return about.ok("none has pods that no network leads to")
	}
	return about.warning("pods of theirs that run at peers are no endpoints, since no network connects the clusters: "+some(found),
		"have what serves traffic run at home, such as by kubectl hanse unoffload NAMESPACE --evict, or use kubectl port-forward")
}

// isOutOfReach says whether the pod, which is away, would be an endpoint of the Service if there was a network.
func (s *snapshot) isOutOfReach(service *corev1.Service, pod *corev1.Pod) bool {
	selector := labels.Set(service.Spec.Selector)
	return len(selector) > 0 && service.Namespace == pod.Namespace && selector.AsSelector().Matches(labels.Set(pod.Labels)) &&
		pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(s.peers.Items, func(peer v1alpha1.Peer) bool {
		return v1alpha1.VirtualNodeName(peer.Name) == pod.Spec.NodeName && !peer.HasNetwork()
	})
}

// checkDaemonSets looks for those that would have a pod for every virtual node, where it cannot run. A policy keeps new
// ones away; one that is older than the installation is changed by the policy with its next update.
func (s *snapshot) checkDaemonSets(about subject) []finding {
	found := namesOf(s.daemonSets.Items, func(set *appsv1.DaemonSet) string {
		if !comesToVirtualNodes(set) {
			return ""
		}
		return client.ObjectKeyFromObject(set).String()
	})
	if len(found) == 0 {
		return about.ok("none comes to virtual nodes unasked")
	}
	return about.warning("they tolerate every taint, and come to virtual nodes: "+some(found),
		"kubectl rollout restart daemonset -n NAMESPACE NAME, by which the policy of Hanse keeps them away")
}

func comesToVirtualNodes(set *appsv1.DaemonSet) bool {
	pod := &set.Spec.Template.Spec
	_, chosen := pod.NodeSelector[v1alpha1.LabelType]
	if chosen || set.Annotations[v1alpha1.AnnotationAllowOnVirtualNodes] == "true" {
		return false // somebody wants that
	}
	taint := &corev1.Taint{Key: v1alpha1.TaintVirtualNode, Value: "true", Effect: corev1.TaintEffectNoSchedule}
	tolerates := slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), taint, false) })
	return tolerates && !avoidsVirtualNodes(pod)
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

// checkOffloadings checks that the namespaces that users offload are, or one of them.
func (s *snapshot) checkOffloadings(about subject, namespace string) []finding {
	offloadings := s.offloadingsOf(namespace)
	if namespace != "" && len(offloadings) == 0 {
		return about.skipped("namespace " + namespace + " is not offloaded")
	}
	findings := each(offloadings, checkOffloading)
	if all := len(offloadings); all > len(findings) {
		return append(about.ok("ready: %d of %d", all-len(findings), all), findings...)
	}
	return findings
}

// checkOffloading tells of one that is not ready, or that finds no cluster for its pods. What a user has asked for and
// cannot have is no failure of the cluster's.
func checkOffloading(offloading *v1alpha1.NamespaceOffloading) []finding {
	problems := offloadingProblems(offloading)
	if len(problems) == 0 {
		return nil
	}
	return subject{topicOffloading, "namespace " + offloading.Namespace}.warning(problems[0].Reason+": "+problems[0].Message, problems[0].Fix)
}

// checkRanges checks that Kubernetes still has a range of pod addresses for each node: a virtual one takes one as well.
func (s *snapshot) checkRanges(about subject) []finding {
	taken, virtual := 0, 0
	var without []string
	for i := range s.nodes.Items {
		node := &s.nodes.Items[i]
		switch {
		case node.Spec.PodCIDR == "" && s.now.Sub(node.CreationTimestamp.Time) > rangeDelay:
			without = append(without, node.Name)
		case node.Spec.PodCIDR != "":
			taken++
			if isVirtualNode(node) {
				virtual++
			}
		}
	}
	switch {
	case taken == 0:
		return about.skipped("Kubernetes gives nodes no ranges here: the network plugin does that")
	case len(without) > 0:
		return about.failed("these have none, so the cluster's range is used up: "+some(without),
			"unpeer clusters, or give kube-controller-manager a larger --cluster-cidr or a longer --node-cidr-mask-size")
	default:
		return about.ok("%s, of which virtual nodes take %d", count(taken, "range"), virtual)
	}
}

// flagOf is the value of a flag of one of the pod's containers.
func flagOf(pod *corev1.PodSpec, flag string) string {
	for i := range pod.Containers {
		line := strings.Join(slices.Concat(pod.Containers[i].Command, pod.Containers[i].Args), " ")
		words := strings.Fields(strings.ReplaceAll(line, "=", " "))
		if at := slices.Index(words, flag); at >= 0 && at+1 < len(words) {
			return words[at+1]
		}
	}
	return ""
}

const (
	reinstall = "run `kubectl hanse install` again, with the same flags as before: it repairs what differs"

	kubeletDeployment = "hanse-kubelet"
	certificateFlag   = "--tls-cert-file"
	authorityFlag     = "--kubelet-certificate-authority"
)

// checkDeployments checks that Hanse's own pods run.
func (s *snapshot) checkDeployments(about subject) []finding {
	if len(s.deployments.Items) == 0 {
		return about.failed("there are none in namespace "+s.scope.system, reinstall)
	}
	if _, err := s.errButHidden(partOwnPods); err != nil {
		return about.unknown(err)
	}
	return each(s.deployments.Items, s.checkDeployment)
}

func (s *snapshot) checkDeployment(d *appsv1.Deployment) []finding {
	about, want := subject{topicDeployments, "Deployment " + d.Name}, ptr.Deref(d.Spec.Replicas, 1)
	found := fmt.Sprintf("%d of %d replicas are available", d.Status.AvailableReplicas, want)
	troubles := install.Troubles(d, s.ownPods.Items, s.now.Add(-crashMemory))
	switch {
	case want == 0:
		return about.failed("it is scaled to 0", fmt.Sprintf("kubectl scale deployment %s -n %s --replicas=1", d.Name, d.Namespace))
	case len(troubles) > 0:
		return about.failed(found+"; "+list(troubles, 3),
			fmt.Sprintf("see `kubectl logs -n %s deploy/%s`; values of the chart are changed by `kubectl hanse install --set`", d.Namespace, d.Name))
	case d.Status.AvailableReplicas == 0:
		return about.failed(found, fmt.Sprintf("see `kubectl describe pods -n %s`", d.Namespace))
	case !install.RolledOut(d):
		return about.warning(found+", and some may be of an older version", "wait, and check again")
	default:
		return about.ok("%s", found)
	}
}

// certificate checks that the API server takes the serving certificate of the kubelet API: else logs and exec fail for all
// pods on virtual nodes, and nothing else does.
func (c *checker) certificate(ctx context.Context, about subject, s *snapshot) []finding {
	kubelet := find(s.deployments.Items, func(d *appsv1.Deployment) bool { return d.Name == kubeletDeployment })
	if kubelet == nil {
		return about.skipped("see Deployments")
	}
	mounted := flagOf(&kubelet.Spec.Template.Spec, certificateFlag)
	found := "self-signed by hanse-kubelet, which is enough unless the API server verifies kubelets"
	if mounted != "" {
		found = "mounted, at " + mounted
	}
	const fix = "put a certificate that the authority of the API server's " + authorityFlag + " has signed for the address of the " +
		"kubelet's pod into a Secret, and run `kubectl hanse install --set kubelet.servingCertificate.secretName=NAME`"
	node, err := find(s.nodes.Items, func(n *corev1.Node) bool { return isVirtualNode(n) && exchange.IsReady(n) }), error(nil)
	if node != nil {
		err = c.reach(ctx, node.Name)
	}
	switch {
	case node == nil && mounted == "" && s.verifiesKubelets():
		return about.failed(found+"; this API server does ("+authorityFlag+")", fix)
	case node == nil:
		return about.ok("%s. There is no virtual node yet to try it with", found)
	case err == nil:
		return about.ok("%s, and the API server takes it", found)
	case isDistrust(err):
		return about.failed(fmt.Sprintf("%s; the API server does not take it, so kubectl logs and exec fail: %s", found, err), fix)
	case apierrors.IsForbidden(err):
		return about.ok("%s. Your rights do not suffice to try whether the API server takes it", found)
	default:
		return about.warning(fmt.Sprintf("%s; the API server does not reach the kubelet API of %s: %s", found, node.Name, err),
			"see whether hanse-kubelet runs, and whether the API server reaches its pod")
	}
}

// verifiesKubelets reports whether an API server that runs as a pod here was told to verify kubelets. Others are not seen.
func (s *snapshot) verifiesKubelets() bool {
	return slices.ContainsFunc(s.apiServers.Items, func(p corev1.Pod) bool { return flagOf(&p.Spec, authorityFlag) != "" })
}

// isDistrust reports whether the API server has reached the kubelet API and refused its certificate. It says so in text
// alone.
func isDistrust(err error) bool {
	return strings.Contains(err.Error(), "x509:") || strings.Contains(err.Error(), "failed to verify certificate")
}

// through asks the kubelet API of a node through the API server. Whatever the kubelet API itself answers, it was reached.
func through(api rest.Interface) func(ctx context.Context, node string) error {
	return func(ctx context.Context, node string) error {
		err := api.Get().AbsPath("/api/v1/nodes", node, "proxy", "healthz").Do(ctx).Error()
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return nil
		}
		if cause, found := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); found {
			return fmt.Errorf("%w: %s", err, cause.Message) // what went wrong between the two is in the text of the answer
		}
		return err
	}
}
