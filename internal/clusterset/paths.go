// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// maxPaths is how many paths a Connection has, and maxPathPorts how many ports each.
	maxPaths, maxPathPorts = 64, 16
)

// Paths returns what must be open for the endpoints of what is told, sorted. What is beyond so many ports stays closed.
func Paths(told []*v1alpha1.ExportedServiceSpec) (paths []v1alpha1.ServicePath) {
	ports := map[string]map[v1alpha1.OpeningPort]bool{} // namespace → its ports
	for _, spec := range told {
		if ports[spec.Namespace] == nil {
			ports[spec.Namespace] = map[v1alpha1.OpeningPort]bool{}
		}
		for _, p := range spec.EndpointPorts {
			open := v1alpha1.OpeningPort{Protocol: protocol(p.Protocol)}
			if p.Port != nil {
				open.Port = *p.Port
			}
			ports[spec.Namespace][open] = true
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(ports)) {
		all := slices.SortedFunc(maps.Keys(ports[namespace]), func(a, b v1alpha1.OpeningPort) int {
			return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
		})
		for some := range slices.Chunk(all, maxPathPorts) {
			paths = append(paths, v1alpha1.ServicePath{Namespace: namespace, Ports: some})
		}
	}
	return paths[:min(len(paths), maxPaths)]
}
