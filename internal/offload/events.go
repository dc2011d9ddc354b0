package offload

import (
	"cmp"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	// maxEventText is how long the message of an event may be.
	maxEventText = 512
	// maxAlike is how many events of one reason about one container are kept, which differ in their messages.
	maxAlike = 3
	// The provider's Hanse says these about a pod, of which its kubelet says nothing.
	eventMadeAgain = "MadeAgain"
	eventOOMKilled = "OOMKilled"
)

// eventRules are the events that a consumer hears of, the most telling first. Those whose messages tell of the node, its load
// or other pods there have another message.
var eventRules = []struct {
	reason, kind, source string
	instead              string
}{
	{eventMadeAgain, corev1.EventTypeWarning, v1alpha1.SourceHanse, ""},
	{eventOOMKilled, corev1.EventTypeWarning, v1alpha1.SourceHanse, ""},
	{"Failed", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"BackOff", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"ErrImageNeverPull", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"InspectFailed", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"Unhealthy", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"ProbeWarning", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"FailedPostStartHook", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"FailedPreStopHook", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"SysctlForbidden", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"FailedMount", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"ExceededGracePeriod", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
	{"FailedCreatePodSandBox", corev1.EventTypeWarning, v1alpha1.SourceKubelet, "The provider cannot make the sandbox of the pod"},
	{"NetworkNotReady", corev1.EventTypeWarning, v1alpha1.SourceKubelet, "The network of the provider's node is not ready"},
	{"FailedKillPod", corev1.EventTypeWarning, v1alpha1.SourceKubelet, "The provider cannot end the pod"},
	{"Evicted", corev1.EventTypeWarning, v1alpha1.SourceKubelet, "The provider's node was short of a resource"},
	{"Preempting", corev1.EventTypeWarning, v1alpha1.SourceKubelet, "The provider needed the room for a more important pod"},
	{"Started", corev1.EventTypeNormal, v1alpha1.SourceKubelet, ""},
	{"Pulled", corev1.EventTypeNormal, v1alpha1.SourceKubelet, ""},
	{"Killing", corev1.EventTypeNormal, v1alpha1.SourceKubelet, ""},
	{"SandboxChanged", corev1.EventTypeNormal, v1alpha1.SourceKubelet, ""},
}

// eventRank returns which of the rules the event is of, and -1 if it is of none.
func eventRank(e *v1alpha1.PodEvent) int {
	for i, rule := range eventRules {
		if rule.reason == e.Reason && rule.kind == e.Type && rule.source == e.Source {
			return i
		}
	}
	return -1
}

// kubelet is what kubelets call themselves in events.
const kubelet = "kubelet"

// containerPath is how an event says which container it is about.
var containerPath = regexp.MustCompile(`^spec\.(?:containers|initContainers|ephemeralContainers)\{([a-z0-9][-a-z0-9]{0,62})\}$`)

// ReadEvent reads what a kubelet of this cluster says about a pod, and whether a consumer may hear of it. What it says must
// be cleaned by ExportEvent.
func ReadEvent(event *corev1.Event) (v1alpha1.PodEvent, bool) {
	if event.Source.Component != kubelet && event.ReportingController != kubelet {
		return v1alpha1.PodEvent{}, false
	}
	last := EventTime(event)
	first := cmp.Or(event.FirstTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time)
	count := max(event.Count, 1)
	if event.Series != nil {
		count = max(count, event.Series.Count)
	}
	e := v1alpha1.PodEvent{
		Type: event.Type, Reason: event.Reason, Message: sanitize.Text(event.Message, maxMessage),
		Source: v1alpha1.SourceKubelet, Count: count, First: second(first), Last: second(last),
	}
	if found := containerPath.FindStringSubmatch(event.InvolvedObject.FieldPath); found != nil {
		e.Container = found[1]
	}
	return e, eventRank(&e) >= 0
}

// EventTime returns when the event happened last.
func EventTime(event *corev1.Event) time.Time {
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

// ExportEvent returns what a provider shows of the event to the consumer: no names and addresses of nodes, everything bounded.
func ExportEvent(pod *corev1.Pod, e *v1alpha1.PodEvent) v1alpha1.PodEvent {
	out := *e
	if rank := eventRank(e); rank >= 0 && eventRules[rank].instead != "" {
		out.Message = eventRules[rank].instead
	}
	out.Message = eventText(speaker(pod)(out.Message))
	return out
}

// eventText makes a text fit for one line.
func eventText(text string) string {
	return sanitize.Text(strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return ' '
	}, strings.ToValidUTF8(text, "")), maxEventText)
}

// addresses finds what may be an address, with its port.
var addresses = regexp.MustCompile(
	`(\d{1,3}(?:\.\d{1,3}){3})(?::\d+)?|\[([0-9A-Fa-f:.]{2,})(?:%\w+)?\](?::\d+)?|([0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)`)

// hideAddresses takes out of a text all addresses but those that the consumer knows: the pod's own, and those that are in the
// names of its images. An address of the node, of its bridge or of the cluster's DNS is nothing that a consumer may learn.
func hideAddresses(pod *corev1.Pod, text string) string {
	return addresses.ReplaceAllStringFunc(text, func(found string) string {
		groups := addresses.FindStringSubmatch(found)
		address, err := netip.ParseAddr(cmp.Or(groups[1], groups[2], groups[3]))
		if err != nil || address.IsLoopback() || knows(pod, address) {
			return found
		}
		return "(address)"
	})
}

// knows says whether the consumer of the pod knows the address.
func knows(pod *corev1.Pod, address netip.Addr) bool {
	text := address.String()
	if pod.Status.PodIP == text && !pod.Spec.HostNetwork {
		return true
	}
	found := false
	forEachContainer(&pod.Spec, func(c *corev1.Container) { found = found || strings.Contains(c.Image, text) })
	return found || !pod.Spec.HostNetwork &&
		slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == text })
}

// Happened returns the events that the state of a pod tells of which was made again so many times: that it was, and which
// containers were killed because they used too much memory. Kubelets send none about that.
func Happened(pod *corev1.Pod, recreations int32) []v1alpha1.PodEvent {
	var out []v1alpha1.PodEvent
	add := func(reason, container, message string, count int32, at metav1.Time) {
		out = append(out, v1alpha1.PodEvent{
			Type: corev1.EventTypeWarning, Reason: reason, Container: container, Message: message,
			Source: v1alpha1.SourceHanse, Count: count, First: second(at.Time), Last: second(at.Time),
		})
	}
	if recreations > 0 {
		add(eventMadeAgain, "", "The pod was made again by the provider: the one before was deleted or evicted there, or lost with its node",
			recreations, pod.CreationTimestamp)
	}
	for _, container := range ContainerStatuses(&pod.Status) {
		for _, state := range []*corev1.ContainerState{&container.LastTerminationState, &container.State} {
			if ended := state.Terminated; ended != nil && ended.Reason == eventOOMKilled {
				add(eventOOMKilled, container.Name, "The container was killed because it used more memory than it may", 1, ended.FinishedAt)
			}
		}
	}
	return out
}

// AddEvent returns the events with one more, without those that there is no room for. If it is among them already the
// events are as before, so that nothing changes by hearing of it again.
func AddEvent(told []v1alpha1.PodEvent, e v1alpha1.PodEvent) []v1alpha1.PodEvent {
	at := slices.IndexFunc(told, func(old v1alpha1.PodEvent) bool { return SameEvent(&old, &e) })
	if at >= 0 && !e.Last.After(told[at].Last.Time) {
		return told
	}
	out := slices.Clone(told)
	if at >= 0 {
		if count := out[at].Count; count < math.MaxInt32 {
			e.Count = max(count+1, e.Count)
		}
		if out[at].First.Before(&e.First) {
			e.First = out[at].First
		}
		out[at] = e
	} else {
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b v1alpha1.PodEvent) int {
		return cmp.Or(a.Last.Compare(b.Last.Time), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Container, b.Container),
			cmp.Compare(a.Message, b.Message))
	})
	return fewerEvents(out)
}

// fewerEvents leaves the latest of events that are sorted by their times.
func fewerEvents(sorted []v1alpha1.PodEvent) []v1alpha1.PodEvent {
	var out []v1alpha1.PodEvent
	for i := range sorted {
		later := 0
		for j := i + 1; j < len(sorted); j++ {
			if Alike(&sorted[i], &sorted[j]) {
				later++
			}
		}
		if later < maxAlike {
			out = append(out, sorted[i])
		}
	}
	return out[max(len(out)-v1alpha1.MaxPodEvents, 0):]
}

// SameEvent says whether one event is the other, seen again.
func SameEvent(a, b *v1alpha1.PodEvent) bool { return Alike(a, b) && a.Message == b.Message }

// Alike says whether two events differ in no more than their messages.
func Alike(a, b *v1alpha1.PodEvent) bool {
	return a.Type == b.Type && a.Reason == b.Reason && a.Container == b.Container && a.Source == b.Source
}

// InboundEvents returns the events that a provider tells of the home pod's remote pod, the most telling first. They are
// claims: unknown ones are left out, everything is bounded, and nothing happened before the pod was made or happens later
// than now.
func InboundEvents(home *corev1.Pod, shadow *v1alpha1.ShadowPod, now time.Time) []v1alpha1.PodEvent {
	if shadow.Spec.HomeUID != home.UID {
		return nil
	}
	var out []v1alpha1.PodEvent
	life := lifeOf(home, now)
	for _, e := range shadow.Status.Events[:min(len(shadow.Status.Events), v1alpha1.MaxPodEvents)] {
		if eventRank(&e) < 0 {
			continue
		}
		if !hasContainer(&home.Spec, e.Container) {
			e.Container = ""
		}
		e.Message, e.Count = eventText(e.Message), max(e.Count, 1)
		e.First, e.Last = life.ofEvent(&e)
		if !slices.ContainsFunc(out, func(known v1alpha1.PodEvent) bool { return SameEvent(&known, &e) }) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b v1alpha1.PodEvent) int { return cmp.Compare(eventRank(&a), eventRank(&b)) })
	return out
}

// hasContainer says whether the pod has a container of that name, of whatever kind.
func hasContainer(spec *corev1.PodSpec, name string) bool {
	found := slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
	forEachContainer(spec, func(c *corev1.Container) { found = found || c.Name == name })
	return found
}

// ofEvent returns when the event happened first and last. One without a time happened just now.
func (s span) ofEvent(e *v1alpha1.PodEvent) (first, last metav1.Time) {
	last = s.nearest(e.Last)
	if last.IsZero() {
		last = s.to
	}
	first = s.nearest(e.First)
	if first.IsZero() || last.Before(&first) {
		first = last
	}
	return first, last
}
