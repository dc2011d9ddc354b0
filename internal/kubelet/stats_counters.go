package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// firstWindow is for how long before we first asked a container is taken to have used what it uses then. Of one that
	// is older nothing more is known: a counter that began at hours of a guess would jump when we start again.
	firstWindow = time.Minute
	// startUp is the least that a container has consumed, in seconds of a core. Zero stands for unknown at metrics-server.
	startUp = 0.001
)

// counters turn what pods use at each moment into what they have consumed since their containers started. They only grow,
// and go with the pods. After a restart of ours they begin anew, which whoever reads them takes for what it is.
type counters struct {
	began    time.Time
	pods     map[types.UID]*podCounter
	consumed float64 // by all pods that there were, in seconds of a core
}

type podCounter struct {
	consumed   float64
	containers map[string]*containerCounter
}

type containerCounter struct {
	claimed  time.Time // when the container started, as its peer says
	start    time.Time // the same by our clock, which its peer's need not agree with
	asked    time.Time
	consumed float64
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

// account adds what the pods use now, of each container that was told of, and forgets pods that are not there any more.
func (c *counters) account(node string, pods []corev1.Pod, told map[containerKey]usage, now time.Time) summaryStats {
	stats := summaryStats{Pods: []podStats{}}
	present := make(map[types.UID]*podCounter, len(pods))
	total := usage{}
	for i := range pods {
		pod := &pods[i]
		counter := c.pods[pod.UID]
		if counter == nil {
			counter = &podCounter{}
		}
		present[pod.UID] = counter
		before := counter.consumed
		if one, used, ok := counter.account(pod, told, now); ok {
			stats.Pods = append(stats.Pods, one)
			total = total.plus(used)
		}
		c.consumed += counter.consumed - before
	}
	c.pods = present
	stats.Node = nodeStats{NodeName: node, StartTime: metav1.NewTime(c.began), usageStats: statsOf(total, c.consumed, now)}
	return stats
}

// account does the same for one pod. It returns nothing if nothing was told of it.
func (c *podCounter) account(pod *corev1.Pod, told map[containerKey]usage, now time.Time) (podStats, usage, bool) {
	stats := podStats{
		PodRef:    podReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
		StartTime: pod.CreationTimestamp,
	}
	present, total := map[string]*containerCounter{}, usage{}
	for _, runs := range containersRunning(pod) {
		counter := c.containers[runs.name]
		if counter == nil || !counter.claimed.Equal(runs.started) {
			counter = newContainerCounter(runs.started, pod.CreationTimestamp.Time, now)
		}
		present[runs.name] = counter
		used, ok := told[containerKey{pod: pod.UID, name: runs.name}]
		if !ok {
			continue
		}
		c.consumed += counter.add(used, now)
		total = total.plus(used)
		stats.Containers = append(stats.Containers, containerStats{
			Name: runs.name, StartTime: metav1.NewTime(counter.start), usageStats: statsOf(used, counter.consumed, now),
		})
	}
	c.containers = present
	stats.usageStats = statsOf(total, c.consumed, now)
	return stats, total, len(stats.Containers) > 0
}

// newContainerCounter returns the counter of a container that started between the creation of its pod and now.
func newContainerCounter(claimed, created, now time.Time) *containerCounter {
	start := claimed
	if start.Before(created) {
		start = created
	}
	if start.After(now) {
		start = now
	}
	return &containerCounter{claimed: claimed, start: start}
}

// add adds what the container used since the last time, or its start, and returns how much that was.
func (c *containerCounter) add(used usage, now time.Time) float64 {
	consumed := used.cores * max(now.Sub(c.asked), 0).Seconds()
	if c.asked.IsZero() {
		consumed = startUp + used.cores*min(now.Sub(c.start), firstWindow).Seconds()
	}
	c.asked = now
	c.consumed += consumed
	return consumed
}
