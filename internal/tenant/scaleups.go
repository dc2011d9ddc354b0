package tenant

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

	mu    sync.Mutex
	looks map[string]*look // namespace → what was found there
}

// look is what was found in a namespace. The one lock keeps two from reading at once, the other one is that of scaleUps.
type look struct {
	asked time.Time

	mu    sync.Mutex
	at    time.Time
	since map[types.UID]time.Time // pod → when the autoscaler said last that it makes room
}

// of returns when the autoscaler said that it makes room for the pod. The time is zero if it has not, or does not any more.
func (s *scaleUps) of(ctx context.Context, pod *corev1.Pod, now time.Time) time.Time {
	l := s.lookInto(pod.Namespace, now)
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

func (s *scaleUps) lookInto(namespace string, now time.Time) *look {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.looks[namespace]
	if l == nil {
		for name, old := range s.looks {
			if now.Sub(old.asked) > forgottenAfter {
				delete(s.looks, name)
			}
		}
		l = &look{}
		if s.looks == nil {
			s.looks = map[string]*look{}
		}
		s.looks[namespace] = l
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
