// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestPeerLabelsAreChosen(t *testing.T) {
	for name, tc := range map[string]struct {
		given v1alpha1.Text
		key   string
		want  string // "" if it is left out
	}{
		"a label of another domain":            {"fast", "example.com/disk", "fast"},
		"never one without a domain":           {"kube-dns", "app", ""},
		"the region is the peer's":             {"west", "topology.kubernetes.io/region", "turin-west"},
		"so is the zone":                       {"a", "topology.kubernetes.io/zone", "turin-a"},
		"the instance type":                    {"big", "node.kubernetes.io/instance-type", "big"},
		"never the host name":                  {"x", "kubernetes.io/hostname", ""},
		"never a role":                         {"", "node-role.kubernetes.io/control-plane", ""},
		"never a restricted one":               {"x", "node-restriction.kubernetes.io/secure", ""},
		"never one of ours":                    {"x", "hanse.dev/type", ""},
		"nor below":                            {"x", "sub.hanse.dev/type", ""},
		"nor of Kubernetes' other domain":      {"x", "node.cluster.k8s.io/x", ""},
		"a look-alike domain is another one":   {"x", "notkubernetes.io/x", "x"},
		"no value that is none":                {"two words", "example.com/disk", ""},
		"no key that is none":                  {"x", "example.com/", ""},
		"no zone that got too long to be told": {"z23456789012345678901234567890123456789012345678901234567890", "topology.kubernetes.io/zone", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{}
			if tc.want != "" {
				want[tc.key] = tc.want
			}
			got := PeerLabels("turin", map[string]v1alpha1.Text{tc.key: tc.given})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}
