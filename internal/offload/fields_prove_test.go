// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// samples are values that a field can have where not any value will do.
var samples = map[string]string{
	"spec.containers[].securityContext.capabilities.drop":                             `["NET_RAW"]`,
	"spec.securityContext.sysctls[].name":                                             `"net.ipv4.tcp_syncookies"`,
	"spec.securityContext.seLinuxOptions.type":                                        `"container_t"`,
	"spec.securityContext.seccompProfile.type":                                        `"RuntimeDefault"`,
	"spec.securityContext.appArmorProfile.type":                                       `"RuntimeDefault"`,
	"spec.containers[].securityContext.seLinuxOptions.type":                           `"container_t"`,
	"spec.containers[].securityContext.seccompProfile.type":                           `"RuntimeDefault"`,
	"spec.containers[].securityContext.appArmorProfile.type":                          `"RuntimeDefault"`,
	"spec.containers[].securityContext.capabilities.add":                              `["NET_BIND_SERVICE"]`,
	"spec.ephemeralContainers[].securityContext.capabilities.add":                     `["SYS_PTRACE"]`,
	"spec.containers[].securityContext.procMount":                                     `"Default"`,
	"spec.containers[].volumeMounts[].mountPropagation":                               `"HostToContainer"`,
	"spec.containers[].env[].valueFrom.fieldRef.fieldPath":                            `"metadata.name"`,
	"spec.volumes[].downwardAPI.items[].fieldRef.fieldPath":                           `"metadata.uid"`,
	"spec.volumes[].projected.sources[].downwardAPI.items[].resourceFieldRef.divisor": `"1"`,
	"status.phase":                                        `"Running"`,
	"status.conditions[].type":                            `"Initialized"`,
	"status.conditions[].status":                          `"True"`,
	"status.podIP":                                        `"10.244.0.7"`,
	"status.podIPs[].ip":                                  `"10.244.0.7"`,
	"status.containerStatuses[].name":                     `"c"`,
	"status.initContainerStatuses[].name":                 `"i"`,
	"status.ephemeralContainerStatuses[].name":            `"e"`,
	"status.containerStatuses[].volumeMounts[].name":      `"m"`,
	"status.containerStatuses[].volumeMounts[].mountPath": `"/m"`,
}

// others are values that are refused in a field that is kept.
var others = map[string][]string{
	"spec.securityContext.sysctls[].name":                    {`"kernel.msgmax"`},
	"spec.securityContext.seLinuxOptions.type":               {`"spc_t"`},
	"spec.securityContext.seccompProfile.type":               {`"Unconfined"`, `"Localhost"`},
	"spec.securityContext.appArmorProfile.type":              {`"Unconfined"`, `"Localhost"`},
	"spec.containers[].securityContext.seLinuxOptions.type":  {`"spc_t"`},
	"spec.containers[].securityContext.seccompProfile.type":  {`"Unconfined"`, `"Localhost"`},
	"spec.containers[].securityContext.appArmorProfile.type": {`"Unconfined"`, `"Localhost"`},
	"spec.containers[].securityContext.capabilities.add":     {`["SYS_ADMIN"]`, `["KILL","ALL"]`},
	"spec.containers[].securityContext.procMount":            {`"Unmasked"`},
	"spec.containers[].volumeMounts[].mountPropagation":      {`"Bidirectional"`},
	"spec.containers[].envFrom[].configMapRef.name":          {`"kube-root-ca.crt"`, `"../x"`},
	"spec.containers[].envFrom[].secretRef.name":             {`"X"`},
	"spec.containers[].env[].valueFrom.configMapKeyRef.name": {`"a/b"`},
	"spec.containers[].env[].valueFrom.secretKeyRef.name":    {`"a/b"`},
	"spec.volumes[].configMap.name":                          {`"a/b"`},
	"spec.volumes[].projected.sources[].configMap.name":      {`"a/b"`},
	"spec.volumes[].secret.secretName":                       {`"a b"`},
	"spec.volumes[].projected.sources[].secret.name":         {`"-"`},
	"spec.imagePullSecrets[].name":                           {`"a/b"`},
}

// companions are fields without which a part of a pod is none.
var companions = map[string]string{
	".sysctls[]":                `{"name":"net.ipv4.tcp_syncookies"}`,
	".configMapRef":             `{"name":"x"}`,
	".secretRef":                `{"name":"x"}`,
	".configMapKeyRef":          `{"name":"x"}`,
	".secretKeyRef":             `{"name":"x"}`,
	".configMap":                `{"name":"x"}`,
	"volumes[].secret":          `{"secretName":"x"}`,
	"sources[].secret":          `{"name":"x"}`,
	".env[].valueFrom.fieldRef": `{"fieldPath":"metadata.name"}`,
}

// minimal is a pod of one container of each kind, which a provider has already told of.
func minimal() *corev1.Pod {
	mounts := []corev1.VolumeMount{{Name: "m", MountPath: "/m"}}
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID, pod.Generation = "web-0", "shop", "home-uid", 3
	pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: mounts}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "i", VolumeMounts: mounts}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "e", VolumeMounts: mounts,
	}}}
	status := func(name string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: name, VolumeMounts: []corev1.VolumeMountStatus{{Name: "m", MountPath: "/m"}}}}
	}
	pod.Status = corev1.PodStatus{
		Phase:                      corev1.PodRunning,
		Conditions:                 []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses:          status("c"),
		InitContainerStatuses:      status("i"),
		EphemeralContainerStatuses: status("e"),
	}
	return pod
}

func TestEachLineOfTheSpecIsTrue(t *testing.T) {
	for _, l := range leaves() {
		line := lineOf(l.path)
		switch {
		case strings.HasPrefix(l.path, "status."):
		case strings.HasPrefix(l.path, "spec.ephemeralContainers[]"):
			t.Run(l.path, func(t *testing.T) { proveEphemeral(t, line, l.path, sampleOf(l.path, l.kind)) })
		default:
			t.Run(l.path, func(t *testing.T) { prove(t, line, l.path, sampleOf(l.path, l.kind)) })
		}
	}
}

func prove(t *testing.T, line *fieldLine, path, sample string) {
	t.Helper()
	home := minimalWith(t, path, sample)
	template, outErr := Outbound(home, "")
	_, inErr := Build(shadowFrom(t, corev1.PodTemplateSpec{Spec: home.Spec}), Rules{})
	if line.verdict == refused || line.verdict == dropped {
		if inErr == nil {
			t.Errorf("the provider takes it")
		}
	}
	if (outErr != nil) != (line.verdict == refused) {
		t.Fatalf("it is %s, but on its way out: %v", line.verdict, outErr)
	}
	if outErr != nil {
		return
	}
	pod, err := Build(shadowFrom(t, template), Rules{})
	if err != nil {
		t.Fatal(err)
	}
	expectVerdict(t, line, jsonAt(t, home, path), jsonAt(t, asWritten(pod), path))
}

func proveEphemeral(t *testing.T, line *fieldLine, path, sample string) {
	t.Helper()
	home := minimalWith(t, path, sample)
	template, err := Outbound(home, "")
	if err != nil {
		t.Fatalf("a running pod is refused for its ephemeral container: %v", err)
	}
	if _, left := DebugRefusal(home); left != (line.verdict == refused) {
		t.Errorf("it is %s, but the container is left at home: %t", line.verdict, left)
	}
	if line.verdict == refused {
		_, err := Debugging(shadowFrom(t, corev1.PodTemplateSpec{Spec: home.Spec}), Rules{})
		if err == nil || len(template.Spec.EphemeralContainers) > 0 {
			t.Errorf("it travels; and the provider says %v", err)
		}
		return
	}
	added, err := Debugging(shadowFrom(t, template), Rules{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: added}}
	expectVerdict(t, line, jsonAt(t, home, path), jsonAt(t, asWritten(pod), path))
}

func expectVerdict(t *testing.T, line *fieldLine, sent, arrived string) {
	t.Helper()
	if same := sent == arrived; same != (line.verdict == kept) {
		t.Errorf("it is %s, but %s arrived as %s", line.verdict, sent, arrived)
	}
}

// What is kept with a condition is refused where the condition does not hold.
func TestEachLineWithACondition(t *testing.T) {
	proven := map[string]bool{}
	for path, values := range others {
		proven[path] = true
		for _, value := range values {
			home := minimalWith(t, path, value)
			if _, err := Outbound(home, ""); err == nil {
				t.Errorf("%s travels with %s", path, value)
			}
			if _, err := Build(shadowFrom(t, corev1.PodTemplateSpec{Spec: home.Spec}), Rules{}); err == nil {
				t.Errorf("the provider takes %s with %s", path, value)
			}
		}
	}
	for _, line := range fields {
		if line.verdict == kept && strings.HasPrefix(line.why, "only ") && !proven[line.path] {
			t.Errorf("nothing proves that of %s %s", line.path, line.why)
		}
	}
}

func TestEachLineOfTheStatusIsTrue(t *testing.T) {
	for _, l := range leaves() {
		if !strings.HasPrefix(l.path, "status.") {
			continue
		}
		t.Run(l.path, func(t *testing.T) {
			line := lineOf(l.path)
			remote := minimalWith(t, l.path, sampleOf(l.path, l.kind))
			home := minimal()
			home.Status = corev1.PodStatus{}
			shown, err := Inbound(home, recorded(t, Export(remote)), here, after.Time)
			if err != nil {
				t.Fatal(err)
			}
			sent, arrived := jsonAt(t, remote, l.path), jsonAt(t, &corev1.Pod{Status: shown}, l.path)
			if line.verdict == changed && strings.HasSuffix(l.path, ".restartCount") {
				return // TestRestartsNeverGoBack
			}
			expectVerdict(t, line, sent, arrived)
		})
	}
}

func minimalWith(t *testing.T, path, sample string) *corev1.Pod {
	t.Helper()
	pod := minimal()
	for part, companion := range companions {
		if i := strings.Index(path, part+"."); i >= 0 {
			set(t, pod, path[:i]+part, companion)
		}
	}
	set(t, pod, path, sample)
	return pod
}

// sampleOf is a value of the type, as JSON, that is not its zero value.
func sampleOf(path string, kind reflect.Type) string {
	for {
		if sample, ok := samples[path]; ok {
			return sample
		}
		next := likeOf(path)
		if next == "" {
			break
		}
		path = next
	}
	switch {
	case kind.Kind() == reflect.Pointer:
		return sampleOf(path, kind.Elem())
	case kind.Name() == "Time":
		return `"2026-03-04T12:00:00Z"`
	case kind.Name() == "Quantity":
		return `"1"`
	case kind.Kind() == reflect.Map:
		return `{"cpu":"1"}`
	case kind.Kind() == reflect.Slice:
		return "[" + sampleOf("", kind.Elem()) + "]"
	case kind.Kind() == reflect.Bool:
		return "true"
	case kind.Kind() == reflect.String:
		return `"x"`
	}
	return "7"
}

func likeOf(path string) string {
	for _, l := range likes {
		if rest, ok := strings.CutPrefix(path, l.path); ok {
			return l.like + rest
		}
	}
	return ""
}

func set(t *testing.T, pod *corev1.Pod, path, sample string) {
	t.Helper()
	target := at(reflect.ValueOf(pod).Elem(), strings.Split(path, "."), true)
	if err := json.Unmarshal([]byte(sample), target.Addr().Interface()); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// jsonAt is what a pod says at the path, "null" if it says nothing.
func jsonAt(t *testing.T, pod *corev1.Pod, path string) string {
	t.Helper()
	value := at(reflect.ValueOf(pod).Elem(), strings.Split(path, "."), false)
	if !value.IsValid() || value.IsZero() {
		return "null"
	}
	raw, err := json.Marshal(value.Interface())
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// at finds the field with the path, in the first element of each list, and makes what is missing if told to.
func at(value reflect.Value, path []string, create bool) reflect.Value {
	for value.Kind() == reflect.Pointer && len(path) > 0 {
		if value.IsNil() {
			if !create {
				return reflect.Value{}
			}
			value.Set(reflect.New(value.Type().Elem()))
		}
		value = value.Elem()
	}
	if len(path) == 0 {
		return value
	}
	name, isList := strings.CutSuffix(path[0], "[]")
	next := fieldNamed(value, name)
	if !isList {
		return at(next, path[1:], create)
	}
	if next.Len() == 0 {
		if !create {
			return reflect.Value{}
		}
		next.Set(reflect.MakeSlice(next.Type(), 1, 1))
	}
	return at(next.Index(0), path[1:], create)
}

// fieldNamed finds a field by its name in JSON, also in parts that have none.
func fieldNamed(value reflect.Value, name string) reflect.Value {
	for i := range value.NumField() {
		tag := strings.Split(value.Type().Field(i).Tag.Get("json"), ",")
		if tag[0] == name {
			return value.Field(i)
		}
		if tag[0] == "" && value.Field(i).Kind() == reflect.Struct {
			if found := fieldNamed(value.Field(i), name); found.IsValid() {
				return found
			}
		}
	}
	return reflect.Value{}
}

func TestSamplesAreOfFields(t *testing.T) {
	paths := []string{}
	for _, l := range leaves() {
		paths = append(paths, l.path)
	}
	for path := range samples {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is no field", path)
		}
	}
	for path := range others {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is no field", path)
		}
	}
}
