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

	eventsAtOnce   = 500
	mostEventPages = 10
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

	mu          sync.Mutex
	byNamespace map[string]*scaleUpEvents // namespace → what was found there
}

// scaleUpEvents are what was found in a namespace. Its lock keeps two from reading at once; the lock of scaleUps guards asked.
type scaleUpEvents struct {
	asked time.Time

	mu    sync.Mutex
	at    time.Time
	since map[types.UID]time.Time // pod → when the autoscaler said last that it makes room
}

// of returns when the autoscaler said that it makes room for the pod. The time is zero if it has not, or does not any more.
func (s *scaleUps) of(ctx context.Context, pod *corev1.Pod, now time.Time) time.Time {
	l := s.eventsOf(pod.Namespace, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.IsZero() && now.Sub(l.at) < scaleUpPace {
		return l.since[pod.UID]
	}
	l.at = now
	since, err := s.read(ctx, pod.Namespace)
	if err != nil {
		// That it is not known is no reason to say nothing else of the pod.
		ctrl.LoggerFrom(ctx).Info("Not knowing what the autoscaler says", "cause", err.Error())
	} else {
		l.since = since
	}
	return l.since[pod.UID]
}

func (s *scaleUps) eventsOf(namespace string, now time.Time) *scaleUpEvents {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byNamespace[namespace]
	if l == nil {
		for name, old := range s.byNamespace {
			if now.Sub(old.asked) > forgottenAfter {
				delete(s.byNamespace, name)
			}
		}
		l = &scaleUpEvents{}
		if s.byNamespace == nil {
			s.byNamespace = map[string]*scaleUpEvents{}
		}
		s.byNamespace[namespace] = l
	}
	l.asked = now
	return l
}

// read returns for which pods of the namespace room is being made. The latest that was said of a pod counts.
func (s *scaleUps) read(ctx context.Context, namespace string) (map[types.UID]time.Time, error) {
	since := map[types.UID]time.Time{}
	said := func(event *corev1.Event) {
		if at := timeOf(event); at.After(since[event.InvolvedObject.UID]) {
			since[event.InvolvedObject.UID] = at
		}
	}
	if err := s.each(ctx, namespace, eventTriggered, said); err != nil {
		return nil, err
	}
	err := s.each(ctx, namespace, eventNominated, func(event *corev1.Event) {
		if event.ReportingController == karpenter || event.Source.Component == karpenter {
			said(event)
		}
	})
	if err != nil || len(since) == 0 {
		return since, err
	}
	return since, s.each(ctx, namespace, eventNotTriggered, func(event *corev1.Event) {
		if timeOf(event).After(since[event.InvolvedObject.UID]) {
			delete(since, event.InvolvedObject.UID)
		}
	})
}

// each goes through the events of pods for a reason.
func (s *scaleUps) each(ctx context.Context, namespace, reason string, do func(*corev1.Event)) error {
	events := &corev1.EventList{}
	for range mostEventPages {
		err := s.live.List(ctx, events, client.InNamespace(namespace), client.Limit(eventsAtOnce), client.Continue(events.Continue),
			client.MatchingFields{"involvedObject.kind": "Pod", "reason": reason})
		if err != nil {
			return fmt.Errorf("list events %s in namespace %s: %w", reason, namespace, err)
		}
		for i := range events.Items {
			do(&events.Items[i])
		}
		if events.Continue == "" {
			return nil
		}
	}
	return nil
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
