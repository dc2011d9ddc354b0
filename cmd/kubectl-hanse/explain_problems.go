package main

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

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
	linkNobody     = "docs/explanation/placement.md#a-pod-on-a-virtual-node-that-nobody-offloads"
)

// shownEvents is how many of the latest warnings are told.
const shownEvents = 3

func (p *podProblem) err() error { return fmt.Errorf("%s: %s", p.Reason, printable(p.Message)) }

func problem(reason, message, fix, link string) []podProblem {
	return []podProblem{{Reason: reason, Message: message, Fix: fix, Link: link}}
}

// problemsOf are what is wrong, what explains the others first.
func problemsOf(f podFacts, where podPlace) []podProblem {
	found := deletionProblem(f)
	switch where.Kind {
	case placeNone:
		found = append(found, unboundProblems(f)...)
	case placeVirtual:
		found = slices.Concat(found, nodeProblem(f, where), twinProblem(f, where))
	}
	found = slices.Concat(found, statusProblem(f, where), containerProblems(f.pod))
	if len(found) == 0 {
		found = silentProblem(f, where)
	}
	if len(found) > 0 {
		found = append(found, warnings(f, found)...)
	}
	return found
}

// startTimeout is how long a pod may need to start without anything being wrong.
const startTimeout = time.Minute

// silentProblem tells of a pod that is not ready though nothing complains.
func silentProblem(f podFacts, where podPlace) []podProblem {
	started := where.Since == nil || f.now.Sub(where.Since.Time) > startTimeout
	switch {
	case where.Kind == placeNone, hasEnded(f.pod), !started, isPodReady(f.pod):
		return nil
	case f.pod.Status.Phase != corev1.PodRunning && where.Kind == placeVirtual:
		return problem("NotStarted", "The provider has not started it yet, and does not say why",
			"Its administrator sees more: kubectl get shadowpods -A there, condition Scheduled", linkPending)
	default:
		return problem("NotReady", "Not all of its containers and readiness gates are ready",
			fmt.Sprintf("kubectl describe pod -n %s %s", f.pod.Namespace, f.pod.Name), linkPending)
	}
}

// deletionProblem tells of a pod that is late to go.
func deletionProblem(f podFacts) []podProblem {
	if f.pod.DeletionTimestamp.IsZero() || f.now.Before(f.pod.DeletionTimestamp.Time) {
		return nil
	}
	fix := "It goes when its remote pod has gone: see whether the peer answers"
	if len(f.pod.Finalizers) > 0 {
		fix = "Finalizers hold it: " + some(f.pod.Finalizers)
	}
	return problem("Deleting", fmt.Sprintf("It should have gone %s ago", duration.HumanDuration(f.now.Sub(f.pod.DeletionTimestamp.Time))), fix, linkGone)
}

// unboundProblems are why the pod has no node.
func unboundProblems(f podFacts) []podProblem {
	bound := offload.PodCondition(&f.pod.Status, corev1.PodScheduled)
	switch {
	case len(f.pod.Spec.SchedulingGates) > 0:
		return problem(corev1.PodReasonSchedulingGated, "Scheduling gates hold it", "Whoever put them on takes them off", linkPending)
	case bound == nil || bound.Status == corev1.ConditionTrue:
		return problem("NotScheduled", "The scheduler has not looked at it yet", "", linkPending)
	}
	found := problem(bound.Reason, "No node takes it: "+bound.Message,
		"Make room, ask for less, or have the namespace offloaded to more clusters", linkPending)
	if f.offloading == nil || f.offloading.Spec.Strategy == v1alpha1.StrategyLocal {
		return found
	}
	return append(found, offloadingProblems(f.offloading)...)
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

// nodeProblem tells of a provider that does not answer.
func nodeProblem(f podFacts, where podPlace) []podProblem {
	if f.node == nil || isNodeReady(f.node) {
		return nil
	}
	fix, link := fmt.Sprintf("kubectl hanse check --peer %s says what is wrong", where.Peer), linkNode
	if f.offloading != nil {
		link = linkDisconnect
		if f.offloading.Spec.OnDisconnect == v1alpha1.DisconnectionReplace {
			fix += "; after a while another takes its place (onDisconnect is Replace)"
		} else {
			fix += "; it stays for as long as it takes (onDisconnect is Wait)"
		}
	}
	message := fmt.Sprintf("Node %s is not ready, so nobody knows how the pod is. It goes on running there", where.Node)
	return problem(v1alpha1.ReasonDisconnected, message, fix, link)
}

// twinProblem tells of a peer that has no namespace for the pod. A pod that serves has one.
func twinProblem(f podFacts, where podPlace) []podProblem {
	cluster := clusterOf(f.offloading, where.Peer)
	switch {
	case isPodReady(f.pod), f.errs[partOffloadings] != nil:
		return nil
	case f.offloading == nil:
		return problem("NotOffloaded", "It is on a virtual node, and its namespace is not offloaded: new pods stay at home",
			"If it waits there, delete it, or run: kubectl hanse offload "+f.pod.Namespace, linkNobody)
	case cluster == nil || cluster.State == v1alpha1.ClusterReady:
		return nil
	default:
		return problem(cluster.State, fmt.Sprintf("Peer %s has no namespace for it as it is wanted: %s", where.Peer, cluster.Message),
			"kubectl hanse status "+where.Peer, linkOffload)
	}
}

// fixes say what to do about a reason in the status of a pod.
var fixes = map[string]string{
	v1alpha1.ReasonOffloadingBackOff: "The message says what is missing. Hanse tries again by itself",
	v1alpha1.ReasonNoRoom:            "Wait: another node gets it after spec.placementTimeout of the NamespaceOffloading, if a controller made it. Or ask for less",
	v1alpha1.ReasonScalingUp:         "Wait: the provider makes room. Another node gets the pod after spec.scaleUpTimeout of the NamespaceOffloading",
	v1alpha1.ReasonPlacementTimeout:  "Its controller has made another one. Nothing is to do",
	v1alpha1.ReasonDisconnected:      "The pod goes on running there: wait, and see the conditions of the Peer",
	v1alpha1.ReasonPodRefused:        "The message says what the provider's API server refuses (policy, quota, Pod Security)",
	v1alpha1.ReasonPodInvalid:        "The provider does not build such pods: see what cannot leave",
}

// statusProblem tells what the pod's own status complains of.
func statusProblem(f podFacts, where podPlace) []podProblem {
	status, link := &f.pod.Status, linkReasons
	switch {
	case status.Reason == "" && status.Phase != corev1.PodFailed:
		return nil
	case status.Reason == v1alpha1.ReasonDisconnected && f.node != nil && !isNodeReady(f.node):
		return nil // the node's problem says so, and more
	case where.Kind != placeVirtual:
		link = linkPending
	}
	return problem(orElse(status.Reason, string(status.Phase)), orElse(status.Message, "The pod has failed"), fixes[status.Reason], link)
}

// harmless are reasons with which a container waits while all is well.
var harmless = []string{"", "ContainerCreating", "PodInitializing"}

// containerProblems tell of containers that do not come up, or end badly.
func containerProblems(pod *corev1.Pod) []podProblem {
	var found []podProblem
	name := fmt.Sprintf("-n %s %s", pod.Namespace, pod.Name)
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		logs := fmt.Sprintf("kubectl logs %s -c %s", name, c.Name)
		switch waiting, ended := c.State.Waiting, c.State.Terminated; {
		case waiting != nil && (slices.Contains(harmless, waiting.Reason) || waiting.Reason == pod.Status.Reason): // told of the pod as a whole
		case waiting != nil:
			fix := "kubectl describe pod " + name
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

// warnings are the latest that events tell, of what is not told already.
func warnings(f podFacts, told []podProblem) []podProblem {
	var found []podProblem
	for _, event := range slices.Backward(f.events.Items) {
		known := func(p podProblem) bool { return p.Reason == event.Reason }
		if event.Type == corev1.EventTypeWarning && !slices.ContainsFunc(slices.Concat(told, found), known) {
			found = append(found, podProblem{Reason: event.Reason, Message: event.Note})
		}
	}
	return found[:min(len(found), shownEvents)]
}
