// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"time"

	"github.com/hanse-dev/hanse/internal/testkit"
)

// A path takes packets of at most a size, and loses some that are not too large: every nth.
type path struct {
	takes, loses int
	sent         int
}

func (p *path) answers(size int) bool {
	p.sent++
	return size <= p.takes && (p.loses == 0 || p.sent%p.loses != 0)
}

// run has the sizes tried for so long, once a second, and returns how many rounds there were.
func (p *path) run(s *sizes, now time.Time, long time.Duration) (end time.Time, rounds int) {
	for end = now.Add(long); now.Before(end); now = now.Add(time.Second) {
		all := s.round(now)
		if len(all) > 0 {
			rounds++
		}
		for _, size := range all {
			if p.answers(size) {
				s.answer(size)
			}
		}
	}
	return end, rounds
}

func TestLargestSizeThatPassesIsFound(t *testing.T) {
	tests := map[string]struct {
		path path
		want int
	}{
		"all pass":                               {path{takes: 1500}, 1440},
		"a path of 1,280 bytes":                  {path{takes: 1220}, 1216},
		"a path of 1,400 bytes that loses a lot": {path{takes: 1340, loses: 4}, 1328},
		"nothing passes":                         {path{takes: 100}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSizes(1440)
			test.path.run(s, testkit.Noon, 3*time.Second)
			if s.fits != test.want {
				t.Errorf("after 3 seconds %d is the largest, want %d", s.fits, test.want)
			}
		})
	}
}

func TestSizesFollowAPathThatChanges(t *testing.T) {
	s, wide, narrow := newSizes(1440), &path{takes: 1500}, &path{takes: 1220}
	now, _ := wide.run(s, testkit.Noon, 10*time.Second)
	now, _ = narrow.run(s, now, calm+(misses+2)*hurry)
	if s.fits != 1216 {
		t.Errorf("%d is the largest on a path that takes less than before", s.fits)
	}
	now, _ = wide.run(s, now, 2*calm+hurry)
	if s.fits != 1440 {
		t.Errorf("%d is the largest on a path that takes more than before", s.fits)
	}
	silent := &path{}
	silent.run(s, now, 5*calm)
	if s.fits == 0 {
		t.Error("a path that is interrupted makes what is known of it forgotten")
	}
}

func TestSizesAreTriedSeldomWhenAllIsKnown(t *testing.T) {
	s, p := newSizes(1440), &path{takes: 1340}
	now, _ := p.run(s, testkit.Noon, time.Minute)
	if _, rounds := p.run(s, now, 10*time.Minute); rounds > 20 {
		t.Errorf("%d rounds in ten minutes", rounds)
	}
}
