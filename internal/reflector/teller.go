// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/hanse-dev/hanse/internal/reflection"
)

// teller tells users by events what their pods lack, and says each thing once for as long as it lasts: every pod that comes
// has its namespace looked at again, which must not be told to all others. What was said is forgotten with the process, which
// costs no more than saying it once more.
type teller struct {
	events events.EventRecorder

	mu   sync.Mutex
	said map[request]map[message]bool // in the last look at each
}

// message is what an event says.
type message struct {
	regarding          corev1.ObjectReference
	kind, reason, note string
	ofPeer             bool // it is due to news of the peer
}

// talk is what is said in one look.
type talk struct {
	*teller
	about       request
	before, now map[message]bool
}

func newTeller(recorder events.EventRecorder) *teller {
	return &teller{events: recorder, said: map[request]map[message]bool{}}
}

func (t *teller) begin(about request) *talk {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &talk{teller: t, about: about, before: t.said[about], now: map[message]bool{}}
}

// say tells it, unless the last look did. Kubernetes takes an event for a repetition of the last one with all but the note the same, and
// keeps the note of that. So the action is another one for each note.
func (t *talk) say(m message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.before[m] && !t.now[m] {
		t.events.Eventf(&m.regarding, nil, m.kind, m.reason, "Reflect-"+reflection.Fingerprint(m.note), "%s", m.note)
	}
	t.now[m] = true
}

// knows says whether it was told, in this look or in the last one.
func (t *talk) knows(m message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.before[m] || t.now[m]
}

// end keeps what was said. What a look had no more to say, though it went through everything, is over.
func (t *talk) end(whole bool) {
	if !whole {
		maps.Copy(t.now, t.before)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said[t.about] = t.now
	if len(t.now) == 0 {
		delete(t.said, t.about)
	}
}

// forget is for what nobody needs any more.
func (t *teller) forget(about request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.said, about)
}
