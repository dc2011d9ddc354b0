// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Scene is what an honest provider has for a consumer: some attacks tell lies about that.
type Scene struct {
	// Record is of a pod of the consumer, and Mapping is of the namespace whose twin that pod runs in.
	Record  *v1alpha1.ShadowPod
	Mapping *v1alpha1.NamespaceMapping
}

const (
	// largest is about what etcd takes of one object.
	largest = 1_400_000
	// manyBytes is more than a consumer takes as one answer.
	manyBytes = 64 << 20
)

// Attacks returns all attacks of a provider that a consumer must stand, without harm to anybody else.
func Attacks(scene Scene) ([]Attack, error) {
	certificate, err := ofAnother()
	if err != nil {
		return nil, err
	}
	attacks := []Attack{{Name: "a certificate of another", Certificate: certificate}}
	for _, group := range [][]Attack{tooMany(), tooLarge(), tooDense(), tooSlow(), broken(), forged(scene), restless(scene)} {
		attacks = append(attacks, group...)
	}
	return attacks, nil
}

// tooMany shows more objects than anybody has.
func tooMany() []Attack {
	large := padded(60_000)
	return []Attack{
		{Name: "large pages without end", Lie: Either(Expires(""), ListsWithoutEnd("", page(500, 60_000)))},
		{Name: "pages without end", Lie: Either(Expires(""), ListsWithoutEnd("", page(50, 60_000)))},
		{Name: "empty pages without end", Lie: Either(Expires(""), ListsWithoutEnd("", page(0, 0)))},
		{Name: "new names in a watch", Lie: Events("", 0, func(w io.Writer, r *http.Request, i int) {
			o := invented(r, i)
			o.metadata = large
			o.event(w, "ADDED")
		})},
		{Name: "invented mappings", Lie: Events("namespacemappings", 0, func(w io.Writer, r *http.Request, i int) {
			o := invented(r, i)
			o.rest = fmt.Sprintf(`,"spec":{"homeNamespace":%q},"status":{"twin":"twin-%d"}`, o.name, i)
			o.event(w, "ADDED")
		})},
		{Name: "invented records", Lie: Events("shadowpods", 0, func(w io.Writer, r *http.Request, i int) {
			invented(r, i).event(w, "ADDED")
		})},
	}
}

// tooLarge sends bytes of which nothing, or little, is kept.
func tooLarge() []Attack {
	padding := padded(largest)
	unread := `,"managedFields":[{"manager":"` + strings.Repeat("x", largest) + `"}]`
	return []Attack{
		{Name: "objects of another namespace", Mild: true, Lie: Events("", 0, func(w io.Writer, r *http.Request, i int) {
			o := invented(r, i)
			o.namespace, o.metadata = "kube-system", padding
			o.event(w, "ADDED")
		})},
		{Name: "objects of which nothing is kept", Mild: true, Lie: Events("", 0, func(w io.Writer, r *http.Request, i int) {
			o := invented(r, 0)
			o.version, o.metadata = i+1, unread
			o.event(w, "MODIFIED")
		})},
		{Name: "an event without end", Lie: Events("", 0, func(w io.Writer, _ *http.Request, _ int) {
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"`)
			writeMany(w, manyBytes)
		})},
		{Name: "an answer without end", Lie: Answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			writeMany(w, manyBytes)
		})},
		{Name: "headers without end", Lie: Answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for i := range 1000 {
				w.Header().Set(fmt.Sprintf("Padding-%d", i), strings.Repeat("x", 1000))
			}
		})},
		{Name: "a compressed bomb", Lie: Answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			for range 16 {
				_, _ = w.Write(compressedSpaces())
			}
		})},
	}
}

// tooDense sends few bytes that become many when they are decoded.
func tooDense() []Attack {
	objects, fields := repeated("{}", 2_000_000), `,"managedFields":[`+repeated("{}", largest/3)+"]"
	maps := `,"spec":{"x":[` + repeated(`{"":0}`, largest/7) + "]}"
	nested := strings.Repeat("[", largest)
	oneOf := func(spoil func(o *object)) Lie {
		return Events("", 0, func(w io.Writer, r *http.Request, i int) {
			o := invented(r, i)
			spoil(&o)
			o.event(w, "ADDED")
		})
	}
	return []Attack{
		{Name: "a page of empty objects", Lie: Either(Expires(""), Lists("", func(w io.Writer, _ *http.Request) { _, _ = io.WriteString(w, objects) }))},
		{Name: "an object of empty fields", Lie: oneOf(func(o *object) { o.metadata = fields })},
		{Name: "an object of small maps", Lie: oneOf(func(o *object) { o.rest = maps })},
		{Name: "a deep object", Mild: true, Lie: oneOf(func(o *object) { o.rest = `,"spec":` + nested })},
		{Name: "quantities that take for ever", Mild: true, Lie: oneOf(func(o *object) {
			o.rest = `,"spec":{"availability":{"cpu":"1e-999999999"}},"status":{"twin":"x","pod":{"spec":{"overhead":{"cpu":"1e999999999"}}}}`
		})},
	}
}

// tooSlow keeps whoever asks waiting.
func tooSlow() []Attack {
	drip := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			pauseFor(r.Context(), 100*time.Millisecond)
		}
	}
	return []Attack{
		{Name: "writes that hang", Mild: true, Lie: SlowWrites(time.Minute)},
		{Name: "answers that do not come", Lie: Answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })},
		// A watch that drips is open like one without events: only who lists again gets no answer.
		{Name: "answers that drip", Lie: Either(Expires(""), Answers(drip))},
	}
}

// broken answers what no API server does.
func broken() []Attack {
	always := func(code int, contentType, body string, header ...string) Lie {
		return Answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		})
	}
	const asJSON = "application/json"
	status := func(code int, reason metav1.StatusReason, header ...string) Lie {
		body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`,
			code, reason, strings.Repeat("\x1b[2J ", 1000))
		return always(code, asJSON, body, header...)
	}
	return []Attack{
		{Name: "redirects", Lie: always(http.StatusTemporaryRedirect, asJSON, "{}", "Location", "/elsewhere")},
		{Name: "another content type", Lie: always(http.StatusOK, "application/yaml", "&a [*a]")},
		{Name: "no JSON", Lie: always(http.StatusOK, asJSON, "{{{")},
		{Name: "another kind", Mild: true, Lie: always(http.StatusOK, asJSON,
			`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"x"}}]}`)},
		{Name: "waits of a day", Lie: status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "Retry-After", "86400")},
		{Name: "unauthorized", Lie: status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)},
		{Name: "forbidden", Lie: status(http.StatusForbidden, metav1.StatusReasonForbidden)},
		{Name: "errors", Lie: status(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
		{Name: "watches that end at once", Mild: true, Lie: Events("", 0, func(io.Writer, *http.Request, int) { panic(http.ErrAbortHandler) })},
		{Name: "expired for ever", Mild: true, Lie: Expires("")},
	}
}

// forged shows objects that are not what they seem.
func forged(scene Scene) []Attack {
	names := []string{"", "../../../api/v1/secrets", "a/b", strings.Repeat("n", 10_000), "\u202e\x00", "kube-system", "default"}
	return []Attack{
		{Name: "forged names", Mild: true, Lie: Events("", 10*time.Millisecond, func(w io.Writer, r *http.Request, i int) {
			o := invented(r, i)
			o.name, o.rest = names[i%len(names)], fmt.Sprintf(`,"status":{"twin":%q}`, names[i/len(names)%len(names)])
			o.event(w, []string{"ADDED", "DELETED", "MODIFIED", "BOOKMARK", "NONSENSE"}[i%5])
		})},
		{Name: "a status that does not decode", Mild: true, Lie: scene.tells(func(record *v1alpha1.ShadowPod, i int) {
			spoilt := []string{`"no status"`, `[1]`, `{"conditions":7}`, `{"startTime":"yesterday"}`, `{"phase":"` + strings.Repeat("x", 300_000) + `"}`}
			record.Status.Pod = &runtime.RawExtension{Raw: []byte(spoilt[i%len(spoilt)])}
		})},
		{Name: "another uid", Mild: true, Lie: scene.tells(func(record *v1alpha1.ShadowPod, i int) {
			record.UID = types.UID(strconv.Itoa(i))
			record.Labels, record.Annotations, record.OwnerReferences = nil, nil, nil
		})},
		{Name: "numbers without bound", Mild: true, Lie: scene.tells(func(record *v1alpha1.ShadowPod, i int) {
			record.Status.ObservedGeneration = 1<<63 - 1
			record.Status.Pod = &runtime.RawExtension{Raw: fmt.Appendf(nil,
				`{"phase":"Running","containerStatuses":[{"name":"main","restartCount":%d,"state":{"running":{"startedAt":"9999-12-31T23:59:59Z"}}}]}`,
				[]int{1<<31 - 1, -1 << 31, 0}[i%3])}
		})},
	}
}

// restless changes its mind all the time.
func restless(scene Scene) []Attack {
	return []Attack{
		{Name: "a pod and a twin that turn", Mild: true, Lie: ChangesMind(scene, 10*time.Millisecond)},
		{Name: "reasons that change", Mild: true, Lie: scene.tells(func(record *v1alpha1.ShadowPod, i int) {
			record.Status.Pod = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"phase":"Pending","reason":"Reason%d","message":"%d"}`, i, i)}
		})},
		{Name: "twins that move", Mild: true, Lie: Floods("namespacemappings", 1, time.Millisecond, func(_, version int) any {
			moved := scene.mapping(version)
			moved.Status.Twin = fmt.Sprintf("%s-%d", scene.Mapping.Status.Twin, version)
			return moved
		})},
		{Name: "changes without pause", Mild: true, Lie: Floods("shadowpods", 1, 0, func(_, version int) any { return scene.record(version) })},
	}
}

// ChangesMind shows a pod that is Ready, and is not, and is, and a twin that is Ready, and is not, with a pause between.
func ChangesMind(scene Scene, pause time.Duration) Lie {
	turns := func(version int) string { return []string{"True", "False"}[version%2] }
	records := Floods("shadowpods", 1, pause, func(_, version int) any {
		turned := scene.record(version)
		turned.Status.Phase, turned.Status.PodUID = string(corev1.PodRunning), "invented"
		turned.Status.Pod = &runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}`, turns(version)),
		}
		return turned
	})
	mappings := Floods("namespacemappings", 1, pause, func(_, version int) any {
		turned := scene.mapping(version)
		meta.SetStatusCondition(&turned.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionStatus(turns(version)), Reason: fmt.Sprintf("Turned%d", version),
		})
		return turned
	})
	return Either(mappings, records)
}

// tells has the record spoilt in each event of the watch of records.
func (s Scene) tells(spoil func(record *v1alpha1.ShadowPod, i int)) Lie {
	return Floods("shadowpods", 1, 10*time.Millisecond, func(_, version int) any {
		record := s.record(version)
		spoil(record, version)
		return record
	})
}

func (s Scene) record(version int) *v1alpha1.ShadowPod {
	record := s.Record.DeepCopy()
	record.APIVersion, record.Kind = v1alpha1.GroupVersion.String(), "ShadowPod"
	record.ResourceVersion = strconv.Itoa(1_000_000 + version)
	record.Status.ObservedGeneration = record.Generation
	return record
}

func (s Scene) mapping(version int) *v1alpha1.NamespaceMapping {
	mapping := s.Mapping.DeepCopy()
	mapping.APIVersion, mapping.Kind = v1alpha1.GroupVersion.String(), "NamespaceMapping"
	mapping.ResourceVersion = strconv.Itoa(1_000_000 + version)
	return mapping
}
