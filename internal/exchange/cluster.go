package exchange

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// MaxImages is how many images an offer names by default: the largest, which are the most worth not to pull.
	MaxImages = 50

	maxImageNames      = 5
	maxImageNameLength = 500
	maxArchitectures   = 8
)

// A Description is what an offer says of a cluster besides quantities. It names no node.
type Description struct {
	Images            []v1alpha1.Image
	Labels            map[string]v1alpha1.Text
	Architectures     []string
	KubernetesVersion string
	PodCIDR           string
}

// Describe returns what the schedulable nodes of the ledger have in common: see Images, CommonLabels and PodCIDR. The
// version is that of the oldest node: what it cannot do, the cluster cannot promise.
func (l *Ledger) Describe(labelKeys []string, maxImages int) Description {
	var nodes []*corev1.Node
	for _, node := range l.nodes {
		if schedulable(node) {
			nodes = append(nodes, node)
		}
	}
	d := Description{
		Images:            Images(nodes, maxImages),
		Labels:            CommonLabels(nodes, labelKeys),
		Architectures:     architectures(nodes),
		KubernetesVersion: oldestVersion(nodes),
	}
	if prefix, found := PodCIDR(nodes); found {
		d.PodCIDR = prefix.String()
	}
	return d
}

// Images merges the images of the nodes into the largest most of them, the largest first. An image is known by its
// digest, else by its first name, so what lies on many nodes is named once.
func Images(nodes []*corev1.Node, most int) []v1alpha1.Image {
	byKey := map[string]v1alpha1.Image{}
	for _, node := range nodes {
		for _, image := range node.Status.Images {
			names := usableNames(image.Names)
			if len(names) == 0 {
				continue
			}
			key := imageKey(names)
			merged := byKey[key]
			merged.Names = append(merged.Names, names...)
			merged.SizeBytes = max(merged.SizeBytes, image.SizeBytes)
			byKey[key] = merged
		}
	}
	images := make([]v1alpha1.Image, 0, len(byKey))
	for _, image := range byKey {
		slices.SortFunc(image.Names, byUse)
		image.Names = slices.Compact(image.Names)
		image.Names = image.Names[:min(len(image.Names), maxImageNames)]
		images = append(images, image)
	}
	slices.SortFunc(images, func(a, b v1alpha1.Image) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), slices.Compare(a.Names, b.Names))
	})
	return images[:min(len(images), most)]
}

func usableNames(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return name == "" || len(name) > maxImageNameLength || strings.HasSuffix(name, "<none>")
	})
}

func imageKey(names []string) string {
	digests := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !hasDigest(name) })
	if len(digests) > 0 {
		return slices.Min(digests)
	}
	return slices.Min(names)
}

func hasDigest(name string) bool { return strings.Contains(name, "@sha256:") }

// byUse puts tags before digests: a pod usually names its image by tag, and that is what the scheduler looks for.
func byUse(a, b string) int {
	switch {
	case hasDigest(a) == hasDigest(b):
		return strings.Compare(a, b)
	case hasDigest(a):
		return 1
	default:
		return -1
	}
}

// CommonLabels returns those of the labels that all nodes carry with the same value.
func CommonLabels(nodes []*corev1.Node, keys []string) map[string]v1alpha1.Text {
	common := map[string]v1alpha1.Text{}
	for _, key := range keys {
		if value, agreed := agreedValue(nodes, key); agreed {
			common[key] = v1alpha1.Text(value)
		}
	}
	return common
}

func agreedValue(nodes []*corev1.Node, key string) (string, bool) {
	if len(nodes) == 0 {
		return "", false
	}
	first := nodes[0].Labels[key]
	return first, !slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		value, found := node.Labels[key]
		return !found || value != first
	})
}

func architectures(nodes []*corev1.Node) []string {
	set := map[string]bool{}
	for _, node := range nodes {
		if name := node.Status.NodeInfo.Architecture; name != "" {
			set[name] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(set))
	return sorted[:min(len(sorted), maxArchitectures)]
}

func oldestVersion(nodes []*corev1.Node) string {
	var oldest *version.Version
	var text string
	for _, node := range nodes {
		kubelet, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
		if err != nil {
			continue
		}
		if oldest == nil || kubelet.LessThan(oldest) {
			oldest, text = kubelet, "v"+kubelet.String()
		}
	}
	return text
}
