// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A version is what one write made of a pod.
type version struct {
	number   uint64 // the resource version: later writes to the same API server have greater ones
	uid      string
	name     string // with the namespace
	home     string // the UID of the home pod, if this is a remote one
	leaving  bool
	gone     bool // it was deleted for good
	phase    corev1.PodPhase
	once     bool             // its containers are not started again when they have ended well
	image    string           // of its container
	restarts map[string]int32 // by container
}

// line is what is read of a line of an audit log.
type line struct {
	Verb           string
	ObjectRef      *struct{ Resource string }
	ResponseStatus struct{ Code int }
	ResponseObject json.RawMessage
}

// readHistory reads the versions of pods from an audit log, in the order of the writes. The last line of a log may be torn:
// the API server was killed. Lines of the writes of that moment may be missing altogether.
func readHistory(log io.Reader) ([]version, error) {
	var history []version
	lines := bufio.NewReader(log)
	for {
		text, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) > 0 {
			if v, ok := readVersion(text); ok {
				history = append(history, v)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
	}
	slices.SortStableFunc(history, func(a, b version) int {
		switch {
		case a.number < b.number:
			return -1
		case a.number > b.number:
			return 1
		}
		return 0
	})
	return history, nil
}

func readVersion(text []byte) (version, bool) {
	l := line{}
	if json.Unmarshal(text, &l) != nil || l.ObjectRef == nil || l.ObjectRef.Resource != "pods" || l.ResponseStatus.Code >= 300 {
		return version{}, false
	}
	pod := corev1.Pod{}
	if json.Unmarshal(l.ResponseObject, &pod) != nil || pod.Kind != "Pod" || pod.UID == "" {
		return version{}, false
	}
	number, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		return version{}, false // a dry run
	}
	v := version{
		number: number, uid: string(pod.UID), name: pod.Namespace + "/" + pod.Name, home: pod.Labels[v1alpha1.LabelHomeUID],
		leaving: pod.DeletionTimestamp != nil, phase: pod.Status.Phase, restarts: map[string]int32{},
	}
	v.once, v.image = pod.Spec.RestartPolicy == corev1.RestartPolicyNever, imageOf(pod.Spec.Containers)
	v.gone = l.Verb == "delete" && (pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds == 0)
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		v.restarts[s.Name] = s.RestartCount
	}
	return v, true
}

// imageOf is the image of the one container that pods of the load have, if it was logged.
func imageOf(containers []corev1.Container) string {
	if len(containers) == 0 {
		return ""
	}
	return containers[0].Image
}

func TestReadHistory(t *testing.T) {
	entry := func(verb string, code int, pod corev1.Pod) string {
		pod.Kind = "Pod"
		object, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"verb":%q,"objectRef":{"resource":"pods","namespace":"ns","name":"web"},"responseStatus":{"code":%d},"responseObject":%s}`,
			verb, code, object)
	}
	pod := func(number string, phase corev1.PodPhase, restarts int32) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "r1", ResourceVersion: number, Labels: map[string]string{v1alpha1.LabelHomeUID: "h1"}},
			Status:     corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", RestartCount: restarts}}},
		}
	}
	leaving := pod("9", corev1.PodRunning, 1)
	now, grace := metav1.NewTime(time.Now()), int64(0)
	leaving.DeletionTimestamp, leaving.DeletionGracePeriodSeconds = &now, &grace
	log := strings.Join([]string{
		entry("patch", 200, pod("7", corev1.PodRunning, 1)),
		entry("create", 201, pod("5", corev1.PodPending, 0)), // logged later than it was written
		entry("patch", 409, pod("8", corev1.PodFailed, 0)),
		`{"verb":"create","objectRef":{"resource":"shadowpods"},"responseStatus":{"code":201},"responseObject":{"kind":"ShadowPod"}}`,
		`{"verb":"create","objectRef":{"resource":"pods"},"responseStatus":{"code":201},"responseObject":{"kind":"Status"}}`,
		entry("delete", 200, leaving),
		`{"verb":"patch","objec`,
	}, "\n")
	got, err := readHistory(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	want := []version{
		{number: 5, uid: "r1", name: "ns/web", home: "h1", phase: corev1.PodPending, restarts: map[string]int32{"main": 0}},
		{number: 7, uid: "r1", name: "ns/web", home: "h1", phase: corev1.PodRunning, restarts: map[string]int32{"main": 1}},
		{number: 9, uid: "r1", name: "ns/web", home: "h1", phase: corev1.PodRunning, leaving: true, gone: true, restarts: map[string]int32{"main": 1}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(version{})); diff != "" {
		t.Error(diff)
	}
}

// byUID returns the versions of each pod.
func byUID(history []version) map[string][]version {
	pods := map[string][]version{}
	for _, v := range history {
		pods[v.uid] = append(pods[v.uid], v)
	}
	return pods
}

// sortedKeys keeps what is reported in one order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
