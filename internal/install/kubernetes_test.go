// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestClustersThatCannotRunHanseAreToldWhy(t *testing.T) {
	policies := []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"}
	for name, test := range map[string]struct {
		version string
		serves  []string
		says    string
	}{
		"new enough":                {"v1.36.0", policies, ""},
		"newer":                     {"v1.40.2-rc.1+k3s1", policies, ""},
		"a managed cluster":         {"v1.36.3-eks-1234", policies, ""},
		"too old":                   {"v1.35.9", policies, "it runs Kubernetes v1.35.9"},
		"policies are turned off":   {"v1.37.1", policies[:1], "does not serve MutatingAdmissionPolicy"},
		"the group is not served":   {"v1.37.1", nil, "does not serve MutatingAdmissionPolicy"},
		"older than anybody thinks": {"v0.9", policies, "it runs Kubernetes v0.9"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &fakediscovery.FakeDiscovery{
				Fake: &clienttesting.Fake{}, FakedServerVersion: &version.Info{GitVersion: test.version},
			}
			if test.serves != nil {
				list := &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1"}
				for _, kind := range test.serves {
					list.APIResources = append(list.APIResources, metav1.APIResource{Kind: kind})
				}
				cluster.Resources = append(cluster.Resources, list)
			}
			got, err := CheckKubernetes(cluster)
			if test.says == "" {
				if err != nil || got != test.version {
					t.Errorf("%q, %v, want %q", got, err, test.version)
				}
				return
			}
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
		})
	}
}
