// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A place is what is followed in one namespace of a peer.
type place struct {
	subject   *Subject
	namespace string
	name      string // of the one object that is followed, or ""
}

// Follow mirrors the Subject in the namespace at the peer, from the first call on and until the link is closed. Each call
// returns the same mirror.
func (l *Link) Follow(of *Subject, namespace string) *Mirror {
	return l.followAt(place{subject: of, namespace: namespace})
}

// Following returns what Follow has begun, or nil.
func (l *Link) Following(of *Subject, namespace string) *Mirror {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mirrors[place{subject: of, namespace: namespace}]
}

// FollowOne is Follow for the object of that name alone: nothing else in the namespace comes over the link.
func (l *Link) FollowOne(of *Subject, namespace, name string) *Mirror {
	return l.followAt(place{of, namespace, name})
}

func (l *Link) followAt(at place) *Mirror {
	l.mu.Lock()
	known := l.mirrors[at]
	if known != nil {
		l.mu.Unlock()
		return known
	}
	made := l.mustMirror(at.subject, at.namespace)
	made.name = at.name
	l.mirrors[at] = made
	l.mu.Unlock()
	made.start() // what it reads may have others call this link
	return made
}

// UnfollowOne ends what FollowOne began, or, without a name, what Follow began, for all who follow it.
func (l *Link) UnfollowOne(of *Subject, namespace, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := place{of, namespace, name}
	if known := l.mirrors[at]; known != nil {
		known.end()
		delete(l.mirrors, at)
	}
}

// FollowTwin mirrors the Subject in the twin of our namespace, from the first call on and until the twin goes, Unfollow is
// called or the link is closed. It returns nil as long as the peer has no twin of the namespace, as far as is known. The last
// twin is followed until it is empty, see Followed.
func (l *Link) FollowTwin(of *Subject, home string) *Mirror {
	name := l.Twin(home)
	l.mu.Lock()
	known := l.twins[home][of]
	if known != nil && known.namespace == name {
		l.mu.Unlock()
		return known
	}
	if known != nil && known.isOf(name) {
		l.mu.Unlock()
		return nil
	}
	l.endTwin(of, home)
	if name == "" {
		l.mu.Unlock()
		return nil
	}
	made := l.mustMirror(of, name)
	made.home = home
	if l.twins[home] == nil {
		l.twins[home] = map[*Subject]*Mirror{}
	}
	l.twins[home][of] = made
	l.mu.Unlock()
	made.start()
	return made
}

// isOf says whether the mirror is still worth following when our namespace has the twin of that name, or none any more: what
// ends in a namespace that is being deleted is there until the mirror is empty, or may not be read any more.
func (m *Mirror) isOf(twin string) bool {
	if twin != "" {
		return m.namespace == twin
	}
	err := m.Err()
	return m.Len() > 0 && (err == nil || isDown(err))
}

// Followed returns the mirror of the Subject in the twin of our namespace, or in the last one that it had, or nil if neither
// is followed.
func (l *Link) Followed(of *Subject, home string) *Mirror {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.twins[home][of]
}

// FollowedTwins returns the mirrors of the Subject in twins, by our namespaces.
func (l *Link) FollowedTwins(of *Subject) map[string]*Mirror {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]*Mirror{}
	for home, mirrors := range l.twins {
		if m := mirrors[of]; m != nil {
			found[home] = m
		}
	}
	return found
}

// Unfollow ends the mirror of the Subject in the twin of our namespace, for all who follow it.
func (l *Link) Unfollow(of *Subject, home string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endTwin(of, home)
}

func (l *Link) endTwin(of *Subject, home string) {
	known := l.twins[home][of]
	if known == nil {
		return
	}
	known.end()
	delete(l.twins[home], of)
	if len(l.twins[home]) == 0 {
		delete(l.twins, home)
	}
}

// mustMirror returns a mirror of its own kind of life: it ends with the link.
func (l *Link) mustMirror(of *Subject, namespace string) *Mirror {
	m, err := l.newMirror(l.ctx, of, namespace)
	if err != nil {
		panic(err) // the scheme has no such kind, which the first test of the caller finds
	}
	return m
}

// Mappings returns the mirror of our NamespaceMappings at the peer.
func (l *Link) Mappings() *Mirror { return l.Follow(Mappings, l.TenantNamespace()) }

// Mapping returns our NamespaceMapping of the namespace at the peer, or nil. The caller must not change it.
func (l *Link) Mapping(home string) *v1alpha1.NamespaceMapping {
	if l.transport.Mapping != nil {
		return l.transport.Mapping(home)
	}
	object, _ := l.Mappings().Named(home)
	mapping, _ := object.(*v1alpha1.NamespaceMapping)
	return mapping
}

// Twin returns the name of the twin that our namespace has at the peer, as far as is known, or "".
func (l *Link) Twin(home string) string {
	mapping := l.Mapping(home)
	if mapping == nil || len(validation.IsDNS1123Label(mapping.Status.Twin)) > 0 {
		return "" // the peer has said it, and it becomes part of paths at that peer
	}
	return mapping.Status.Twin
}

// TwinEnds says whether the peer is deleting the twin that our namespace has there, as far as is known.
func (l *Link) TwinEnds(home string) bool {
	mapping := l.Mapping(home)
	return mapping != nil && mapping.TwinEnds()
}

// Leftovers returns those of our namespaces of which there is something at the peer, where that is known without following
// their twins: at peers without Hanse.
func (l *Link) Leftovers() []string {
	if l.transport.Leftovers == nil {
		return nil
	}
	return l.transport.Leftovers()
}

// RemotePod returns the namespace and the name of the pod that runs for the ShadowPod at the peer, if there is one.
func (l *Link) RemotePod(shadow *v1alpha1.ShadowPod) (types.NamespacedName, bool) {
	if l.transport.RemotePod != nil {
		return l.transport.RemotePod(shadow)
	}
	return types.NamespacedName{Namespace: shadow.Namespace, Name: shadow.Name}, true
}

// changed is called when an object of the mirror may have.
func (l *Link) changed(m *Mirror, name string) {
	if m.subject == Mappings {
		l.endStaleTwins(name)
	}
	l.links.publish(Change{Link: l, Mirror: m, Name: name})
}

// synced is called when the mirror has for the first time.
func (l *Link) synced(m *Mirror) {
	l.links.publish(Change{Link: l, Mirror: m})
	if m.subject == Mappings {
		l.links.publishLink(l.peer)
	}
}

// endStaleTwins ends the mirrors of a twin that our namespace has no longer.
func (l *Link) endStaleTwins(home string) {
	l.mu.Lock()
	stale := l.twins[home] != nil
	l.mu.Unlock()
	if !stale {
		return
	}
	name := l.Twin(home)
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, m := range l.twins[home] {
		if !m.isOf(name) {
			l.endTwin(of, home)
		}
	}
}
