package exchange

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func taken(cluster string, sequence int64, changes ...func(*v1alpha1.Advertisement)) v1alpha1.Advertisement {
	ad := v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.TenantNamespace(cluster), Name: cluster,
			Labels: map[string]string{v1alpha1.LabelPeer: cluster},
		},
		Spec: *offer(func(s *v1alpha1.AdvertisementSpec) { s.ClusterID, s.Sequence = cluster, sequence }),
		Status: v1alpha1.AdvertisementStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue},
		}},
	}
	for _, change := range changes {
		change(&ad)
	}
	return ad
}

func TestTableHoldsWhatIsInForce(t *testing.T) {
	expired := func(ad *v1alpha1.Advertisement) { ad.Spec.TimeToLive = metav1.NewTime(now) }
	refused := func(ad *v1alpha1.Advertisement) { ad.Status.Conditions[0].Status = metav1.ConditionFalse }
	unanswered := func(ad *v1alpha1.Advertisement) { ad.Status.Conditions = nil }

	table := NewTable([]v1alpha1.Advertisement{
		taken("lubeck", 1), taken("bremen", 1), taken("lubeck", 3), taken("lubeck", 2),
		taken("kiel", 1, expired), taken("visby", 1, refused), taken("riga", 1, unanswered),
	}, now)

	expectEqual(t, []Row{
		{Peer: "bremen", Open: true, Offer: taken("bremen", 1).Spec},
		{Peer: "lubeck", Open: true, Offer: taken("lubeck", 3).Spec},
	}, table.Rows)
}

func TestTableIsTheSameUnderReorderingAndRepetition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ads []v1alpha1.Advertisement
		for i := range rapid.IntRange(0, 12).Draw(t, "ads") {
			cluster := rapid.SampledFrom([]string{"lubeck", "bremen", "kiel"}).Draw(t, "cluster")
			ads = append(ads, taken(cluster, rapid.Int64Range(0, 3).Draw(t, "sequence"), func(ad *v1alpha1.Advertisement) {
				ad.Namespace = fmt.Sprint("namespace-", i)
				ad.Spec.TimeToLive = metav1.NewTime(now.Add(time.Duration(rapid.IntRange(-1, 2).Draw(t, "life")) * time.Minute))
			}))
		}
		shuffled := append(ads[:len(ads):len(ads)], ads...)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		if diff := cmp.Diff(NewTable(ads, now), NewTable(shuffled, now)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestFitting(t *testing.T) {
	small := taken("small", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.Availability["cpu"] = resource.MustParse("1") })
	split := taken("split", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.LargestPod = resources("cpu", "1500m") })
	device := taken("device", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.Availability["example.com/gpu"] = resource.MustParse("1") })
	table := NewTable([]v1alpha1.Advertisement{small, split, device}, now)

	for name, test := range map[string]struct {
		request corev1.ResourceList
		want    []string
	}{
		"nothing fits everywhere":                      {nil, []string{"device", "small", "split"}},
		"a request of zero of something does, too":     {resources("example.com/gpu", "0"), []string{"device", "small", "split"}},
		"exactly what there is fits":                   {resources("cpu", "1"), []string{"device", "small", "split"}},
		"more than the largest pod does not":           {resources("cpu", "2"), []string{"device"}},
		"a device fits where there is one":             {resources("cpu", "1", "example.com/gpu", "1"), []string{"device"}},
		"what nobody has fits nowhere":                 {resources("cpu", "5"), nil},
		"storage that nodes do not count fits nowhere": {resources("ephemeral-storage", "1Mi"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, row := range table.Fitting(test.request) {
				got = append(got, row.Offer.ClusterID)
			}
			expectEqual(t, test.want, got)
		})
	}
}

func TestClosedOffersAreForNoNewPod(t *testing.T) {
	var ads []v1alpha1.Advertisement
	for cluster, phase := range map[string]v1alpha1.OfferPhase{
		"open": v1alpha1.OfferOpen, "plain": "", "cordoned": v1alpha1.OfferCordoned,
		"draining": v1alpha1.OfferDraining, "leaving": v1alpha1.OfferLeaving,
	} {
		ads = append(ads, taken(cluster, 1, func(ad *v1alpha1.Advertisement) { ad.Spec.Phase = phase }))
	}
	table := NewTable(ads, now)
	expectEqual(t, 5, len(table.Rows))
	var got []string
	for _, row := range table.Fitting(nil) {
		got = append(got, row.Offer.ClusterID)
	}
	expectEqual(t, []string{"open", "plain"}, got)
}

func TestPhaseOfAnOfferFollowsThePeer(t *testing.T) {
	for name, test := range map[string]struct {
		access  v1alpha1.PeerAccess
		deleted bool
		want    v1alpha1.OfferPhase
	}{
		"nothing said":        {"", false, v1alpha1.OfferOpen},
		"open":                {v1alpha1.AccessOpen, false, v1alpha1.OfferOpen},
		"cordoned":            {v1alpha1.AccessCordoned, false, v1alpha1.OfferCordoned},
		"suspended":           {v1alpha1.AccessSuspended, false, v1alpha1.OfferCordoned},
		"draining":            {v1alpha1.AccessDraining, false, v1alpha1.OfferDraining},
		"deleted, whatever":   {v1alpha1.AccessSuspended, true, v1alpha1.OfferLeaving},
		"deleted, while open": {"", true, v1alpha1.OfferLeaving},
	} {
		t.Run(name, func(t *testing.T) {
			peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{Access: test.access}}
			if test.deleted {
				peer.DeletionTimestamp = &metav1.Time{Time: now}
			}
			expectEqual(t, test.want, PhaseFor(peer))
		})
	}
}

func TestPriceIsExact(t *testing.T) {
	prices := &v1alpha1.Prices{Currency: "EUR", PerHour: resources("cpu", "0.1", "memory", "1n", "example.com/gpu", "3")}
	request := resources("cpu", "300m", "memory", "3", "pods", "1")
	for name, test := range map[string]struct {
		prices *v1alpha1.Prices
		want   Cost
	}{
		"what has no price is free":      {nil, Cost{PerHour: inf.NewDec(0, 0)}},
		"a tenth thrice and three nanos": {prices, Cost{Currency: "EUR", PerHour: inf.NewDec(30000003, 9)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := PricePerHour(test.prices, request)
			if got.Currency != test.want.Currency || got.PerHour.Cmp(test.want.PerHour) != 0 {
				t.Errorf("got %s %s, want %s %s", got.PerHour, got.Currency, test.want.PerHour, test.want.Currency)
			}
		})
	}
	expectEqual(t, resources("cpu", "300m", "memory", "3", "pods", "1"), request)
}

func TestParsePrices(t *testing.T) {
	for name, test := range map[string]struct {
		setting map[string]string
		want    *v1alpha1.Prices
		bad     bool
	}{
		"no setting is no prices":                    {},
		"a currency and prices":                      {map[string]string{"currency": "EUR", "cpu": "0.01"}, &v1alpha1.Prices{Currency: "EUR", PerHour: resources("cpu", "0.01")}, false},
		"the first underscore is the slash":          {map[string]string{"currency": "EUR", "example.com_big_gpu": "1"}, &v1alpha1.Prices{Currency: "EUR", PerHour: resources("example.com/big_gpu", "1")}, false},
		"prices without a currency":                  {map[string]string{"cpu": "1"}, nil, true},
		"a negative price":                           {map[string]string{"currency": "EUR", "cpu": "-1"}, nil, true},
		"no number":                                  {map[string]string{"currency": "EUR", "cpu": "cheap"}, nil, true},
		"a number that would take for ever":          {map[string]string{"currency": "EUR", "cpu": "1e-999999999"}, nil, true},
		"something that is no resource has no price": {map[string]string{"currency": "EUR", "friendship": "1"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePrices(test.setting)
			if (err != nil) != test.bad {
				t.Fatalf("error %v", err)
			}
			expectEqual(t, test.want, got)
		})
	}
}

func TestMoved(t *testing.T) {
	for name, test := range map[string]struct {
		then, now corev1.ResourceList
		want      bool
	}{
		"nothing":                    {resources("cpu", "100"), resources("cpu", "100"), false},
		"exactly the bound":          {resources("cpu", "100"), resources("cpu", "95"), false},
		"more than the bound":        {resources("cpu", "100"), resources("cpu", "94999m"), true},
		"upwards":                    {resources("memory", "100Gi"), resources("memory", "106Gi"), true},
		"from nothing":               {resources("cpu", "0"), resources("cpu", "1m"), true},
		"to nothing":                 {resources("cpu", "1"), resources("cpu", "0"), true},
		"a resource that is gone":    {resources("cpu", "1", "a.b/c", "1"), resources("cpu", "1"), true},
		"a resource that is new":     {resources("cpu", "1"), resources("cpu", "1", "a.b/c", "1"), true},
		"one that is new and zero":   {resources("cpu", "1"), resources("cpu", "1", "a.b/c", "0"), false},
		"the largest numbers we use": {resources("memory", "8Pi"), resources("memory", "7Pi"), true},
	} {
		t.Run(name, func(t *testing.T) { expectEqual(t, test.want, Moved(test.then, test.now, 5)) })
	}
}

func TestSameTerms(t *testing.T) {
	type spec = v1alpha1.AdvertisementSpec
	for name, test := range map[string]struct {
		change func(*spec)
		want   bool
	}{
		"a phase":              {func(ad *spec) { ad.Phase = v1alpha1.OfferDraining }, false},
		"the phase by default": {func(ad *spec) { ad.Phase = v1alpha1.OfferOpen }, true},
		"a hello": {func(ad *spec) {
			ad.Sequence, ad.Timestamp, ad.TimeToLive = 8, metav1.NewTime(now.Add(1)), metav1.NewTime(now.Add(2))
			ad.Availability, ad.LargestPod = resources("cpu", "1"), resources("cpu", "1")
		}, true},
		"an empty list instead of none": {func(ad *spec) { ad.Images = []v1alpha1.Image{} }, true},
		"another label":                 {func(ad *spec) { ad.Labels = map[string]v1alpha1.Text{"a": "b"} }, false},
		"a price":                       {func(ad *spec) { ad.Prices = &v1alpha1.Prices{Currency: "EUR"} }, false},
		"a flag":                        {func(ad *spec) { ad.Flags = map[string]v1alpha1.Text{"a": "b"} }, false},
	} {
		t.Run(name, func(t *testing.T) { expectEqual(t, test.want, SameTerms(offer(), offer(test.change))) })
	}
}
