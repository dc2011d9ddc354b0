// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestMeasurements(t *testing.T) {
	const ms = time.Millisecond
	unanswered := time.Duration(-1)
	tests := map[string]struct {
		answers []time.Duration // of one request every probeInterval
		want    measurement
	}{
		"nothing was asked":                {nil, measurement{}},
		"nothing had its time":             {[]time.Duration{unanswered, unanswered}, measurement{}},
		"all are answered":                 {[]time.Duration{3 * ms, 2 * ms, ms}, measurement{alive: true, known: true, roundTrip: 2 * ms}},
		"one of many is lost":              {append(repeat(ms, 199), unanswered, ms, ms, ms, ms, ms), measurement{alive: true, known: true, roundTrip: ms, loss: 1}},
		"the peer has fallen silent":       {append(repeat(ms, 5), repeat(unanswered, 10)...), measurement{known: true, roundTrip: ms, loss: 50}},
		"the peer never answers":           {repeat(unanswered, 20), measurement{known: true, loss: 100}},
		"what is long ago is told no more": {append(repeat(unanswered, 10), repeat(ms, windowSize)...), measurement{alive: true, known: true, roundTrip: ms}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, now := window{}, testkit.Noon
			for _, took := range test.answers {
				now = now.Add(probeInterval)
				if sequence := w.send(now); took >= 0 {
					w.receive(sequence, now.Add(took))
				}
			}
			if test.want.alive {
				test.want.until = now.Add(ms + deadAfter) // the last one was answered after that long
			}
			if diff := cmp.Diff(test.want, w.measure(now.Add(10*ms)), cmp.AllowUnexported(measurement{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func repeat(d time.Duration, times int) []time.Duration {
	all := make([]time.Duration, times)
	for i := range all {
		all[i] = d
	}
	return all
}

func TestAnswersThatNobodyAskedForDoNotCount(t *testing.T) {
	w := window{}
	sequence := w.send(testkit.Noon)
	w.receive(sequence+1, testkit.Noon)
	if m := w.measure(testkit.Noon); m.alive {
		t.Error("an answer to another request counts")
	}
	w.receive(sequence, testkit.Noon.Add(time.Millisecond))
	w.receive(sequence, testkit.Noon.Add(time.Hour))
	if m := w.measure(testkit.Noon.Add(time.Second)); !m.alive || m.roundTrip != time.Millisecond {
		t.Errorf("the second answer to one request counts: %+v", m)
	}
}

func FuzzEchoAnswers(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 1, 0, 2})
	f.Fuzz(func(_ *testing.T, packet []byte) {
		for _, p := range protocols {
			p.answer(packet)
		}
	})
}
