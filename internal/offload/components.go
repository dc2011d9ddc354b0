package offload

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// RequestName is what our Requests for the Application are called, at every peer.
func RequestName(app *v1alpha1.Application) string { return "app-" + string(app.UID) }

// Components returns the classes that the components of the Application are: pods of a component go where it was placed, and wait until
// then. What was decided about the namespace still excludes what it does, wherever the pods are sent on to.
func (p Placement) Components(app *v1alpha1.Application, decided v1alpha1.PlacementStatus) []v1alpha1.PlacementClassStatus {
	excluded := slices.DeleteFunc(slices.Clone(decided.Nodes), func(n v1alpha1.NodePlacement) bool { return n.Excluded == "" })
	var classes []v1alpha1.PlacementClassStatus
	for i := range app.Spec.Components {
		c := &app.Spec.Components[i]
		class := v1alpha1.PlacementClassStatus{
			Name:            app.Name + "/" + c.Name,
			Component:       &v1alpha1.ComponentPlacement{PodLabels: c.PodLabels, Strategy: v1alpha1.StrategyRemote},
			PlacementStatus: v1alpha1.PlacementStatus{Strict: true, Nodes: excluded, ExcludedBehind: decided.ExcludedBehind},
		}
		if asked := app.Spec.Placement; asked != nil {
			class.Component.Clusters, class.Component.Exclude = asked.Clusters, asked.Exclude
			class.Component.MaxLatency, class.Component.MinBandwidth = asked.MaxLatency, asked.MinBandwidth
		}
		k := slices.IndexFunc(app.Status.Components, func(at v1alpha1.PlacedComponent) bool { return at.Name == c.Name && at.Acknowledged })
		switch {
		case k < 0:
		case app.Status.Components[k].Peer == "":
			class.Component.Strategy, class.Strict = v1alpha1.StrategyLocal, false
		default:
			node := v1alpha1.VirtualNodeName(app.Status.Components[k].Peer)
			class.Component.Request = RequestName(app)
			class.Only = []string{node}
			class.Nodes = slices.SortedFunc(slices.Values(append(excluded[:len(excluded):len(excluded)], v1alpha1.NodePlacement{Name: node})),
				func(a, b v1alpha1.NodePlacement) int { return strings.Compare(a.Name, b.Name) })
		}
		class.Admission = p.admission(class.Component.Strategy, nil, class.PlacementStatus)
		classes = append(classes, class)
	}
	return classes
}

// componentOf returns the class of the component that the pod belongs to, nil if it belongs to none.
func (p Placement) componentOf(pod *corev1.Pod) *v1alpha1.PlacementClassStatus {
	decided := p.offloading.Status.Placement
	if decided == nil {
		return nil
	}
	i := slices.IndexFunc(decided.Classes, func(class v1alpha1.PlacementClassStatus) bool {
		return class.Component != nil && HasLabels(pod, class.Component.PodLabels)
	})
	if i < 0 {
		return nil
	}
	return &decided.Classes[i]
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
