// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// homePod is a pod as a Deployment makes it, after admission and scheduling.
func homePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-0", Namespace: "shop", UID: "home-uid", Generation: 1,
			Labels:      map[string]string{"app": "web", "hanse.dev/x": "y"},
			Annotations: map[string]string{"note": "$(n)", "cni.example.com/net": "n"},
		},
		Spec: corev1.PodSpec{
			NodeName:                     "hanse-hamburg",
			ServiceAccountName:           "shop-sa",
			DeprecatedServiceAccount:     "shop-sa",
			NodeSelector:                 map[string]string{"a": "b"},
			SchedulerName:                "default-scheduler",
			Priority:                     ptr.To[int32](0),
			PreemptionPolicy:             ptr.To(corev1.PreemptLowerPriority),
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Affinity:                     &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
			TopologySpreadConstraints:    []corev1.TopologySpreadConstraint{{MaxSkew: 1}},
			ReadinessGates:               []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}},
			RestartPolicy:                corev1.RestartPolicyAlways,
			AutomountServiceAccountToken: ptr.To(true),
			Volumes: []corev1.Volume{
				{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
				}}},
				{Name: "self", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
					Items: []corev1.DownwardAPIVolumeFile{
						{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
						{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
						{Path: "uid", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}},
					},
				}}},
			},
			Containers: []corev1.Container{{
				Name: "c", Image: "i",
				VolumeMounts: []corev1.VolumeMount{
					{Name: "self", MountPath: "/self"},
					{Name: "kube-api-access-x", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
				},
			}},
		},
	}
}

func fieldEnv(paths ...string) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, path := range paths {
		out = append(out, corev1.EnvVar{
			Name: path, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}},
		})
	}
	return out
}

// What the API server tells of a pod that has started has more than the cache, from which it went out.
func TestNoteOfKubectlStaysAtHome(t *testing.T) {
	home := homePod()
	home.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
	template, err := Outbound(home, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, sent := template.Annotations[corev1.LastAppliedConfigAnnotation]; sent {
		t.Error("it travels")
	}
	// An older version sends it.
	template.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
	if err := checkTemplate(&template); err != nil {
		t.Error(err)
	}
}

func TestOutboundLeavesWhatIsOfTheConsumerAtHome(t *testing.T) {
	home := homePod()
	before := home.DeepCopy()
	got, err := Outbound(WithoutToken(home), "")
	if err != nil {
		t.Fatal(err)
	}
	want := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"app": "web"},
			Annotations: map[string]string{"note": "$(n)", "cni.example.com/net": "n", "hanse.dev/home-namespace": "shop"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyAlways,
			AutomountServiceAccountToken: ptr.To(false),
			Volumes: []corev1.Volume{{Name: "self", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
				Items: []corev1.DownwardAPIVolumeFile{
					{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
					{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['hanse.dev/home-namespace']"}},
					{Path: "uid", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['hanse.dev/home-uid']"}},
				},
			}}}},
			Containers: []corev1.Container{{
				Name: "c", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "self", MountPath: "/self"}},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, home); diff != "" {
		t.Errorf("Outbound changed its argument:\n%s", diff)
	}
	if _, err := Build(shadowFrom(t, got), Rules{}); err != nil {
		t.Errorf("the provider refuses it: %v", err)
	}
}

func TestEnvironmentShowsHomesValues(t *testing.T) {
	home := homePod()
	home.Spec.Containers[0].Env = fieldEnv("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
		"spec.serviceAccountName", "status.hostIP", "metadata.labels['app']", "metadata.annotations['note']",
		"metadata.annotations['cni.example.com/net']", "status.podIP")
	got, err := Outbound(home, "10.1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	want := []corev1.EnvVar{
		{Name: "metadata.name", Value: "web-0"},
		{Name: "metadata.namespace", Value: "shop"},
		{Name: "metadata.uid", Value: "home-uid"},
		{Name: "spec.nodeName", Value: "hanse-hamburg"},
		{Name: "spec.serviceAccountName", Value: "shop-sa"},
		{Name: "status.hostIP", Value: "10.1.2.3"},
		{Name: "metadata.labels['app']", Value: "web"},
		{Name: "metadata.annotations['note']", Value: "$$(n)"},
		{Name: "metadata.annotations['cni.example.com/net']", Value: "n"},
		fieldEnv("status.podIP")[0],
	}
	if diff := cmp.Diff(want, got.Spec.Containers[0].Env); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRefusalNamesTheCause(t *testing.T) {
	volume := func(source corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
	}
	container := func(c corev1.Container) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			c.Name = "c"
			spec.InitContainers = []corev1.Container{c}
		}
	}
	for want, change := range map[string]func(*corev1.PodSpec){
		"":                                   func(*corev1.PodSpec) {},
		"spec.hostPID: not allowed":          func(spec *corev1.PodSpec) { spec.HostPID = true },
		"spec.runtimeClassName: not allowed": func(spec *corev1.PodSpec) { spec.RuntimeClassName = ptr.To("kata") },
		"spec.resourceClaims: not allowed":   func(spec *corev1.PodSpec) { spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
		"spec.volumes[0].ephemeral":          volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}),
		"it is a directory of a node of this cluster":             volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
		`configMapRef.name: not allowed (kube-root-ca.crt)`:       container(corev1.Container{EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}}}),
		"spec.volumes[0].nfs":                                     volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}),
		"certificates of this cluster are not taken along":        volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{}}}}}),
		"not allowed (metadata.annotations['cni.example.com/n'])": volume(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "p", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['cni.example.com/n']"}}}}}),
		`securityContext.privileged: not allowed (true)`:          container(corev1.Container{SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}),
		`capabilities.add: not allowed (NET_ADMIN)`:               container(corev1.Container{SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}}),
		"a pod in another cluster has no port of its host":        container(corev1.Container{Ports: []corev1.ContainerPort{{HostPort: 1}}}),
	} {
		t.Run(want, func(t *testing.T) {
			home := homePod()
			change(&home.Spec)
			reason, refused := Refusal(home)
			if refused != (want != "") || !strings.Contains(reason, want) {
				t.Errorf("got %q, %t, want %q", reason, refused, want)
			}
		})
	}
}
