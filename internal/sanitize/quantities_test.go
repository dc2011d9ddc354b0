// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	strictjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/internal/testkit/cputime"
)

func TestQuantitiesAreFoundWhereTheTypeHasThem(t *testing.T) {
	places := QuantitiesIn(reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.Node]())
	for text, want := range map[string]string{
		`{"spec":{"containers":[{},{"resources":{"limits":{"cpu":"1e31"}}}]}}`:             "spec.containers[1].resources.limits[cpu]",
		`{"spec":{"containers":[{"resources":{"limits":{"a.b/c":1e-99999}}}]}}`:            "spec.containers[0].resources.limits[a.b/c]",
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1\u0065-99999"}}}]}}`:       "spec.containers[0].resources.limits[cpu]",
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e99999","cpu":"1"}}}]}}`:   "spec.containers[0].resources.limits[cpu]",
		`{"spec":{"containers":[{"resources":{"limits":1,"limits":{"cpu":"1e99999"}}}]}}`:  "spec.containers[0].resources.limits[cpu]",
		`{"sp\u0065c":{"overhead":{"cpu":"` + strings.Repeat("9", MaxLength+1) + `"}}}`:    "spec.overhead[cpu]",
		`{"status":{"allocatable":{"cpu":"1e99999"}}}`:                                     "status.allocatable[cpu]",
		`{"spec":{"containers":[{"env":[{"name":"SHA","value":"1e12345"}]}]}}`:             "",
		`{"metadata":{"annotations":{"sha":"1e12345","cpu":"1e12345"}}}`:                   "",
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"100m","memory":"1Ei"}}}]}}`: "",
		`{"spec":{"containers":[{"resources":{"claims":[{"name":"1e12345"}]}}]}}`:          "",
		`{"spec":{"containers":{"resources":{"limits":{"cpu":"100m"}}}},"status":[1]}`:     "",
		`null`: "",
	} {
		err := places.Check([]byte(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (!errors.Is(err, ErrQuantity) || !strings.HasPrefix(err.Error(), want+" ")):
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestTextsThatAreNoJSONAreRefused(t *testing.T) {
	places := QuantitiesIn(reflect.TypeFor[corev1.Pod]())
	for _, text := range []string{"", "{", `{"spec"}`, `{"spec":{"containers":[`, `{"spec":]}`, strings.Repeat("[", 20_000)} {
		if err := places.Check([]byte(text)); err == nil {
			t.Errorf("took %.20s", text)
		}
	}
}

// FuzzQuantities looks for a text that passes the check and keeps the decoder busy, or that the check itself is busy with.
func FuzzQuantities(f *testing.F) {
	f.Add([]byte(`{"spec":{"overhead":{"cpu":"1e31"},"containers":[{"resources":{"limits":{"cpu":"1"}}}]}}`))
	f.Add([]byte(`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":1e999}}],"containers":{"resources":[]}}}`))
	f.Add([]byte(`{"status":{"containerStatuses":[{"allocatedResources":{"cpu":"1\u0065-999999999"}}]}}`))
	places := QuantitiesIn(reflect.TypeFor[corev1.Pod]())
	f.Fuzz(func(t *testing.T, text []byte) {
		took := cputime.Of(func() {
			pod := &corev1.Pod{}
			if places.Check(text) == nil {
				if _, err := strictjson.UnmarshalStrict(text, pod); err == nil {
					_, _ = json.Marshal(pod)
				}
			}
		})
		if took > 2*time.Second {
			t.Errorf("took %s of CPU time", took)
		}
	})
}
