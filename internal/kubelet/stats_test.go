// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/internal/testkit"
)

// metricsWorld is a kubelet API before a provider whose metrics API tells what a test says.
type metricsWorld struct {
	*apiWorld
	items  []string // of the answer
	status int
	asks   atomic.Int32
}

func newMetricsWorld(t *testing.T) *metricsWorld {
	t.Helper()
	w := &metricsWorld{status: http.StatusOK}
	w.apiWorld = newAPIWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		w.asks.Add(1)
		if want := "/apis/metrics.k8s.io/v1beta1/namespaces/" + twinName + "/pods"; r.URL.Path != want {
			t.Errorf("asked for %s", r.URL)
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(w.status)
		say(rw, `{"kind":"PodMetricsList","metadata":{},"items":[`+strings.Join(w.items, ",")+`]}`)
	})
	w.runs("web-1", testkit.Noon)
	w.get("/healthz") // it has been asked, so it is up, and its counters have begun
	return w
}

// runs shows at home that the container of the pod has started.
func (w *metricsWorld) runs(name string, since time.Time) {
	w.Helper()
	pod := w.pod(name)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "web", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}},
	}}
	w.put(w.Home, pod)
}

func podMetricsOf(pod, container, cpu, memory string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"timestamp":"2001-01-01T00:00:00Z","window":"15s",`+
		`"containers":[{"name":%q,"usage":{"cpu":%q,"memory":%q}}]}`, pod, container, cpu, memory)
}

// resource returns the lines of /metrics/resource, without comments.
func (w *metricsWorld) resource() []string {
	w.Helper()
	status, body := w.get("/metrics/resource")
	if status != http.StatusOK {
		w.Fatalf("status %d: %s", status, body)
	}
	var lines []string
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// lines are those of one container, pod and node that consumed so much.
func lines(consumed string, memory string, started, at time.Time) []string {
	ms := at.UnixMilli()
	return []string{
		fmt.Sprintf(`container_cpu_usage_seconds_total{container="web",pod="web-1",namespace="shop"} %s %d`, consumed, ms),
		fmt.Sprintf(`container_memory_working_set_bytes{container="web",pod="web-1",namespace="shop"} %s %d`, memory, ms),
		fmt.Sprintf(`container_start_time_seconds{container="web",pod="web-1",namespace="shop"} %s`, seconds(started)),
		fmt.Sprintf(`node_cpu_usage_seconds_total %s %d`, consumed, ms),
		fmt.Sprintf(`node_memory_working_set_bytes %s %d`, memory, ms),
		fmt.Sprintf(`pod_cpu_usage_seconds_total{namespace="shop",pod="web-1"} %s %d`, consumed, ms),
		fmt.Sprintf(`pod_memory_working_set_bytes{namespace="shop",pod="web-1"} %s %d`, memory, ms),
		`resource_scrape_error 0`,
	}
}

// uncounted are those of a container and its pod of which is only known what they had consumed until then.
func uncounted(consumed string, started, container, pod time.Time) []string {
	return []string{
		fmt.Sprintf(`container_cpu_usage_seconds_total{container="web",pod="web-1",namespace="shop"} %s %d`, consumed, container.UnixMilli()),
		fmt.Sprintf(`container_start_time_seconds{container="web",pod="web-1",namespace="shop"} %s`, seconds(started)),
		fmt.Sprintf(`pod_cpu_usage_seconds_total{namespace="shop",pod="web-1"} %s %d`, consumed, pod.UnixMilli()),
	}
}

func seconds(at time.Time) string {
	mantissa := strings.TrimRight(fmt.Sprint(at.Unix()), "0")
	return fmt.Sprintf("%s.%se+09", mantissa[:1], mantissa[1:])
}

func (w *metricsWorld) expectLines(want []string) {
	w.Helper()
	if diff := cmp.Diff(want, w.resource()); diff != "" {
		w.Errorf("/metrics/resource (-want +got):\n%s", diff)
	}
}

func TestConsumptionIsWhatUsageAddsUpTo(t *testing.T) {
	w := newMetricsWorld(t)
	w.items = []string{podMetricsOf("web-1", "web", "500m", "2Ki")}
	w.Clock.Step(20 * time.Second)
	first := w.Clock.Now()
	w.expectLines(lines("10.001", "2048", testkit.Noon, first)) // half a core since it started, 20 s ago, and its start-up

	w.items = []string{podMetricsOf("web-1", "web", "2", "4Ki")}
	w.Clock.Step(9 * time.Second)
	w.expectLines(lines("10.001", "2048", testkit.Noon, first)) // which is believed for 10 s
	w.Clock.Step(6 * time.Second)
	w.expectLines(lines("40.001", "4096", testkit.Noon, w.Clock.Now())) // two cores for 15 s more
	if asks := w.asks.Load(); asks != 2 {
		t.Errorf("the provider was asked %d times", asks)
	}

	again := w.Clock.Now()
	w.runs("web-1", again) // the container was started again
	w.Clock.Step(30 * time.Second)
	want := lines("60.001", "4096", again, w.Clock.Now())
	want[3] = fmt.Sprintf(`node_cpu_usage_seconds_total 100.002 %d`, w.Clock.Now().UnixMilli())
	want[5] = fmt.Sprintf(`pod_cpu_usage_seconds_total{namespace="shop",pod="web-1"} 100.002 %d`, w.Clock.Now().UnixMilli())
	w.expectLines(want)
}

func TestContainerThatIsOldWhenWeStartCountsFromThenOn(t *testing.T) {
	w := newMetricsWorld(t)
	w.items = []string{podMetricsOf("web-1", "web", "1", "2Ki")}
	w.Clock.Step(100 * time.Hour)
	w.expectLines(lines("60.001", "2048", testkit.Noon, w.Clock.Now()))
}

func TestClockOfThePeerDoesNotMatter(t *testing.T) {
	w := newMetricsWorld(t)
	w.runs("web-1", testkit.Noon.Add(10*time.Minute))
	w.items = []string{podMetricsOf("web-1", "web", "1", "2Ki")}
	w.expectLines(lines("0.001", "2048", testkit.Noon, testkit.Noon))
	w.Clock.Step(15 * time.Second)
	w.expectLines(lines("15.001", "2048", testkit.Noon, w.Clock.Now()))
}

func TestWhatAPeerMakesUpIsNotTold(t *testing.T) {
	good := podMetricsOf("web-1", "web", "500m", "2Ki")
	for name, items := range map[string][]string{
		"a pod of nobody":          {podMetricsOf("web-2", "web", "1", "1"), good},
		"a container of nobody":    {podMetricsOf("web-1", "spy", "1", "1"), good},
		"one that does not run":    {podMetricsOf("web-1", "debugger-x", "1", "1"), good},
		"the same once more":       {good, podMetricsOf("web-1", "web", "9", "9")},
		"less than nothing":        {podMetricsOf("web-1", "web", "-1", "1"), good},
		"more than there is":       {podMetricsOf("web-1", "web", "1E", "1"), good},
		"what takes minutes":       {podMetricsOf("web-1", "web", "1e-999999999", "1"), good},
		"no quantity":              {podMetricsOf("web-1", "web", "lots", "1"), good},
		"too many containers":      {`{"metadata":{"name":"web-1"},"containers":[` + strings.Repeat("{},", 30_000) + `{}]}`, good},
		"what is no list":          {`{"metadata":{"name":"web-1"},"containers":{"name":"web"}}`, good},
		"a line break in the name": {podMetricsOf("web-1", "web\n} 1", "1", "1"), good},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMetricsWorld(t)
			w.items = items
			w.Clock.Step(20 * time.Second)
			w.expectLines(lines("10.001", "2048", testkit.Noon, w.Clock.Now()))
		})
	}
}

func TestPodIsListedBeforeItsFigures(t *testing.T) {
	w := newMetricsWorld(t)
	created := w.pod("web-1").CreationTimestamp.Time
	fine := []string{`resource_scrape_error 0`}
	w.Clock.Step(5 * time.Second)
	w.expectLines(append(uncounted("0", testkit.Noon, testkit.Noon, created), fine...)) // not as of now: nobody knows that
	got := w.summaryOf("web-1")
	zero := func(at time.Time) *stats.CPUStats {
		return &stats.CPUStats{Time: metav1.NewTime(at), UsageCoreNanoSeconds: ptr.To[uint64](0)}
	}
	want := stats.PodStats{
		PodRef:    stats.PodReference{Name: "web-1", Namespace: "shop", UID: "uid-web-1"},
		StartTime: metav1.NewTime(created), CPU: zero(created),
		Containers: []stats.ContainerStats{{Name: "web", StartTime: metav1.NewTime(testkit.Noon), CPU: zero(testkit.Noon)}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}

	w.items = []string{podMetricsOf("web-1", "web", "500m", "2Ki")}
	w.Clock.Step(15 * time.Second)
	counted := w.Clock.Now()
	w.expectLines(lines("10.001", "2048", testkit.Noon, counted))
	w.items = nil
	w.Clock.Step(15 * time.Second)
	w.expectLines(append(uncounted("10.001", testkit.Noon, counted, counted), fine...)) // and not what it used then
}

// A reading is believed for some seconds, but what runs is known at once.
func TestPodIsListedThoughThePeerIsNotAskedAgain(t *testing.T) {
	w := newMetricsWorld(t)
	w.items = []string{podMetricsOf("web-1", "web", "500m", "2Ki")}
	w.Clock.Step(20 * time.Second)
	want := lines("10.001", "2048", testkit.Noon, w.Clock.Now())
	w.expectLines(want)

	w.Clock.Step(2 * time.Second)
	begun := w.Clock.Now()
	w.runs("pending", begun)
	w.Clock.Step(2 * time.Second)
	w.expectLines(slices.Sorted(slices.Values(append(want,
		fmt.Sprintf(`container_cpu_usage_seconds_total{container="web",pod="pending",namespace="shop"} 0 %d`, begun.UnixMilli()),
		fmt.Sprintf(`container_start_time_seconds{container="web",pod="pending",namespace="shop"} %s`, seconds(begun)),
		fmt.Sprintf(`pod_cpu_usage_seconds_total{namespace="shop",pod="pending"} 0 %d`, w.pod("pending").CreationTimestamp.UnixMilli()),
	))))
	if asks := w.asks.Load(); asks != 1 {
		t.Errorf("the provider was asked %d times", asks)
	}
	w.remove(w.Home, w.pod("web-1"))
	w.remove(w.Home, w.pod("pending"))
	w.expectLines([]string{`resource_scrape_error 0`})
}

// Our cache hears of what we bring home later than those may who wait for it.
func TestPodRunsThoughOurCacheDoesNotKnowYet(t *testing.T) {
	w := newMetricsWorld(t)
	behind := w.pod("web-1")
	claimed := behind.Status.DeepCopy()
	claimed.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	raw, err := json.Marshal(claimed)
	if err != nil {
		t.Fatal(err)
	}
	shadow := w.shadow("web-1")
	shadow.Status.Pod = &runtime.RawExtension{Raw: raw}
	w.put(w.Away, shadow)
	behind.Status = corev1.PodStatus{Phase: corev1.PodPending}
	w.put(w.Home, behind)

	if got := w.summaryOf("web-1"); len(got.Containers) != 1 {
		t.Errorf("containers %+v", got.Containers)
	}
	if _, body := w.get("/runningpods/"); !strings.Contains(body, `"name":"web-1"`) {
		t.Errorf("it does not run: %s", body)
	}
	shadow = w.shadow("web-1")
	shadow.Spec.HomeUID = "uid-of-an-older-one"
	w.put(w.Away, shadow)
	if _, body := w.get("/runningpods/"); strings.Contains(body, `"name":"web-1"`) {
		t.Errorf("another pod of the name runs: %s", body)
	}
}

// Metrics-server leaves out a pod if it lacks the memory of one container, instead of telling too little of it.
func TestContainerWithoutFiguresBesideOneThatHasSome(t *testing.T) {
	w := newMetricsWorld(t)
	pod := w.pod("web-1")
	pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{
		Name: "debugger-x", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(testkit.Noon)}},
	}}
	w.put(w.Home, pod)
	w.items = []string{podMetricsOf("web-1", "web", "500m", "2Ki")}
	w.Clock.Step(20 * time.Second)
	w.expectLines(slices.Sorted(slices.Values(append(lines("10.001", "2048", testkit.Noon, w.Clock.Now()),
		fmt.Sprintf(`container_cpu_usage_seconds_total{container="debugger-x",pod="web-1",namespace="shop"} 0 %d`, testkit.Noon.UnixMilli()),
		fmt.Sprintf(`container_start_time_seconds{container="debugger-x",pod="web-1",namespace="shop"} %s`, seconds(testkit.Noon)),
	))))
}

func TestPeerWithoutMetrics(t *testing.T) {
	w := newMetricsWorld(t)
	created := w.pod("web-1").CreationTimestamp.Time
	failed := []string{"resource_scrape_error 1"}
	w.status = http.StatusNotFound
	for range 2 {
		w.expectLines(append(uncounted("0", testkit.Noon, testkit.Noon, created), failed...))
	}
	if asks := w.asks.Load(); asks != 1 {
		t.Errorf("asked %d times", asks)
	}
	w.summaryOf("web-1")
	w.status, w.items = http.StatusOK, []string{podMetricsOf("web-1", "web", "1", "2Ki")}
	w.Clock.Step(believedFor)
	counted := w.Clock.Now()
	w.expectLines(lines("10.001", "2048", testkit.Noon, counted))

	w.status = http.StatusServiceUnavailable
	w.Clock.Step(believedFor)
	w.expectLines(append(uncounted("10.001", testkit.Noon, counted, counted), failed...))
	w.turin.Fail(errNoMetrics) // its watches fail, too
	w.Clock.Step(believedFor)
	w.expectLines(append(uncounted("10.001", testkit.Noon, counted, counted), failed...))
	if asks := w.asks.Load(); asks != 3 {
		t.Errorf("asked %d times, though the peer is known not to answer", asks)
	}
	w.status = http.StatusOK
	w.turin.Heal()
	w.Clock.Step(believedFor)
	w.expectLines(lines("40.001", "2048", testkit.Noon, w.Clock.Now())) // the counter went on
}

func TestSummaryOfANodeOfWhichNothingIsKnown(t *testing.T) {
	w := newMetricsWorld(t)
	w.remove(w.Home, w.pod("web-1"))
	w.links.Close(turin)
	if status, _ := w.get("/stats/summary"); status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
}

func TestCountersGoWithThePod(t *testing.T) {
	w := newMetricsWorld(t)
	w.items = []string{podMetricsOf("web-1", "web", "1", "2Ki")}
	meter := newMeter(turinNode, w.Home.Client, w.links, w.Clock)
	meter.read(t.Context())
	if len(meter.counters.pods) != 2 { // web-1 and pending
		t.Errorf("%d pods are counted", len(meter.counters.pods))
	}
	w.remove(w.Home, w.pod("web-1"))
	w.Clock.Step(believedFor)
	meter.read(t.Context())
	if len(meter.counters.pods) != 1 {
		t.Errorf("%d pods are counted", len(meter.counters.pods))
	}
}

// summaryOf returns what /stats/summary tells of one pod.
func (w *metricsWorld) summaryOf(pod string) stats.PodStats {
	w.Helper()
	_, body := w.get("/stats/summary")
	got := stats.Summary{}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		w.Fatalf("%v: %s", err, body)
	}
	at := slices.IndexFunc(got.Pods, func(p stats.PodStats) bool { return p.PodRef.Name == pod })
	if at < 0 {
		w.Fatalf("the pod is not listed: %s", body)
	}
	return got.Pods[at]
}

func TestSummary(t *testing.T) {
	w := newMetricsWorld(t)
	w.items = []string{podMetricsOf("web-1", "web", "500m", "2Ki")}
	w.Clock.Step(20 * time.Second)
	_, body := w.get("/stats/summary?only_cpu_and_memory=true")
	got := stats.Summary{}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	at := metav1.NewTime(w.Clock.Now())
	cpu := &stats.CPUStats{
		Time: at, UsageNanoCores: ptr.To[uint64](500_000_000), UsageCoreNanoSeconds: ptr.To[uint64](10_001_000_000),
	}
	memory := &stats.MemoryStats{Time: at, WorkingSetBytes: ptr.To[uint64](2048)}
	want := stats.Summary{
		Node: stats.NodeStats{NodeName: turinNode, StartTime: metav1.NewTime(testkit.Noon), CPU: cpu, Memory: memory},
		Pods: []stats.PodStats{{
			PodRef:    stats.PodReference{Name: "web-1", Namespace: "shop", UID: "uid-web-1"},
			StartTime: metav1.NewTime(testkit.Noon.Add(-time.Hour)), CPU: cpu, Memory: memory,
			Containers: []stats.ContainerStats{{Name: "web", StartTime: metav1.NewTime(testkit.Noon), CPU: cpu, Memory: memory}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestPodsOfTheNode(t *testing.T) {
	w := newMetricsWorld(t)
	for path, want := range map[string][]string{"/pods": {"pending", "web-1"}, "/runningpods/": {"web-1"}} {
		_, body := w.get(path)
		list := corev1.PodList{}
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Name)
		}
		if diff := cmp.Diff(want, got); diff != "" || list.Kind != "PodList" {
			t.Errorf("%s, a %s (-want +got):\n%s", path, list.Kind, diff)
		}
	}
	if status, body := w.get("/healthz"); status != http.StatusOK || body != "ok" {
		t.Errorf("/healthz: %d %q", status, body)
	}
}

func TestWhoReadsWhatOfANode(t *testing.T) {
	w := newMetricsWorld(t)
	for path, subresources := range map[string]string{
		"/metrics/resource": "metrics", "/stats/summary": "stats", "/pods": "pods proxy", "/runningpods/": "pods proxy",
		"/healthz": "healthz proxy", "/containerLogs/shop/web-1/web": "proxy",
	} {
		var asked []string
		w.may = func(a authorizer.Attributes) bool {
			asked = append(asked, a.GetSubresource())
			return false
		}
		if status, _ := w.get(path); status != http.StatusForbidden {
			t.Errorf("%s: status %d", path, status)
		}
		if got := strings.Join(asked, " "); got != subresources {
			t.Errorf("%s: asked about %q, want %q", path, got, subresources)
		}
	}
	if w.asks.Load() != 0 {
		t.Error("the provider was asked")
	}
}
