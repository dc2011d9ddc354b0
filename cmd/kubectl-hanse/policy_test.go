// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/policymaker"
)

const (
	denyAll    = "package hanse.incoming\n\ndeny contains \"not today\"\n"
	denyBroken = "package hanse.incoming\n\ndeny contains := 3\n"
)

// TestTheClientLinksNoPolicyEngine keeps the client small: the manager asks policies for it.
func TestTheClientLinksNoPolicyEngine(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	dependencies := strings.Fields(string(out))
	if !slices.Contains(dependencies, "github.com/hanse-dev/hanse/policies") {
		t.Errorf("%d dependencies, and not that on the built-in policies", len(dependencies))
	}
	for _, dependency := range dependencies {
		if strings.HasPrefix(dependency, "github.com/open-policy-agent/") || strings.HasPrefix(dependency, "github.com/hanse-dev/hanse/internal/policy") {
			t.Errorf("the client links %s", dependency)
		}
	}
}

func TestClientAndManagerKnowTheSameQuestions(t *testing.T) {
	var known []string
	for _, question := range policy.Questions() {
		known = append(known, string(question))
	}
	if diff := cmp.Diff(known, questions); diff != "" {
		t.Error(diff)
	}
}

// governed is a cluster whose manager, the real one, has looked at the policies.
func governed(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := newWorld(t, append(objects, system()...)...)
	recorder, clock := events.NewFakeRecorder(100), clocktesting.NewFakeClock(now)
	maker := policymaker.New(policymaker.Config{Deadline: 10 * time.Second}, w.client, w.client, clock, recorder)
	for _, question := range append([]string{unknownQuestion}, questions...) {
		if _, err := maker.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: question}}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// policies are how they stand.
func (w *world) policies(t *testing.T) map[string]policyStanding {
	t.Helper()
	seen := take(soon(t), w.client, scope{system: v1alpha1.SystemNamespace}, now, partPolicies)
	if err := seen.err(partPolicies); err != nil {
		t.Fatal(err)
	}
	return seen.policies
}

func policyMap(name string, modules map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: name, Labels: map[string]string{v1alpha1.LabelPolicy: questionIncoming},
		},
		Data: modules,
	}
}

func TestPoliciesInForceAreShown(t *testing.T) {
	stray := policyMap("stray", map[string]string{"a.rego": denyAll})
	stray.Labels[v1alpha1.LabelPolicy] = "nonsense"
	w := governed(t, policyMap("limits", map[string]string{"all.rego": denyAll, "broken.rego": denyBroken}), stray)
	var text bytes.Buffer
	standings := w.policies(t)
	if err := showPolicies(&text, standings, questions, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# incoming: limits/all.rego\n" + denyAll,
		"# incoming: limits/broken.rego: broken: not in force: limits/broken.rego:3",
		"# outgoing: the built-in default\n", "\npackage hanse.defaults.outgoing\n",
		"# stray: broken: not in force: its label",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, text.String())
		}
	}
	text.Reset()
	if err := showPolicies(&text, standings, []string{questionIncoming}, "json"); err != nil {
		t.Fatal(err)
	}
	var shown []policiesShown
	if err := json.Unmarshal(text.Bytes(), &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown) != 1 || shown[0].Default || len(shown[0].Broken) != 1 || shown[0].Broken[0].Kept {
		t.Errorf("scripts get %+v", shown)
	}
	if diff := cmp.Diff([]policyModule{{"limits/all.rego", denyAll}}, shown[0].Modules); diff != "" {
		t.Error(diff)
	}
}

func TestPoliciesThatNobodyHasToldAboutAreNotShown(t *testing.T) {
	standings := newWorld(t).policies(t)
	if err := showPolicies(&bytes.Buffer{}, standings, questions, ""); err == nil {
		t.Error("no error")
	}
}

func TestBrokenPoliciesAreInTheStatusAndFoundByCheck(t *testing.T) {
	w := governed(t, policyMap("limits", map[string]string{"broken.rego": denyBroken}))
	found, err := observe(soon(t), w.client, v1alpha1.SystemNamespace, "", now)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := printStatus(&text, found, ""); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "limits/broken.rego   incoming   broken: not in force") {
		t.Errorf("the status is\n%s", text.String())
	}
	if got := (&snapshot{policies: w.policies(t)}).checkPolicies(subject{})[0]; got.State != stateWarning || !strings.Contains(got.Found, "limits/broken.rego") {
		t.Errorf("check finds %+v", got)
	}
	if got := (&snapshot{policies: governed(t).policies(t)}).checkPolicies(subject{})[0]; got.State != stateOK {
		t.Errorf("check finds %+v where all is well", got)
	}
}

// answering is a cluster in which the manager's pod gives an answer to every trial, and the trials that it was given.
func answering(t *testing.T, answer string) (w *world, asked *[]string) {
	t.Helper()
	holder := "hanse-manager-1"
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: managerLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	w, asked = newWorld(t, lease), &[]string{}
	w.exec = func(_ context.Context, pod client.ObjectKey, _ []string, input []byte) ([]byte, error) {
		if pod.Namespace != v1alpha1.SystemNamespace || pod.Name != holder {
			return nil, errors.New("there is no pod " + pod.String())
		}
		*asked = append(*asked, string(input))
		return []byte(answer), nil
	}
	return w, asked
}

func TestPoliciesAreAsked(t *testing.T) {
	w, trials := answering(t, `{"decision": "Deny", "reason": "not today", "steps": [{"rule": "deny", "location": "limits/all.rego:3"}]}`)
	got, err := w.askPolicies(soon(t), v1alpha1.SystemNamespace, policyTrial{Question: questionIncoming, About: "hamburg"})
	if err != nil {
		t.Fatal(err)
	}
	want := policyAnswer{Decision: "Deny", Reason: "not today", Steps: []policyStep{{Rule: "deny", Location: "limits/all.rego:3"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`{"question":"incoming","about":"hamburg"}`}, *trials); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// The server's tests answer what lies in policy-trial.json, and give what lies in policy-answer.json.
func TestAPolicyIsTried(t *testing.T) {
	given, err := os.ReadFile(filepath.Join("testdata", "policy-answer.json"))
	if err != nil {
		t.Fatal(err)
	}
	w, trials := answering(t, string(given))
	module, input := filepath.Join(t.TempDir(), "module.rego"), filepath.Join(t.TempDir(), "input.json")
	writeFile(t, module, "package hanse.incoming\n\npatch.labels.region := input.region\n")
	writeFile(t, input, `{"region": "north"}`)
	asked := policyTrial{Question: questionIncoming}
	if asked.Module, err = readPolicyFile(module); err != nil {
		t.Fatal(err)
	}
	if asked.Input, err = readPolicyFile(input); err != nil {
		t.Fatal(err)
	}
	got, err := w.askPolicies(soon(t), v1alpha1.SystemNamespace, asked)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := printAnswer(&text, asked.Question, got, ""); err != nil {
		t.Fatal(err)
	}
	golden(t, "policy-test.txt", text.String())
	golden(t, "policy-trial.json", (*trials)[0]+"\n")
}

func TestPoliciesOfAManagerThatDoesNotRun(t *testing.T) {
	_, err := newWorld(t).askPolicies(soon(t), v1alpha1.SystemNamespace, policyTrial{Question: questionIncoming, About: "hamburg"})
	if err == nil || !strings.Contains(err.Error(), "does not run") || !strings.Contains(err.Error(), "hanse policy test") {
		t.Errorf("error %v", err)
	}
}

func TestQuestionsThatMakeNoSenseAreRefused(t *testing.T) {
	module := filepath.Join(t.TempDir(), "module.rego")
	writeFile(t, module, denyAll)
	for name, args := range map[string][]string{
		"show of no question":              {"show", "weather"},
		"show as XML":                      {"show", "-o", "xml"},
		"test without a question":          {"test", module, "--advertisement", "hamburg"},
		"test about nothing":               {"test", module, "--question", "incoming"},
		"test about two things":            {"test", module, "--question", "incoming", "--advertisement", "hamburg", "--input", module},
		"test of a file that is not":       {"test", module + "x", "--question", "incoming", "--advertisement", "hamburg"},
		"test with no such input":          {"test", module, "--question", "incoming", "--input", module + "x"},
		"placement of an advertisement":    {"test", module, "--question", "placement", "--advertisement", "hamburg"},
		"a pod of an advertisement":        {"test", module, "--question", "shadowpod", "--advertisement", "hamburg"},
		"an offer about a namespace":       {"test", module, "--question", "incoming", "--for-namespace", "shop"},
		"explanation of something":         {"explain", "weather", "hamburg"},
		"explanation of outgoing order":    {"explain", "placement", "shop", "--outgoing"},
		"explanation of nothing":           {"explain", "advertisement"},
		"explanation as XML":               {"explain", "advertisement", "hamburg", "-o", "xml"},
		"test in a cluster that is not":    {"test", module, "--question", "incoming", "--advertisement", "hamburg", "--kubeconfig", "/nonexistent"},
		"policies of a cluster that isn't": {"show", "--kubeconfig", "/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, append([]string{"policy"}, args...)...); err == nil {
				t.Error("no error")
			}
		})
	}
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAPolicyIsTriedOverExec has an API server that serves exec as Kubernetes does, with a program that answers what it
// was given.
func TestAPolicyIsTriedOverExec(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path + "?" + strings.Join(r.URL.Query()["command"], " ")
		streams := []wsstream.ChannelType{wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel}
		conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
			remotecommand.StreamProtocolV5Name: {Binary: true, Channels: streams},
		})
		_, channels, err := conn.Open(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		given := &bytes.Buffer{}
		if err := json.NewDecoder(io.TeeReader(channels[0], given)).Decode(&policyTrial{}); err != nil {
			t.Error(err)
		}
		_, out := channels[1].Write(given.Bytes())
		_, status := channels[3].Write([]byte(`{"kind": "Status", "status": "Success"}`))
		if err := errors.Join(out, status); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	c := &connection{config: &rest.Config{Host: server.URL}}
	got, err := c.execIn(soon(t), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "hanse-manager-1"}, askCommand, []byte(`{"question": "incoming"}`))
	if err != nil || string(got) != `{"question": "incoming"}` {
		t.Errorf("%q, %v", got, err)
	}
	want := "/api/v1/namespaces/hanse-system/pods/hanse-manager-1/exec?/hanse policy test --request"
	if path := <-asked; path != want {
		t.Errorf("asked for %q, want %q", path, want)
	}
}
