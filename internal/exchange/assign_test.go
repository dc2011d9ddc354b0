// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// site is a row with so many cores, each of which costs so many cents.
func site(peer string, cores, cents int64, changes ...func(*Row)) Row {
	row := Row{Peer: peer, ClusterID: peer, Accepted: true, Open: true, RoundTrip: 10 * time.Millisecond}
	row.Offer.Availability = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI), corev1.ResourcePods: resource.MustParse("110"),
	}
	if cents > 0 {
		row.Offer.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
			corev1.ResourceCPU: *resource.NewScaledQuantity(cents, resource.Milli), // times ten, which all are
		}}
	}
	for _, change := range changes {
		change(&row)
	}
	return row
}

// part is a component whose replicas ask for so many cores each.
func part(name string, replicas int32, cores int64) Component {
	return Component{RequestedComponent: v1alpha1.RequestedComponent{
		Name: name, Replicas: replicas, Resources: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI)},
	}}
}

func euros(amount string) *v1alpha1.Price {
	return &v1alpha1.Price{Amount: resource.MustParse(amount), Currency: "EUR"}
}

func TestAssign(t *testing.T) {
	inDollars := func(r *Row) { r.Offer.Prices.Currency = "USD" }
	at := func(d time.Duration) func(*Row) { return func(r *Row) { r.RoundTrip = d } }
	has := func(image string) func(*Row) {
		return func(r *Row) { r.Offer.Images = []v1alpha1.Image{{Names: []string{image}}} }
	}
	withImage := part("web", 1, 1)
	withImage.Images = []string{"docker.io/library/shop:1"}
	cheap := part("web", 2, 1)
	cheap.MaxPrice = euros("0.005")
	near := part("web", 1, 1)
	near.Bounds.MaxLatency = &metav1.Duration{Duration: 20 * time.Millisecond}
	for name, test := range map[string]struct {
		job  Job
		want string // the peers of the components, or why a component fits nowhere
	}{
		"the cheapest":           {Job{Rows: []Row{site("a", 8, 3), site("b", 8, 2)}, Components: []Component{part("web", 2, 1)}}, "b"},
		"home is a row":          {Job{Rows: []Row{site("", 8, 0), site("b", 8, 2)}, Components: []Component{part("web", 2, 1)}}, ""},
		"home is full":           {Job{Rows: []Row{site("", 1, 0), site("b", 8, 2)}, Components: []Component{part("web", 2, 1)}}, "b"},
		"room is used up":        {Job{Rows: []Row{site("a", 3, 1), site("b", 8, 2)}, Components: []Component{part("web", 2, 1), part("db", 1, 3)}}, "b a"},
		"the nearer of equals":   {Job{Rows: []Row{site("a", 8, 1, at(time.Second)), site("b", 8, 1)}, Components: []Component{part("web", 1, 1)}}, "b"},
		"the nearest first":      {Job{Rows: []Row{site("a", 8, 1, at(time.Second)), site("b", 8, 9)}, Components: []Component{part("web", 1, 1)}, Nearest: true}, "b"},
		"what has the image":     {Job{Rows: []Row{site("a", 8, 1), site("b", 8, 1, has("docker.io/library/shop:1"))}, Components: []Component{withImage}}, "b"},
		"together costs more":    {Job{Rows: []Row{site("a", 2, 1), site("b", 8, 2)}, Components: []Component{part("web", 2, 1), part("db", 1, 2)}, Together: [][]int{{0, 1}}}, "b b"},
		"apart costs more":       {Job{Rows: []Row{site("a", 8, 1), site("b", 8, 2)}, Components: []Component{part("web", 2, 1), part("db", 1, 1)}, Apart: [][]int{{0, 1}}}, "a b"},
		"talkative ones":         {Job{Rows: []Row{site("a", 2, 1), site("b", 3, 1)}, Components: []Component{part("web", 1, 1), part("db", 2, 1)}, Talks: [][2]int{{0, 1}}}, "b b"},
		"a price for a part":     {Job{Rows: []Row{site("a", 8, 3), site("b", 8, 2, inDollars)}, Components: []Component{cheap}}, "a: It asks for more than maxPrice; b: It asks for another currency than that of maxPrice"},
		"a price for all":        {Job{Rows: []Row{site("a", 1, 1), site("b", 8, 3)}, Components: []Component{part("web", 1, 1), part("db", 1, 1)}, MaxPrice: euros("0.003")}, "none"},
		"another currency":       {Job{Rows: []Row{site("a", 8, 1, inDollars), site("b", 8, 3)}, Components: []Component{part("web", 1, 1), part("db", 1, 1)}, MaxPrice: euros("1")}, "b b"},
		"one currency for all":   {Job{Rows: []Row{site("a", 1, 1, inDollars), site("b", 8, 3)}, Components: []Component{part("web", 1, 1), part("db", 1, 1)}}, "b b"},
		"free beside a currency": {Job{Rows: []Row{site("a", 1, 0), site("b", 8, 3)}, Components: []Component{part("web", 1, 1), part("db", 1, 1)}}, "a b"},
		"too far": {
			Job{Rows: []Row{site("a", 8, 1, at(time.Second)), site("b", 8, 1, at(0))}, Components: []Component{near}},
			"a: Its round-trip time is longer than maxLatency in spec.placement; b: Its round-trip time is not known yet, and maxLatency in spec.placement is set",
		},
		"not enough room": {
			Job{Rows: []Row{site("a", 3, 1), site("b", 1, 1)}, Components: []Component{part("web", 2, 2)}},
			"a: It has less than 4 of cpu free, which 2 replicas ask for; b: It has less than 2 of cpu free",
		},
		"not allowed": {Job{
			Rows: []Row{site("a", 8, 1)}, Components: []Component{part("web", 1, 1)}, Allowed: func(*Row) string { return "exclude names it" },
		}, "a: exclude names it"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Assign(test.job)
			if diff := cmp.Diff(test.want, inWords(&test.job, &got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !got.Exact && got.Rows != nil {
				t.Error("the search was cut off")
			}
		})
	}
}

// inWords names the peers of the components, or says why the first component that fits nowhere does not.
func inWords(job *Job, got *Assignment) string {
	var words []string
	for _, row := range got.Rows {
		words = append(words, job.Rows[row].Peer)
	}
	if got.Rows != nil {
		return strings.Join(words, " ")
	}
	for _, why := range got.Why {
		if !slices.Contains(why, "") {
			for j := range why {
				words = append(words, job.Rows[j].Peer+": "+why[j])
			}
			return strings.Join(words, "; ")
		}
	}
	return "none"
}

// Whatever the job, the answer keeps all that is asked, and no other assignment costs less.
func TestAssignFindsTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := randomJob(t)
		got := Assign(job)
		best, fits := cheapestByTryingAll(&job)
		if fits != (got.Rows != nil) {
			t.Fatalf("it fits: %t; found %v", fits, got.Rows)
		}
		if !fits {
			return
		}
		cost, ok := job.costOf(got.Rows)
		if !ok || cost != best || !got.Exact {
			t.Fatalf("%v costs %d (allowed %t, exact %t), the cheapest %d", got.Rows, cost, ok, got.Exact, best)
		}
	})
}

func randomJob(t *rapid.T) Job {
	small := func(label string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(t, label) }
	var job Job
	for i := range small("rows", 1, 5) {
		job.Rows = append(job.Rows, site(fmt.Sprintf("p%d", i), small("cores", 0, 8), small("cents", 0, 4)))
	}
	parts := int(small("parts", 1, 4))
	for i := range parts {
		job.Components = append(job.Components, part(fmt.Sprintf("c%d", i), int32(small("replicas", 1, 3)), small("request", 1, 3)))
	}
	group := func(label string) [][]int {
		if parts < 2 || !rapid.Bool().Draw(t, label) {
			return nil
		}
		return [][]int{{0, parts - 1}}
	}
	job.Together = group("together")
	job.Apart = group("apart")
	if rapid.Bool().Draw(t, "a price for all") {
		job.MaxPrice = &v1alpha1.Price{Amount: *resource.NewScaledQuantity(small("most", 0, 40), resource.Milli), Currency: "EUR"}
	}
	return job
}

// cheapestByTryingAll looks at every assignment.
func cheapestByTryingAll(job *Job) (best int64, fits bool) {
	rows := make([]int, len(job.Components))
	for {
		if cost, ok := job.costOf(rows); ok && (!fits || cost < best) {
			best, fits = cost, true
		}
		i := 0
		for ; i < len(rows) && rows[i] == len(job.Rows)-1; i++ {
			rows[i] = 0
		}
		if i == len(rows) {
			return best, fits
		}
		rows[i]++
	}
}

// costOf is what the assignment costs for an hour, in thousandths, and whether it is allowed.
func (j *Job) costOf(rows []int) (cost int64, ok bool) {
	used := map[int]int64{}
	for i, row := range rows {
		c := &j.Components[i]
		cores := int64(c.Replicas) * c.Resources.Cpu().Value()
		used[row] += cores
		if prices := j.Rows[row].Offer.Prices; prices != nil {
			price := prices.PerHour[corev1.ResourceCPU]
			cost += cores * price.ScaledValue(resource.Milli)
		}
	}
	for row, cores := range used {
		if cores > j.Rows[row].Offer.Availability.Cpu().Value() {
			return 0, false
		}
	}
	for _, group := range j.Together {
		if rows[group[0]] != rows[group[1]] {
			return 0, false
		}
	}
	for _, group := range j.Apart {
		if rows[group[0]] == rows[group[1]] {
			return 0, false
		}
	}
	return cost, j.MaxPrice == nil || cost <= j.MaxPrice.Amount.ScaledValue(resource.Milli)
}

func BenchmarkAssign(b *testing.B) {
	table := NewTable(market(many), now)
	web, db, queue := part("web", 4, 2), part("db", 1, 8), part("queue", 2, 4)
	b.ResetTimer()
	for range b.N {
		if got := Assign(Job{Rows: table.Rows, Components: []Component{web, db, queue}}); got.Rows == nil {
			b.Fatal("it does not fit")
		}
	}
}
