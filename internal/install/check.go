package install

import (
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

// MinimumKubernetes is the oldest version of Kubernetes that Hanse is installed in.
const MinimumKubernetes = "1.36"

// ErrUnsupported says that a cluster cannot run Hanse.
var ErrUnsupported = errors.New("this cluster cannot run Hanse")

// CheckKubernetes returns the version of the cluster, or an error that says what it lacks.
func CheckKubernetes(cluster discovery.DiscoveryInterface) (string, error) {
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
	return info.GitVersion, checkPolicies(cluster)
}

func checkPolicies(cluster discovery.DiscoveryInterface) error {
	group := admissionregistrationv1.SchemeGroupVersion.String()
	served, err := cluster.ServerResourcesForGroupVersion(group)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ask the API server for the resources of %s: %w", group, err)
	}
	if served != nil {
		for i := range served.APIResources {
			if served.APIResources[i].Name == "mutatingadmissionpolicies" {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: its API server does not serve MutatingAdmissionPolicy in %s; "+
		"see its flags --runtime-config and --feature-gates", ErrUnsupported, group)
}
