// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func spec(t *testing.T, text string) *corev1.PodSpec {
	t.Helper()
	spec := &corev1.PodSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestReferences(t *testing.T) {
	settings := Reference{Kind: ConfigMap, Name: "settings"}
	password := Reference{Kind: Secret, Name: "password"}
	maybe := func(r Reference) Reference {
		r.Optional = true
		return r
	}
	for name, test := range map[string]struct {
		spec string
		want []Reference
	}{
		"nothing":             {spec: "containers: [{name: a, env: [{name: A, value: b}, {name: B, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]"},
		"volumes":             {spec: "volumes: [{name: a, configMap: {name: settings}}, {name: b, secret: {secretName: password}}, {name: c, emptyDir: {}}]", want: []Reference{settings, password}},
		"optional volumes":    {spec: "volumes: [{name: a, configMap: {name: settings, optional: true}}, {name: b, secret: {secretName: password, optional: true}}]", want: []Reference{maybe(settings), maybe(password)}},
		"projections":         {spec: "volumes: [{name: a, projected: {sources: [{configMap: {name: settings}}, {secret: {name: password, optional: true}}, {serviceAccountToken: {path: t}}]}}]", want: []Reference{settings, maybe(password)}},
		"variables":           {spec: "containers: [{name: a, env: [{name: A, valueFrom: {configMapKeyRef: {name: settings, key: k}}}, {name: B, valueFrom: {secretKeyRef: {name: password, key: k, optional: true}}}]}]", want: []Reference{settings, maybe(password)}},
		"environments":        {spec: "containers: [{name: a, envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: password}}]}]", want: []Reference{settings, password}},
		"init containers":     {spec: "initContainers: [{name: a, envFrom: [{configMapRef: {name: settings}}]}]", want: []Reference{settings}},
		"for debugging":       {spec: "ephemeralContainers: [{name: a, envFrom: [{secretRef: {name: password}}]}]", want: []Reference{password}},
		"to pull images with": {spec: "imagePullSecrets: [{name: password}, {}]", want: []Reference{maybe(password)}},
		"needed by one":       {spec: "imagePullSecrets: [{name: password}]\nvolumes: [{name: b, secret: {secretName: password}}, {name: c, secret: {secretName: password, optional: true}}]", want: []Reference{password}},
		"sorted":              {spec: "volumes: [{name: a, secret: {secretName: c1}}, {name: b, configMap: {name: b1}}, {name: c, configMap: {name: a1}}]", want: []Reference{{Kind: ConfigMap, Name: "a1"}, {Kind: ConfigMap, Name: "b1"}, {Kind: Secret, Name: "c1"}}},
		// It is in the token volume of every pod.
		"what every cluster has": {spec: "volumes: [{name: a, projected: {sources: [{configMap: {name: kube-root-ca.crt}}, {secret: {name: kube-root-ca.crt}}]}}]", want: []Reference{{Kind: Secret, Name: "kube-root-ca.crt"}}},
	} {
		t.Run(name, func(t *testing.T) {
			read := spec(t, test.spec)
			if diff := cmp.Diff(test.want, References(read)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, References(&corev1.PodSpec{Volumes: Condense(read)})); diff != "" {
				t.Errorf("condensed (-want +got):\n%s", diff)
			}
		})
	}
}
