package tenant

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/offload"
)

const (
	noRoom    = "The provider has no node with room for the pod"
	scalingUp = "The provider's autoscaler makes room for the pod"

	// mostResources is how many of the resources that are short are named.
	mostResources = 8
)

// unschedulable returns what the scheduler says of a pod that it finds no node for, and nil for any other pod.
func unschedulable(pod *corev1.Pod) *corev1.PodCondition {
	if pod == nil || pod.Spec.NodeName != "" {
		return nil
	}
	c := offload.PodCondition(&pod.Status, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
		return nil
	}
	return c
}

// insufficient finds the names of resources that are short.
var insufficient = regexp.MustCompile(`\bInsufficient ([A-Za-z0-9][-A-Za-z0-9._/]{0,126}[A-Za-z0-9])`)

// obstacles are what else a scheduler says, in lower case, and what a consumer is told of it.
var obstacles = []struct{ says, told string }{
	{"too many pods", "too many pods"},
	{"untolerated taint", "untolerated taint"},
	{"taints that the pod didn't tolerate", "untolerated taint"},
	{"were unschedulable", "nodes that take no pods now"},
	{"node affinity/selector", "node affinity or selector"},
	{"enforced node affinity", "node affinity or selector"},
	{"pod affinity rules", "pod affinity"},
	{"anti-affinity rules", "pod anti-affinity"},
	{"topology spread constraints", "topology spread constraints"},
	{"free ports", "no free ports"},
	{"required features", "required features"},
	{"volume count", "volumes"},
	{"persistent volume", "volumes"},
	{"persistentvolume", "volumes"},
	{"pvc(s)", "volumes"},
	{"volume zone", "volumes"},
	{"free storage", "volumes"},
	{"available disk", "volumes"},
	{"resourceclaim", "resource claims"},
	{"no nodes available", "no nodes"},
}

// reasonsOf returns what of the scheduler's message a consumer may know: which reasons it gives, and neither how many
// nodes there are, nor what they are called, nor what their taints say. The same reasons give the same text.
func reasonsOf(message string) string {
	// The rest of the message is about pods of other tenants that could make room.
	message, _, _ = strings.Cut(message, " preemption:")
	var reasons []string
	for _, found := range insufficient.FindAllStringSubmatch(message, -1) {
		reasons = append(reasons, "Insufficient "+found[1])
	}
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	reasons = reasons[:min(len(reasons), mostResources)]
	message = strings.ToLower(message)
	told := map[string]struct{}{}
	for _, obstacle := range obstacles {
		if strings.Contains(message, obstacle.says) {
			told[obstacle.told] = struct{}{}
		}
	}
	return strings.Join(append(reasons, slices.Sorted(maps.Keys(told))...), "; ")
}

// because puts what the scheduler says behind a sentence.
func because(sentence string, c *corev1.PodCondition) string {
	if reasons := reasonsOf(c.Message); reasons != "" {
		return sentence + ": " + reasons
	}
	return sentence
}

const (
	// scaleUpPace is how often the events of a namespace are read, at most, while pods there find no node.
	scaleUpPace = 5 * time.Second
	// longestPace is how often at least it is looked whether a pod that has waited for long is being made room for.
	longestPace = time.Minute
	// forgottenAfter is when what was found in a namespace is dropped that nobody has asked about.
	forgottenAfter = 2 * longestPace

	mostEvents = 5000
)

// What autoscalers say about a pod in events.
const (
	eventTriggered    = "TriggeredScaleUp"  // cluster-autoscaler: room is being made
	eventNotTriggered = "NotTriggerScaleUp" // cluster-autoscaler: it cannot make any
	eventNominated    = "Nominated"         // Karpenter: room is being made
	karpenter         = "karpenter"
)

// scaleUps knows for which pods this cluster's autoscaler makes room. It reads events only while pods find no node, once
// for all pods of a namespace.
type scaleUps struct {
	live client.Reader

	mu          sync.Mutex               // held while events are read, so that two do not read the same
	byNamespace map[string]scaleUpEvents // namespace → what was found there
}

// scaleUpEvents are what was found in a namespace.
type scaleUpEvents struct {
	at    time.Time
	since map[types.UID]time.Time // pod → when the autoscaler said last that it makes room
}

// of returns when the autoscaler said that it makes room for the pod. The time is zero if it has not, or does not any more.
func (s *scaleUps) of(ctx context.Context, pod *corev1.Pod, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byNamespace[pod.Namespace]
	if found.at.IsZero() || now.Sub(found.at) >= scaleUpPace {
		maps.DeleteFunc(s.byNamespace, func(_ string, old scaleUpEvents) bool { return now.Sub(old.at) > forgottenAfter })
		since, err := s.read(ctx, pod.Namespace)
		if err != nil {
			// That it is not known is no reason to say nothing else of the pod.
			ctrl.LoggerFrom(ctx).Info("Not knowing what the autoscaler says", "cause", err.Error())
			since = found.since
		}
		found = scaleUpEvents{at: now, since: since}
		s.byNamespace[pod.Namespace] = found
	}
	return found.since[pod.UID]
}

// read returns for which pods of the namespace room is being made. The latest that was said of a pod counts.
func (s *scaleUps) read(ctx context.Context, namespace string) (map[types.UID]time.Time, error) {
	since := map[types.UID]time.Time{}
	for _, reason := range []string{eventTriggered, eventNominated, eventNotTriggered} {
		if reason == eventNotTriggered && len(since) == 0 {
			break
		}
		events := &corev1.EventList{}
		err := s.live.List(ctx, events, client.InNamespace(namespace), client.Limit(mostEvents),
			client.MatchingFields{"involvedObject.kind": "Pod", "reason": reason})
		if err != nil {
			return nil, fmt.Errorf("list events %s in namespace %s: %w", reason, namespace, err)
		}
		for i := range events.Items {
			event := &events.Items[i]
			pod, at := event.InvolvedObject.UID, timeOf(event)
			switch {
			case !at.After(since[pod]):
			case reason == eventNotTriggered:
				delete(since, pod)
			case reason == eventTriggered, event.ReportingController == karpenter, event.Source.Component == karpenter:
				since[pod] = at
			}
		}
	}
	return since, nil
}

// timeOf returns when the event happened last.
func timeOf(event *corev1.Event) time.Time {
	last := event.CreationTimestamp.Time
	times := []time.Time{event.LastTimestamp.Time, event.EventTime.Time}
	if event.Series != nil {
		times = append(times, event.Series.LastObservedTime.Time)
	}
	for _, at := range times {
		if at.After(last) {
			last = at
		}
	}
	return last
}
