// SPDX-License-Identifier: Apache-2.0

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

// An eventRule is one of the events of which a consumer hears.
type eventRule struct {
	reason, kind, source string
	instead              string // of a message that tells of the node, its load or others there
}

// eventRules are those events by the kind of the object, the most telling first. Of kinds that are not here, a consumer hears
// everything that controllers say.
var eventRules = map[string][]eventRule{
	"Pod": {
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
	},
	"PersistentVolumeClaim": {
		{"ClaimLost", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, "The volume of the claim is gone at the provider"},
		{"ProvisioningFailed", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"VolumeResizeFailed", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"FileSystemResizeFailed", corev1.EventTypeWarning, v1alpha1.SourceKubelet, ""},
		{"ExternalExpanding", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"ExternalExpanding", corev1.EventTypeNormal, v1alpha1.SourceKubernetes, ""},
		{"FileSystemResizeRequired", corev1.EventTypeNormal, v1alpha1.SourceKubernetes, ""},
		{"VolumeResizeSuccessful", corev1.EventTypeNormal, v1alpha1.SourceKubernetes, "The volume has grown at the provider"},
		{"FileSystemResizeSuccessful", corev1.EventTypeNormal, v1alpha1.SourceKubelet, ""},
		{"ExternalProvisioning", corev1.EventTypeNormal, v1alpha1.SourceKubernetes, "The provider waits for its provisioner to make the volume"},
		{"ProvisioningSucceeded", corev1.EventTypeNormal, v1alpha1.SourceKubernetes, "The provider has made the volume"},
	},
	"Service": {
		{"FailedToUpdateEndpointSlices", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"FailedToUpdateEndpoint", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"ClusterIPNotAllocated", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"ClusterIPAlreadyAllocated", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"ClusterIPOutOfRange", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"PortNotAllocated", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"PortAlreadyAllocated", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
		{"PortOutOfRange", corev1.EventTypeWarning, v1alpha1.SourceKubernetes, ""},
	},
}

// reasonForm is what the reason of an event looks like.
var reasonForm = regexp.MustCompile(`^[A-Za-z]{1,63}$`)

// eventRank returns which of the rules the event of such an object is of, and -1 if it is of none.
func eventRank(about string, e *v1alpha1.RemoteEvent) int {
	rules, known := eventRules[about]
	if !known && e.Source == v1alpha1.SourceKubernetes && reasonForm.MatchString(e.Reason) {
		return slices.Index([]string{corev1.EventTypeWarning, corev1.EventTypeNormal}, e.Type)
	}
	return slices.IndexFunc(rules, func(r eventRule) bool { return r.reason == e.Reason && r.kind == e.Type && r.source == e.Source })
}

// kubelet is what kubelets call themselves in events.
const kubelet = "kubelet"

// containerPath is how an event says which container it is about.
var containerPath = regexp.MustCompile(`^spec\.(?:containers|initContainers|ephemeralContainers)\{([a-z0-9][-a-z0-9]{0,62})\}$`)

// ReadEvent reads what this cluster says about an object, and whether a consumer may hear of it. What it says must be cleaned by
// ExportEvent or ExportEventOf.
func ReadEvent(event *corev1.Event) (v1alpha1.RemoteEvent, bool) {
	source := v1alpha1.SourceKubernetes
	if event.Source.Component == kubelet || event.ReportingController == kubelet {
		source = v1alpha1.SourceKubelet
	}
	last := EventTime(event)
	first := cmp.Or(event.FirstTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time)
	count := max(event.Count, 1)
	if event.Series != nil {
		count = max(count, event.Series.Count)
	}
	e := v1alpha1.RemoteEvent{
		Type: event.Type, Reason: event.Reason, Message: sanitize.Text(event.Message, maxMessage),
		Source: source, Count: count, First: second(first), Last: second(last),
	}
	if found := containerPath.FindStringSubmatch(event.InvolvedObject.FieldPath); found != nil {
		e.Container = found[1]
	}
	return e, eventRank(event.InvolvedObject.Kind, &e) >= 0
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
func ExportEvent(pod *corev1.Pod, e *v1alpha1.RemoteEvent) v1alpha1.RemoteEvent {
	return exported("Pod", e, speaker(pod))
}

// ExportEventOf does the same for an event of another object than a pod, given the names of all nodes.
func ExportEventOf(about string, e *v1alpha1.RemoteEvent, nodes map[string]bool) v1alpha1.RemoteEvent {
	return exported(about, e, func(text string) string {
		return hideAddresses(&corev1.Pod{}, hideNodes(text, nodes))
	})
}

func exported(about string, e *v1alpha1.RemoteEvent, scrub func(string) string) v1alpha1.RemoteEvent {
	out := *e
	if rank := eventRank(about, e); rank >= 0 && rank < len(eventRules[about]) && eventRules[about][rank].instead != "" {
		out.Message = eventRules[about][rank].instead
	}
	out.Message = eventText(scrub(out.Message))
	return out
}

// names finds what may be the name of a node.
var names = regexp.MustCompile(`[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?`)

// hideNodes takes the names of nodes out of a text, with their domains.
func hideNodes(text string, nodes map[string]bool) string {
	return names.ReplaceAllStringFunc(text, func(found string) string {
		name := strings.ToLower(found)
		host, _, _ := strings.Cut(name, ".")
		if nodes[name] || nodes[host] {
			return "(node)"
		}
		return found
	})
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
func Happened(pod *corev1.Pod, recreations int32) []v1alpha1.RemoteEvent {
	var out []v1alpha1.RemoteEvent
	add := func(reason, container, message string, count int32, at metav1.Time) {
		out = append(out, v1alpha1.RemoteEvent{
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
func AddEvent(told []v1alpha1.RemoteEvent, e v1alpha1.RemoteEvent) []v1alpha1.RemoteEvent {
	at := slices.IndexFunc(told, func(old v1alpha1.RemoteEvent) bool { return SameEvent(&old, &e) })
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
	slices.SortStableFunc(out, func(a, b v1alpha1.RemoteEvent) int {
		return cmp.Or(a.Last.Compare(b.Last.Time), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Container, b.Container),
			cmp.Compare(a.Message, b.Message))
	})
	return fewerEvents(out)
}

// fewerEvents leaves the latest of events that are sorted by their times.
func fewerEvents(sorted []v1alpha1.RemoteEvent) []v1alpha1.RemoteEvent {
	var out []v1alpha1.RemoteEvent
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
	return out[max(len(out)-v1alpha1.MaxRemoteEvents, 0):]
}

// SameEvent says whether one event is the other, seen again.
func SameEvent(a, b *v1alpha1.RemoteEvent) bool { return Alike(a, b) && a.Message == b.Message }

// Alike says whether two events differ in no more than their messages.
func Alike(a, b *v1alpha1.RemoteEvent) bool {
	return a.Type == b.Type && a.Reason == b.Reason && a.Container == b.Container && a.Source == b.Source
}

// InboundEvents returns the events that a provider tells of the home pod's remote pod, see InboundEventsOf.
func InboundEvents(home *corev1.Pod, shadow *v1alpha1.ShadowPod, now time.Time) []v1alpha1.RemoteEvent {
	if shadow.Spec.HomeUID != home.UID {
		return nil
	}
	events := slices.Clone(shadow.Status.Events[:min(len(shadow.Status.Events), v1alpha1.MaxRemoteEvents)])
	for i := range events {
		if !hasContainer(&home.Spec, events[i].Container) {
			events[i].Container = ""
		}
	}
	return inboundEvents("Pod", events, lifeOf(home, now))
}

// InboundEventsOf returns the events that a provider tells of what there is for the home object, the most telling first. They are
// claims: unknown ones are left out, everything is bounded, and nothing happened before the object was made or happens later than
// now.
func InboundEventsOf(about string, home metav1.Object, told []v1alpha1.RemoteEvent, now time.Time) []v1alpha1.RemoteEvent {
	events := slices.Clone(told[:min(len(told), v1alpha1.MaxRemoteEvents)])
	for i := range events {
		events[i].Container = "" // of pods alone
	}
	return inboundEvents(about, events, span{home.GetCreationTimestamp(), second(now)})
}

func inboundEvents(about string, told []v1alpha1.RemoteEvent, life span) []v1alpha1.RemoteEvent {
	var out []v1alpha1.RemoteEvent
	for _, e := range told {
		if eventRank(about, &e) < 0 {
			continue
		}
		e.Message, e.Count = eventText(e.Message), max(e.Count, 1)
		e.First, e.Last = life.ofEvent(&e)
		if !slices.ContainsFunc(out, func(known v1alpha1.RemoteEvent) bool { return SameEvent(&known, &e) }) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b v1alpha1.RemoteEvent) int { return cmp.Compare(eventRank(about, &a), eventRank(about, &b)) })
	return out
}

// hasContainer says whether the pod has a container of that name, of whatever kind.
func hasContainer(spec *corev1.PodSpec, name string) bool {
	found := slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
	forEachContainer(spec, func(c *corev1.Container) { found = found || c.Name == name })
	return found
}

// ofEvent returns when the event happened first and last. One without a time happened just now.
func (s span) ofEvent(e *v1alpha1.RemoteEvent) (first, last metav1.Time) {
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
