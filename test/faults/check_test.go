// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A violation is something that must not have happened.
type violation struct {
	rule string
	text string
}

func (v violation) String() string { return v.rule + ": " + v.text }

const (
	ruleSingle   = "two containers ran for one home pod"
	ruleLost     = "lost"
	ruleRanAgain = "run again after completion"
	ruleWentBack = "status went back"
	ruleOrphan   = "orphan"
	ruleRestart  = "a container was started again for nothing"
)

// haste is by how much two containers may seem to run together: how late this process may notice an end on a machine
// that has much to do.
const haste = 500 * time.Millisecond

// checkSingle finds home pods for which two containers ran at a time. Each pod of the load has one container.
func checkSingle(runs []run) []violation {
	var found []violation
	for i, a := range runs {
		for _, b := range runs[i+1:] {
			if a.home == b.home && (a.lives || a.till.Sub(b.from) > haste) {
				found = append(found, violation{ruleSingle, fmt.Sprintf(
					"home pod %s: container %s from %s until %s, container %s from %s", a.home, a.instance, stamp(a.from), until(a), b.instance, stamp(b.from))})
			}
		}
	}
	return found
}

// checkIdentity finds names under which two containers ran at a time for different home pods: a pod of a StatefulSet must
// be gone before the next of its name begins. Nobody but StatefulSets gives a name twice.
func checkIdentity(runs []run) []violation {
	var found []violation
	for i, a := range runs {
		for _, b := range runs[i+1:] {
			if a.pod == b.pod && a.home != b.home && (a.lives || a.till.Sub(b.from) > haste) {
				found = append(found, violation{ruleSingle, fmt.Sprintf("pod %s: home pod %s from %s until %s, home pod %s from %s",
					a.pod, a.home, stamp(a.from), until(a), b.home, stamp(b.from))})
			}
		}
	}
	return found
}

// checkJobs finds Jobs whose work was done more often than they asked for, or, if nobody has deleted them, less often.
func checkJobs(runs []run, load []operation) []violation {
	done := map[string]int32{}
	for _, r := range runs {
		if end := strings.LastIndex(r.pod, "-"); end > 0 && !r.completed.IsZero() {
			done[r.pod[:end]]++
		}
	}
	left := remaining(load)
	var found []violation
	for _, o := range load {
		_, stays := left[o.on.name]
		times := done[o.on.name]
		if o.verb != createJob || times == o.on.replicas || times < o.on.replicas && !stays {
			continue
		}
		rule := ruleLost
		if times > o.on.replicas {
			rule = ruleRanAgain
		}
		found = append(found, violation{rule, fmt.Sprintf("the work of %s was done %d times, want %d", o.on.name, times, o.on.replicas)})
	}
	return found
}

// checkImages finds remote pods whose image was changed back to what home calls it, though the provider calls it otherwise
// on purpose, and pods whose container was started again more often than a user changed its image.
func checkImages(cluster string, history []version, load []operation) []violation {
	changes := map[string]int32{}
	for _, o := range load {
		if o.verb == changeImage {
			changes[o.on.name]++
		}
	}
	var found []violation
	pods := byUID(history)
	for _, uid := range sortedKeys(pods) {
		before := version{}
		for _, v := range pods[uid] {
			_, name, _ := strings.Cut(v.name, "/")
			if v.home != "" && before.image != "" && v.image != before.image && tagOf(v.image) == tagOf(before.image) {
				found = append(found, violation{ruleRestart, fmt.Sprintf("%s: pod %s had image %s and then %s", cluster, v.name, before.image, v.image)})
			}
			if times := v.restarts["main"]; v.home != "" && times > before.restarts["main"] && times > changes[name] {
				found = append(found, violation{ruleRestart, fmt.Sprintf("%s: pod %s was started again %d times, and its image changed %d times",
					cluster, v.name, times, changes[name])})
			}
			before = v
		}
	}
	return found
}

func tagOf(image string) string { return image[strings.LastIndex(image, ":")+1:] }

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000") }

func until(r run) string {
	if r.lives {
		return "now"
	}
	return stamp(r.till)
}

// checkRanAgain finds containers that ran for home pods whose work had been done. The runs are in the order of their
// starts.
func checkRanAgain(runs []run, histories map[string][]version) []violation {
	var found []violation
	done := map[string]run{}
	for _, r := range runs {
		if before, ok := done[r.home]; ok {
			found = append(found, violation{ruleRanAgain, fmt.Sprintf(
				"home pod %s completed at %s, container %s started at %s", r.home, stamp(before.completed), r.instance, stamp(r.from))})
		}
		if !r.completed.IsZero() {
			done[r.home] = r
		}
	}
	for _, cluster := range sortedKeys(histories) {
		found = append(found, checkRemade(cluster, histories[cluster])...)
	}
	return found
}

// checkRemade finds remote pods that were made for home pods whose earlier remote pod had succeeded. One that runs for ever,
// and ended well because it was deleted, has not.
func checkRemade(cluster string, history []version) []violation {
	var found []violation
	succeeded := map[string]version{} // by the UID of the home pod
	leaving := map[string]bool{}      // by the UID of the remote pod
	for _, v := range history {
		if v.home == "" {
			continue
		}
		leaving[v.uid] = leaving[v.uid] || v.leaving
		before, ok := succeeded[v.home]
		if ok && before.uid != v.uid {
			found = append(found, violation{ruleRanAgain, fmt.Sprintf(
				"%s: remote pod %s of home pod %s had succeeded, and %s was made", cluster, before.uid, v.home, v.uid)})
			delete(succeeded, v.home)
		}
		if v.phase == corev1.PodSucceeded && (v.once || !leaving[v.uid]) {
			succeeded[v.home] = v
		}
	}
	return found
}

// checkTwoRemotes finds home pods that had two remote pods in one cluster at a time.
func checkTwoRemotes(cluster string, history []version) []violation {
	var found []violation
	here := map[string]version{} // by the UID of the home pod
	for _, v := range history {
		if v.home == "" {
			continue
		}
		other, ok := here[v.home]
		if ok && other.uid != v.uid && other.name != v.name {
			found = append(found, violation{ruleSingle, fmt.Sprintf("%s: pods %s and %s for home pod %s", cluster, other.name, v.name, v.home)})
		}
		if here[v.home] = v; v.gone {
			delete(here, v.home)
		}
	}
	return found
}

// checkWentBack finds home pods whose status went back: out of a final phase, or to fewer restarts.
func checkWentBack(home []version) []violation {
	var found []violation
	pods := byUID(home)
	for _, uid := range sortedKeys(pods) {
		before := version{}
		for _, v := range pods[uid] {
			if final(before.phase) && v.phase != before.phase {
				found = append(found, violation{ruleWentBack, fmt.Sprintf("pod %s (%s) was %s at version %d and %s at %d",
					v.name, uid, before.phase, before.number, v.phase, v.number)})
			}
			for _, container := range sortedKeys(before.restarts) {
				if now, ok := v.restarts[container]; ok && now < before.restarts[container] {
					found = append(found, violation{ruleWentBack, fmt.Sprintf("container %s of pod %s (%s) had %d restarts at version %d and %d at %d",
						container, v.name, uid, before.restarts[container], before.number, now, v.number)})
				}
			}
			before = v
		}
	}
	return found
}

func final(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
