// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trace"
)

func TestChangesOfThePodAreCarried(t *testing.T) {
	for want, change := range map[string]func(pod *corev1.Pod){
		`"image":"registry.example/shop:2"`: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "registry.example/shop:2" },
		`"requests":{"cpu":"2"}`: func(p *corev1.Pod) { // resized in place
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		},
		`"colour":"green"`:  func(p *corev1.Pod) { p.Labels["colour"] = "green"; p.Generation-- },
		`"note":"carry me"`: func(p *corev1.Pod) { p.Annotations = map[string]string{"note": "carry me"}; p.Generation-- },
	} {
		t.Run(want, func(t *testing.T) {
			w := offloaded(t, podCalled("web-1"))
			w.reconcilePod("web-1")
			w.wrote()

			pod := w.pod("web-1")
			pod.Generation++ // as the API server does for a change of the spec
			change(pod)
			w.put(w.Home, pod)
			w.reconcilePod("web-1")
			w.reconcilePod("web-1")
			if diff := cmp.Diff([]string{"remote update ShadowPod web-1"}, w.wrote()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if raw := w.shadow("web-1").Spec.Pod; !strings.Contains(raw, want) {
				t.Errorf("the peer is asked for %s", raw)
			}
		})
	}
}

func TestEphemeralContainersAreCarried(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	pod := w.pod("web-1")
	pod.Generation++
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "registry.example/tools:1",
	}}}
	w.pods.client = withPod{Client: w.Home.Client, pod: pod} // the client in memory knows no such subresource
	w.reconcilePod("web-1")
	if raw := w.shadow("web-1").Spec.Pod; !strings.Contains(raw, `"name":"debugger"`) {
		t.Errorf("the peer is asked for %s", raw)
	}
}

func TestStatusComesHomeThoughAChangeCannotBeCarried(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	pod := w.pod("web-1")
	pod.Labels["colour"] = "green"
	w.put(w.Home, pod)
	w.Away.Refuse("update ShadowPod web-1", apierrors.NewConflict(schema.GroupResource{}, "web-1", nil))
	if _, err := w.tryPod("web-1"); !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
	if phase := w.pod("web-1").Status.Phase; phase != corev1.PodRunning {
		t.Errorf("phase %s", phase)
	}
}

func TestOverridesGoOutAndSoDoTheirChanges(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	override := func(image string) {
		current := testkit.Get[v1alpha1.NamespaceOffloading](w.Home, "shop", v1alpha1.NamespaceOffloadingName)
		current.Spec.Overrides = []v1alpha1.ClusterOverride{{Patch: []v1alpha1.PatchOperation{{
			Op: "replace", Path: "/spec/containers/0/image", Value: &runtime.RawExtension{Raw: []byte(image)},
		}}}}
		w.put(w.Home, current)
	}
	for _, image := range []string{`"mirror.example/shop:1"`, `"mirror.example/shop:2"`} {
		override(image)
		w.reconcilePod("web-1")
		w.reconcilePod("web-1")
		if raw := w.shadow("web-1").Spec.Pod; !strings.Contains(raw, image) {
			t.Errorf("the peer is asked for %s", raw)
		}
	}
	want := []string{"remote create ShadowPod web-1", "remote update ShadowPod web-1"}
	var got []string
	for _, write := range w.wrote() {
		if strings.HasPrefix(write, "remote") {
			got = append(got, write)
		}
	}
	if diff := cmp.Diff(want[1:], got); diff != "" {
		t.Errorf("writes since the last change (-want +got):\n%s", diff)
	}
}

func TestOverrideThatDoesNotFitIsTold(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.remove(w.Home, offloading())
	broken := offloading()
	broken.Spec.Overrides = []v1alpha1.ClusterOverride{{Patch: []v1alpha1.PatchOperation{{
		Op: "replace", Path: "/spec/containers/7/image", Value: &runtime.RawExtension{Raw: []byte(`"x"`)},
	}}}}
	w.put(w.Home, broken)
	w.reconcilePod("web-1")
	if message := w.pod("web-1").Status.Message; !strings.Contains(message, "spec.overrides[0]") {
		t.Errorf("message %q", message)
	}
}

const tracedUID = "3f6c1e5a-9d84-4b0e-a1c7-52f0d9e8b733"

// traced is a world whose pod was bound a second ago and is traced.
func traced(t *testing.T) (*world, *tracetest.InMemoryExporter) {
	t.Helper()
	pod := podCalled("web-1")
	pod.UID = tracedUID
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(testkit.Noon.Add(-time.Second)),
	}}
	w := offloaded(t, pod)
	spans := tracetest.NewInMemoryExporter()
	w.pods.tracer = trace.New(trace.Config{SamplePercent: 100}, sdktrace.NewSimpleSpanProcessor(spans))
	return w, spans
}

// says has the peer tell of the pod, which it started three seconds after it was bound.
func (w *world) says(phase corev1.PodPhase, ready corev1.ConditionStatus, since time.Duration) {
	w.Helper()
	shadow := w.shadow("web-1")
	began := metav1.NewTime(testkit.Noon.Add(3 * time.Second))
	status, err := json.Marshal(corev1.PodStatus{Phase: phase, StartTime: &began, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(testkit.Noon.Add(since))},
	}})
	if err != nil {
		w.Fatal(err)
	}
	shadow.Status.Phase, shadow.Status.Pod = string(phase), &runtime.RawExtension{Raw: status}
	w.put(w.Away, shadow)
	w.reconcilePod("web-1")
}

func namesOf(spans tracetest.SpanStubs) []string {
	var names []string
	for _, span := range spans {
		names = append(names, span.Name)
	}
	return names
}

func TestTraceGoesFromBoundToReady(t *testing.T) {
	w, exporter := traced(t)
	w.reconcilePod("web-1")
	w.says(corev1.PodRunning, corev1.ConditionFalse, 3*time.Second)
	w.Clock.Step(5 * time.Second)
	w.says(corev1.PodRunning, corev1.ConditionTrue, 5*time.Second)
	// What comes later is not part of it.
	w.says(corev1.PodRunning, corev1.ConditionFalse, 7*time.Second)
	w.says(corev1.PodRunning, corev1.ConditionTrue, 9*time.Second)

	spans := exporter.GetSpans()
	want := []string{"create ShadowPod", "write Pod status", "write Pod status", "offload pod"}
	if diff := cmp.Diff(want, namesOf(spans)); diff != "" {
		t.Fatalf("spans (-want +got):\n%s", diff)
	}
	root := spans[3]
	if !root.StartTime.Equal(testkit.Noon.Add(-time.Second)) || !root.EndTime.Equal(testkit.Noon.Add(5*time.Second)) {
		t.Errorf("the pod was offloaded from %s to %s", root.StartTime, root.EndTime)
	}
	for _, span := range spans {
		if got := span.SpanContext.TraceID().String(); got != strings.ReplaceAll(tracedUID, "-", "") {
			t.Errorf("%s is in trace %s", span.Name, got)
		}
		if span.Name != root.Name && span.Parent.SpanID() != root.SpanContext.SpanID() {
			t.Errorf("the parent of %s is %s", span.Name, span.Parent.SpanID())
		}
	}
	told := trace.Traceparent(root.SpanContext)
	if got := w.shadow("web-1").Annotations[v1alpha1.AnnotationTraceparent]; got != told {
		t.Errorf("the peer is told %q, want %q", got, told)
	}
	got := map[string]string{}
	for _, attribute := range root.Attributes {
		got[string(attribute.Key)] = attribute.Value.AsString()
	}
	attributes := map[string]string{
		"k8s.namespace.name": "shop", "k8s.pod.name": "web-1", "k8s.pod.uid": tracedUID, "hanse.peer": turin,
	}
	if diff := cmp.Diff(attributes, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

// The times of a pod that is ready as soon as it starts do not tell that it ever was.
func TestPodThatIsMadeAgainIsNotTracedAgain(t *testing.T) {
	w, exporter := traced(t)
	w.reconcilePod("web-1")
	w.says(corev1.PodRunning, corev1.ConditionTrue, 3*time.Second)
	w.says(corev1.PodRunning, corev1.ConditionFalse, 3*time.Second)
	exporter.Reset()
	shadow := w.shadow("web-1")
	shadow.Status.Recreations = 1
	w.put(w.Away, shadow)
	w.says(corev1.PodRunning, corev1.ConditionTrue, 9*time.Second)
	if spans := exporter.GetSpans(); len(spans) > 0 {
		t.Errorf("recorded %v", namesOf(spans))
	}
}

func TestPodThatFailsEndsItsTrace(t *testing.T) {
	w, exporter := traced(t)
	w.reconcilePod("web-1")
	w.says(corev1.PodFailed, corev1.ConditionFalse, 3*time.Second)
	spans := exporter.GetSpans()
	if root := spans[len(spans)-1]; root.Name != "offload pod" || root.Status.Description == "" {
		t.Errorf("the last of %v ends with %q", namesOf(spans), root.Status.Description)
	}
}

// A provider of an older version refuses what it does not know of our own.
func TestPeerThatKnowsNoTracesGetsThePod(t *testing.T) {
	w, exporter := traced(t)
	w.Away.Before(func(write testkit.Write) error {
		if _, told := write.Object.GetAnnotations()[v1alpha1.AnnotationTraceparent]; told {
			return apierrors.NewForbidden(schema.GroupResource{}, write.Name, errors.New("hanse.dev is ours"))
		}
		return nil
	})
	w.reconcilePod("web-1")
	if _, told := w.shadow("web-1").Annotations[v1alpha1.AnnotationTraceparent]; told {
		t.Error("it is told of the trace")
	}
	if diff := cmp.Diff([]string{"create ShadowPod"}, namesOf(exporter.GetSpans())); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestUntracedPodSaysNothingOfTraces(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	if _, told := w.shadow("web-1").Annotations[v1alpha1.AnnotationTraceparent]; told {
		t.Error("the peer is told of a trace")
	}
}

func TestWhatIsAskedOfFurtherClustersGoesOut(t *testing.T) {
	const before = `[{"exclude":["c-visby"],"maxLatency":"20ms"}]`
	sentOn := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1alpha1.AnnotationPath: "riga,visby", v1alpha1.AnnotationOnward: before}
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ShadowPod", Name: "web-1", UID: "s", Controller: ptr.To(true),
		}}
	}
	excludes := func(offloading *v1alpha1.NamespaceOffloading) {
		offloading.Spec.Placement = &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: []string{"bremen", "c-riga"}}}
	}
	for name, test := range map[string]struct {
		pod  func(*corev1.Pod)
		how  func(*v1alpha1.NamespaceOffloading)
		want string
	}{
		"nothing":                     {nil, nil, ""},
		"what the namespace excludes": {nil, excludes, `[{"exclude":["c-bremen","c-riga"]}]`},
		"what was asked before":       {sentOn, nil, `[{"exclude":["c-visby"],"maxLatency":"15ms"}]`},
		"both":                        {sentOn, excludes, `[{"exclude":["c-visby"],"maxLatency":"15ms"},{"exclude":["c-bremen","c-riga"]}]`},
		"what a user wrote on a pod": {func(pod *corev1.Pod) {
			sentOn(pod)
			pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].APIVersion = "ReplicaSet", "apps/v1"
		}, nil, ""},
		"what Hanse keeps in a twin": {sentOn, func(offloading *v1alpha1.NamespaceOffloading) {
			excludes(offloading)
			offloading.Annotations = map[string]string{v1alpha1.AnnotationKeptOffloading: "true"}
		}, `[{"exclude":["c-visby"],"maxLatency":"15ms"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podCalled("web-1")
			if test.pod != nil {
				test.pod(pod)
			}
			w := offloaded(t, pod)
			bremen := testkit.Peer("bremen", v1alpha1.RoleProvider)
			bremen.Spec.ClusterID = "c-bremen"
			w.put(w.Home, bremen)
			testkit.Change(w.Home, "", turin, func(peer *v1alpha1.Peer) {
				peer.Status.RoundTripTime = &metav1.Duration{Duration: 5 * time.Millisecond}
			})
			if test.how != nil {
				testkit.Change(w.Home, pod.Namespace, v1alpha1.NamespaceOffloadingName, test.how)
			}
			w.reconcilePod("web-1")
			if got := w.shadow("web-1").Spec.Onward; got != test.want {
				t.Errorf("asked is %s, want %s", got, test.want)
			}

			// It cannot change: the provider refuses an update of the ShadowPod without it.
			testkit.Change(w.Home, pod.Namespace, pod.Name, func(pod *corev1.Pod) { pod.Labels["colour"] = "green" })
			w.reconcilePod("web-1")
			updated := w.shadow("web-1")
			if !strings.Contains(updated.Spec.Pod, `"colour":"green"`) {
				t.Errorf("the change of the pod is not sent: %s", updated.Spec.Pod)
			}
			if updated.Spec.Onward != test.want {
				t.Errorf("after an update asked is %s, want %s", updated.Spec.Onward, test.want)
			}
		})
	}
}

func TestPodWithConfigurationGoesWhereCopiesGo(t *testing.T) {
	without := func(p *v1alpha1.Peer) { p.Spec.Mode, p.Spec.Copies = v1alpha1.ModeAgentless, "" }
	with := func(reason string, observed int64) func(*v1alpha1.Peer) {
		return func(p *v1alpha1.Peer) {
			p.Generation, p.Spec.Mode, p.Spec.Copies = 2, v1alpha1.ModeAgentless, v1alpha1.CopiesConfiguration
			p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionAuthenticated, Status: metav1.ConditionTrue, Reason: reason, Message: "to create secrets", ObservedGeneration: observed,
			})
		}
	}
	forbidden := with(v1alpha1.ReasonForbidden, 2)
	for name, test := range map[string]struct {
		change func(*v1alpha1.Peer)
		plain  bool // the pod refers to nothing
		says   string
	}{
		"a peer with Hanse":                        {change: func(*v1alpha1.Peer) {}},
		"one without":                              {change: without, says: `it refers to Secret "password". ConfigMaps and Secrets go`},
		"one without, and a pod without":           {change: without, plain: true},
		"one without that takes copies":            {change: with(v1alpha1.ReasonReady, 2)},
		"one that was not asked yet":               {change: with(v1alpha1.ReasonReady, 1), says: "not known yet"},
		"one that lacks rights":                    {change: forbidden, says: "to create secrets"},
		"one that lacks rights, and a pod without": {change: forbidden, plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podCalled("web-1")
			if !test.plain {
				pod.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{
					Secret: &corev1.SecretVolumeSource{SecretName: "password"},
				}}}
			}
			w := offloaded(t, pod)
			p := peer()
			w.Home.Get(p, "", turin)
			test.change(p)
			w.put(w.Home, p)
			w.reconcilePod("web-1")
			out := w.Away.Find(&v1alpha1.ShadowPod{}, twinName, "web-1")
			if got := w.pod("web-1").Status.Message; out != (test.says == "") || !strings.Contains(got, test.says) {
				t.Errorf("it is out: %t, and says %q", out, got)
			}
			if (test.says != "" || test.plain) != remapped().Update(updated(peer(), p)) {
				t.Error("pods are not looked at when that changes, or when it does not")
			}
		})
	}
}
