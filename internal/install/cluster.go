// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

const (
	fieldOwner = client.FieldOwner("kubectl-hanse")
	// PartOfLabel is the key of the label of everything that the chart makes.
	PartOfLabel = "app.kubernetes.io/part-of"
	// PartOf is the value of that label.
	PartOf = "hanse"
	// How often the cluster is asked whether something has come about.
	askAgain = 250 * time.Millisecond
	// The service account of the manager: Hanse is where this one is.
	managerAccount = "hanse-manager"
)

// Cluster is the cluster to work on.
type Cluster struct {
	// Client reads and writes there with the rights of an administrator. It must not cache.
	Client client.Client
	// Report tells the user what is being done.
	Report func(format string, args ...any)
}

// chartKinds are the kinds of what the chart makes, in the order in which they are made: what others refer to comes first.
// They are removed the other way round.
var chartKinds = []schema.GroupVersionKind{
	namespaceKind,
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
	rbacv1.SchemeGroupVersion.WithKind("Role"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"),
	flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"),
	storagev1.SchemeGroupVersion.WithKind("CSIDriver"),
	storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"),
	storagev1.SchemeGroupVersion.WithKind("StorageClass"),
	configMapKind,
	corev1.SchemeGroupVersion.WithKind("Service"),
	daemonSetKind,
	deploymentKind,
}

var (
	namespaceKind  = corev1.SchemeGroupVersion.WithKind("Namespace")
	configMapKind  = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	podKind        = corev1.SchemeGroupVersion.WithKind("Pod")
	daemonSetKind  = appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	definitionKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
)

// A selection is those objects of a kind that the options select, and of these the ones that are chosen, or all.
type selection struct {
	kind    schema.GroupVersionKind
	options []client.ListOption
	chosen  func(*unstructured.Unstructured) bool
}

// ofChart selects what the chart made, in the order in which it is removed.
func ofChart() []selection {
	var selected []selection
	for _, kind := range slices.Backward(chartKinds) {
		selected = append(selected, selection{kind: kind, options: []client.ListOption{client.MatchingLabels{PartOfLabel: PartOf}}})
	}
	return selected
}

// Apply makes the cluster have what the manifest says, and removes what an earlier one had in excess.
func (c Cluster) Apply(ctx context.Context, m Manifest) error {
	if err := c.checkNamespace(ctx, m.Namespace); err != nil {
		return err
	}
	if err := c.checkID(ctx, m); err != nil {
		return err
	}
	if err := c.apply(ctx, m.Definitions); err != nil {
		return err
	}
	err := Until(ctx, "definitions to be established", func(ctx context.Context) (bool, error) {
		missing, err := Missing(ctx, c.Client, m.Definitions)
		if len(missing) > 0 {
			err = fmt.Errorf("not yet: %s", strings.Join(missing, ", "))
		}
		return true, err
	})
	if err != nil {
		return err
	}
	if err := c.apply(ctx, m.Objects); err != nil {
		return err
	}
	return c.prune(ctx, m)
}

// Namespace returns where Hanse is installed, "" if it is not. There is one Hanse in a cluster, because the names of roles and
// policies are fixed, and its key is in its namespace.
func (c Cluster) Namespace(ctx context.Context) (string, error) {
	accounts, err := c.list(ctx, selection{
		kind:    corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		options: []client.ListOption{client.MatchingLabels{PartOfLabel: PartOf}},
		chosen:  func(o *unstructured.Unstructured) bool { return o.GetName() == managerAccount },
	})
	if err != nil || len(accounts) == 0 {
		return "", err
	}
	return accounts[0].GetNamespace(), nil
}

// checkNamespace refuses another namespace than the one that Hanse is installed in.
func (c Cluster) checkNamespace(ctx context.Context, named string) error {
	found, err := c.Namespace(ctx)
	if err != nil || found == "" || found == named {
		return err
	}
	return fmt.Errorf("%w: %s, and not %s. Say --hanse-namespace %[2]s. It cannot be moved, since the cluster's key is there: to have it "+
		"elsewhere, uninstall it first; all peers must then be joined again", ErrElsewhere, found, named)
}

func (c Cluster) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		wanted := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		if err := c.Client.Apply(ctx, wanted, fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s: %w", Describe(object), err)
		}
	}
	return nil
}

// Missing names those of the objects that the cluster does not have. A definition must be established as well.
func Missing(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) ([]string, error) {
	var missing []string
	for _, object := range objects {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(object.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(object), found)
		unready := found.GetKind() == definitionKind.Kind && !isEstablished(found)
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err), err == nil && unready:
			missing = append(missing, Describe(object))
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", Describe(object), err)
		}
	}
	return missing, nil
}

// WaitAvailable waits until what the manifest runs is running.
func (c Cluster) WaitAvailable(ctx context.Context, m Manifest) error {
	return Until(ctx, "Hanse to run", func(ctx context.Context) (bool, error) {
		for _, object := range m.Objects {
			if object.GetKind() != deploymentKind.Kind {
				continue
			}
			found := &appsv1.Deployment{}
			if err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), found); err != nil {
				return false, err
			}
			if !RolledOut(found) {
				return false, fmt.Errorf("%s: %d of %d replicas are of this version, and %d are available%s", Describe(object),
					found.Status.UpdatedReplicas, ptr.Deref(found.Spec.Replicas, 1), found.Status.AvailableReplicas, c.troubles(ctx, found))
			}
		}
		return true, nil
	})
}

// prune removes what carries the chart's label but is not in the manifest.
func (c Cluster) prune(ctx context.Context, m Manifest) error {
	found, err := c.list(ctx, ofChart()...)
	if err != nil {
		return err
	}
	unwanted := slices.DeleteFunc(found, func(o unstructured.Unstructured) bool {
		return slices.ContainsFunc(m.Objects, func(wanted *unstructured.Unstructured) bool { return Describe(wanted) == Describe(&o) })
	})
	for i := range unwanted {
		c.Report("Removing %s, which is no longer wanted", Describe(&unwanted[i]))
	}
	return c.delete(ctx, unwanted)
}

// list returns the selected objects. There are none of a kind that the cluster does not know.
func (c Cluster) list(ctx context.Context, selected ...selection) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	for _, s := range selected {
		found := &unstructured.UnstructuredList{}
		found.SetGroupVersionKind(s.kind.GroupVersion().WithKind(s.kind.Kind + "List"))
		err := c.Client.List(ctx, found, s.options...)
		if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("list %s: %w", s.kind.Kind, err)
		}
		for i := range found.Items {
			if s.chosen == nil || s.chosen(&found.Items[i]) {
				all = append(all, found.Items[i])
			}
		}
	}
	return all, nil
}

func (c Cluster) delete(ctx context.Context, objects []unstructured.Unstructured, options ...client.DeleteOption) error {
	for i := range objects {
		if err := c.Client.Delete(ctx, &objects[i], options...); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", Describe(&objects[i]), err)
		}
	}
	return nil
}

// finalError is an error that waiting does not change.
type finalError struct{ error }

// Final makes Until end with the error.
func Final(err error) error { return finalError{err} }

// Until asks until the answer is yes. An error may change with time, such as where something is not there yet, unless it is
// Final. If the context ends, the last error says how things stood.
func Until(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		done, err := ask(ctx)
		if errors.As(err, new(finalError)) {
			return false, err
		}
		if last == nil || ctx.Err() == nil { // that the time is over is no cause
			last = err
		}
		return done && err == nil, nil
	})
	if end := (finalError{}); errors.As(err, &end) {
		return end.error
	}
	if err != nil && last != nil {
		return fmt.Errorf("wait for %s: %w: %w", what, last, err)
	}
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// Describe names an object with its kind.
func Describe(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = reflect.TypeOf(object).Elem().Name()
	}
	if object.GetNamespace() == "" {
		return kind + " " + object.GetName()
	}
	return kind + " " + object.GetNamespace() + "/" + object.GetName()
}

func isEstablished(object *unstructured.Unstructured) bool {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, definition)
	return err == nil && apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established)
}

// WaitPlaced waits until new pods of the namespace are placed as its offloading says, and as the manager has decided if
// there is something to decide; without an offloading, until they are placed as if there were no Hanse. Policies and their
// parameters take a moment to be acted on.
func (c Cluster) WaitPlaced(ctx context.Context, namespace string) error {
	return Until(ctx, "new pods of namespace "+namespace+" to be placed as it is wanted", func(ctx context.Context) (bool, error) {
		offloading := &v1alpha1.NamespaceOffloading{}
		key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}
		err := c.Client.Get(ctx, key, offloading)
		switch {
		case apierrors.IsNotFound(err) || err == nil && !offloading.DeletionTimestamp.IsZero():
			return c.tryPod(ctx, namespace, offload.LeftAlone)
		case err != nil:
			return false, fmt.Errorf("read NamespaceOffloading %s: %w", key, err)
		case offloading.Spec.Strategy != v1alpha1.StrategyLocal && !isDecided(offloading):
			return false, nil
		}
		placement, err := offload.NewPlacement(offloading)
		if err != nil {
			return false, err
		}
		return c.tryPod(ctx, namespace, placement.Admitted)
	})
}

// isDecided reports whether the manager has looked at the spec as it is now. That no cluster fits is a decision too.
func isDecided(offloading *v1alpha1.NamespaceOffloading) bool {
	placed := meta.FindStatusCondition(offloading.Status.Conditions, v1alpha1.ConditionPlaced)
	return placed != nil && placed.ObservedGeneration >= offloading.Generation
}

// tryPod asks what would become of a pod, which is not made. Whoever may not make pods there, or such ones, cannot ask
// and need not wait.
func (c Cluster) tryPod(ctx context.Context, namespace string, isRight func(*corev1.Pod) bool) (bool, error) {
	probe := probePod(namespace)
	err := c.Client.Create(ctx, probe, client.DryRunAll)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && isRight(probe), err
}

// probePod is a pod that any namespace takes. It is never made.
func probePod(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "hanse-probe-"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:  "probe",
				Image: "probe",
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// MinimumKubernetes is the oldest version of Kubernetes that Hanse is installed in.
const MinimumKubernetes = "1.36"

// ErrElsewhere says that Hanse is installed in another namespace than the one that was named.
var ErrElsewhere = errors.New("Hanse is installed in another namespace") //nolint:staticcheck // Hanse is a name

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
	if found.LessThan(version.MustParseGeneric(MinimumKubernetes)) {
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
	if served != nil && slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
		return nil
	}
	return fmt.Errorf("%w: its API server does not serve %s in %s; see its flags --runtime-config and --feature-gates",
		ErrUnsupported, kind, group)
}
