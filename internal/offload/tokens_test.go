// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// podReading is a pod of namespace shop whose spec is YAML.
func podReading(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "shop", "web-0", "u-1"
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	}
	return pod
}

// automatic is the volume that Kubernetes adds to pods.
const automatic = `
- name: kube-api-access-x7k2p
  projected:
    defaultMode: 420
    sources:
    - serviceAccountToken: {expirationSeconds: 3607, path: token}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}
`

var (
	ofKubernetes = Token{Seconds: 3607}.Key()
	ofVault      = Token{Audience: "vault", Seconds: 600}.Key()
)

func TestTokensComeFromTheSecretOfThePod(t *testing.T) {
	const vault = "{name: v, projected: {sources: [{serviceAccountToken: {audience: vault, expirationSeconds: 600, path: t}}]}}"
	for name, test := range map[string]struct{ pod, want string }{
		"the volume that Kubernetes adds, with all that is in it": {
			pod: "volumes:" + automatic,
			want: `volumes:
- name: kube-api-access-x7k2p
  projected:
    defaultMode: 420
    sources:
    - secret: {name: hanse-token-u-1, items: [{key: ` + ofKubernetes + `, path: token}]}
    - secret: {name: hanse-token-u-1, items: [{key: ca.crt, path: ca.crt}]}
    - secret: {name: hanse-token-u-1, items: [{key: namespace, path: namespace}]}`,
		},
		"one that the author asks for, with its audience and life": {
			pod:  "volumes: [" + vault + "]",
			want: "volumes: [{name: v, projected: {sources: [{secret: {name: hanse-token-u-1, items: [{key: " + ofVault + ", path: t}]}}]}}]",
		},
		"with a group nobody else reads the file": {
			pod: "securityContext: {fsGroup: 2000}\nvolumes: [" + vault + "]",
			want: "securityContext: {fsGroup: 2000}\nvolumes: [{name: v, projected: {sources: [{secret: {name: hanse-token-u-1, " +
				"items: [{key: " + ofVault + ", path: t, mode: 384}]}}]}}]",
		},
		"a user that is not root reads it whatever the volume says": {
			pod: "securityContext: {runAsUser: 1000}\nvolumes: [{name: v, projected: {defaultMode: 256, sources: [{serviceAccountToken: {path: t}}]}}]",
			want: "securityContext: {runAsUser: 1000}\nvolumes: [{name: v, projected: {defaultMode: 256, sources: [{secret: {name: hanse-token-u-1, " +
				"items: [{key: " + Token{Seconds: 3600}.Key() + ", path: t, mode: 420}]}}]}}]",
		},
		"other files beside it stay as they are": {
			pod: "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {audience: vault, expirationSeconds: 600, path: t}}, {secret: {name: s}}, " +
				"{downwardAPI: {items: [{path: space, fieldRef: {fieldPath: metadata.namespace}}, {path: l, fieldRef: {fieldPath: metadata.labels}}]}}]}}]",
			want: "volumes: [{name: v, projected: {sources: [{secret: {name: hanse-token-u-1, items: [{key: " + ofVault + ", path: t}]}}, {secret: {name: s}}, " +
				"{secret: {name: hanse-token-u-1, items: [{key: namespace, path: space}]}}, {downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}}]}}]",
		},
		"the certificates of home, wherever they are read": {
			pod: "volumes: [{name: v, configMap: {name: kube-root-ca.crt, defaultMode: 288}}, {name: p, projected: {sources: [{configMap: {name: kube-root-ca.crt, " +
				"optional: true, items: [{key: ca.crt, path: root.pem}]}}]}}]\n" +
				"containers: [{name: c, env: [{name: CA, valueFrom: {configMapKeyRef: {name: kube-root-ca.crt, key: ca.crt}}}]}]",
			want: "volumes: [{name: v, secret: {secretName: hanse-token-u-1, defaultMode: 288, items: [{key: ca.crt, path: ca.crt}]}}, " +
				"{name: p, projected: {sources: [{secret: {name: hanse-token-u-1, optional: true, items: [{key: ca.crt, path: root.pem}]}}]}}]\n" +
				"containers: [{name: c, env: [{name: CA, valueFrom: {secretKeyRef: {name: hanse-token-u-1, key: ca.crt}}}]}]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			template, err := Outbound(podReading(t, test.pod), "")
			if err != nil {
				t.Fatal(err)
			}
			want := podReading(t, test.want+"\nautomountServiceAccountToken: false").Spec
			if diff := cmp.Diff(want, template.Spec); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			pod, err := Build(shadowFrom(t, template), Rules{Path: []string{"lubeck", "hamburg"}})
			if err != nil {
				t.Errorf("the provider refuses it: %v", err)
			} else if Path(pod) == nil {
				t.Error("the provider cannot send it on")
			}
		})
	}
}

func TestAuthorsCanLeaveTokensAtHome(t *testing.T) {
	pod := podReading(t, "volumes:"+automatic+"- {name: v, projected: {sources: [{serviceAccountToken: {path: t}}, {secret: {name: s}}]}}\n"+
		"containers: [{name: c, image: i, volumeMounts: [{name: kube-api-access-x7k2p, mountPath: /s}, {name: v, mountPath: /v}]}]")
	pod.Annotations = map[string]string{v1alpha1.AnnotationSkipToken: "true"}
	template, err := Outbound(pod, "")
	if err != nil {
		t.Fatal(err)
	}
	want := podReading(t, "automountServiceAccountToken: false\nvolumes: [{name: v, projected: {sources: [{secret: {name: s}}]}}]\n"+
		"containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]").Spec
	if diff := cmp.Diff(want, template.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What is kept in caches says the same as the whole pod.
func TestWhichPodsTakeASecretWithTokens(t *testing.T) {
	const own = "- {name: v, projected: {sources: [{serviceAccountToken: {audience: vault, expirationSeconds: 600, path: t}}]}}"
	type takes struct{ Connected, Apart bool }
	for name, test := range map[string]struct {
		pod    string
		skips  bool
		says   string // reason of the condition of its token
		want   takes
		tokens []Token
	}{
		"the token that every pod gets, where home is reached": {
			pod: "volumes:" + automatic, want: takes{Connected: true}, tokens: []Token{{Seconds: 3607}},
		},
		"it, of a pod that went out without":           {pod: "volumes:" + automatic, says: v1alpha1.ReasonTokenLeftAtHome, want: takes{}},
		"it, of a pod that waits for it at the peer":   {pod: "volumes:" + automatic, says: v1alpha1.ReasonTokenRefused, want: takes{true, true}, tokens: []Token{{Seconds: 3607}}},
		"it, of an author who does not want it":        {pod: "volumes:" + automatic, skips: true, want: takes{}},
		"no token":                                     {pod: "volumes: [{name: v, emptyDir: {}}]", want: takes{}},
		"one that the author asks for goes everywhere": {pod: "volumes:\n" + own, want: takes{true, true}, tokens: []Token{{"vault", 600}}},
		"one that the author gave up on":               {pod: "volumes:\n" + own, skips: true, want: takes{}},
		"both": {
			pod: "volumes:" + automatic + own, want: takes{true, true}, tokens: []Token{{Seconds: 3607}, {"vault", 600}},
		},
		"the same twice": {
			pod: "volumes:\n" + own + "\n" + own, want: takes{true, true}, tokens: []Token{{"vault", 600}},
		},
		"home's certificates in a file":     {pod: "volumes: [{name: v, configMap: {name: kube-root-ca.crt}}]", want: takes{true, true}},
		"home's certificates in a variable": {pod: "containers: [{name: c, env: [{name: A, valueFrom: {configMapKeyRef: {name: kube-root-ca.crt, key: ca.crt}}}]}]", want: takes{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podReading(t, test.pod)
			if test.skips {
				pod.Annotations = map[string]string{v1alpha1.AnnotationSkipToken: "true"}
			}
			if test.says != "" {
				pod.Status.Conditions = []corev1.PodCondition{{Type: v1alpha1.PodToken, Status: corev1.ConditionFalse, Reason: test.says}}
			}
			kept := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: corev1.PodSpec{Volumes: KeepTokens(pod)}}
			if got := (takes{TakesTokenSecret(pod, true), TakesTokenSecret(pod, false)}); got != test.want {
				t.Errorf("the pod: %+v, want %+v", got, test.want)
			}
			if got := (takes{TakesTokenSecret(kept, true), TakesTokenSecret(kept, false)}); got != test.want {
				t.Errorf("what is kept of it: %+v, want %+v", got, test.want)
			}
			if diff := cmp.Diff(test.tokens, Tokens(&kept.Spec)); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
		})
	}
}
