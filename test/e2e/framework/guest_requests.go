// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// AddExtendedResource gives a worker of the cluster so much of a resource of that name, which no other story asks for.
func (c *Cluster) AddExtendedResource(t *testing.T, name string, count int) {
	t.Helper()
	node := c.Name + "-worker-1"
	patch := func(ctx context.Context, value string) error {
		key := strings.ReplaceAll(name, "/", "~1")
		list := fmt.Sprintf(`[{"op":"add","path":"/status/capacity/%s","value":%q},{"op":"add","path":"/status/allocatable/%s","value":%q}]`, key, value, key, value)
		return c.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.JSONPatchType, []byte(list)))
	}
	t.Cleanup(func() {
		if err := patch(context.Background(), "0"); err != nil {
			t.Error(err)
		}
	})
	if err := patch(t.Context(), fmt.Sprint(count)); err != nil {
		t.Fatal(err)
	}
}

// AwaitOffered waits until the guest is offered so much of the resource.
func (g *Guest) AwaitOffered(t *testing.T, name corev1.ResourceName, want int64) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s is offered %d of %s", g.ID, want, name), func(ctx context.Context) error {
		ad := &v1alpha1.Advertisement{}
		if err := g.Get(ctx, types.NamespacedName{Namespace: g.Invitation.Namespace, Name: g.Provider.Name}, ad); err != nil {
			return err
		}
		if has := ad.Spec.Availability[name]; has.Value() != want {
			return fmt.Errorf("it is offered %s", has.String())
		}
		return nil
	})
}

// NewRequest is a Request of the guest for so many replicas with one of the resource each, signed.
func (g *Guest) NewRequest(name string, of corev1.ResourceName, replicas int32) *v1alpha1.Request {
	return g.Sign(&v1alpha1.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Invitation.Namespace, Name: name},
		Spec: v1alpha1.RequestSpec{
			Application: v1alpha1.RequestedApplication{UID: types.UID("uid-of-" + name), Name: "app-" + name},
			Components: []v1alpha1.RequestedComponent{{
				Name: "web", Replicas: replicas, Resources: corev1.ResourceList{of: resource.MustParse("1")},
			}},
			ExpirationTime: metav1.NewTime(time.Now().Add(10 * time.Minute)),
		},
	})
}

// Sign has the guest sign what the Request says now.
func (g *Guest) Sign(request *v1alpha1.Request) *v1alpha1.Request {
	if err := g.Signer.Sign(request, time.Now()); err != nil {
		panic(err) // a story asks for more than fits
	}
	return request
}

// MustCreate creates the objects as the guest, and fails the story if that fails.
func (g *Guest) MustCreate(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := g.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// ForgetGuests forgets the guests all at once, without the namespaces having to delete what they asked for one by one.
func (c *Cluster) ForgetGuests(t *testing.T, crowd []*Guest) {
	t.Helper()
	var forgetting sync.WaitGroup
	for _, g := range crowd {
		forgetting.Go(func() {
			if err := c.DeleteAllOf(context.Background(), &v1alpha1.Request{}, client.InNamespace(g.Invitation.Namespace)); err != nil {
				t.Error(err)
			}
			c.ForgetPeer(t, g.ID)
		})
	}
	forgetting.Wait()
}
