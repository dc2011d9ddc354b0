package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

const (
	reinstall = "run `kubectl hanse install` again, with the same flags as before: it mends what differs"
	// What everything that the chart makes is labelled with.
	partOfLabel = "app.kubernetes.io/part-of"
	partOf      = "hanse"
)

// installed returns a finding if there is no Hanse to look at.
func (c *checker) installed(ctx context.Context) *finding {
	const name = "Hanse"
	err := c.client.Get(ctx, client.ObjectKey{Name: c.namespace}, &corev1.Namespace{})
	switch {
	case apierrors.IsNotFound(err):
		found := topicInstalled.failed(name, "there is no namespace "+c.namespace,
			"run `kubectl hanse install`, or say with --namespace where it is")
		return &found
	case err != nil:
		found := topicInstalled.unknown(name, err)
		return &found
	default:
		return nil
	}
}

func (c *checker) installation(ctx context.Context) []finding {
	manifest, err := c.manifest()
	if err != nil {
		return []finding{topicChart.unknown("the chart", err)}
	}
	findings := []finding{c.kinds(ctx, manifest.Definitions)}
	findings = append(findings, c.deployments(ctx)...)
	return append(findings, c.chart(ctx, manifest), c.versions(ctx), c.policies(ctx))
}

// kinds checks that the API server serves Hanse's kinds.
func (c *checker) kinds(ctx context.Context, definitions []*unstructured.Unstructured) finding {
	const name = "kinds"
	var missing []string
	for _, definition := range definitions {
		found := &apiextensionsv1.CustomResourceDefinition{}
		err := c.client.Get(ctx, client.ObjectKeyFromObject(definition), found)
		if client.IgnoreNotFound(err) != nil {
			return topicKinds.unknown(name, err)
		}
		if err != nil || !isEstablished(found) {
			missing = append(missing, definition.GetName())
		}
	}
	if len(missing) > 0 {
		return topicKinds.failed(name, "missing or not established: "+strings.Join(missing, ", "), reinstall)
	}
	return topicKinds.ok(name, "all %d are established", len(definitions))
}

func isEstablished(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// deployments checks that Hanse's own pods run.
func (c *checker) deployments(ctx context.Context) []finding {
	list := &appsv1.DeploymentList{}
	err := c.client.List(ctx, list, client.InNamespace(c.namespace), client.MatchingLabels{partOfLabel: partOf})
	if err != nil {
		return []finding{topicDeployments.unknown("Deployments", err)}
	}
	if len(list.Items) == 0 {
		return []finding{topicDeployments.failed("Deployments", "there are none in namespace "+c.namespace, reinstall)}
	}
	var findings []finding
	for i := range list.Items {
		findings = append(findings, checkDeployment(&list.Items[i]))
	}
	return findings
}

func checkDeployment(d *appsv1.Deployment) finding {
	name, want := "Deployment "+d.Name, int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	found := fmt.Sprintf("%d of %d replicas are available", d.Status.AvailableReplicas, want)
	switch {
	case want == 0:
		return topicDeployments.failed(name, "it is scaled to 0", fmt.Sprintf("kubectl scale deployment %s -n %s --replicas=1", d.Name, d.Namespace))
	case d.Status.AvailableReplicas == 0:
		return topicDeployments.failed(name, found, fmt.Sprintf("see `kubectl describe pods -n %s`", d.Namespace))
	case d.Status.AvailableReplicas < want || d.Status.UpdatedReplicas < want || d.Status.ObservedGeneration < d.Generation:
		return topicDeployments.warning(name, found+", and some may be of an older version", "wait, and check again")
	default:
		return topicDeployments.ok(name, "%s", found)
	}
}

// chart checks that what Hanse itself relies on, and never makes, is there.
func (c *checker) chart(ctx context.Context, manifest install.Manifest) finding {
	const name = "policies and roles"
	var missing []string
	checked := 0
	for _, object := range manifest.Objects {
		if kind := object.GetKind(); !strings.Contains(kind, "AdmissionPolicy") && !strings.Contains(kind, "Role") {
			continue
		}
		checked++
		found := object.DeepCopy()
		err := c.client.Get(ctx, client.ObjectKeyFromObject(object), found)
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			missing = append(missing, object.GetKind()+" "+object.GetName())
		case err != nil:
			return topicChart.unknown(name, err)
		}
	}
	if len(missing) > 0 {
		return topicChart.failed(name, "missing: "+some(missing), reinstall)
	}
	return topicChart.ok(name, "all %d are there", checked)
}

// versions checks that this client is of the version that runs.
func (c *checker) versions(ctx context.Context) finding {
	const name = "versions"
	info := &corev1.ConfigMap{}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: v1alpha1.ClusterInfo}, info)
	if apierrors.IsNotFound(err) {
		return topicVersions.warning(name, "the manager has not said yet which cluster and version this is",
			"wait until the manager runs, and check again")
	}
	if err != nil {
		return topicVersions.unknown(name, err)
	}
	if theirs := info.Data[v1alpha1.ClusterInfoVersion]; theirs != c.ours {
		return topicVersions.warning(name, fmt.Sprintf("this client is %s and the cluster runs %s", c.ours, theirs),
			"use the client of the version that runs, or upgrade with `kubectl hanse install`")
	}
	return topicVersions.ok(name, "cluster %s runs %s, as this client", info.Data[v1alpha1.ClusterInfoID], c.ours)
}
