package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

const (
	// firstWindow is for how long before we first asked a container is taken to have used what it uses then. Of one that
	// is older nothing more is known: a counter that began at hours of a guess would jump when we start again.
	firstWindow = time.Minute
	// startUp is the least that a container has consumed, in seconds of a core. Zero stands for unknown at metrics-server.
	startUp = 0.001
)

// A counter is what something has consumed until a time. What it uses is known only if it was told then: what was told
// earlier holds no longer, but what was consumed until then was.
type counter struct {
	until    time.Time
	consumed float64 // in seconds of a core
	used     *usage
}

// add has the counter grow by what was consumed until now, by something that was told to use so much now.
func (c *counter) add(consumed float64, used usage, now time.Time) {
	if c.used == nil {
		c.used = &usage{}
	}
	c.used.cores += used.cores
	c.used.bytes += used.bytes
	c.consumed += consumed
	c.until = now
}

// counters turn what pods use at each moment into what they have consumed since their containers started. They only grow,
// and go with the pods. After a restart of ours they begin anew, which whoever reads them takes for what it is.
type counters struct {
	counter // of all pods that there were
	began   time.Time
	pods    map[types.UID]*podCounter
}

type podCounter struct {
	counter
	containers map[string]*containerCounter
}

type containerCounter struct {
	counter
	claimed time.Time // when the container started, as its peer says
	start   time.Time // the same by our clock, which its peer's need not agree with
}

// runningContainer is a container that runs, as its home pod shows it.
type runningContainer struct {
	name    string
	started time.Time
}

// containersRunning returns the containers of the pod that run.
func containersRunning(pod *corev1.Pod) []runningContainer {
	var found []runningContainer
	for _, statuses := range [][]corev1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			if runs := statuses[i].State.Running; runs != nil && hasContainer(pod, statuses[i].Name) {
				found = append(found, runningContainer{name: statuses[i].Name, started: runs.StartedAt.Time})
			}
		}
	}
	return found
}

// follow has a counter for each pod that there is and for each of its containers that runs, and for no others.
func (c *counters) follow(pods []corev1.Pod, now time.Time) {
	present := make(map[types.UID]*podCounter, len(pods))
	for i := range pods {
		pod := &pods[i]
		counts := c.pods[pod.UID]
		if counts == nil {
			counts = &podCounter{counter: counter{until: earlier(pod.CreationTimestamp.Time, now)}}
		}
		counts.follow(pod, now)
		present[pod.UID] = counts
	}
	c.pods = present
}

func (c *podCounter) follow(pod *corev1.Pod, now time.Time) {
	present := map[string]*containerCounter{}
	for _, runs := range containersRunning(pod) {
		counts := c.containers[runs.name]
		if counts == nil || !counts.claimed.Equal(runs.started) {
			counts = newContainerCounter(runs.started, pod.CreationTimestamp.Time, now)
		}
		present[runs.name] = counts
	}
	c.containers = present
}

// newContainerCounter returns the counter of a container that started between the creation of its pod and now.
func newContainerCounter(claimed, created, now time.Time) *containerCounter {
	start := claimed
	if start.Before(created) {
		start = created
	}
	start = earlier(start, now)
	return &containerCounter{claimed: claimed, start: start, counter: counter{until: start}}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// account adds what was told that the containers use now.
func (c *counters) account(told map[containerKey]usage, now time.Time) {
	running := false
	c.used = nil
	for uid, pod := range c.pods {
		pod.used = nil
		for name, container := range pod.containers {
			running, container.used = true, nil
			used, ok := told[containerKey{pod: uid, name: name}]
			if !ok {
				continue
			}
			consumed := container.consumes(used, now)
			for _, counter := range []*counter{&container.counter, &pod.counter, &c.counter} {
				counter.add(consumed, used, now)
			}
		}
	}
	if !running {
		c.add(0, usage{}, now) // where nothing runs, nothing is used
	}
}

// consumes returns how much the container has consumed since the last time, or its start.
func (c *containerCounter) consumes(used usage, now time.Time) float64 {
	span := max(now.Sub(c.until), 0)
	if c.consumed == 0 {
		return startUp + used.cores*min(span, firstWindow).Seconds()
	}
	return used.cores * span.Seconds()
}

// summary tells of the pods that have containers running, whether anything is known of what they use or not.
func (c *counters) summary(node string, pods []corev1.Pod) stats.Summary {
	told := stats.Summary{
		Node: stats.NodeStats{NodeName: node, StartTime: metav1.NewTime(c.began)},
		Pods: []stats.PodStats{},
	}
	if c.used != nil {
		told.Node.CPU, told.Node.Memory = c.stats()
	}
	for i := range pods {
		if one := c.pods[pods[i].UID].summary(&pods[i]); len(one.Containers) > 0 {
			told.Pods = append(told.Pods, one)
		}
	}
	return told
}

func (c *podCounter) summary(pod *corev1.Pod) stats.PodStats {
	told := stats.PodStats{
		PodRef:    stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
		StartTime: pod.CreationTimestamp,
	}
	told.CPU, told.Memory = c.stats()
	for _, runs := range containersRunning(pod) {
		counts := c.containers[runs.name]
		one := stats.ContainerStats{Name: runs.name, StartTime: metav1.NewTime(counts.start)}
		one.CPU, one.Memory = counts.stats()
		told.Containers = append(told.Containers, one)
	}
	return told
}
