// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// RequestName is what our Requests for the Application are called, at every peer.
func RequestName(app *v1alpha1.Application) string { return "app-" + string(app.UID) }

// Components returns the classes that the components of the Application are: pods of a component go where it was placed, and wait until
// then. Where clusters share a component its pods wait until each has its share. What was decided about the namespace still excludes
// what it does, wherever the pods are sent on to.
func (p Placement) Components(app *v1alpha1.Application, decided v1alpha1.PlacementStatus) []v1alpha1.PlacementClassStatus {
	decided.Nodes = slices.DeleteFunc(slices.Clone(decided.Nodes), func(n v1alpha1.NodePlacement) bool { return n.Excluded == "" })
	var classes []v1alpha1.PlacementClassStatus
	for i := range app.Spec.Components {
		c := &app.Spec.Components[i]
		places := slices.DeleteFunc(slices.Clone(app.Status.Components), func(at v1alpha1.PlacedComponent) bool { return at.Name != c.Name })
		switch {
		case len(places) == 0:
			classes = append(classes, p.component(app, c, nil, decided))
		case len(c.Weights) == 0:
			classes = append(classes, p.component(app, c, &places[0], decided))
		default:
			classes = append(classes, p.component(app, c, nil, decided))
			for j := range places { // also of those who have not answered, which others do not take over meanwhile
				class := p.component(app, c, &places[j], decided)
				class.Component.Share, class.Component.Replicas = shareOf(places[j].Peer), places[j].Replicas
				class.Name += "/" + class.Component.Share
				classes = append(classes, class)
			}
		}
	}
	return classes
}

// component is the class of the component where it was placed, which is nil if that is nowhere. Until that cluster has answered pods wait.
func (p Placement) component(
	app *v1alpha1.Application, c *v1alpha1.ApplicationComponent, place *v1alpha1.PlacedComponent, decided v1alpha1.PlacementStatus,
) v1alpha1.PlacementClassStatus {
	class := v1alpha1.PlacementClassStatus{
		Name:            app.Name + "/" + c.Name,
		Component:       &v1alpha1.ComponentPlacement{PodLabels: c.PodLabels, Strategy: v1alpha1.StrategyRemote},
		PlacementStatus: v1alpha1.PlacementStatus{Strict: true, Nodes: decided.Nodes, ExcludedBehind: decided.ExcludedBehind},
	}
	if asked := app.Spec.Placement; asked != nil {
		class.Component.Clusters, class.Component.Exclude = asked.Clusters, asked.Exclude
		class.Component.MaxLatency, class.Component.MinBandwidth = asked.MaxLatency, asked.MinBandwidth
	}
	switch {
	case place == nil || !place.Acknowledged:
	case place.Peer == "":
		class.Component.Strategy, class.Strict = v1alpha1.StrategyLocal, false
	default:
		node := v1alpha1.VirtualNodeName(place.Peer)
		class.Component.Request = RequestName(app)
		class.Only = []string{node}
		class.Nodes = slices.SortedFunc(slices.Values(append(slices.Clone(decided.Nodes), v1alpha1.NodePlacement{Name: node})),
			func(a, b v1alpha1.NodePlacement) int { return strings.Compare(a.Name, b.Name) })
	}
	class.Admission = p.admission(class.Component.Strategy, nil, class.PlacementStatus)
	return class
}

func shareOf(peer string) string {
	if peer == "" {
		return v1alpha1.ShareOfHome
	}
	return v1alpha1.VirtualNodeName(peer)
}

// componentOf returns the class of the component that the pod belongs to, that of its share if it has one, and nil if it belongs to none.
func (p Placement) componentOf(pod *corev1.Pod) *v1alpha1.PlacementClassStatus {
	classes := p.componentsOf(pod)
	for _, class := range classes {
		if share := class.Component.Share; share != "" && share == pod.Annotations[v1alpha1.AnnotationShare] {
			return class
		}
	}
	if len(classes) == 0 {
		return nil
	}
	return classes[0]
}

// componentsOf returns the class of the component that the pod belongs to, and after it those of its shares. There may be none.
func (p Placement) componentsOf(pod *corev1.Pod) (classes []*v1alpha1.PlacementClassStatus) {
	decided := p.offloading.Status.Placement
	if decided == nil {
		return nil
	}
	for i := range decided.Classes {
		class := &decided.Classes[i]
		isNext := len(classes) == 0 || strings.HasPrefix(class.Name, classes[0].Name+"/")
		if class.Component != nil && isNext && HasLabels(pod, class.Component.PodLabels) {
			classes = append(classes, class)
		}
	}
	return classes
}

// strategyOf is the strategy for pods such as this one.
func (p Placement) strategyOf(pod *corev1.Pod) v1alpha1.OffloadingStrategy {
	if own := p.componentOf(pod); own != nil {
		return own.Component.Strategy
	}
	return p.Strategy()
}

// RequestFor returns the name of the Request whose reservation the pod uses on the virtual node, and "" if it uses none.
func (p Placement) RequestFor(pod *corev1.Pod, node string) string {
	own := p.componentOf(pod)
	if own == nil || !slices.Contains(own.Only, node) {
		return ""
	}
	return own.Component.Request
}

// Shares counts how the pods of components that several clusters share are spread over these. Those of each owner are spread by themselves,
// so that after a rollout the new ones are where they are to be.
type Shares struct {
	placement Placement
	taken     map[share]int64
}

type share struct {
	class string
	owner types.UID
}

// NewShares counts those of the pods of the namespace.
func (p Placement) NewShares(pods []corev1.Pod) *Shares {
	s := &Shares{placement: p, taken: map[share]int64{}}
	for i := range pods {
		if pods[i].DeletionTimestamp.IsZero() && !Terminal(pods[i].Status.Phase) && !Gated(&pods[i]) {
			s.Count(&pods[i])
		}
	}
	return s
}

// Count adds a pod that has its share.
func (s *Shares) Count(pod *corev1.Pod) {
	if class := s.placement.componentOf(pod); class != nil && class.Component.Share != "" {
		s.taken[share{class.Name, ownerOf(pod)}]++
	}
}

// Next returns the pod as it is if no clusters share its component, and else with the annotation of the share that lacks the most.
func (s *Shares) Next(pod *corev1.Pod) *corev1.Pod {
	classes := s.placement.componentsOf(pod)
	if len(classes) < 2 || !Gated(pod) {
		return pod
	}
	var replicas, pods int64
	for _, class := range classes[1:] {
		replicas += int64(class.Component.Replicas)
		pods += s.taken[share{class.Name, ownerOf(pod)}]
	}
	lacks := func(class *v1alpha1.PlacementClassStatus) int64 {
		return int64(class.Component.Replicas)*(pods+1) - s.taken[share{class.Name, ownerOf(pod)}]*replicas
	}
	best := slices.MaxFunc(classes[1:], func(a, b *v1alpha1.PlacementClassStatus) int { return int(lacks(a) - lacks(b)) })
	next := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.AnnotationShare, best.Component.Share)
	return next
}

func ownerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.UID
	}
	return ""
}
