package install

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

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
