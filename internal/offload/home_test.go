// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestNamesInRemotePodsMeanWhatTheyMeanAtHome(t *testing.T) {
	home := &HomeNetwork{
		Namespace: "shop", Nameservers: []string{"100.66.0.10", "fd68::a"},
		Seen: func(address netip.Addr) (netip.Addr, bool) {
			return netip.MustParseAddr("100.67.0.10"), address == netip.MustParseAddr("240.0.0.10")
		},
	}
	ndots := func(value string) []corev1.PodDNSConfigOption {
		return []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To(value)}}
	}
	ofHome := corev1.PodDNSConfig{
		Nameservers: []string{"100.66.0.10", "fd68::a"}, Searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"},
		Options: ndots("5"),
	}
	with := func(change func(*corev1.PodDNSConfig)) *corev1.PodDNSConfig {
		config := ofHome.DeepCopy()
		change(config)
		return config
	}
	for name, test := range map[string]struct {
		home   *HomeNetwork
		policy corev1.DNSPolicy
		asked  *corev1.PodDNSConfig
		config *corev1.PodDNSConfig
		leads  bool
	}{
		"without a network":               {nil, corev1.DNSClusterFirst, nil, nil, false},
		"with one":                        {home, corev1.DNSClusterFirst, nil, &ofHome, true},
		"by default":                      {home, "", nil, &ofHome, true},
		"without the network of its node": {home, corev1.DNSClusterFirstWithHostNet, nil, &ofHome, true},
		"the DNS of its node":             {home, corev1.DNSDefault, nil, nil, false},
		"its own DNS":                     {home, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}}, &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}}, false},
		"the DNS of another home, by which it was sent on": {
			home, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"240.0.0.10", "nobody", "1.1.1.1"}},
			&corev1.PodDNSConfig{Nameservers: []string{"100.67.0.10", "nobody", "1.1.1.1"}}, false,
		},
		"more of its own": {
			home, corev1.DNSClusterFirst,
			&corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "8.8.8.8"}, Searches: []string{"example.org", "cluster.local"}, Options: ndots("2")},
			with(func(c *corev1.PodDNSConfig) {
				c.Nameservers = append(c.Nameservers, "1.1.1.1")
				c.Searches = append(c.Searches, "example.org")
				c.Options = ndots("2")
			}), true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := Build(shadowFrom(t, corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				DNSPolicy: test.policy, DNSConfig: test.asked,
				InitContainers: []corev1.Container{{Name: "init", Image: "i"}},
				Containers:     []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "API", Value: "$(KUBERNETES_SERVICE_HOST)"}}}},
			}}), Rules{Home: test.home})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.config, pod.Spec.DNSConfig); diff != "" {
				t.Errorf("dnsConfig (-want +got):\n%s", diff)
			}
			wantPolicy, wantHost, wantPort := test.policy, "", ""
			if test.leads {
				wantPolicy, wantHost, wantPort = corev1.DNSNone, "kubernetes.default.svc", "443"
			}
			if pod.Spec.DNSPolicy != wantPolicy {
				t.Errorf("dnsPolicy is %q, want %q", pod.Spec.DNSPolicy, wantPolicy)
			}
			forEachContainer(&pod.Spec, func(c *corev1.Container) {
				values := map[string]string{}
				for _, v := range c.Env {
					values[v.Name] = v.Value
				}
				if values["KUBERNETES_SERVICE_HOST"] != wantHost || values["KUBERNETES_SERVICE_PORT"] != wantPort || len(c.Env) < len(apiServerVariables) {
					t.Errorf("%s has %v", c.Name, c.Env)
				}
				if c.Name == "c" && c.Env[len(c.Env)-1].Name != "API" {
					t.Errorf("a variable that refers to the API server comes before it: %v", c.Env)
				}
			})
		})
	}
}

func TestAPodMaySayWhereItsAPIServerIs(t *testing.T) {
	pod, err := Build(shadowOf(`{"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"KUBERNETES_SERVICE_HOST","value":"10.0.0.1"}]}]}}`),
		Rules{Home: &HomeNetwork{Namespace: "shop", Nameservers: []string{"100.66.0.10"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == "KUBERNETES_SERVICE_HOST" && v.Value != "10.0.0.1" {
			t.Errorf("the API server is at %s", v.Value)
		}
	}
}

// The API server refuses more, and a pod that could run before must not be refused for what the provider adds.
func TestSearchPathIsNoLongerThanItMayBe(t *testing.T) {
	var many []string
	for i := range maxSearches {
		many = append(many, fmt.Sprintf("d%d.example", i))
	}
	long := []string{strings.Repeat("a.", 120) + "b", strings.Repeat("c.", 120) + "d"}
	for range 3 {
		long = append(long, long...)
	}
	for i := range long {
		long[i] = fmt.Sprintf("%d.%s", i, long[i])
	}
	for name, searches := range map[string][]string{"many": many, "long": long} {
		spec := corev1.PodSpec{DNSConfig: &corev1.PodDNSConfig{Searches: searches}}
		(&HomeNetwork{Namespace: strings.Repeat("n", 63), Nameservers: []string{"100.66.0.10"}}).lead(&spec)
		got := spec.DNSConfig.Searches
		if len(got) > maxSearches || len(strings.Join(got, " ")) > maxSearchChars || got[2] != "cluster.local" || len(got) < 4 {
			t.Errorf("%s: %d domains of %d characters", name, len(got), len(strings.Join(got, " ")))
		}
	}
}
