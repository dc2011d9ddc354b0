// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var (
	update = flag.Bool("update", false, "write the golden files anew")
	now    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// A cluster that consumes from one peer, whose offer has lapsed from another, and that provides to a third.
func league() []client.Object {
	condition := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message}}
	}
	peer := func(name string, role v1alpha1.PeerRole, conditions []metav1.Condition) *v1alpha1.Peer {
		return &v1alpha1.Peer{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.PeerSpec{ClusterID: name + "-id", Roles: []v1alpha1.PeerRole{role}},
			Status:     v1alpha1.PeerStatus{Conditions: conditions},
		}
	}
	offer := func(peer, cluster string, left time.Duration, state v1alpha1.AcknowledgementState, message string) *v1alpha1.Advertisement {
		return &v1alpha1.Advertisement{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(peer), Name: cluster},
			Spec: v1alpha1.AdvertisementSpec{
				ClusterID: cluster, TimeToLive: metav1.NewTime(now.Add(left)),
				Availability: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"),
					corev1.ResourcePods: resource.MustParse("110"),
				},
			},
			Status: v1alpha1.AdvertisementStatus{
				Conditions:      []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}},
				Acknowledgement: &v1alpha1.Acknowledgement{State: state, Reason: string(state), Message: message},
			},
		}
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "hanse-hamburg", Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	return []client.Object{
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ClusterInfo},
			Data:       map[string]string{v1alpha1.ClusterInfoID: "lubeck", v1alpha1.ClusterInfoVersion: "v0.1.0"},
		},
		node,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: node.Name}},
		peer("hamburg", v1alpha1.RoleProvider, condition(metav1.ConditionTrue, v1alpha1.ReasonReady, "")),
		offer("hamburg", "hamburg-id", time.Minute, v1alpha1.AcknowledgementAccepted, ""),
		peer("bremen", v1alpha1.RoleProvider, condition(metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "no answer\x1b[31m")),
		offer("bremen", "bremen-id", -time.Minute, v1alpha1.AcknowledgementAccepted, ""),
		peer("riga", v1alpha1.RoleConsumer, nil),
		offer("riga", "lubeck", time.Minute, v1alpha1.AcknowledgementRefused, "too dear"),
		&v1alpha1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName},
			Spec:       v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote},
			Status: v1alpha1.NamespaceOffloadingStatus{
				Conditions: condition(metav1.ConditionFalse, v1alpha1.ReasonPending, "Peer bremen: no answer yet"),
				Clusters:   []v1alpha1.ClusterOffloading{{Peer: "bremen", State: "Pending"}, {Peer: "hamburg", State: "Ready"}},
			},
		},
	}
}

func TestStatusForPeople(t *testing.T) {
	var text bytes.Buffer
	if err := printStatus(&text, mustObserve(t, league()...), ""); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.txt", text.String())
}

func TestWideStatus(t *testing.T) {
	var text bytes.Buffer
	if err := printStatus(&text, mustObserve(t, append(league(), friend()...)...), "wide"); err != nil {
		t.Fatal(err)
	}
	golden(t, "status-wide.txt", text.String())
}

// friend is a peer both ways of which all is known, and a cluster that was found in the network.
func friend() []client.Object {
	peer := newPeer("danzig", v1alpha1.RoleProvider, v1alpha1.RoleConsumer, v1alpha1.RoleBroker)
	peer.Spec.Access = v1alpha1.AccessCordoned
	peer.Spec.Limits = &v1alpha1.PeerLimits{
		Resources: corev1.ResourceList{
			"nvidia.com/gpu": resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("64Gi"),
			corev1.ResourceCPU: resource.MustParse("16"),
		},
		Namespaces: ptr.To[int32](5),
	}
	peer.Status = v1alpha1.PeerStatus{
		Version: "v0.1.1", RoundTripTime: &metav1.Duration{Duration: 12 * time.Millisecond},
		LossPercent: ptr.To[int32](2), Throughput: ptr.To(resource.MustParse("12M")),
		Services: &v1alpha1.PeerServices{
			Exported: 3, RefusedThere: []v1alpha1.RefusedService{{Namespace: "shop", Name: "db", Message: "there is no namespace \"shop\" here\x1b[31m"}},
		},
		Session:    &v1alpha1.SessionStatus{Expires: ptr.To(metav1.NewTime(now.Add(30 * 24 * time.Hour)))},
		Invitation: &v1alpha1.InvitationStatus{Serial: 1, Expires: ptr.To(metav1.NewTime(now.Add(time.Hour)))},
	}
	setCondition(peer, v1alpha1.ConditionSession, metav1.ConditionTrue, v1alpha1.ReasonReady, "the credentials are good")
	setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvited, "danzig has not joined yet")
	setCondition(peer, v1alpha1.ConditionIntroduced, metav1.ConditionFalse, v1alpha1.ReasonPending, "its members do not know us yet")
	setCondition(peer, v1alpha1.ConditionAdmitted, metav1.ConditionFalse, v1alpha1.ReasonBrokerDisabled, "this cluster is no broker")
	found := newPeer("stralsund")
	found.Status.DiscoveredServers = []string{"https://198.51.100.9:6443"}
	setCondition(found, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDiscovered, "only found")
	tunnel := &v1alpha1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("danzig"), Name: v1alpha1.ConnectionName},
		Status: v1alpha1.ConnectionStatus{
			Endpoint: "240.0.0.1:17001", Through: "bremen",
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonEndpointRefused, Message: "one endpoint is ours",
			}},
		},
	}
	there := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}}
	there.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data-0"}
	there.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: v1alpha1.VolumesDriver, VolumeHandle: "danzig/shop/pvc-1"}
	here := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-2"}}
	reserved := &v1alpha1.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("danzig"), Name: "shop"},
		Status: v1alpha1.RequestStatus{
			Phase: v1alpha1.RequestAcknowledged, Reserved: corev1.ResourceList{"cpu": resource.MustParse("3"), "pods": resource.MustParse("6")},
			ValidUntil: &metav1.Time{Time: time.Date(2026, 3, 1, 18, 0, 0, 0, time.UTC)},
		},
	}
	refused := reserved.DeepCopy()
	refused.Name, refused.Status.Phase = "stock", v1alpha1.RequestRefused
	return append(guest("danzig"), reserved, refused, peer, found, tunnel, there, here, shadowClaim("pvc-8", ""), shadowClaim("pvc-9", "no volumes are offered here"))
}

// shadowClaim is one of danzig, and what is said of it.
func shadowClaim(name, why string) *v1alpha1.ShadowClaim {
	claim := &v1alpha1.ShadowClaim{ObjectMeta: metav1.ObjectMeta{Namespace: guest("danzig")[0].GetName(), Name: name}}
	claim.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Message: why}}
	return claim
}

func TestStatusOfOnePeer(t *testing.T) {
	found := mustObserve(t, append(league(), friend()...)...)
	for _, name := range []string{"danzig", "hamburg", "stralsund"} {
		var text bytes.Buffer
		if err := printStatusOf(&text, found, name, ""); err != nil {
			t.Fatal(err)
		}
		golden(t, "status-"+name+".txt", text.String())
	}
	var text bytes.Buffer
	if err := printStatusOf(&text, found, "danzig", "json"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"access": "Cordoned"`, `"through": "bremen"`, `"lossPercent": 2`, `"throughput": "12M"`, `"exported": 3`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("scripts get %s, which lacks %s", text.String(), want)
		}
	}
	if err := printStatusOf(&text, found, "nobody", ""); err == nil {
		t.Error("no error for a peer that there is not")
	}
}

func TestStatusSaysWhatWaitsForTheAdministrator(t *testing.T) {
	waiting := listed("wismar", "4", "8Gi", v1alpha1.AcknowledgementPending, v1alpha1.ReasonPendingApproval)
	waiting.Status.Acknowledgement.Message = "a new provider is looked at first"
	used := listed("danzig", "4", "8Gi", v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonCorrected)
	used.Status.Acknowledgement.Corrections = []string{"spec.availability[cpu]: 4 instead of 400"}
	used.Spec.Guarantee = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	peer := newPeer("danzig", v1alpha1.RoleProvider)
	peer.Status.RoundTripTime = &metav1.Duration{Duration: 12 * time.Millisecond}
	peer.Status.RoundTripDeviation = &metav1.Duration{Duration: 3 * time.Millisecond}
	shop := &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName},
		Status: v1alpha1.NamespaceOffloadingStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoClusterFits, Message: "all are too dear",
		}}},
	}
	found := mustObserve(t, newPeer("wismar", v1alpha1.RoleProvider), waiting, peer, used, shop)
	var text, one bytes.Buffer
	if err := errors.Join(printStatus(&text, found, ""), printStatusOf(&one, found, "danzig", "")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"wismar: a new provider is looked at first: kubectl hanse accept wismar, or kubectl hanse refuse wismar", "shop: NoClusterFits: all are too dear",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s\nlacks %q", text.String(), want)
		}
	}
	for _, want := range []string{"12ms, plus or minus 3ms", "guaranteed cpu 2", "our answer: Accepted", "corrected: spec.availability[cpu]: 4 instead of 400"} {
		if !strings.Contains(one.String(), want) {
			t.Errorf("%s\nlacks %q", one.String(), want)
		}
	}
}

func TestStatusForScripts(t *testing.T) {
	for _, format := range []string{"json", "yaml"} {
		var text bytes.Buffer
		if err := printStatus(&text, mustObserve(t, league()...), format); err != nil {
			t.Fatal(err)
		}
		golden(t, "status."+format, text.String())
	}
}

func TestStatusOfANewClusterSaysWhatToDo(t *testing.T) {
	var text bytes.Buffer
	found := mustObserve(t)
	if err := printStatus(&text, found, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kubectl hanse invite", "kubectl hanse offload"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q lacks %q", text.String(), want)
		}
	}
	data, err := json.Marshal(found)
	if err != nil || !strings.Contains(string(data), `"peers":[]`) {
		t.Errorf("scripts get %s, %v", data, err)
	}
}

func TestStatusOfOneNamespace(t *testing.T) {
	w := newWorld(t, append(system(), offloadingOf("shop"), offloadingOf("bank"))...)
	for namespace, want := range map[string]struct{ says, not string }{
		"":     {"bank", "is not offloaded"},
		"shop": {"shop", "bank"},
		"demo": {"Namespace demo is not offloaded. To have it offloaded: kubectl hanse offload demo", "bank"},
	} {
		found, err := observe(soon(t), w.client, v1alpha1.SystemNamespace, namespace, now)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := printStatus(&text, found, ""); err != nil {
			t.Fatal(err)
		}
		if got := text.String(); !strings.Contains(got, want.says) || strings.Contains(got, want.not) || !strings.Contains(got, "Cluster lubeck") {
			t.Errorf("status -n %q says\n%s", namespace, got)
		}
	}
}

func mustObserve(t *testing.T, objects ...client.Object) overview {
	t.Helper()
	found, err := observe(soon(t), newWorld(t, objects...).client, v1alpha1.SystemNamespace, "", now)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// golden compares with a file under testdata; `go test -update` writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), run `go test -update` and review:\n%s", file, diff)
	}
}
