// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func withImages(images ...corev1.ContainerImage) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Images = images }
}

func TestImagesAreMerged(t *testing.T) {
	const digest = "registry.example/echo@sha256:abc"
	one := node("a", withImages(
		corev1.ContainerImage{Names: []string{digest, "registry.example/echo:1"}, SizeBytes: 10},
		corev1.ContainerImage{Names: []string{"registry.example/big:1"}, SizeBytes: 99},
		corev1.ContainerImage{Names: []string{strings.Repeat("x", 501)}, SizeBytes: 1000},
		corev1.ContainerImage{Names: []string{"<none>:<none>"}, SizeBytes: 1000},
	))
	two := node("b", withImages(
		corev1.ContainerImage{Names: []string{digest, "registry.example/echo:latest"}, SizeBytes: 11},
		corev1.ContainerImage{Names: []string{"registry.example/small:1"}, SizeBytes: 1},
	))
	want := []v1alpha1.Image{
		{Names: []string{"registry.example/big:1"}, SizeBytes: 99},
		{Names: []string{"registry.example/echo:1", "registry.example/echo:latest", digest}, SizeBytes: 11},
	}
	expectEqual(t, want, Images(Stock([]*corev1.Node{one, two}, []string{"*"}), 2, nil))
	expectEqual(t, want, Images(Stock([]*corev1.Node{two, one}, []string{"*"}), 2, nil))
}

func TestImageNamesAreBounded(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 9 {
		nodes = append(nodes, node("n", withImages(corev1.ContainerImage{Names: []string{"e@sha256:abc", fmt.Sprint("e:", i)}})))
	}
	expectEqual(t, []v1alpha1.Image{{Names: []string{"e:0", "e:1", "e:2", "e:3", "e:4"}}}, Images(Stock(nodes, []string{"*"}), 50, nil))
}

func TestWhatIsBigAndSharedComesFirst(t *testing.T) {
	image := func(name string, size int64) corev1.ContainerImage {
		return corev1.ContainerImage{Names: []string{name}, SizeBytes: size}
	}
	stock := Stock([]*corev1.Node{
		node("a", withImages(image("shared:1", 40), image("big:1", 100), image("absurd:1", 1<<62))),
		node("b", withImages(image("shared:1", 40))), node("c", withImages(image("shared:1", 40), image("small:1", 1))),
	}, []string{"*"})
	var got []string
	for _, image := range stock {
		got = append(got, fmt.Sprint(image.Names[0], " on ", image.Nodes))
	}
	expectEqual(t, []string{"absurd:1 on 1", "shared:1 on 3", "big:1 on 1", "small:1 on 1"}, got)
}

func TestAConsumerIsToldOfWhatIsPublicAndOfWhatItUses(t *testing.T) {
	var all []corev1.ContainerImage
	for _, name := range []string{
		"docker.io/library/nginx:1.27", "docker.io/acme/secret:1", "docker.io/acme/public:1", "registry.k8s.io/pause:3.10", "registry.example/own:2",
		"registry.example/registry.k8s.io/fake:1", "localhost/local:1",
	} {
		all = append(all, corev1.ContainerImage{Names: []string{name}})
	}
	nodes := []*corev1.Node{node("a", withImages(all...))}
	told := func(patterns []string, most int, used ...string) string {
		uses := map[string]bool{"docker.io/acme/secret:1": false}
		for _, name := range used {
			uses[name] = true
		}
		var names []string
		for _, image := range Images(Stock(nodes, patterns), most, uses) {
			names = append(names, image.Names[0])
		}
		return strings.Join(names, " ")
	}
	expectEqual(t, "docker.io/library/nginx:1.27 registry.k8s.io/pause:3.10", told(DefaultImagePatterns(), 9))
	expectEqual(t, "", told(nil, 9))
	expectEqual(t, "docker.io/acme/public:1 registry.example/own:2", told(nil, 9, "acme/public:1", "registry.example/own:2"))
	expectEqual(t, "docker.io/acme/public:1", told(nil, 1, "acme/public:1", "registry.example/own:2"))
	expectEqual(t, "docker.io/acme/public:1 docker.io/acme/secret:1", told([]string{"docker.io/acme/*"}, 9))
	expectEqual(t, "localhost/local:1", told([]string{"local*"}, 9))
	expectEqual(t, "", told([]string{"docker.io/acme"}, 9))
	expectEqual(t, "", told([]string{"docker.io.acme.*", "(", ""}, 9))
}

func TestStockOfferedIsACopy(t *testing.T) {
	stock := Stock([]*corev1.Node{node("a", withImages(corev1.ContainerImage{Names: []string{"a:1"}}))}, []string{"*"})
	Images(stock, 9, nil)[0].Names[0] = "changed"
	expectEqual(t, "a:1", stock[0].Names[0])
}

func TestCanonicalImage(t *testing.T) {
	for name, want := range map[string]string{
		"nginx":                            "docker.io/library/nginx:latest",
		"nginx:1":                          "docker.io/library/nginx:1",
		"nginx@sha256:abc":                 "docker.io/library/nginx@sha256:abc",
		"acme/app":                         "docker.io/acme/app:latest",
		"docker.io/nginx":                  "docker.io/library/nginx:latest",
		"docker.io/library/nginx:latest":   "docker.io/library/nginx:latest",
		"registry.example/app":             "registry.example/app:latest",
		"registry.example:5000/team/app:2": "registry.example:5000/team/app:2",
		"localhost/app":                    "localhost/app:latest",
		"localhost:5000/app":               "localhost:5000/app:latest",
	} {
		expectEqual(t, want, canonicalImage(name))
		if !slices.Contains(imageNames(want), name) {
			t.Errorf("%s is no spelling of %s", name, want)
		}
	}
	for _, name := range []string{"nginx:1", "library/nginx", "registry.example/nginx", "nginx:latest:latest", ""} {
		if canonical := "docker.io/acme/nginx:latest"; slices.Contains(imageNames(canonical), name) {
			t.Errorf("%s is a spelling of %s", name, canonical)
		}
	}
}
