package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	fieldOwner = client.FieldOwner("kubectl-hanse")
	// What everything that the chart makes is labelled with.
	partOfLabel = "app.kubernetes.io/part-of"
	partOf      = "hanse"
	// How often the cluster is asked whether something has come about.
	askAgain = 250 * time.Millisecond
)

// Cluster is the cluster to work on.
type Cluster struct {
	// Client reads and writes there with the rights of an administrator. It must not cache.
	Client client.Client
	// Report tells the user what is being done.
	Report func(format string, args ...any)
}

// chartKinds are the kinds of what the chart makes, in the order in which it is removed.
var chartKinds = []schema.GroupVersionKind{
	appsv1.SchemeGroupVersion.WithKind("Deployment"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
	rbacv1.SchemeGroupVersion.WithKind("Role"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"),
	flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
	corev1.SchemeGroupVersion.WithKind("Namespace"),
}

// Apply makes the cluster have what the manifest says, and removes what an earlier one had in excess.
func (c Cluster) Apply(ctx context.Context, m Manifest) error {
	for _, definition := range m.Definitions {
		if err := c.apply(ctx, definition); err != nil {
			return err
		}
	}
	for _, definition := range m.Definitions {
		if err := c.waitEstablished(ctx, definition.GetName()); err != nil {
			return err
		}
	}
	for _, object := range m.Objects {
		if err := c.apply(ctx, object); err != nil {
			return err
		}
	}
	return c.prune(ctx, m)
}

func (c Cluster) apply(ctx context.Context, object *unstructured.Unstructured) error {
	err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), fieldOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply %s: %w", describe(object), err)
	}
	return nil
}

func (c Cluster) waitEstablished(ctx context.Context, name string) error {
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(definitionKind)
	return c.until(ctx, "definition of "+name+" to be established", func(ctx context.Context) (bool, error) {
		if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
			return false, err
		}
		return hasCondition(definition, "Established"), nil
	})
}

// WaitAvailable waits until what the manifest runs is running.
func (c Cluster) WaitAvailable(ctx context.Context, m Manifest) error {
	for _, object := range m.Objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		if err := c.waitRolledOut(ctx, client.ObjectKeyFromObject(object)); err != nil {
			return err
		}
	}
	return nil
}

func (c Cluster) waitRolledOut(ctx context.Context, key client.ObjectKey) error {
	deployment := &appsv1.Deployment{}
	return c.until(ctx, "Deployment "+key.String()+" to run", func(ctx context.Context) (bool, error) {
		if err := c.Client.Get(ctx, key, deployment); err != nil {
			return false, err
		}
		want, status := int32(1), deployment.Status
		if deployment.Spec.Replicas != nil {
			want = *deployment.Spec.Replicas
		}
		return status.ObservedGeneration >= deployment.Generation &&
			status.UpdatedReplicas == want && status.Replicas == want && status.AvailableReplicas == want, nil
	})
}

// prune removes what carries the chart's label but is not in the manifest.
func (c Cluster) prune(ctx context.Context, m Manifest) error {
	return c.eachOfChart(ctx, func(object *unstructured.Unstructured) error {
		if slices.ContainsFunc(m.Objects, func(wanted *unstructured.Unstructured) bool { return same(wanted, object) }) {
			return nil
		}
		c.Report("Removing %s, which is no longer wanted", describe(object))
		return c.delete(ctx, object)
	})
}

// eachOfChart calls f for each object in the cluster that the chart made.
func (c Cluster) eachOfChart(ctx context.Context, f func(*unstructured.Unstructured) error) error {
	for _, kind := range chartKinds {
		objects, err := c.list(ctx, kind, client.MatchingLabels{partOfLabel: partOf})
		if err != nil {
			return err
		}
		for i := range objects {
			if err := f(&objects[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// list returns all objects of a kind, none if the cluster does not know the kind.
func (c Cluster) list(
	ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption,
) ([]unstructured.Unstructured, error) {
	found := &unstructured.UnstructuredList{}
	found.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := c.Client.List(ctx, found, options...)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	return found.Items, nil
}

func (c Cluster) delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	err := c.Client.Delete(ctx, object, options...)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", describe(object), err)
	}
	return nil
}

// until asks until the answer is yes. What the cluster does not have yet is no error.
func (Cluster) until(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		done, err := ask(ctx)
		last = err
		return done && err == nil, nil
	})
	if err == nil {
		return nil
	}
	return fmt.Errorf("wait for %s: %w", what, errors.Join(last, err))
}

func same(a, b client.Object) bool {
	return a.GetObjectKind().GroupVersionKind().GroupKind() == b.GetObjectKind().GroupVersionKind().GroupKind() &&
		client.ObjectKeyFromObject(a) == client.ObjectKeyFromObject(b)
}

func describe(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = fmt.Sprintf("%T", object)
	}
	if object.GetNamespace() == "" {
		return kind + " " + object.GetName()
	}
	return kind + " " + object.GetNamespace() + "/" + object.GetName()
}

func hasCondition(object *unstructured.Unstructured, kind string) bool {
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == kind && condition["status"] == "True"
	})
}

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
