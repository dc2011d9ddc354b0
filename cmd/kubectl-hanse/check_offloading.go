package main

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// offloadings checks that the namespaces that users offload are.
func (c *checker) offloadings(ctx context.Context) []finding {
	const name = "offloaded namespaces"
	list := &v1alpha1.NamespaceOffloadingList{}
	if err := c.client.List(ctx, list); err != nil {
		return []finding{topicOffloading.unknown(name, err)}
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.NamespaceOffloading) int { return cmp.Compare(a.Namespace, b.Namespace) })
	var findings []finding
	for i := range list.Items {
		if found := offloadingFinding(&list.Items[i]); found != nil {
			findings = append(findings, *found)
		}
	}
	switch ready := len(list.Items) - len(findings); {
	case len(list.Items) == 0:
		findings = append(findings, topicOffloading.ok(name, "there are none"))
	case ready > 0:
		findings = slices.Insert(findings, 0, topicOffloading.ok(name, "ready: %d of %d", ready, len(list.Items)))
	}
	return findings
}

// offloadingFinding tells of one that is not ready, or that finds no cluster for its pods. What a user has asked for and
// cannot have is no failure of the cluster's.
func offloadingFinding(offloading *v1alpha1.NamespaceOffloading) *finding {
	name := "namespace " + offloading.Namespace
	ready := readyOf(offloading.Status.Conditions)
	said := ready.Reason + ": " + ready.Message
	fix := "kubectl hanse status shows how each peer stands"
	var found finding
	switch {
	case ready.Status != metav1.ConditionTrue:
		found = topicOffloading.warning(name, said, fix)
	case unplaced(offloading) != "":
		found = topicOffloading.warning(name, unplaced(offloading), "kubectl hanse policy explain placement "+offloading.Namespace)
	default:
		return nil
	}
	return &found
}
