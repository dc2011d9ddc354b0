// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestWhichLabelsAndAnnotationsAProviderTakes(t *testing.T) {
	for name, test := range map[string]struct {
		key     string
		allowed Metadata
		want    bool
	}{
		"without a domain":                 {"app", nil, true},
		"of applications":                  {"app.kubernetes.io/name", nil, true},
		"of a Job":                         {"batch.kubernetes.io/job-name", nil, true},
		"of a StatefulSet":                 {"apps.kubernetes.io/pod-index", nil, true},
		"by which to choose among sets":    {"statefulset.kubernetes.io/pod-name", nil, true},
		"of kubectl":                       {"kubectl.kubernetes.io/restartedAt", nil, true},
		"for scrapers":                     {"prometheus.io/scrape", nil, false},
		"for sidecars":                     {"sidecar.istio.io/inject", nil, false},
		"for roles of a cloud":             {"aadpodidbinding", nil, false},
		"for confinement":                  {"container.apparmor.security.beta.kubernetes.io/c", nil, false},
		"for networks":                     {"k8s.v1.cni.cncf.io/networks", nil, false},
		"of a domain below":                {"sub.app.kubernetes.io/name", nil, false},
		"ours":                             {"hanse.dev/peer", nil, false},
		"ours, whatever is allowed":        {"hanse.dev/peer", Metadata{"*/*"}, false},
		"allowed":                          {"prometheus.io/scrape", Metadata{"prometheus.io/*"}, true},
		"allowed by name":                  {"aadpodidbinding", Metadata{"aadpodidbinding"}, true},
		"another than what is allowed":     {"prometheus.io/scrape", Metadata{"prometheus.io/port"}, false},
		"allowed, but for one":             {"prometheus.io/port", Metadata{"prometheus.io/*", "!prometheus.io/port"}, false},
		"harmless, and not wanted":         {"app", Metadata{"!*"}, false},
		"harmless, and wanted after all":   {"app", Metadata{"!*", "app"}, true},
		"of a domain, when none is wanted": {"app.kubernetes.io/name", Metadata{"!*"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.allowed.takes(test.key); got != test.want {
				t.Errorf("it takes %s: %t", test.key, got)
			}
		})
	}
}

func TestPatternsOfMetadataAreChecked(t *testing.T) {
	if err := (Metadata{"prometheus.io/*", "!*", "[a-z]"}).Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "[a", "!["} {
		if err := (Metadata{"*", bad}).Validate(); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestProviderSaysWhatItLeavesOut(t *testing.T) {
	shadow := shadowOf(`{"metadata":{"labels":{"app":"web","sidecar.istio.io/inject":"true","aadpodidbinding":"admin"},
		"annotations":{"note":"n","prometheus.io/scrape":"true","k8s.v1.cni.cncf.io/networks":"host"}},
		"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	for name, test := range map[string]struct {
		allowed             Metadata
		labels, annotations map[string]string
		left                string
	}{
		"by default": {
			nil,
			map[string]string{"app": "web"},
			map[string]string{"note": "n"},
			"aadpodidbinding, k8s.v1.cni.cncf.io/networks, prometheus.io/scrape, sidecar.istio.io/inject",
		},
		"unless it is allowed": {
			Metadata{"prometheus.io/*", "sidecar.istio.io/*", "!note"},
			map[string]string{"app": "web", "sidecar.istio.io/inject": "true"},
			map[string]string{"prometheus.io/scrape": "true"},
			"aadpodidbinding, k8s.v1.cni.cncf.io/networks, note",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := Build(shadow, Rules{Metadata: test.allowed})
			if err != nil {
				t.Fatal(err)
			}
			if said := LeftOut(pod); !strings.HasSuffix(said, " "+test.left) {
				t.Errorf("home is told %q, want %q", said, test.left)
			}
			delete(pod.Labels, v1alpha1.LabelHomeUID)
			delete(pod.Annotations, v1alpha1.AnnotationLeftOut)
			if diff := cmp.Diff([]map[string]string{test.labels, test.annotations}, []map[string]string{pod.Labels, pod.Annotations}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	whole, err := Build(shadow, Rules{Metadata: Metadata{"*", "*/*"}})
	if err != nil || LeftOut(whole) != "" {
		t.Errorf("of a pod of which all is taken, home is told %q (%v)", LeftOut(whole), err)
	}
}

func TestWhatWasLeftOutIsToldBriefly(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Labels = map[string]string{}
	for i := range 5000 {
		pod.Labels[fmt.Sprintf("%s-%04d.example.com/label", strings.Repeat("d", 40), i)] = "x"
	}
	Metadata(nil).leaveOut(pod)
	if said := LeftOut(pod); len(said) > 1000 || !strings.HasSuffix(said, " more") {
		t.Errorf("home is told %q", said)
	}
}

func TestHomeSendsWhatAProviderMayTake(t *testing.T) {
	for key, want := range map[string]bool{
		"app": true, "example.com/team": true, "prometheus.io/scrape": true, "app.kubernetes.io/name": true,
		"batch.kubernetes.io/job-name": true, "kubectl.kubernetes.io/restartedAt": true,
		corev1.LastAppliedConfigAnnotation: false, "hanse.dev/peer": false, "sub.hanse.dev/x": false,
		"kubernetes.io/limit-ranger": false, "seccomp.security.alpha.kubernetes.io/pod": false, "topology.k8s.io/zone": false,
	} {
		if got := isSent(key); got != want {
			t.Errorf("%s is sent: %t", key, got)
		}
	}
}
