// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// observed is what there is at the peer for one home pod. Nobody changes it.
type observed struct {
	owner   client.Object // the ReplicaSet or Job
	pods    []*corev1.Pod // those that it controls, the one that matters first
	version uint64        // the newest resource version that was seen of any of them
}

// observe makes of a ReplicaSet or Job, and of pods with its labels, what there is. Pods of others are left out.
func observe(owner client.Object, pods []*corev1.Pod) observed {
	seen := observed{owner: owner, version: versionOf(owner)}
	for _, pod := range pods {
		if metav1.IsControlledBy(pod, owner) {
			seen.pods = append(seen.pods, pod)
			seen.version = max(seen.version, versionOf(pod))
		}
	}
	slices.SortFunc(seen.pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(seen.rank(a), seen.rank(b)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return seen
}

// rank orders pods: one that has run to its end, then those that run or will, then those that go.
func (o observed) rank(pod *corev1.Pod) int {
	switch {
	case o.isJob() && offload.Ended(&pod.Status):
		return 0
	case pod.DeletionTimestamp.IsZero() && !offload.Terminal(pod.Status.Phase):
		return 1
	default:
		return 2
	}
}

// pod returns the pod that counts, or nil.
func (o observed) pod() *corev1.Pod {
	if len(o.pods) == 0 {
		return nil
	}
	return o.pods[0]
}

// record returns what is known of earlier pods.
func (o observed) record() record {
	known := recordOf(o.owner.GetAnnotations())
	if len(o.pods) == 0 {
		return known
	}
	return known.with(o.pods[0], o.pods[1:])
}

func (o observed) isJob() bool {
	_, isJob := o.owner.(*batchv1.Job)
	return isJob
}

func (o observed) ending() bool { return !o.owner.GetDeletionTimestamp().IsZero() }

// jobCondition returns the condition of the Job if it holds, or nil.
func (o observed) jobCondition(kind batchv1.JobConditionType) *batchv1.JobCondition {
	job, isJob := o.owner.(*batchv1.Job)
	if !isJob {
		return nil
	}
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// unmade returns why the ReplicaSet cannot make its pod, or nil.
func (o observed) unmade() *appsv1.ReplicaSetCondition {
	set, isSet := o.owner.(*appsv1.ReplicaSet)
	if !isSet {
		return nil
	}
	for i := range set.Status.Conditions {
		c := &set.Status.Conditions[i]
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// failed reports whether the Job has given up, though the containers of its pod have not failed by themselves.
func (o observed) failed() *batchv1.JobCondition {
	if pod := o.pod(); o.ending() || pod != nil && offload.Ended(&pod.Status) {
		return nil
	}
	return o.jobCondition(batchv1.JobFailed)
}

// remade reports whether another pod will come for this one.
func (o observed) remade(pod *corev1.Pod) bool {
	if o.ending() {
		return false
	}
	if !o.isJob() {
		return !pod.DeletionTimestamp.IsZero() || offload.Terminal(pod.Status.Phase)
	}
	return !offload.Ended(&pod.Status) && (!pod.DeletionTimestamp.IsZero() || offload.FailedByPlatform(&pod.Status))
}

// A record tells, in an annotation of what keeps the pods, of the pods that were there before the one that is now.
type record struct {
	// Pod is the UID of the pod that is now. It is empty as long as there was none before it.
	Pod types.UID `json:"pod,omitempty"`
	// Recreations is how many there were before.
	Recreations int32 `json:"recreations,omitempty"`
	// Restarts are those of their containers: name → how many.
	Restarts map[string]int32 `json:"restarts,omitempty"`
}

// recordOf reads the record. One that makes no sense is none.
func recordOf(annotations map[string]string) record {
	known := record{}
	if json.Unmarshal([]byte(annotations[v1alpha1.AnnotationRecord]), &known) != nil {
		return record{}
	}
	return known
}

func (r record) text() (string, error) {
	text, err := json.Marshal(r)
	return string(text), err
}

// with returns the record once now is the pod that runs, and others are those of the same owner that still exist.
func (r record) with(now *corev1.Pod, others []*corev1.Pod) record {
	if now == nil || now.UID == r.Pod || r.Pod == "" && len(others) == 0 {
		return r
	}
	next := record{Pod: now.UID, Restarts: maps.Clone(r.Restarts)}
	ended := int32(0)
	for _, other := range others {
		if r.Pod == "" || other.UID == r.Pod {
			ended++
			next.Restarts = offload.AddRestarts(next.Restarts, &other.Status)
		}
	}
	ended = max(ended, 1) // it may have gone before anybody could read its restarts
	next.Recreations = ended + min(max(r.Recreations, 0), math.MaxInt32-ended)
	return next
}
