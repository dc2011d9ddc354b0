// SPDX-License-Identifier: Apache-2.0

package advertisements

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
)

// writers is how many objects are written at the same time.
const writers = 32

// timeToLive is longer than an experiment, so that nothing has to be renewed in it.
const timeToLive = 3 * time.Hour

// clusterID is the id of the nth provider.
func clusterID(n int) string { return fmt.Sprintf("p%04d", n) }

// each calls do for the providers first to last, several at a time.
func each(ctx context.Context, first, last int, do func(ctx context.Context, id string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for n := first; n <= last; n++ {
		group.Go(func() error { return do(ctx, clusterID(n)) })
	}
	return group.Wait()
}

// provide makes what a provider's manager would have made for its consumer, and returns the kubeconfig for it.
func provide(ctx context.Context, provider *lab.Cluster, id, version string) ([]byte, error) {
	namespace := v1alpha1.TenantNamespace(id)
	for _, object := range tenancy(namespace, id, version) {
		if err := provider.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	token, err := provider.Token(ctx, namespace, v1alpha1.PeerServiceAccount)
	if err != nil {
		return nil, err
	}
	return provider.TokenKubeconfig(token, namespace)
}

func tenancy(namespace, id, version string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.PeerServiceAccount}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{
			v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: id, v1alpha1.LabelManaged: "true",
		}}},
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.ClusterRolePeerTenant},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: v1alpha1.PeerServiceAccount}},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ClusterInfo},
			Data:       map[string]string{v1alpha1.ClusterInfoID: id, v1alpha1.ClusterInfoVersion: version},
		},
	}
}

// linkTo gives the consumer the credentials of its link to a provider.
func linkTo(ctx context.Context, consumer *lab.Cluster, id string, kubeconfig []byte) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(id), Name: v1alpha1.LinkSecret},
		Data:       map[string][]byte{v1alpha1.LinkSecretKey: kubeconfig},
	}
	if err := consumer.Create(ctx, secret); err != nil {
		return fmt.Errorf("create Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

func peer(id string) *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       v1alpha1.PeerSpec{ClusterID: id, Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}},
	}
}

// Offer is an advertisement as that of a cluster of some hundred cores with twenty images.
func Offer(id string, now time.Time) *v1alpha1.Advertisement {
	quantity := resource.MustParse
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(id), Name: id},
		Spec: v1alpha1.AdvertisementSpec{
			ClusterID: id, Sequence: 1,
			Timestamp: metav1.NewTime(now), TimeToLive: metav1.NewTime(now.Add(timeToLive)),
			Availability: corev1.ResourceList{
				corev1.ResourceCPU: quantity("320"), corev1.ResourceMemory: quantity("1280Gi"),
				corev1.ResourcePods: quantity("1100"), corev1.ResourceEphemeralStorage: quantity("10Ti"),
				"nvidia.com/gpu": quantity("8"),
			},
			LargestPod: corev1.ResourceList{
				corev1.ResourceCPU: quantity("32"), corev1.ResourceMemory: quantity("128Gi"),
				corev1.ResourceEphemeralStorage: quantity("1Ti"),
			},
			Prices: &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
				corev1.ResourceCPU: quantity("20m"), corev1.ResourceMemory: quantity("3m"),
			}},
			Network:           &v1alpha1.Network{PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/24"}},
			Labels:            map[string]v1alpha1.Text{"topology.kubernetes.io/region": "north", "topology.kubernetes.io/zone": "north-1"},
			Architectures:     []string{"amd64"},
			KubernetesVersion: "v1.37.1",
			Flags:             map[string]v1alpha1.Text{"example.com/green": "yes"},
		},
	}
	for n := range 20 {
		ad.Spec.Images = append(ad.Spec.Images, v1alpha1.Image{
			Names: []string{fmt.Sprintf("registry.example.com/library/application-%02d:v1.%d", n, n)}, SizeBytes: int64(200-n) << 20,
		})
	}
	return ad
}
