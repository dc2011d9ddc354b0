// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func sampleOf(size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.BandwidthSample},
		Data:       map[string]string{v1alpha1.BandwidthSampleKey: strings.Repeat("x", size)},
	}
}

func TestBandwidthIsThatOfAnUncompressedSample(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t, Config{Clock: clock})
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		if want := "/api/v1/namespaces/" + tenant + "/configmaps/hanse-bandwidth"; req.URL.Path != want {
			t.Errorf("asked for %s, want %s", req.URL.Path, want)
		}
		if got := req.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("the answer may be %q", got)
		}
		clock.Step(2 * time.Second)
		writeJSON(rw, sampleOf(v1alpha1.BandwidthSampleSize))
	})
	rate, err := w.connect().Bandwidth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// What is around the text counts too.
	if least := int64(v1alpha1.BandwidthSampleSize / 2); rate < least || rate > least+1024 {
		t.Errorf("got %d bytes per second, want a few more than %d", rate, least)
	}
}

func TestSamplesThatMeasureNothing(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"one that is too short": {func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, sampleOf(1000)) }, ErrMalformed},
		"one without an end":    {func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, sampleOf(maxObject)) }, ErrTooLarge},
		"one that we may not read": {func(rw http.ResponseWriter, _ *http.Request) {
			writeStatus(rw, http.StatusForbidden, metav1.StatusReasonForbidden)
		}, ErrForbidden},
		"one that takes too long": {func(rw http.ResponseWriter, req *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(rw).Flush()
			<-req.Context().Done()
		}, ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{Timeout: time.Second})
			w.answers(test.answer)
			if _, err := w.connect().Bandwidth(t.Context()); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}
