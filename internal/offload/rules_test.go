// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// A kind of volume that Kubernetes learns is refused until somebody has thought about it.
func TestBuildRefusesEachOtherKindOfVolume(t *testing.T) {
	allowed := []string{"EmptyDir", "DownwardAPI", "Projected", "ConfigMap", "Secret", "Image", "PersistentVolumeClaim"}
	kinds := reflect.TypeFor[corev1.VolumeSource]()
	for i := range kinds.NumField() {
		kind := kinds.Field(i)
		t.Run(kind.Name, func(t *testing.T) {
			volume := corev1.Volume{Name: "v"}
			reflect.ValueOf(&volume.VolumeSource).Elem().Field(i).Set(reflect.New(kind.Type.Elem()))
			template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c"}}, Volumes: []corev1.Volume{volume},
			}}
			_, err := Build(shadowFrom(t, template), Rules{})
			if slices.Contains(allowed, kind.Name) {
				if err != nil {
					t.Error(err)
				}
				return
			}
			field, _, _ := strings.Cut(kind.Tag.Get("json"), ",")
			if want := "spec.volumes[0]." + field; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}

func TestRestrictedRulesCloseWhatIsOpen(t *testing.T) {
	drop := func(names ...corev1.Capability) *corev1.Capabilities { return &corev1.Capabilities{Drop: names} }
	for name, c := range map[string]struct {
		raw  string
		pod  *bool
		want corev1.SecurityContext
	}{
		"what is open is closed": {
			`{"spec":{"containers":[{"name":"c"}]}}`, ptr.To(true),
			corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: drop("ALL")},
		},
		"what is set is left to Pod Security": {
			`{"spec":{"securityContext":{"runAsNonRoot":false},"containers":[{"name":"c","securityContext":` +
				`{"allowPrivilegeEscalation":true,"capabilities":{"drop":["NET_RAW"]}}}]}}`, ptr.To(false),
			corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(true), Capabilities: drop("NET_RAW")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := Build(shadowOf(c.raw), Rules{Restricted: true})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.pod, pod.Spec.SecurityContext.RunAsNonRoot); diff != "" {
				t.Errorf("runAsNonRoot: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(&c.want, pod.Spec.Containers[0].SecurityContext); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestBuildWritesRequestsDown(t *testing.T) {
	least := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	for name, c := range map[string]struct {
		pod       string
		container string
		least     corev1.ResourceList
		want      string // of the container
		wantPod   string
	}{
		"nothing asked, nothing ruled":           {want: "", wantPod: ""},
		"nothing asked":                          {least: least, want: "100m"},
		"zero asked":                             {container: `"requests":{"cpu":"0"}`, least: least, want: "100m"},
		"little asked":                           {container: `"requests":{"cpu":"1m"}`, least: least, want: "1m"},
		"a limit alone is the request":           {container: `"limits":{"cpu":"2"}`, want: "2"},
		"a low limit bounds the least":           {container: `"limits":{"cpu":"50m"},"requests":{"cpu":"0"}`, least: least, want: "50m"},
		"a limit of zero does not":               {container: `"limits":{"cpu":"0"}`, least: least, want: "100m"},
		"the pod asks for all":                   {pod: `"requests":{"cpu":"1"}`, least: least, want: "0", wantPod: "1"},
		"the pod asks for zero":                  {pod: `"requests":{"cpu":"0"}`, least: least, want: "0", wantPod: "100m"},
		"the pod's limit alone is its request":   {pod: `"limits":{"cpu":"1"}`, least: least, want: "0", wantPod: "1"},
		"unless one of its containers asks":      {pod: `"limits":{"cpu":"1"}`, container: `"requests":{"cpu":"200m"}`, least: least, want: "200m"},
		"another resource is none of the rule's": {container: `"requests":{"memory":"1Gi"}`, least: least, want: "100m"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := `{"spec":{"resources":{` + c.pod + `},"containers":[{"name":"c","resources":{` + c.container + `}}]}}`
			if c.pod == "" {
				raw = `{"spec":{"containers":[{"name":"c","resources":{` + c.container + `}}]}}`
			}
			pod, err := Build(shadowOf(raw), Rules{LeastRequests: c.least})
			if err != nil {
				t.Fatal(err)
			}
			if got := cpuOf(&pod.Spec.Containers[0].Resources); got != c.want {
				t.Errorf("the container asks for %q, want %q", got, c.want)
			}
			if got := cpuOf(pod.Spec.Resources); got != c.wantPod {
				t.Errorf("the pod asks for %q, want %q", got, c.wantPod)
			}
		})
	}
}

func cpuOf(resources *corev1.ResourceRequirements) string {
	if resources == nil {
		return ""
	}
	asked, ok := resources.Requests[corev1.ResourceCPU]
	if !ok {
		return ""
	}
	return asked.String()
}
