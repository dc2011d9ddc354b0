// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// kubeletHolds is a finalizer that stands for a kubelet, which ends containers before a pod goes.
const kubeletHolds = "test/kubelet"

// world is a provider's cluster, which is Home.
type world struct {
	*testkit.World
	policies  fakePolicies
	room      *room
	latency   time.Duration       // how long a write takes
	uncounted bool                // whether Kubernetes has not counted quotas yet
	hidden    map[string]bool     // kinds that the cache does not show yet
	stale     *v1alpha1.ShadowPod // what the cache shows instead of any ShadowPod
	grace     []*int64            // the grace of each deletion of a pod
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t, objects...), hidden: map[string]bool{}, room: newRoom("1000")}
	w.Home.Before(w.written)
	w.Home.OnRead(func(read testkit.Read) error {
		if w.hidden[read.Kind] {
			return apierrors.NewNotFound(schema.GroupResource{}, read.Name)
		}
		return nil
	})
	w.Home.Client = cache{WithWatch: w.Home.Client, world: w}
	return w
}

// cache keeps of ShadowPods what the manager's keeps, and shows the stale one of the world, if there is one.
type cache struct {
	client.WithWatch
	world *world
}

func (c cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if shadow, ok := o.(*v1alpha1.ShadowPod); ok && c.world.stale != nil {
		c.world.stale.DeepCopyInto(shadow)
		return nil
	}
	err := c.WithWatch.Get(ctx, key, o, opts...)
	if shadow, ok := o.(*v1alpha1.ShadowPod); ok && err == nil {
		_, err = TrimShadowPod(shadow)
	}
	return err
}

// written does to a write what kubelets and Kubernetes' own controllers do, and checks what no write may lack.
func (w *world) written(write testkit.Write) error {
	w.Clock.Step(w.latency)
	switch o := write.Object.(type) {
	case *corev1.Pod:
		w.podWritten(write, o)
	case *corev1.ResourceQuota:
		if write.Verb == "create" && !w.uncounted {
			o.Status.Hard, o.Status.Used = o.Spec.Hard, o.Spec.Hard
		}
	}
	if write.Verb != "delete" {
		return nil
	}
	if preconditions := write.Delete.Preconditions; preconditions == nil || *preconditions.UID != write.Object.GetUID() {
		w.Errorf("deleted %s %s whatever its UID", write.Kind, write.Name)
	}
	return nil
}

func (w *world) podWritten(write testkit.Write, pod *corev1.Pod) {
	switch write.Verb {
	case "create":
		if len(pod.Finalizers) > 0 && !mayEnd(pod) {
			w.Errorf("a pod that always runs needs no finalizers, and has %v", pod.Finalizers)
		}
		pod.Finalizers = append(pod.Finalizers, kubeletHolds)
		pod.Status.Phase = corev1.PodPending
	case "delete":
		w.grace = append(w.grace, write.Delete.GracePeriodSeconds)
	}
}

func (w *world) config() Config {
	return Config{Namespace: "hanse-system", ServiceAccount: "hanse-manager", Clock: w.Clock, Decider: &w.policies, Room: w.room, ClusterKey: ourKey}
}

var lubeck = twinOf{peer: "lubeck", clusterID: "lubeck-id", home: "shop"}

// The keys of this cluster, of lubeck, and of somebody else.
var ourKey, lubeckKey, kielKey = privateKey('o'), privateKey('l'), privateKey('k')

func privateKey(letter byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{letter}, ed25519.SeedSize))
}

func peer() *v1alpha1.Peer {
	p := testkit.Peer("lubeck", v1alpha1.RoleConsumer)
	p.Spec.PublicKey = trust.PublicKeyOf(lubeckKey)
	return p
}

func tenantNamespace() *corev1.Namespace { return testkit.TenantNamespace("lubeck") }
