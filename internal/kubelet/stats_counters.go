// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"slices"
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
	counter    // of all pods that there were
	began      time.Time
	pods       map[types.UID]*counter
	containers map[runningContainer]*containerCounter
}

type containerCounter struct {
	counter
	start time.Time // when the container started by our clock, which its peer's need not agree with
}

// containerKey is a container of a home pod.
type containerKey struct {
	pod  types.UID
	name string
}

// runningContainer is a container that runs, as its home pod shows it.
type runningContainer struct {
	containerKey
	started int64 // when, in nanoseconds of the Unix time of the peer
}

// containersRunning returns the containers of the pod that run.
func containersRunning(pod *corev1.Pod) []runningContainer {
	var found []runningContainer
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses)
	for i := range all {
		if runs := all[i].State.Running; runs != nil && hasContainer(pod, all[i].Name) {
			found = append(found, runningContainer{containerKey{pod.UID, all[i].Name}, runs.StartedAt.UnixNano()})
		}
	}
	return found
}

// follow has a counter for each pod that there is and for each of its containers that runs, and for no others. A container
// started between the creation of its pod and now.
func (c *counters) follow(pods []corev1.Pod, now time.Time) {
	ofPods, ofContainers := c.pods, c.containers
	c.pods, c.containers = map[types.UID]*counter{}, map[runningContainer]*containerCounter{}
	for i := range pods {
		pod := &pods[i]
		created := pod.CreationTimestamp.Time
		c.pods[pod.UID] = cmp.Or(ofPods[pod.UID], &counter{until: earlier(created, now)})
		for _, runs := range containersRunning(pod) {
			start := time.Unix(0, runs.started)
			if start.Before(created) {
				start = created
			}
			start = earlier(start, now)
			c.containers[runs] = cmp.Or(ofContainers[runs], &containerCounter{start: start, counter: counter{until: start}})
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// account adds what was told that the containers use now.
func (c *counters) account(told map[containerKey]usage, now time.Time) {
	c.used = nil
	for _, pod := range c.pods {
		pod.used = nil
	}
	for runs, container := range c.containers {
		container.used = nil
		used, ok := told[runs.containerKey]
		if !ok {
			continue
		}
		consumed := container.consumes(used, now)
		for _, counter := range []*counter{&container.counter, c.pods[runs.pod], &c.counter} {
			counter.add(consumed, used, now)
		}
	}
	if len(c.containers) == 0 {
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
		pod := &pods[i]
		ofPod := stats.PodStats{
			PodRef:    stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
			StartTime: pod.CreationTimestamp,
		}
		ofPod.CPU, ofPod.Memory = c.pods[pod.UID].stats()
		for _, runs := range containersRunning(pod) {
			counts := c.containers[runs]
			one := stats.ContainerStats{Name: runs.name, StartTime: metav1.NewTime(counts.start)}
			one.CPU, one.Memory = counts.stats()
			ofPod.Containers = append(ofPod.Containers, one)
		}
		if len(ofPod.Containers) > 0 {
			told.Pods = append(told.Pods, ofPod)
		}
	}
	return told
}
