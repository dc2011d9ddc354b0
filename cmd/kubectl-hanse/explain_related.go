// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// serviceCause tells of Services that are meant to reach the pod and do not.
func serviceCause(s podSight) []podProblem {
	if s.where.Kind != placeVirtual || hasEnded(s.pod) || s.connected() {
		return nil
	}
	names := s.servicesOf()
	if len(names) == 0 {
		return nil
	}
	return problem(v1alpha1.ReasonNoNetworkFabric, "Services of this cluster do not reach it: "+some(names)+". There is no network between the pods of "+
		"the two clusters, so it has no address here", "Connect the networks of both clusters, or have the pods of Services run at home (strategy Local)", linkServices)
}

// servicesOf names the Services that select the pod.
func (s podSight) servicesOf() []string {
	return namesOf(s.services.Items, func(service *corev1.Service) string {
		if len(service.Spec.Selector) == 0 || !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(s.pod.Labels)) {
			return ""
		}
		return service.Name
	})
}

// claimsOf names the claims that the pod uses.
func (s podSight) claimsOf() []string {
	return namesOf(s.pod.Spec.Volumes, func(v *corev1.Volume) string {
		if v.PersistentVolumeClaim == nil {
			return ""
		}
		return v.PersistentVolumeClaim.ClaimName
	})
}

// relatedCause are the latest warnings about Services of a pod on a virtual node, and about claims of a pod that does not serve: here
// it is said what its provider refuses of them, and what happens to them there.
func relatedCause(s podSight) []podProblem {
	concerned := map[string][]string{}
	if s.where.Kind == placeVirtual && !hasEnded(s.pod) {
		concerned["Service"] = s.servicesOf()
	}
	if !s.serves() {
		concerned["PersistentVolumeClaim"] = s.claimsOf()
	}
	var found []podProblem
	for _, event := range slices.Backward(s.warnings.Items) {
		about := &event.Regarding
		message := fmt.Sprintf("%s %s: %s", about.Kind, about.Name, event.Note)
		same := func(p podProblem) bool { return p.Reason == event.Reason && p.Message == message }
		if slices.Contains(concerned[about.Kind], about.Name) && !slices.ContainsFunc(found, same) {
			found = append(found, podProblem{
				Reason: event.Reason, Message: message, Fix: fmt.Sprintf("kubectl describe %s -n %s %s", strings.ToLower(about.Kind), s.pod.Namespace, about.Name),
			})
		}
	}
	return found[:min(len(found), shownEvents)]
}
