// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// podProblem is something that is wrong with a pod, and what to do about it.
type podProblem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	Link    string `json:"link,omitempty"`
}

// Pages that say more.
const (
	linkPending    = troubleshooting + "#a-pod-stays-pending"
	linkNode       = troubleshooting + "#a-virtual-node-is-not-ready"
	linkDisconnect = "docs/explanation/placement.md#when-a-provider-is-cut-off"
	linkReasons    = "docs/reference/conditions.md#reasons"
	linkOffload    = "docs/how-to/offload-a-namespace.md"
	linkGone       = troubleshooting + "#a-namespace-or-peer-does-not-go-away"
	linkPlace      = "docs/how-to/place-pods.md"
	linkPeer       = troubleshooting + "#a-peer-is-not-ready"
	linkServices   = "docs/how-to/connect-networks.md"
	linkTokens     = "docs/how-to/service-accounts-of-remote-pods.md" //nolint:gosec // no credential but a page
	linkNobody     = "docs/explanation/placement.md#a-pod-on-a-virtual-node-that-nobody-offloads"
)

func (p *podProblem) err() error { return fmt.Errorf("%s: %s", p.Reason, printable(p.Message)) }

func problem(reason, message, fix, link string) []podProblem {
	return []podProblem{{Reason: reason, Message: message, Fix: fix, Link: link}}
}

// podSight is what one cause looks at.
type podSight struct {
	podFacts

	where podPlace
	told  []podProblem // what causes before it have found
}

// podCauses are all that can be wrong with a pod, in the order in which it is told: what explains the others comes first. Each
// looks at the facts alone. As long as a pod does not serve, one of them applies.
var podCauses = []func(podSight) []podProblem{
	blindCause,
	deletionCause,
	// Of a pod without a node.
	gateCause,
	closedNodesCause,
	fullNodesCause,
	staleCause,
	offloadingCause,
	unscheduledCause,
	// Of a pod on a virtual node.
	twinCause,
	// Of any pod.
	statusCause,
	containersCause,
	memoryCause,
	conditionsCause,
	tokenCause,
	serviceCause,
	relatedCause,
	warningsCause,
	silentCause,
}

// problemsOf are what is wrong, what explains the others first. There is nothing exactly if the pod is ready and stays, or has
// succeeded, and nothing complains.
func problemsOf(f podFacts, where podPlace) []podProblem {
	seen := podSight{podFacts: f, where: where}
	for _, cause := range podCauses {
		seen.told = append(seen.told, cause(seen)...)
	}
	return seen.told
}

// serves reports whether the pod does what it is for, or has done it.
func (f podFacts) serves() bool {
	return f.pod.Status.Phase == corev1.PodSucceeded || isPodReady(f.pod) && f.pod.DeletionTimestamp.IsZero()
}

// leaves reports whether new pods of the namespace may go to virtual nodes, this one among them.
func (f podFacts) leaves() bool {
	_, kept := offload.KeptHome(f.pod)
	return f.offloading != nil && f.offloading.Spec.Strategy != v1alpha1.StrategyLocal && !kept
}

// command is a command of kubectl about the pod.
func (f podFacts) command(verb string) string {
	return fmt.Sprintf("kubectl %s -n %s %s", verb, f.pod.Namespace, f.pod.Name)
}

// deletionCause tells of a pod that is to go.
func deletionCause(s podSight) []podProblem {
	deleted := s.pod.DeletionTimestamp
	if deleted.IsZero() {
		return nil
	}
	fix := "It goes when its containers have ended"
	switch {
	case len(s.pod.Finalizers) > 0:
		fix = "Finalizers hold it: " + some(s.pod.Finalizers)
	case s.where.Kind == placeVirtual:
		fix = "It goes when its remote pod has gone: see whether the peer answers"
	}
	if left := deleted.Sub(s.now); left > 0 {
		return problem("Terminating", "It is being deleted, and may take "+duration.HumanDuration(left)+" more", fix, linkGone)
	}
	return problem("Deleting", fmt.Sprintf("It should have gone %s ago", duration.HumanDuration(s.now.Sub(deleted.Time))), fix, linkGone)
}

// blindCause tells why nobody knows how the pod is.
func blindCause(s podSight) []podProblem {
	if s.where.Kind != placeVirtual || hasEnded(s.pod) {
		return nil
	}
	blind := s.nodeFactsOf(s.where.Node).blind()
	if blind == nil {
		return nil
	}
	fix, link := blind.Fix, blind.Link
	if blind.Reason == v1alpha1.ReasonDisconnected {
		fix = fmt.Sprintf("kubectl hanse check --peer %s says what is wrong", s.where.Peer)
		if s.offloading != nil {
			link = linkDisconnect
			fix += onDisconnect[s.offloading.Spec.OnDisconnect == v1alpha1.DisconnectionReplace]
		}
	}
	return problem(blind.Reason, fmt.Sprintf("Node %s: %s. So nobody knows how the pod is; it goes on running there", s.where.Node, blind.Message), fix, link)
}

// onDisconnect is what becomes of the pod, by whether it is replaced.
var onDisconnect = map[bool]string{
	true:  "; after a while another takes its place (onDisconnect is Replace)",
	false: "; it stays for as long as it takes (onDisconnect is Wait)",
}

// twinCause tells of a peer that has no namespace for the pod. A pod that serves has one.
func twinCause(s podSight) []podProblem {
	cluster := clusterOf(s.offloading, s.where.Peer)
	switch {
	case s.where.Kind != placeVirtual, isPodReady(s.pod), hasEnded(s.pod), s.errs[partOffloadings] != nil:
		return nil
	case s.offloading == nil && v1alpha1.IsSystemNamespace(s.pod.Namespace, s.scope.system):
		return problem("NotOffloaded", "It is on a virtual node, and its namespace cannot be offloaded: it is one of Kubernetes or of Hanse",
			"Delete it, and have such pods in a namespace of their own", linkNobody)
	case s.offloading == nil:
		return problem("NotOffloaded", "It is on a virtual node, and its namespace is not offloaded: new pods stay at home",
			"If it waits there, delete it, or run: kubectl hanse offload "+s.pod.Namespace, linkNobody)
	case cluster == nil || cluster.State == v1alpha1.ClusterReady:
		return nil
	default:
		return problem(cluster.State, fmt.Sprintf("Peer %s has no namespace for it as it is wanted: %s", s.where.Peer, cluster.Message),
			"kubectl hanse status "+s.where.Peer, linkOffload)
	}
}

// fixes say what to do about a reason in the status of a pod.
var fixes = map[string]string{
	v1alpha1.ReasonOffloadingBackOff: "The message says what is missing. The pod goes on once that is there",
	v1alpha1.ReasonNoRoom:            "Wait: another node gets it after spec.placementTimeout of the NamespaceOffloading, if a controller made it. Or ask for less",
	v1alpha1.ReasonScalingUp:         "Wait: the provider makes room. Another node gets the pod after spec.scaleUpTimeout of the NamespaceOffloading",
	v1alpha1.ReasonPlacementTimeout:  "Its controller has made another one. Nothing is to do",
	v1alpha1.ReasonDisconnected:      "The pod goes on running there: wait, and see the conditions of the Peer",
	v1alpha1.ReasonPodRefused:        "The message says what the provider's API server refuses (policy, quota, Pod Security)",
	v1alpha1.ReasonRefusedByProvider: "Change what the message names, or ask the provider's administrator",
	v1alpha1.ReasonPodInvalid:        "The provider does not build such pods: see what cannot leave",
}

// statusCause tells what the pod's own status complains of.
func statusCause(s podSight) []podProblem {
	status, link := &s.pod.Status, linkReasons
	is := func(reason string) bool {
		return slices.ContainsFunc(s.told, func(p podProblem) bool { return p.Reason == reason })
	}
	fix := fixes[status.Reason]
	switch {
	case status.Reason == "" && status.Phase != corev1.PodFailed:
		return nil
	case status.Reason == v1alpha1.ReasonDisconnected && is(status.Reason):
		return nil // told of the node, and more
	case status.Reason == v1alpha1.ReasonOffloadingBackOff && is(v1alpha1.ClusterRefused):
		fix = "Not before the peer takes the namespace, as said above"
	case s.where.Kind != placeVirtual:
		link = linkPending
	}
	return problem(orElse(status.Reason, string(status.Phase)), orElse(status.Message, "The pod has failed"), fix, link)
}

// harmless are reasons with which a container waits while all is well.
var harmless = []string{"", "ContainerCreating", "PodInitializing"}

// containersCause tells of containers that do not come up, or end badly.
func containersCause(s podSight) []podProblem {
	var found []podProblem
	for _, c := range slices.Concat(s.pod.Status.InitContainerStatuses, s.pod.Status.ContainerStatuses) {
		logs := s.command("logs") + " -c " + c.Name
		switch waiting, ended := c.State.Waiting, c.State.Terminated; {
		case waiting != nil && (slices.Contains(harmless, waiting.Reason) || waiting.Reason == s.pod.Status.Reason): // told of the pod as a whole
		case waiting != nil:
			fix := s.command("describe pod")
			if c.RestartCount > 0 {
				fix = logs + " --previous"
			}
			found = append(found, problem(waiting.Reason, fmt.Sprintf("Container %s: %s", c.Name, orElse(waiting.Message, "it waits")), fix, linkPending)...)
		case ended != nil && ended.ExitCode != 0:
			found = append(found, problem(orElse(ended.Reason, "Error"), fmt.Sprintf("Container %s ended with exit code %d", c.Name, ended.ExitCode), logs, "")...)
		}
	}
	return found
}

// memoryCause tells of containers that were ended since they took too much memory, and run again.
func memoryCause(s podSight) []podProblem {
	var found []podProblem
	for _, c := range s.pod.Status.ContainerStatuses {
		last := c.LastTerminationState.Terminated
		if last != nil && last.Reason == outOfMemory && (!s.serves() || s.now.Sub(last.FinishedAt.Time) < recently) {
			found = append(found, problem(outOfMemory, "Container "+c.Name+" was ended since it took more memory than it may, and was started again",
				"Raise its memory limit, or have it take less", "")...)
		}
	}
	return found
}

// conditionsCause tells of conditions that Hanse puts on pods, unless the status as a whole says the same. Whether the missing
// token matters is tokenCause's.
func conditionsCause(s podSight) []podProblem {
	var found []podProblem
	for _, c := range s.pod.Status.Conditions {
		ours := strings.HasPrefix(string(c.Type), v1alpha1.GroupVersion.Group+"/") && c.Type != v1alpha1.PodToken // which tokenCause knows
		if ours && c.Status == corev1.ConditionFalse && c.Reason != s.pod.Status.Reason {
			found = append(found, podProblem{Reason: c.Reason, Message: c.Message, Link: linkReasons})
		}
	}
	return found
}

// tokenCause tells of a pod that has no token of its service account, and asks for one. Nearly all pods get a token that they do
// not use: those that only have the default are told if they do not serve.
func tokenCause(s podSight) []podProblem {
	spec := &s.pod.Spec
	said := offload.PodCondition(&s.pod.Status, v1alpha1.PodToken)
	if said != nil && said.Reason == v1alpha1.ReasonTokenRefused {
		return problem(said.Reason, said.Message, "Follow what the event says: "+s.command("describe pod"), linkTokens)
	}
	lacks := said != nil && said.Status == corev1.ConditionFalse || offload.LeavesToken(s.pod) && !s.connected()
	if s.where.Kind != placeVirtual || hasEnded(s.pod) || !lacks || s.serves() && !asksForToken(spec) {
		return nil
	}
	cause, remedy := "no network connected the clusters", "connect the networks of both clusters and have it made anew, or "
	if s.connected() {
		cause, remedy = cause+" when it went out", "delete it, so that it is made anew, or "
	}
	return problem(v1alpha1.ReasonTokenLeftAtHome, "It runs without the token of its service account "+orElse(spec.ServiceAccountName, "default")+
		", and cannot ask the API server of this cluster: "+cause,
		"If it needs the token, "+remedy+"keep it at home (strategy Local); if not, set automountServiceAccountToken to false", linkTokens)
}

func asksForToken(spec *corev1.PodSpec) bool {
	return ptr.Deref(spec.AutomountServiceAccountToken, false) || spec.ServiceAccountName != "" && spec.ServiceAccountName != "default"
}

// connected reports whether a network leads to pods of the peer, be it interrupted.
func (s podSight) connected() bool {
	if peer := s.peer(s.where.Peer); peer != nil {
		return peer.HasNetwork()
	}
	return s.pod.Status.PodIP != ""
}

const (
	// shownEvents is how many of the latest warnings are told, and shownNodes how many nodes of one kind.
	shownEvents, shownNodes = 3, 5
	// recently is for how long it is told of a pod that serves that it was restarted.
	recently = 10 * time.Minute

	outOfMemory = "OOMKilled"
)

// eventFixes say what to do about events of pods.
var eventFixes = map[string]string{
	"Unhealthy": "Its probe fails: see what the probe asks for, and the logs of the container",
	"Failed":    "The message says what failed: an image that cannot be pulled is pulled by the cluster that runs the pod",
}

// warningsCause are the latest that the pod's events tell, of what is not told already. Of a pod that serves, what was before
// that is over. What the scheduler says is in the status.
func warningsCause(s podSight) []podProblem {
	var found []podProblem
	since := time.Time{}
	if ready := offload.PodCondition(&s.pod.Status, corev1.PodReady); s.serves() && ready != nil {
		since = ready.LastTransitionTime.Time
	}
	for _, event := range slices.Backward(s.events.Items) {
		known := func(p podProblem) bool { return p.Reason == event.Reason }
		switch {
		case event.Type != corev1.EventTypeWarning, event.Reason == "FailedScheduling", timeOf(&event).Before(since), s.pod.Status.Phase == corev1.PodSucceeded:
		case !slices.ContainsFunc(slices.Concat(s.told, found), known):
			found = append(found, podProblem{Reason: event.Reason, Message: event.Note, Fix: eventFixes[event.Reason]})
		}
	}
	return found[:min(len(found), shownEvents)]
}

// startTimeout is how long a pod may need to start without anything being wrong.
const startTimeout = time.Minute

// silentCause tells of a pod that does not serve though nothing complains.
func silentCause(s podSight) []podProblem {
	where := s.where
	switch describe := s.command("describe pod"); {
	case len(s.told) > 0, s.serves():
		return nil
	case where.Since != nil && s.now.Sub(where.Since.Time) <= startTimeout:
		return problem("Starting", "It is not ready yet, and was given its node less than a minute ago", "Wait, and look again", linkPending)
	case s.pod.Status.Phase != corev1.PodRunning && where.Kind == placeVirtual:
		return problem("NotStarted", "The provider has not started it yet, and does not say why",
			"Its administrator sees more: kubectl get shadowpods -A there, condition Scheduled", linkPending)
	default:
		return problem("NotReady", "Not all of its containers and readiness gates are ready", describe, linkPending)
	}
}

// offloadingProblems are why new pods of a namespace do not leave.
func offloadingProblems(o *v1alpha1.NamespaceOffloading) []podProblem {
	var found []podProblem
	if ready := readyOf(o.Status.Conditions); ready.Status != metav1.ConditionTrue {
		found = problem(ready.Reason, "The offloading of the namespace is not ready: "+ready.Message, "kubectl hanse status says how each peer stands", linkOffload)
	}
	if placed := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionPlaced); placed != nil && placed.Status == metav1.ConditionFalse {
		found = append(found, problem(placed.Reason, "Placement chooses no cluster: "+placed.Message,
			"Change spec.placement of the NamespaceOffloading: kubectl hanse policy explain placement "+o.Namespace, linkPlace)...)
	}
	return found
}
