package advertisement

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// images knows which images each consumer may be told of: the public ones, and those that its own pods use here. What it
// returns is not changed by anybody.
type images struct {
	most   int
	peers  map[types.NamespacedName]string                     // pod → the consumer that it is of
	used   map[string]map[types.NamespacedName]map[string]bool // consumer → its pods → the images that each names
	stock  []exchange.StockedImage
	public []v1alpha1.Image
	told   map[string][]v1alpha1.Image // consumer → what it may be told, if that was computed since it changed
}

func newImages(most int) *images {
	return &images{
		most:  most,
		peers: map[types.NamespacedName]string{},
		used:  map[string]map[types.NamespacedName]map[string]bool{},
		told:  map[string][]v1alpha1.Image{},
	}
}

// setStock enters which images lie on the nodes.
func (i *images) setStock(stock []exchange.StockedImage) {
	i.stock = stock
	i.public = exchange.Images(stock, i.most, nil)
	clear(i.told)
}

// takePod takes in a pod or its newest state, or that it is gone.
func (i *images) takePod(pod *corev1.Pod, gone bool) {
	key, peer := client.ObjectKeyFromObject(pod), pod.Labels[v1alpha1.LabelPeer]
	if before, known := i.peers[key]; known && (gone || before != peer) {
		delete(i.peers, key)
		delete(i.told, before)
		if delete(i.used[before], key); len(i.used[before]) == 0 {
			delete(i.used, before)
		}
	}
	if gone || peer == "" {
		return
	}
	if i.used[peer] == nil {
		i.used[peer] = map[types.NamespacedName]map[string]bool{}
	}
	if named := imagesOf(pod); !maps.Equal(i.used[peer][key], named) {
		i.used[peer][key] = named
		delete(i.told, peer)
	}
	i.peers[key] = peer
}

// of returns what the peer may be told.
func (i *images) of(peer string) []v1alpha1.Image {
	if len(i.used[peer]) == 0 {
		return i.public
	}
	told, found := i.told[peer]
	if !found {
		used := map[string]bool{}
		for _, named := range i.used[peer] {
			maps.Copy(used, named)
		}
		told = exchange.Images(i.stock, i.most, used)
		i.told[peer] = told
	}
	return told
}

func imagesOf(pod *corev1.Pod) map[string]bool {
	named := map[string]bool{}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range containers {
		if containers[i].Image != "" {
			named[containers[i].Image] = true
		}
	}
	return named
}
