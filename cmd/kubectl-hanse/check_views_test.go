// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

// kubeletWith is the Deployment of hanse kubelet with some flags.
func kubeletWith(args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.SystemNamespace, Name: kubeletDeployment, Labels: map[string]string{install.PartOfLabel: install.PartOf},
	}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "hanse", Args: args}}
	return d
}

func TestTheCertificateOfTheKubeletAPIIsChecked(t *testing.T) {
	apiServer := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-apiserver", Labels: map[string]string{"component": "kube-apiserver"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Command: []string{"kube-apiserver", authorityFlag + "=/ca.crt"}}}},
	}
	node := virtualNodeOf("turin", "south")
	distrust := errors.New("error trying to reach service: tls: failed to verify certificate: x509: certificate signed by unknown authority")
	for name, test := range map[string]struct {
		objects []client.Object
		reach   error
		want    state
		says    string
	}{
		"no Deployment":                {nil, nil, stateSkipped, "see Deployments"},
		"its own, and no node":         {[]client.Object{kubeletWith()}, nil, stateOK, "self-signed by hanse-kubelet"},
		"its own, which is verified":   {[]client.Object{kubeletWith(), apiServer}, nil, stateFailed, authorityFlag},
		"mounted, and no node":         {[]client.Object{kubeletWith("--tls-cert-file=/tls/tls.crt"), apiServer}, nil, stateOK, "mounted, at /tls/tls.crt"},
		"taken":                        {[]client.Object{kubeletWith(), node}, nil, stateOK, "the API server takes it"},
		"mounted, and taken":           {[]client.Object{kubeletWith("--tls-cert-file", "/tls/tls.crt"), node}, nil, stateOK, "mounted, at /tls/tls.crt, and"},
		"not taken":                    {[]client.Object{kubeletWith(), node}, distrust, stateFailed, "unknown authority"},
		"not reached":                  {[]client.Object{kubeletWith(), node}, errors.New("i/o timeout"), stateWarning, "does not reach"},
		"tried by who may not":         {[]client.Object{kubeletWith(), node}, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil), stateOK, "rights"},
		"a node that is not ready yet": {[]client.Object{kubeletWith(), &corev1.Node{ObjectMeta: node.ObjectMeta}}, distrust, stateOK, "no virtual node"},
	} {
		t.Run(name, func(t *testing.T) {
			check := newChecker(t, test.objects...)
			check.reach = func(context.Context, string) error { return test.reach }
			got := check.certificate(soon(t), subject{}, seen(t, []part{partNodes, partDeployments, partAPIServers}, test.objects...))[0]
			if got.State != test.want || !strings.Contains(got.Found, test.says) {
				t.Errorf("%s: %s, want %s that says %q", got.State, got.Found, test.want, test.says)
			}
		})
	}
}

// The API server answers with 503 where it cannot connect, and hands on what the kubelet API answers.
func TestTheKubeletAPIIsReachedThroughTheAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		answer  int
		body    string
		reached bool
	}{
		"it is well":        {http.StatusOK, "ok", true},
		"it has no healthz": {http.StatusNotFound, "404 page not found", true},
		"it is not trusted": {http.StatusServiceUnavailable, "x509: certificate signed by unknown authority", false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.Path
				w.WriteHeader(test.answer)
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			d, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			err = through(d.RESTClient())(soon(t), "hanse-turin")
			if (err == nil) != test.reached || err != nil && !isDistrust(err) {
				t.Errorf("error %v", err)
			}
			if asked != "/api/v1/nodes/hanse-turin/proxy/healthz" {
				t.Errorf("asked for %s", asked)
			}
		})
	}
}

func TestOffloadedNamespacesAreChecked(t *testing.T) {
	offloading := func(namespace string, conditions ...metav1.Condition) client.Object {
		o := offloadingOf(namespace)
		for _, c := range conditions {
			meta.SetStatusCondition(&o.Status.Conditions, c)
		}
		return o
	}
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	ready := condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	findings := seen(t, []part{partOffloadings},
		offloading("a-ready", ready),
		offloading("b-pending", condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPending)),
		offloading("c-refused", condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "Refused")),
		offloading("d-unplaced", ready, condition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, v1alpha1.ReasonNoClusterFits)),
		offloading("e-new"),
	).checkOffloadings(subject{name: "offloaded namespaces"}, "")
	for name, want := range map[string]state{
		"offloaded namespaces": stateOK, "namespace a-ready": "", "namespace b-pending": stateWarning,
		"namespace c-refused": stateWarning, "namespace d-unplaced": stateWarning, "namespace e-new": stateWarning,
	} {
		if got := stateOf(findings, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if findings[0].Found != "ready: 1 of 5" {
		t.Errorf("it says %q", findings[0].Found)
	}
	if other := seen(t, []part{partOffloadings}, offloadingOf("shop")).checkOffloadings(subject{}, "demo"); other[0].Found != "namespace demo is not offloaded" {
		t.Errorf("of another namespace: %+v", other)
	}
	if none := seen(t, []part{partOffloadings}).checkOffloadings(subject{}, ""); len(none) > 0 {
		t.Errorf("of none it says %+v", none)
	}
}
