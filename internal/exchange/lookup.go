package exchange

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// spellings are the names of one image: the canonical one, and what is short for it.
type spellings []string

func (s spellings) contain(name string) bool { return slices.Contains(s, name) }

func spellingsOf(images []string) []spellings {
	var all []spellings
	for _, image := range images {
		canonical := canonicalImage(image)
		var names spellings
		image := strings.TrimPrefix(canonical, "docker.io/library/")
		for _, name := range []string{canonical, strings.TrimPrefix(canonical, "docker.io/"), image, "docker.io/" + image} {
			names = append(names, name, strings.TrimSuffix(name, ":latest"))
		}
		slices.Sort(names)
		names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return canonicalImage(name) != canonical })
		all = append(all, names)
	}
	return all
}

// A shelf holds a hash of each name of the images of an offer, so that a table need not read all names again for each
// query. It is filled when it is first asked for: most queries name no images.
type shelf struct {
	once   sync.Once
	hashes []uint16
}

func (s *shelf) of(r *Row) []uint16 {
	if s == nil {
		return hashesOf(r.Offer.Images)
	}
	s.once.Do(func() { s.hashes = hashesOf(r.Offer.Images) })
	return s.hashes
}

func hashesOf(images []v1alpha1.Image) []uint16 {
	hashes := make([]uint16, 0, 2*len(images)) // most have a tag and a digest
	for i := range images {
		for _, name := range images[i].Names {
			hashes = append(hashes, hashOf(name))
		}
	}
	return hashes
}

var seed = maphash.MakeSeed()

// hashOf reads the end of a name, in which names differ: they begin with one of a few registries.
func hashOf(name string) uint16 {
	const end = 16
	return uint16(maphash.String(seed, name[max(0, len(name)-end):])) //nolint:gosec // a part of a hash is one
}

// A lookup counts which of some images thousands of offers have.
type lookup struct {
	wanted []spellings
	hashes [1 << 16 / 64]uint64 // a bit for each hash of a name of those
}

func lookupOf(images []string) *lookup {
	l := &lookup{wanted: spellingsOf(images)}
	for _, image := range l.wanted {
		for _, name := range image {
			hash := hashOf(name)
			l.hashes[hash/64] |= 1 << (hash % 64)
		}
	}
	return l
}

func (l *lookup) has(hash uint16) bool { return l.hashes[hash/64]>>(hash%64)&1 == 1 }

// hasAny asks no question on the way, which is faster: it is nearly always no.
func (l *lookup) hasAny(hashes []uint16) bool {
	var bit uint64
	for _, hash := range hashes {
		bit |= l.hashes[hash/64] >> (hash % 64)
	}
	return bit&1 == 1
}

// count returns how many of the images the row has. It reads only names whose hash is one of a wanted name.
func (l *lookup) count(r *Row) int {
	if len(l.wanted) == 0 {
		return 0
	}
	hashes := r.shelf.of(r)
	if !l.hasAny(hashes) {
		return 0
	}
	found := make([]bool, len(l.wanted))
	for i := range r.Offer.Images {
		names := r.Offer.Images[i].Names
		for n, hash := range hashes[:len(names)] {
			if l.has(hash) {
				l.enter(names[n], found)
			}
		}
		hashes = hashes[len(names):]
	}
	return len(slices.DeleteFunc(found, func(isThere bool) bool { return !isThere }))
}

func (l *lookup) enter(name string, found []bool) {
	for i, image := range l.wanted {
		found[i] = found[i] || image.contain(name)
	}
}
