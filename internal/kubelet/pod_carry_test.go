package kubelet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
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
			w.update(w.home, pod)
			w.reconcilePod("web-1")
			w.reconcilePod("web-1")
			if diff := cmp.Diff([]string{"remote update ShadowPod web-1"}, w.wrote()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if raw := string(w.shadow("web-1").Spec.Pod.Raw); !strings.Contains(raw, want) {
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
	w.pods.client = withPod{Client: w.home, pod: pod} // the client in memory knows no such subresource
	w.reconcilePod("web-1")
	if raw := string(w.shadow("web-1").Spec.Pod.Raw); !strings.Contains(raw, `"name":"debugger"`) {
		t.Errorf("the peer is asked for %s", raw)
	}
}

func TestStatusComesHomeThoughAChangeCannotBeCarried(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	pod := w.pod("web-1")
	pod.Labels["colour"] = "green"
	w.update(w.home, pod)
	w.fail("remote update ShadowPod web-1", apierrors.NewConflict(schema.GroupResource{}, "web-1", nil))
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
		current := &v1alpha1.NamespaceOffloading{}
		if err := w.home.Get(t.Context(), client.ObjectKeyFromObject(offloading()), current); err != nil {
			t.Fatal(err)
		}
		current.Spec.Overrides = []v1alpha1.ClusterOverride{{Patch: []v1alpha1.PatchOperation{{
			Op: "replace", Path: "/spec/containers/0/image", Value: &runtime.RawExtension{Raw: []byte(image)},
		}}}}
		w.update(w.home, current)
	}
	for _, image := range []string{`"mirror.example/shop:1"`, `"mirror.example/shop:2"`} {
		override(image)
		w.reconcilePod("web-1")
		w.reconcilePod("web-1")
		if raw := string(w.shadow("web-1").Spec.Pod.Raw); !strings.Contains(raw, image) {
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
	w.delete(w.home, offloading())
	broken := offloading()
	broken.Spec.Overrides = []v1alpha1.ClusterOverride{{Patch: []v1alpha1.PatchOperation{{
		Op: "replace", Path: "/spec/containers/7/image", Value: &runtime.RawExtension{Raw: []byte(`"x"`)},
	}}}}
	w.create(w.home, broken)
	w.reconcilePod("web-1")
	if message := w.pod("web-1").Status.Message; !strings.Contains(message, "spec.overrides[0]") {
		t.Errorf("message %q", message)
	}
}
