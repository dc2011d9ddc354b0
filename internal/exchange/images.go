// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// MaxImages is how many images an offer names by default: those that are the most worth not to pull.
	MaxImages = 50

	maxImageNames      = 5
	maxImageNameLength = 500
	maxImageSize       = 1 << 43 // in bytes, so that it can be multiplied by a number of nodes
)

// DefaultImagePatterns returns the patterns of the images that any consumer may be told of: those of registries, or
// parts of them, in which everything is public. Where private images lie beside public ones, an image's name tells
// nothing of who may know it.
func DefaultImagePatterns() []string {
	return []string{"docker.io/library/*", "registry.k8s.io/*", "public.ecr.aws/*", "mcr.microsoft.com/*"}
}

// A StockedImage is an image that lies on nodes of the cluster.
type StockedImage struct {
	v1alpha1.Image
	// Nodes is on how many.
	Nodes int
	// Public says that any consumer may be told of it.
	Public bool
}

// Stock merges the images of the nodes: those that are the most worth not to pull come first, which by their size and on
// how many nodes they lie is also how the scheduler sees it. An image is known by its digest, else by its first name. It
// is public if one of its names matches a pattern, in which * stands for any text.
func Stock(nodes []*corev1.Node, patterns []string) []StockedImage {
	byKey := map[string]*StockedImage{}
	for _, node := range nodes {
		for _, image := range node.Status.Images {
			names := usableNames(image.Names)
			if len(names) == 0 {
				continue
			}
			key := imageKey(names)
			if byKey[key] == nil {
				byKey[key] = &StockedImage{}
			}
			byKey[key].merge(names, image.SizeBytes)
		}
	}
	public := anyOf(patterns)
	stock := make([]StockedImage, 0, len(byKey))
	for _, image := range byKey {
		image.tidy(public)
		stock = append(stock, *image)
	}
	slices.SortFunc(stock, func(a, b StockedImage) int {
		return cmp.Or(cmp.Compare(b.worth(), a.worth()), slices.Compare(a.Names, b.Names))
	})
	return stock
}

func (s *StockedImage) merge(names []string, size int64) {
	s.Names = append(s.Names, names...)
	s.SizeBytes = max(s.SizeBytes, size)
	s.Nodes++
}

func (s *StockedImage) tidy(public *regexp.Regexp) {
	slices.SortFunc(s.Names, byUse)
	s.Names = slices.Compact(s.Names)
	s.Public = slices.ContainsFunc(s.Names, func(name string) bool { return public.MatchString(canonicalImage(name)) })
	s.Names = s.Names[:min(len(s.Names), maxImageNames)]
}

func (s *StockedImage) worth() int64 { return min(s.SizeBytes, maxImageSize) * int64(s.Nodes) }

// Images returns the first most of the stock that a consumer may be told of: what is public, and what its own pods use,
// by the names of images in their specs.
func Images(stock []StockedImage, most int, used map[string]bool) []v1alpha1.Image {
	known := make(map[string]bool, len(used))
	for name, uses := range used {
		if uses {
			known[canonicalImage(name)] = true
		}
	}
	images := []v1alpha1.Image{}
	for i := range stock {
		mayKnow := stock[i].Public || slices.ContainsFunc(stock[i].Names, func(name string) bool { return known[canonicalImage(name)] })
		if mayKnow && len(images) < most {
			images = append(images, *stock[i].DeepCopy())
		}
	}
	return images
}

func usableNames(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return name == "" || len(name) > maxImageNameLength || strings.HasSuffix(name, "<none>")
	})
}

func imageKey(names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return cmp.Or(first(hasDigest(a), hasDigest(b)), strings.Compare(a, b)) })
}

func hasDigest(name string) bool { return strings.Contains(name, "@sha256:") }

// byUse puts tags before digests: a pod usually names its image by tag, and that is what the scheduler looks for.
func byUse(a, b string) int {
	return cmp.Or(first(hasDigest(b), hasDigest(a)), strings.Compare(a, b))
}

// canonicalImage is the name by which container runtimes know an image that people name in short: with a registry and
// with a tag.
func canonicalImage(name string) string {
	domain, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		name = "docker.io/library/" + name
	case domain == "docker.io" && !strings.Contains(rest, "/"):
		name = "docker.io/library/" + rest
	case !strings.ContainsAny(domain, ".:") && domain != "localhost":
		name = "docker.io/" + name
	}
	if last := name[strings.LastIndex(name, "/"):]; !strings.ContainsAny(last, ":@") {
		name += ":latest"
	}
	return name
}

// imageNames are the names of one image: the canonical one, and what is short for it.
func imageNames(image string) []string {
	canonical := canonicalImage(image)
	image = strings.TrimPrefix(canonical, "docker.io/library/")
	var names []string
	for _, name := range []string{canonical, strings.TrimPrefix(canonical, "docker.io/"), image, "docker.io/" + image} {
		names = append(names, name, strings.TrimSuffix(name, ":latest"))
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return canonicalImage(name) != canonical })
}

// anyOf matches what one of the patterns matches as a whole.
func anyOf(patterns []string) *regexp.Regexp {
	var alternatives []string
	for _, pattern := range patterns {
		alternatives = append(alternatives, strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`))
	}
	if len(alternatives) == 0 {
		return regexp.MustCompile(`[^\s\S]`) // nothing
	}
	return regexp.MustCompile(`^(?s:` + strings.Join(alternatives, "|") + `)$`)
}
