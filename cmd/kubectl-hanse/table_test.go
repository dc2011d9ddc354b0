// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// fair is a cluster with a provider in each state that an offer can have, and with an offer of its own, which is no row.
func fair() []client.Object {
	hamburg := listed("hamburg", "8", "16Gi", v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonCorrected)
	hamburg.Status.Acknowledgement.Corrections = []string{"spec.labels[region]: north instead of best"}
	hamburg.Spec.Prices = &v1alpha1.Prices{
		Currency:     "EUR",
		PerHour:      map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.02"), "memory": resource.MustParse("0.003")},
		PerPlacement: map[string]resource.Quantity{"nginx": resource.MustParse("0.5")},
	}
	hamburg.Spec.Images = []v1alpha1.Image{{Names: []string{"docker.io/library/nginx@sha256:0123", "docker.io/library/nginx:latest"}, SizeBytes: 70 << 20}}
	hamburg.Spec.Labels = map[string]v1alpha1.Text{"region": "north\x1b[31m"}
	hamburg.Spec.LargestPod = corev1.ResourceList{"cpu": resource.MustParse("3"), "memory": resource.MustParse("8Gi")}
	hamburg.Spec.Guarantee = corev1.ResourceList{"cpu": resource.MustParse("2")}

	bremen := listed("bremen", "4", "8Gi", v1alpha1.AcknowledgementPending, v1alpha1.ReasonPendingApproval)
	bremen.Status.Acknowledgement.Message = "a new provider is looked at first"
	riga := listed("riga", "32", "64Gi", v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonAccepted)
	riga.Spec.Phase = v1alpha1.OfferCordoned
	riga.Spec.Nested = []v1alpha1.NestedOffer{{
		ClusterID: "reval", Availability: corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi")},
	}}
	wismar := listed("wismar", "16", "32Gi", v1alpha1.AcknowledgementRefused, v1alpha1.ReasonRefusedByPolicy)
	wismar.Status.Acknowledgement.Message = "cpu costs more than 1 EUR"
	gone := listed("danzig", "64", "64Gi", v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonAccepted)
	gone.Spec.TimeToLive = metav1.NewTime(now.Add(-time.Second))
	own := listed("hamburg", "99", "99Gi", v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonAccepted)
	own.Name, own.Spec.ClusterID = "lubeck", "lubeck"

	objects := []client.Object{hamburg, bremen, riga, wismar, gone, own}
	for name, trip := range map[string]time.Duration{"hamburg": 12 * time.Millisecond, "bremen": 3 * time.Millisecond, "riga": 0, "wismar": 0, "danzig": 0} {
		peer := newPeer(name, v1alpha1.RoleProvider, v1alpha1.RoleConsumer)
		if trip > 0 {
			peer.Status.RoundTripTime = &metav1.Duration{Duration: trip}
			peer.Status.RoundTripDeviation = &metav1.Duration{Duration: trip / 3}
		}
		if name == "hamburg" {
			peer.Status.Bandwidth = resource.NewQuantity(12_000_000, resource.DecimalSI)
			peer.Status.Throughput, peer.Status.LossPercent = resource.NewQuantity(95_000_000, resource.DecimalSI), ptr.To[int32](1)
		}
		if name == "danzig" {
			setCondition(peer, v1alpha1.ConditionAdvertised, metav1.ConditionFalse, v1alpha1.ReasonExpired, "it was not heard of in time")
		}
		objects = append(objects, peer)
	}
	return append(objects, newPeer("stade", v1alpha1.RoleConsumer))
}

// listed is our copy of what a provider offers, answered.
func listed(peer, cpu, memory string, state v1alpha1.AcknowledgementState, reason string) *v1alpha1.Advertisement {
	accepted := metav1.ConditionFalse
	if state == v1alpha1.AcknowledgementAccepted {
		accepted = metav1.ConditionTrue
	}
	return &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.TenantNamespace(peer), Name: peer, Labels: map[string]string{v1alpha1.LabelPeer: peer},
			Annotations: map[string]string{exchange.AnnotationReceived: now.Add(-3 * time.Minute).Format(time.RFC3339)},
		},
		Spec: v1alpha1.AdvertisementSpec{
			ClusterID: peer, Timestamp: metav1.NewTime(now.Add(-3 * time.Minute)), TimeToLive: metav1.NewTime(now.Add(27 * time.Minute)),
			Availability: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
				corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
			},
		},
		Status: v1alpha1.AdvertisementStatus{
			Conditions:      []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: accepted, Reason: reason}},
			Acknowledgement: &v1alpha1.Acknowledgement{State: state, Reason: reason},
		},
	}
}

func TestTable(t *testing.T) {
	c := newWorld(t, fair()...).client
	query := func(text string) *exchange.Query {
		query, err := exchange.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		return &query
	}
	for file, flags := range map[string]tableFlags{
		"table.txt":           {},
		"table-wide.txt":      {output: "wide"},
		"table.json":          {output: "json"},
		"table.yaml":          {output: "yaml"},
		"table-price.txt":     {sort: "price"},
		"table-for.txt":       {query: query("cpu=2,memory=4Gi,image=nginx")},
		"table-for-cpu.txt":   {query: query("cpu=2"), sort: "cpu"},
		"table-for.json":      {query: query("cpu=4"), output: "json"},
		"table-for-large.txt": {query: query("cpu=4,example.com/gpu=1"), sort: "latency", output: "wide"},
	} {
		t.Run(file, func(t *testing.T) {
			var text bytes.Buffer
			if err := showTable(soon(t), &text, c, &flags, now); err != nil {
				t.Fatal(err)
			}
			golden(t, file, text.String())
			if strings.Contains(text.String(), "99Gi") {
				t.Error("what we offer ourselves is shown as the offer of another")
			}
		})
	}
}

func TestTableOfAClusterWithoutProviders(t *testing.T) {
	var text bytes.Buffer
	if err := showTable(soon(t), &text, newWorld(t).client, &tableFlags{}, now); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "kubectl hanse join") {
		t.Errorf("%q does not say what to do", text.String())
	}
	text.Reset()
	if err := showTable(soon(t), &text, newWorld(t).client, &tableFlags{output: "json"}, now); err != nil || !strings.Contains(text.String(), `"rows": []`) {
		t.Errorf("scripts get %s, %v", text.String(), err)
	}
}
