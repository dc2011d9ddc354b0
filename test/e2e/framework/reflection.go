// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listedSettings list widgets and routes, on both sides. Of routes the provider has a definition to install.
var listedSettings = []string{
	"reflectedKinds[0].group=example.org", "reflectedKinds[0].version=v1", "reflectedKinds[0].kind=Widget", "reflectedKinds[0].resource=widgets",
	"reflectedKinds[0].omit={spec.secret}", "reflectedKinds[0].status=true",
	"allowedKinds[0].group=example.org", "allowedKinds[0].version=v1", "allowedKinds[0].kind=Widget", "allowedKinds[0].resource=widgets",
	"reflectedKinds[1].group=gateway.networking.k8s.io", "reflectedKinds[1].version=v1", "reflectedKinds[1].kind=HTTPRoute",
	"reflectedKinds[1].resource=httproutes", "reflectedKinds[1].status=true",
	"allowedKinds[1].group=gateway.networking.k8s.io", "allowedKinds[1].version=v1", "allowedKinds[1].kind=HTTPRoute",
	"allowedKinds[1].resource=httproutes", "allowedKinds[1].definition=http-routes",
}

// NamespacedMeta returns the metadata of an object in a namespace.
func NamespacedMeta(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

// CreateNeededObjects makes a ConfigMap config, a Secret secret and a Service shop without a selector, and a pod at the peer that uses the first two.
func (c *Cluster) CreateNeededObjects(t *testing.T, ns string, peer *Cluster) {
	t.Helper()
	c.MustCreate(t, &corev1.ConfigMap{ObjectMeta: NamespacedMeta(ns, "config"), Data: map[string]string{"from": "lubeck"}})
	c.MustCreate(t, &corev1.Secret{ObjectMeta: NamespacedMeta(ns, "secret"), StringData: map[string]string{"from": "lubeck"}})
	c.CreateService(t, ns, "shop", nil)
	c.StartNetworkPod(t, ns, "user", peer, func(spec *corev1.PodSpec) {
		spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Optional: ptr.To(true)}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Optional: ptr.To(true)}},
		}
	})
}

// GetEndpoints are the addresses behind the Service at the cluster, with whether they are ready, each as often as it is listed.
func (c *Cluster) GetEndpoints(ctx context.Context, ns, service string) ([]string, error) {
	list := &discoveryv1.EndpointSliceList{}
	if err := c.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return nil, err
	}
	var all []string
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			all = append(all, fmt.Sprintf("%s ready=%t", strings.Join(e.Addresses, ","), ptr.Deref(e.Conditions.Ready, true)))
		}
	}
	slices.Sort(all)
	return all, nil
}

// AwaitEndpoints waits until exactly those are behind the Service, and returns how long that took.
func (c *Cluster) AwaitEndpoints(t *testing.T, ns, service string, want ...string) time.Duration {
	t.Helper()
	slices.Sort(want)
	began := time.Now()
	Eventually(t, fmt.Sprintf("%s has endpoints %v of %s", c.Name, want, service), func(ctx context.Context) error {
		got, err := c.GetEndpoints(ctx, ns, service)
		if err == nil && !slices.Equal(got, want) {
			return fmt.Errorf("it has %v", got)
		}
		return err
	})
	return time.Since(began)
}
