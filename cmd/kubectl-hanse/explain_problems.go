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
	linkNobody     = "docs/explanation/placement.md#a-pod-on-a-virtual-node-that-nobody-offloads"
)

// shownEvents is how many of the latest warnings are told.
const shownEvents = 3

// problemsOf are what is wrong, what explains the others first.
func problemsOf(f podFacts, where podPlace) []podProblem {
	var found []podProblem
	add := func(p *podProblem) {
		if p != nil {
			found = append(found, *p)
		}
	}
	add(deletionProblem(f))
	switch where.Kind {
	case placeNone:
		found = append(found, unboundProblems(f)...)
	case placeVirtual:
		add(nodeProblem(f, where))
		add(twinProblem(f, where))
	}
	add(statusProblem(f, where))
	found = append(found, containerProblems(f.pod)...)
	if len(found) == 0 {
		add(silentProblem(f, where))
	}
	if len(found) > 0 {
		found = append(found, warnings(f, found)...)
	}
	return found
}

// startTimeout is how long a pod may need to start without anything being wrong.
const startTimeout = time.Minute

// silentProblem tells of a pod that is not ready though nothing complains.
func silentProblem(f podFacts, where podPlace) *podProblem {
	started := where.Since == nil || f.now.Sub(where.Since.Time) > startTimeout
	switch {
	case where.Kind == placeNone, hasEnded(f.pod), !started, isPodReady(f.pod):
		return nil
	case f.pod.Status.Phase != corev1.PodRunning && where.Kind == placeVirtual:
		return &podProblem{
			Reason: "NotStarted", Message: "The provider has not started it yet, and does not say why",
			Fix: "Its administrator sees more: kubectl get shadowpods -A there, condition Scheduled", Link: linkPending,
		}
	default:
		return &podProblem{
			Reason: "NotReady", Message: "Not all of its containers and readiness gates are ready",
			Fix: fmt.Sprintf("kubectl describe pod -n %s %s", f.pod.Namespace, f.pod.Name), Link: linkPending,
		}
	}
}

// deletionProblem tells of a pod that is late to go.
func deletionProblem(f podFacts) *podProblem {
	pod := f.pod
	if pod.DeletionTimestamp.IsZero() || f.now.Before(pod.DeletionTimestamp.Time) {
		return nil
	}
	problem := &podProblem{
		Reason:  "Deleting",
		Message: fmt.Sprintf("It should have gone %s ago", duration.HumanDuration(f.now.Sub(pod.DeletionTimestamp.Time))),
		Fix:     "It goes when its remote pod has gone: see whether the peer answers",
		Link:    troubleshooting + "#a-namespace-or-peer-does-not-go-away",
	}
	if len(pod.Finalizers) > 0 {
		problem.Fix = "Finalizers hold it: " + some(pod.Finalizers)
	}
	return problem
}

// unboundProblems are why the pod has no node.
func unboundProblems(f podFacts) []podProblem {
	bound := podCondition(f.pod, corev1.PodScheduled)
	switch {
	case len(f.pod.Spec.SchedulingGates) > 0:
		return []podProblem{{Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling gates hold it", Fix: "Whoever put them on takes them off", Link: linkPending}}
	case bound == nil || bound.Status == corev1.ConditionTrue:
		return []podProblem{{Reason: "NotScheduled", Message: "The scheduler has not looked at it yet", Link: linkPending}}
	}
	found := []podProblem{{
		Reason: bound.Reason, Message: "No node takes it: " + bound.Message,
		Fix: "Make room, ask for less, or have the namespace offloaded to more clusters", Link: linkPending,
	}}
	if f.offloading == nil || f.offloading.Spec.Strategy == v1alpha1.StrategyLocal {
		return found
	}
	if placed := meta.FindStatusCondition(f.offloading.Status.Conditions, v1alpha1.ConditionPlaced); placed != nil && placed.Status == metav1.ConditionFalse {
		found = append(found, podProblem{
			Reason: placed.Reason, Message: "Placement chooses no cluster: " + placed.Message,
			Fix: "Change spec.placement of the NamespaceOffloading: kubectl hanse policy explain placement " + f.pod.Namespace, Link: "docs/how-to/place-pods.md",
		})
	}
	if ready := readyOf(f.offloading.Status.Conditions); ready.Status != metav1.ConditionTrue {
		found = append(found, podProblem{
			Reason: ready.Reason, Message: "The offloading of the namespace is not ready: " + ready.Message,
			Fix: "kubectl hanse status says how each peer stands", Link: linkOffload,
		})
	}
	return found
}

// nodeProblem tells of a provider that does not answer.
func nodeProblem(f podFacts, where podPlace) *podProblem {
	if f.node == nil || isNodeReady(f.node) {
		return nil
	}
	problem := &podProblem{
		Reason:  v1alpha1.ReasonDisconnected,
		Message: fmt.Sprintf("Node %s is not ready, so nobody knows how the pod is. It goes on running there", where.Node),
		Fix:     fmt.Sprintf("kubectl hanse check --peer %s says what is wrong", where.Peer),
		Link:    linkNode,
	}
	if f.offloading != nil {
		problem.Link = linkDisconnect
		problem.Fix += "; it stays for as long as it takes (onDisconnect is Wait)"
		if f.offloading.Spec.OnDisconnect == v1alpha1.DisconnectionReplace {
			problem.Fix = fmt.Sprintf("kubectl hanse check --peer %s says what is wrong; after a while another takes its place (onDisconnect is Replace)", where.Peer)
		}
	}
	return problem
}

// twinProblem tells of a peer that has no namespace for the pod. A pod that serves has one.
func twinProblem(f podFacts, where podPlace) *podProblem {
	if isPodReady(f.pod) {
		return nil
	}
	if f.offloading == nil {
		if slices.Contains(f.hidden, hiddenOffloading) {
			return nil
		}
		return &podProblem{
			Reason: "NotOffloaded", Message: "It is on a virtual node, and its namespace is not offloaded: new pods stay at home",
			Fix: "If it waits there, delete it, or run: kubectl hanse offload " + f.pod.Namespace, Link: linkNobody,
		}
	}
	cluster := f.offloadingTo(where.Peer)
	if cluster == nil || cluster.State == "Ready" {
		return nil
	}
	return &podProblem{
		Reason: cluster.State, Message: fmt.Sprintf("Peer %s has no namespace for it as it is wanted: %s", where.Peer, cluster.Message),
		Fix: "kubectl hanse status " + where.Peer, Link: linkOffload,
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
func statusProblem(f podFacts, where podPlace) *podProblem {
	status := &f.pod.Status
	switch {
	case status.Reason == "" && status.Phase != corev1.PodFailed:
		return nil
	case status.Reason == v1alpha1.ReasonDisconnected && f.node != nil && !isNodeReady(f.node):
		return nil // the node's problem says so, and more
	}
	problem := &podProblem{
		Reason: orElse(status.Reason, string(status.Phase)), Message: orElse(status.Message, "The pod has failed"),
		Fix: fixes[status.Reason], Link: linkReasons,
	}
	if where.Kind != placeVirtual {
		problem.Link = linkPending
	}
	return problem
}

// harmless are reasons with which a container waits while all is well.
var harmless = []string{"", "ContainerCreating", "PodInitializing"}

// containerProblems tell of containers that do not come up, or end badly.
func containerProblems(pod *corev1.Pod) []podProblem {
	var found []podProblem
	logs := func(container string) string {
		return fmt.Sprintf("kubectl logs -n %s %s -c %s --previous", pod.Namespace, pod.Name, container)
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason == pod.Status.Reason: // told of the pod as a whole
		case c.State.Waiting != nil && !slices.Contains(harmless, c.State.Waiting.Reason):
			problem := podProblem{
				Reason: c.State.Waiting.Reason, Message: fmt.Sprintf("Container %s: %s", c.Name, orElse(c.State.Waiting.Message, "it waits")),
				Fix: fmt.Sprintf("kubectl describe pod -n %s %s", pod.Namespace, pod.Name), Link: linkPending,
			}
			if c.RestartCount > 0 {
				problem.Fix = logs(c.Name)
			}
			found = append(found, problem)
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			found = append(found, podProblem{
				Reason: orElse(c.State.Terminated.Reason, "Error"), Message: fmt.Sprintf("Container %s ended with exit code %d", c.Name, c.State.Terminated.ExitCode),
				Fix: fmt.Sprintf("kubectl logs -n %s %s -c %s", pod.Namespace, pod.Name, c.Name),
			})
		}
	}
	return found
}

// warnings are the latest that events tell, of what is not told already.
func warnings(f podFacts, told []podProblem) []podProblem {
	var found []podProblem
	for i := range slices.Backward(f.events.Items) {
		event := &f.events.Items[i]
		known := func(p podProblem) bool { return p.Reason == event.Reason }
		if event.Type == corev1.EventTypeWarning && !slices.ContainsFunc(told, known) && !slices.ContainsFunc(found, known) {
			found = append(found, podProblem{Reason: event.Reason, Message: event.Note})
		}
		if len(found) == shownEvents {
			break
		}
	}
	return found
}
