package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	fieldOwner = client.FieldOwner("kubectl-hanse")
	// PartOfLabel is the key of the label of everything that the chart makes.
	PartOfLabel = "app.kubernetes.io/part-of"
	// PartOf is the value of that label.
	PartOf = "hanse"
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
		if err := c.waitEstablished(ctx, definition); err != nil {
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

func (c Cluster) waitEstablished(ctx context.Context, definition *unstructured.Unstructured) error {
	return Until(ctx, "definition of "+definition.GetName()+" to be established", func(ctx context.Context) (bool, error) {
		missing, err := Missing(ctx, c.Client, []*unstructured.Unstructured{definition})
		return len(missing) == 0, err
	})
}

// Missing names those of the objects that the cluster does not have. A definition must be established as well.
func Missing(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) ([]string, error) {
	var missing []string
	for _, object := range objects {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(object.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(object), found)
		unready := found.GetKind() == definitionKind.Kind && !hasCondition(found, "Established")
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err), err == nil && unready:
			missing = append(missing, describe(object))
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", describe(object), err)
		}
	}
	return missing, nil
}

// WaitAvailable waits until what the manifest runs is running.
func (c Cluster) WaitAvailable(ctx context.Context, m Manifest) error {
	for _, object := range m.Objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		err := Until(ctx, describe(object)+" to run", func(ctx context.Context) (bool, error) {
			deployment := &appsv1.Deployment{}
			if err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), deployment); err != nil {
				return false, err
			}
			want, status := Replicas(deployment), deployment.Status
			return status.ObservedGeneration >= deployment.Generation &&
				status.UpdatedReplicas == want && status.Replicas == want && status.AvailableReplicas == want, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Replicas is how many pods a Deployment wants.
func Replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
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
		objects, err := c.list(ctx, kind, client.MatchingLabels{PartOfLabel: PartOf})
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

// deleteAll deletes the objects of a kind that are chosen, and returns them. A nil choice means all.
func (c Cluster) deleteAll(
	ctx context.Context, kind schema.GroupVersionKind, chosen func(unstructured.Unstructured) bool, options ...client.ListOption,
) ([]unstructured.Unstructured, error) {
	objects, err := c.list(ctx, kind, options...)
	if err != nil {
		return nil, err
	}
	if chosen != nil {
		objects = slices.DeleteFunc(objects, func(o unstructured.Unstructured) bool { return !chosen(o) })
	}
	for i := range objects {
		if err := c.delete(ctx, &objects[i]); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// finalError is an error that waiting does not change.
type finalError struct{ error }

func (f finalError) Unwrap() error { return f.error }

// Final makes Until end with the error.
func Final(err error) error { return finalError{err} }

// Until asks until the answer is yes. An error may change with time, such as where something is not there yet, unless it is
// Final.
func Until(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		done, err := ask(ctx)
		if end := (finalError{}); errors.As(err, &end) {
			return false, err
		}
		last = err
		return done && err == nil, nil
	})
	if end := (finalError{}); errors.As(err, &end) {
		return end.error
	}
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, errors.Join(last, err))
	}
	return nil
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

// MinimumKubernetes is the oldest version of Kubernetes that Hanse is installed in.
const MinimumKubernetes = "1.36"

// ErrUnsupported says that a cluster cannot run Hanse.
var ErrUnsupported = errors.New("this cluster cannot run Hanse")

// PolicyKinds are the kinds of policies that the API server must serve.
func PolicyKinds() []string { return []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"} }

// CheckKubernetes returns the version of the cluster, or an error that says what it lacks.
func CheckKubernetes(cluster discovery.DiscoveryInterface) (string, error) {
	found, err := KubernetesVersion(cluster)
	for _, kind := range PolicyKinds() {
		if err == nil {
			err = CheckServed(cluster, kind)
		}
	}
	return found, err
}

// KubernetesVersion returns the version of the cluster, and ErrUnsupported if it is too old.
func KubernetesVersion(cluster discovery.DiscoveryInterface) (string, error) {
	info, err := cluster.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask the API server for its version: %w", err)
	}
	found, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return "", fmt.Errorf("read the version of Kubernetes %q: %w", info.GitVersion, err)
	}
	oldest := version.MustParseGeneric(MinimumKubernetes)
	if found.Major() < oldest.Major() || found.Major() == oldest.Major() && found.Minor() < oldest.Minor() {
		return "", fmt.Errorf("%w: it runs Kubernetes %s, and %s or newer is needed (for MutatingAdmissionPolicy v1); upgrade it first",
			ErrUnsupported, info.GitVersion, MinimumKubernetes)
	}
	return info.GitVersion, nil
}

// CheckServed returns ErrUnsupported if the API server does not serve policies of the kind.
func CheckServed(cluster discovery.DiscoveryInterface, kind string) error {
	group := admissionregistrationv1.SchemeGroupVersion.String()
	served, err := cluster.ServerResourcesForGroupVersion(group)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ask the API server for the resources of %s: %w", group, err)
	}
	isKind := func(r metav1.APIResource) bool { return r.Name == resourceOf(kind) }
	if served != nil && slices.ContainsFunc(served.APIResources, isKind) {
		return nil
	}
	return fmt.Errorf("%w: its API server does not serve %s in %s; see its flags --runtime-config and --feature-gates",
		ErrUnsupported, kind, group)
}

// resourceOf is the plural of the kind of a policy.
func resourceOf(kind string) string { return strings.ToLower(strings.TrimSuffix(kind, "y")) + "ies" }
