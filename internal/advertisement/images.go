// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// images knows which images each consumer may be told of: the public ones, and those that its own pods use here. What it
// returns is not changed by anybody.
type images struct {
	most   int
	twins  map[string]map[string]bool            // consumer → its twin namespaces
	used   map[string]map[string]map[string]bool // namespace → its pods → the images that each names
	stock  []exchange.StockedImage
	public []v1alpha1.Image
	told   map[string][]v1alpha1.Image // consumer → what it may be told, if that was computed since it changed
}

func newImages(most int) *images {
	return &images{
		most:  most,
		twins: map[string]map[string]bool{},
		used:  map[string]map[string]map[string]bool{},
		told:  map[string][]v1alpha1.Image{},
	}
}

// setStock enters which images lie on the nodes.
func (i *images) setStock(stock []exchange.StockedImage) {
	i.stock = stock
	i.public = exchange.Images(stock, i.most, nil)
	clear(i.told)
}

// setOwner makes the pods of the namespace, which were those of the peer before, or of nobody "", those of another.
func (i *images) setOwner(namespace, before, peer string) {
	delete(i.told, before)
	if delete(i.twins[before], namespace); len(i.twins[before]) == 0 {
		delete(i.twins, before)
	}
	if peer == "" {
		return
	}
	delete(i.told, peer)
	if i.twins[peer] == nil {
		i.twins[peer] = map[string]bool{}
	}
	i.twins[peer][namespace] = true
}

// takePod takes in a pod of the peer, or of nobody "", or its newest state, or that it is gone. The cache keeps images of
// pods of consumers alone.
func (i *images) takePod(pod *corev1.Pod, peer string, gone bool) {
	named := imagesOf(pod)
	if gone {
		clear(named)
	}
	if maps.Equal(i.used[pod.Namespace][pod.Name], named) {
		return
	}
	delete(i.told, peer)
	if i.used[pod.Namespace] == nil {
		i.used[pod.Namespace] = map[string]map[string]bool{}
	}
	if i.used[pod.Namespace][pod.Name] = named; len(named) == 0 {
		delete(i.used[pod.Namespace], pod.Name)
	}
	if len(i.used[pod.Namespace]) == 0 {
		delete(i.used, pod.Namespace)
	}
}

// of returns what the peer may be told.
func (i *images) of(peer string) []v1alpha1.Image {
	told, found := i.told[peer]
	if found {
		return told
	}
	used := map[string]bool{}
	for namespace := range i.twins[peer] {
		for _, named := range i.used[namespace] {
			maps.Copy(used, named)
		}
	}
	if len(used) == 0 {
		return i.public
	}
	told = exchange.Images(i.stock, i.most, used)
	i.told[peer] = told
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
