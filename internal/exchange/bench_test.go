// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const many = 10_000

// market is the copies that a consumer of so many providers has, each with a price of its own and the usual number of
// images.
func market(count int) []v1alpha1.Advertisement {
	ads := make([]v1alpha1.Advertisement, count)
	for i := range ads {
		ads[i] = taken(fmt.Sprintf("p%05d", (i*7919)%count), 1, func(ad *v1alpha1.Advertisement) {
			ad.Annotations = map[string]string{AnnotationReceived: now.Format(time.RFC3339)}
			ad.Status.Acknowledgement = &v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted, Reason: v1alpha1.ReasonAccepted}
			ad.Spec.Availability = resources("cpu", "64", "memory", "256Gi", "pods", "110", "ephemeral-storage", "0")
			ad.Spec.LargestPod = resources("cpu", "16", "memory", "64Gi", "ephemeral-storage", "0")
			ad.Spec.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
				corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(20_000_000+i*31%9973), resource.Nano),
				corev1.ResourceMemory: *resource.NewScaledQuantity(int64(3_000_000+i%3), resource.Nano),
			}}
			for n := range MaxImages {
				ad.Spec.Images = append(ad.Spec.Images, v1alpha1.Image{Names: []string{
					fmt.Sprintf("registry.example/team/application-%d:%d", n, i%10), fmt.Sprintf("registry.example/team/application-%d@sha256:%064d", n, i%10),
				}})
			}
		})
	}
	return ads
}

func links(count int) []v1alpha1.Peer {
	peers := make([]v1alpha1.Peer, count)
	for i := range peers {
		peers[i].Name = fmt.Sprintf("p%05d", i)
		peers[i].Status.RoundTripTime = &metav1.Duration{Duration: time.Duration(1+i%97) * time.Millisecond}
	}
	return peers
}

func BenchmarkNewTable(b *testing.B) {
	ads := market(many)
	b.ReportAllocs()
	for b.Loop() {
		if rows := NewTable(ads, now).Rows; len(rows) != many {
			b.Fatalf("%d rows", len(rows))
		}
	}
}

func BenchmarkWithLinks(b *testing.B) {
	table, peers := NewTable(market(many), now), links(many)
	b.ReportAllocs()
	for b.Loop() {
		if rows := table.WithLinks(peers).Rows; rows[7].RoundTrip == 0 {
			b.Fatal("not measured")
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	table := NewTable(market(many), now).WithLinks(links(many))
	for name, text := range map[string]string{
		"a pod":                     "cpu=2,memory=4Gi",
		"a pod with two images":     "cpu=2,memory=4Gi,image=nginx,image=registry.example/team/application-7:3",
		"a pod that fits nowhere":   "cpu=99,memory=4Gi",
		"a pod in fractions of all": "cpu=1333m,memory=123456789",
	} {
		b.Run(name, func(b *testing.B) {
			query, err := ParseQuery(text)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if matches := table.Match(query); len(matches) != many {
					b.Fatalf("%d matches", len(matches))
				}
			}
		})
	}
}

func BenchmarkPlace(b *testing.B) {
	const count = 200
	placing := Placing{Rows: NewTable(market(count), now).WithLinks(links(count)).Rows, Scores: map[string]float64{"p00001": 1}}
	placing.Asked = v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true, Request: DefaultRequest()}
	b.ReportAllocs()
	for b.Loop() {
		if nodes := Place(placing).Nodes; len(nodes) != count {
			b.Fatalf("%d nodes", len(nodes))
		}
	}
}

func BenchmarkRefuseHundredThousandImages(b *testing.B) {
	object := unstructuredOf(b, v1alpha1.Advertisement{Spec: *offer()})
	images := make([]any, 100_000)
	for i := range images {
		images[i] = map[string]any{"names": []any{fmt.Sprint("image-", i)}, "sizeBytes": int64(i)}
	}
	object["spec"].(map[string]any)["images"] = images
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(object); err == nil {
			b.Fatal("taken")
		}
	}
}

// To let a pod in costs the same however many Requests there are.
func BenchmarkReserved(b *testing.B) {
	for _, requests := range []int{0, 1, 100} {
		b.Run(fmt.Sprintf("%d Requests of each of 100 peers", requests), func(b *testing.B) {
			l := NewLedger()
			l.SetNode(node("a"))
			l.Guarantee("kiel", cores(1))
			for i := range 100 * requests {
				l.SetReserved(fmt.Sprint("peer-", i%100), fmt.Sprint("request-", i/100), cores(1))
			}
			pod := resources("cpu", "1m", "memory", "1Mi", "pods", "1")
			b.ReportAllocs()
			for b.Loop() {
				l.Short("peer-7", "request-0", pod, nil)
				l.Claim("peer-7", Claim{All: pod, Request: "request-0", Taken: pod})
			}
		})
	}
}
