// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

func options() Options {
	return Options{Namespace: "hanse-system", Version: "v0.1.0", KubernetesVersion: "v1.37.1"}
}

// rendered renders options once: that takes longer than most tests that need it.
var rendered = sync.OnceValues(func() (Manifest, error) { return Render(options()) })

// mustRender returns a manifest that the test may change.
func mustRender(t *testing.T, o Options) Manifest {
	t.Helper()
	render := func() (Manifest, error) { return Render(o) }
	if reflect.DeepEqual(o, options()) {
		render = rendered
	}
	m, err := render()
	if err != nil {
		t.Fatal(err)
	}
	for _, objects := range []*[]*unstructured.Unstructured{&m.Definitions, &m.Objects} {
		copies := make([]*unstructured.Unstructured, len(*objects))
		for i, object := range *objects {
			copies[i] = object.DeepCopy()
		}
		*objects = copies
	}
	return m
}

func TestRenderedManifestIsTheReviewedOne(t *testing.T) {
	m := mustRender(t, options())
	var text bytes.Buffer
	for _, object := range m.Objects {
		data, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "---\n%s", data)
	}
	golden(t, "manifest.yaml", text.Bytes())
}

// The manager keeps the rules, and the chart must not take them away when it is applied again.
func TestTheChartLeavesTheListOfPeersAlone(t *testing.T) {
	schema := find(t, mustRender(t, options()), "FlowSchema", "hanse-peers")
	if rules, found, err := unstructured.NestedFieldNoCopy(schema.Object, "spec", "rules"); found || err != nil {
		t.Errorf("the chart has rules: %v %v", rules, err)
	}
}

// What the chart makes is found again by its kind.
func TestEveryKindOfTheChartIsKnown(t *testing.T) {
	o := options()
	o.Values = map[string]any{"discovery": map[string]any{"enabled": true}, "gateway": map[string]any{"enabled": true}}
	for _, object := range mustRender(t, o).Objects {
		if !slices.Contains(chartKinds, object.GroupVersionKind()) {
			t.Errorf("chartKinds lacks %s", object.GroupVersionKind())
		}
	}
}

// A policy without its binding does nothing.
func TestEveryPolicyIsInForce(t *testing.T) {
	m := mustRender(t, options())
	for _, policy := range m.Objects {
		kind := policy.GetKind()
		if kind != "ValidatingAdmissionPolicy" && kind != "MutatingAdmissionPolicy" {
			continue
		}
		binding := find(t, m, kind+"Binding", policy.GetName())
		if name, _, _ := unstructured.NestedString(binding.Object, "spec", "policyName"); name != policy.GetName() {
			t.Errorf("%s %s binds %q", binding.GetKind(), binding.GetName(), name)
		}
		actions, _, _ := unstructured.NestedStringSlice(binding.Object, "spec", "validationActions")
		if kind == "ValidatingAdmissionPolicy" && !slices.Equal(actions, []string{"Deny"}) {
			t.Errorf("%s %s does %q", binding.GetKind(), binding.GetName(), actions)
		}
	}
}

// What peers get is never given in the whole cluster, and what can be bound are exactly the fixed ClusterRoles.
func TestTheFixedRolesAreBoundByTheManagerAlone(t *testing.T) {
	var fixed, bindable []string
	for _, object := range mustRender(t, options()).Objects {
		switch name := object.GetName(); object.GetKind() {
		case "ClusterRoleBinding", "RoleBinding":
			role, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
			if strings.HasPrefix(role, "hanse-peer-") || strings.Contains(role, "-in-") {
				t.Errorf("%s %s binds %s", object.GetKind(), name, role)
			}
		case "ClusterRole":
			if strings.HasPrefix(name, "hanse-peer-") || strings.Contains(name, "-in-") {
				fixed = append(fixed, name)
			}
			for _, rule := range rulesOf(t, object) {
				if slices.Contains(rule.Verbs, "bind") {
					bindable = append(bindable, rule.ResourceNames...)
				}
			}
		}
	}
	slices.Sort(fixed)
	slices.Sort(bindable)
	if diff := cmp.Diff(fixed, bindable); diff != "" {
		t.Errorf("roles that can be bound (-want +got):\n%s", diff)
	}
}

// Every right of every identity, one a line. A change here is a change of what a stolen token is worth.
func TestRightsAreTheReviewedOnes(t *testing.T) {
	var lines []string
	o := options()
	o.Values = map[string]any{"gateway": map[string]any{"enabled": true}}
	for _, object := range mustRender(t, o).Objects {
		switch object.GetKind() {
		case "ClusterRole", "Role":
			lines = append(lines, rights(t, object)...)
		case "ClusterRoleBinding", "RoleBinding":
			lines = append(lines, grant(t, object))
		}
	}
	slices.Sort(lines)
	golden(t, "rights.txt", []byte(strings.Join(lines, "\n")+"\n"))
}

func TestNoRightIsUnlimited(t *testing.T) {
	for _, object := range mustRender(t, options()).Objects {
		if kind := object.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		for _, rule := range rulesOf(t, object) {
			for _, excess := range excesses(object, rule) {
				t.Errorf("%s %s %s", object.GetKind(), object.GetName(), excess)
			}
		}
	}
}

// readers of Secrets are ClusterRoles that are bound in single namespaces alone, as the test above this one checks.
var readers = []string{"hanse-peer-twin", "hanse-reflector-in-namespace"}

// excesses says what a rule gives that no rule may give.
func excesses(role *unstructured.Unstructured, rule rbacv1.PolicyRule) []string {
	var found []string
	all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs)
	for _, forbidden := range []string{"*", "escalate", "impersonate"} {
		if slices.Contains(all, forbidden) {
			found = append(found, fmt.Sprintf("has %q", forbidden))
		}
	}
	if len(rule.ResourceNames) > 0 {
		return found
	}
	onlyCreates := slices.Equal(rule.Verbs, []string{"create"})
	if role.GetKind() == "ClusterRole" && !slices.Contains(readers, role.GetName()) &&
		slices.Contains(rule.Resources, "secrets") && !onlyCreates {
		found = append(found, "reads or changes any Secret")
	}
	// A policy bounds whose tokens the manager makes where pods leave from.
	if slices.Contains(rule.Resources, "serviceaccounts/token") && (!onlyCreates || role.GetName() != "hanse-reflector-in-namespace") {
		found = append(found, "makes tokens of anybody")
	}
	if slices.Contains(rule.Verbs, "bind") {
		found = append(found, "binds any role")
	}
	return found
}

func TestValuesAreUsed(t *testing.T) {
	o := options()
	o.Values = map[string]any{
		"clusterID": "lubeck",
		"image":     map[string]any{"tag": "v9"},
		"podCIDR":   "10.244.0.0/16,fd00:1::/48", "addressPool": "10.9.0.0/16", "servicePool": "241.0.0.0/8,242.0.0.0/8",
		"clusterDNS": []any{"10.96.0.53"},
		"gateway": map[string]any{
			"enabled": true, "endpoints": []any{"203.0.113.7:51820"}, "service": map[string]any{"type": "NodePort"},
		},
		"policies": map[string]any{"keepDaemonSetsHome": false},
		"manager": map[string]any{
			"extraArgs": []any{"--publish-interval=1s"}, "apiServers": []any{"https://a.example:6443", "https://b.example"},
		},
		"sessionLife": "24h", "renewalPeriod": "5s", "partingDeadline": "1m",
		"flowControl": map[string]any{"nominalConcurrencyShares": 7},
		"defaultOffloading": map[string]any{
			"namespaceSelector": "team in (batch,web)", "spec": map[string]any{"strategy": "Remote", "onChange": "Keep"},
		},
	}
	m := mustRender(t, o)
	manager := find(t, m, "Deployment", "hanse-manager")
	containers, _, err := unstructured.NestedSlice(manager.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	container := containers[0].(map[string]any)
	if got, want := container["image"], "hanse.dev/hanse:v9"; got != want {
		t.Errorf("image %v, want %s", got, want)
	}
	for _, want := range []any{
		"--cluster-id=lubeck", "--pod-cidr=10.244.0.0/16,fd00:1::/48", "--address-pool=10.9.0.0/16",
		"--service-pool=241.0.0.0/8,242.0.0.0/8", "--cluster-dns=10.96.0.53", "--gateway", "--gateway-endpoint=203.0.113.7:51820", "--publish-interval=1s", "--api-server=https://a.example:6443",
		"--api-server=https://b.example", "--session-life=24h", "--renewal-period=5s", "--parting-deadline=1m",
		"--offload-namespaces=team in (batch,web)", `--offload-spec={"onChange":"Keep","strategy":"Remote"}`,
	} {
		if args := container["args"].([]any); !slices.Contains(args, want) {
			t.Errorf("args %v lack %v", args, want)
		}
	}
	service := find(t, m, "Service", "hanse-gateway")
	if kind, _, _ := unstructured.NestedString(service.Object, "spec", "type"); kind != "NodePort" {
		t.Errorf("the gateway's Service is of type %s", kind)
	}
	level := find(t, m, "PriorityLevelConfiguration", "hanse-peers")
	shares, _, err := unstructured.NestedFieldNoCopy(level.Object, "spec", "limited", "nominalConcurrencyShares")
	if err != nil || fmt.Sprint(shares) != "7" {
		t.Errorf("peers have %v shares, want 7: %v", shares, err)
	}
	for _, object := range m.Objects {
		if object.GetName() == "hanse-keep-daemonsets-home" {
			t.Errorf("%s %s is there, but was turned off", object.GetKind(), object.GetName())
		}
	}
}

func TestServingCertificateIsMounted(t *testing.T) {
	o := options()
	o.Values = map[string]any{"kubelet": map[string]any{"servingCertificate": map[string]any{"secretName": "of-nodes"}}}
	deployment := appsv1.Deployment{}
	object := find(t, mustRender(t, o), "Deployment", "hanse-kubelet").Object
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, &deployment, true); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	wantVolumes := []corev1.Volume{{
		Name: "certificate", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "of-nodes"}},
	}}
	if diff := cmp.Diff(wantVolumes, pod.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	wantMounts := []corev1.VolumeMount{{Name: "certificate", MountPath: "/certificate", ReadOnly: true}}
	if diff := cmp.Diff(wantMounts, pod.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	for _, want := range []string{"--tls-cert-file=/certificate/tls.crt", "--tls-private-key-file=/certificate/tls.key"} {
		if !slices.Contains(pod.Containers[0].Args, want) {
			t.Errorf("args %v lack %s", pod.Containers[0].Args, want)
		}
	}
}

func TestTheGatewayHasAPortOfItsNodeIfAsked(t *testing.T) {
	for port, want := range map[int]int32{0: 0, 51821: 51821} {
		o := options()
		o.Values = map[string]any{"gateway": map[string]any{"enabled": true, "hostPort": port, "endpoints": []any{"203.0.113.7:51821"}}}
		deployment := appsv1.Deployment{}
		object := find(t, mustRender(t, o), "Deployment", "hanse-gateway").Object
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, &deployment, true); err != nil {
			t.Fatal(err)
		}
		surge := deployment.Spec.Strategy.RollingUpdate.MaxSurge.IntValue()
		if got := deployment.Spec.Template.Spec.Containers[0].Ports[0].HostPort; got != want || (surge == 0) != (want > 0) {
			t.Errorf("with %d it has port %d, and %d more at a time", port, got, surge)
		}
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"a cluster id that is no DNS label": {"clusterID": "Lübeck"},
		"a cluster id that is too long":     {"clusterID": strings.Repeat("x", 31)},
		"a range that is none":              {"podCIDR": "ten"},
		"a pool that is none":               {"servicePool": "240.0.0.0/4,"},
		"a gateway at ports of nobody":      {"gateway": map[string]any{"enabled": true, "hostPort": 51820}},
		"a gateway without a port":          {"gateway": map[string]any{"endpoints": []any{"203.0.113.7"}}},
		"a Service of a kind that is none":  {"gateway": map[string]any{"service": map[string]any{"type": "ExternalName"}}},
		"a value that does not exist":       {"clusterid": "lubeck"},
		"a log format that does not exist":  {"log": map[string]any{"format": "xml"}},
		"a session that does not live":      {"sessionLife": ""},
		"a life that is no time":            {"sessionLife": "a month"},
		"an API server without encryption":  {"manager": map[string]any{"apiServers": []any{"http://a.example"}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Values = values
			if _, err := Render(o); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestEveryKindHasADefinition(t *testing.T) {
	var got []string
	for _, crd := range mustRender(t, options()).Definitions {
		got = append(got, crd.GetName())
	}
	slices.Sort(got)
	want := []string{
		"accounts.hanse.dev", "advertisements.hanse.dev", "applications.hanse.dev", "connections.hanse.dev", "exportedservices.hanse.dev", "members.hanse.dev", "messages.hanse.dev", "namespacemappings.hanse.dev", "namespaceoffloadings.hanse.dev",
		"peeringclaims.hanse.dev", "peers.hanse.dev", "podmoves.hanse.dev", "quotes.hanse.dev", "requests.hanse.dev", "shadowclaims.hanse.dev", "shadowendpointslices.hanse.dev", "shadowobjects.hanse.dev",
		"shadowpods.hanse.dev",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

func find(t *testing.T, m Manifest, kind, name string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(m.Objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetName() == name
	})
	if i < 0 {
		t.Fatalf("no %s %s", kind, name)
	}
	return m.Objects[i]
}

func rulesOf(t *testing.T, object *unstructured.Unstructured) []rbacv1.PolicyRule {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

func rights(t *testing.T, object *unstructured.Unstructured) []string {
	var lines []string
	for _, rule := range rulesOf(t, object) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s: %s %s %s",
						where(object), verb, strings.TrimSuffix(resource+"."+group, "."), strings.Join(rule.ResourceNames, ","))))
				}
			}
		}
	}
	return lines
}

func grant(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding); err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for _, s := range binding.Subjects {
		subjects = append(subjects, fmt.Sprintf("%s %s/%s", s.Kind, s.Namespace, s.Name))
	}
	return fmt.Sprintf("%s: %s %s to %s", where(object), binding.RoleRef.Kind, binding.RoleRef.Name, strings.Join(subjects, ", "))
}

func where(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}

func TestTheImageIsThatOfTheDeployments(t *testing.T) {
	o := options()
	o.Values = map[string]any{"image": map[string]any{"repository": "r/hanse", "tag": "v9"}}
	if got := mustRender(t, o).Image(); got != "r/hanse:v9" {
		t.Errorf("got %q", got)
	}
}

// golden compares with a file under testdata; `go test -update` writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), run `go test ./internal/install -update` and review:\n%s", file, diff)
	}
}
