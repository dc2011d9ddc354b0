package advertisement

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// images knows which images each consumer may be told of: the public ones, and those that its own pods use here. What it
// returns is not changed by anybody.
type images struct {
	most   int
	pods   map[types.NamespacedName]use
	used   map[string]map[string]int // peer → image, as pods name it → in how many of its pods
	stock  []exchange.StockedImage
	public []v1alpha1.Image
	told   map[string][]v1alpha1.Image // peer → what it may be told, if that was computed since it changed
}

// use is what one pod of a consumer uses.
type use struct {
	peer   string
	images map[string]bool
}

func newImages(most int) *images {
	return &images{
		most: most,
		pods: map[types.NamespacedName]use{},
		used: map[string]map[string]int{},
		told: map[string][]v1alpha1.Image{},
	}
}

// setStock enters which images lie on the nodes.
func (i *images) setStock(stock []exchange.StockedImage) {
	i.stock = stock
	i.public = exchange.Images(stock, i.most, nil)
	clear(i.told)
}

// setPod enters a pod or its newest state.
func (i *images) setPod(pod *corev1.Pod) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	now := use{peer: pod.Labels[v1alpha1.LabelPeer]}
	if now.peer != "" {
		now.images = imagesOf(pod)
	}
	before := i.pods[key]
	if before.peer == now.peer && maps.Equal(before.images, now.images) {
		return
	}
	i.removePod(key)
	if now.peer == "" {
		return
	}
	i.pods[key] = now
	if i.used[now.peer] == nil {
		i.used[now.peer] = map[string]int{}
	}
	for image := range now.images {
		if i.used[now.peer][image]++; i.used[now.peer][image] == 1 {
			delete(i.told, now.peer)
		}
	}
}

// removePod takes out a pod.
func (i *images) removePod(key types.NamespacedName) {
	gone, found := i.pods[key]
	if !found {
		return
	}
	delete(i.pods, key)
	used := i.used[gone.peer]
	for image := range gone.images {
		if used[image]--; used[image] == 0 {
			delete(used, image)
			delete(i.told, gone.peer)
		}
	}
	if len(used) == 0 {
		delete(i.used, gone.peer)
	}
}

// of returns what the peer may be told.
func (i *images) of(peer string) []v1alpha1.Image {
	if len(i.used[peer]) == 0 {
		return i.public
	}
	told, found := i.told[peer]
	if !found {
		used := make(map[string]bool, len(i.used[peer]))
		for image := range i.used[peer] {
			used[image] = true
		}
		told = exchange.Images(i.stock, i.most, used)
		i.told[peer] = told
	}
	return told
}

func imagesOf(pod *corev1.Pod) map[string]bool {
	named := map[string]bool{}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Image != "" {
				named[containers[i].Image] = true
			}
		}
	}
	return named
}
