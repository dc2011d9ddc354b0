// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestDesiredNode(t *testing.T) {
	ad := advertisement().Spec
	got := desiredNode(peer(), &ad, endpoint{address: "192.0.2.7", port: 20001})

	wantLabels := map[string]string{
		"hanse.dev/type": "virtual-node", "hanse.dev/peer": turin, "hanse.dev/cluster-id": turinID,
		"type": "virtual-kubelet", "kubernetes.io/hostname": turinNode, "kubernetes.io/os": "linux",
		"kubernetes.io/arch": "arm64", "node.kubernetes.io/exclude-from-external-load-balancers": "",
		"node.kubernetes.io/exclude-disruption": "", "hanse.dev/volumes": "false",
		"topology.kubernetes.io/region": "turin-west", "example.com/disk": "fast",
	}
	if diff := cmp.Diff(wantLabels, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	wantSpec := corev1.NodeSpec{ProviderID: "hanse://turin-id", Taints: []corev1.Taint{
		{Key: "hanse.dev/virtual-node", Value: "true", Effect: "NoSchedule"},
		{Key: "hanse.dev/virtual-node", Value: "true", Effect: "PreferNoSchedule"},
	}}
	if diff := cmp.Diff(wantSpec, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	status := got.Status
	if diff := cmp.Diff(ad.Availability, status.Capacity); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(status.Capacity, status.Allocatable); diff != "" {
		t.Errorf("allocatable differs from capacity:\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.ContainerImage{{Names: []string{"registry.example/shop:1"}, SizeBytes: 1000}}, status.Images); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	if status.DaemonEndpoints.KubeletEndpoint.Port != 20001 || status.Addresses[0].Address != "192.0.2.7" {
		t.Errorf("endpoint: %v at %v", status.DaemonEndpoints, status.Addresses)
	}
	if status.NodeInfo.KubeletVersion != "v1.37.1" || status.NodeInfo.Architecture != "arm64" {
		t.Errorf("info: %+v", status.NodeInfo)
	}
	if len(status.DeclaredFeatures) != 0 {
		t.Errorf("declared features: %v", status.DeclaredFeatures)
	}
}

// What passes stands on the node and not in pods: they could not follow.
func TestNodeSaysThatNotAllOfItFitsInOnePod(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	full := corev1.Taint{Key: v1alpha1.TaintFull, Value: turin, Effect: corev1.TaintEffectNoSchedule}
	for _, step := range []struct {
		largest corev1.ResourceList
		full    bool
	}{
		{nil, false},
		{testkit.Quantities("cpu", "1"), true},
		{testkit.Quantities("cpu", "1000"), false},
		{testkit.Quantities("memory", "1Mi"), true},
		{testkit.Quantities("example.com/gpu", "1"), false},
	} {
		ad := testkit.Get[v1alpha1.Advertisement](w.Home, tenant, turinID)
		ad.Spec.LargestPod = step.largest
		w.put(w.Home, ad)
		w.reconcileNode()
		if got := slices.Contains(w.node().Spec.Taints, full); got != step.full {
			t.Errorf("the largest pod is %v: full is %t", step.largest, got)
		}
	}
}

func TestPeerCannotOverwriteOurLabels(t *testing.T) {
	ad := advertisement().Spec
	ad.Labels = map[string]v1alpha1.Text{"type": "real"}
	got := desiredNode(peer(), &ad, endpoint{})
	if got.Labels["type"] != "virtual-kubelet" {
		t.Errorf("type is %q", got.Labels["type"])
	}
}

func TestAcceptedAdvertisementBecomesReadyNodeWithOneWrite(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	w.reconcileNode()
	if diff := cmp.Diff([]string{"home create Node " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	ready := w.node().Status.Conditions[0]
	if ready.Type != corev1.NodeReady || ready.Status != corev1.ConditionTrue {
		t.Errorf("condition %+v", ready)
	}
	w.reconcileNode()
	if got := w.wrote(); got != nil {
		t.Errorf("a second look wrote %v", got)
	}
}

func TestNodeFollowsTheOffer(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	w.reconcileNode()
	node := w.node()
	node.Labels["example.com/admin"] = "yes"
	node.Spec.Unschedulable = true
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "example.com/keep", Effect: "NoExecute"})
	w.put(w.Home, node)
	w.Clock.Step(time.Hour)

	current := testkit.Get[v1alpha1.Advertisement](w.Home, tenant, turinID)
	current.Spec.Availability[corev1.ResourceCPU] = resource.MustParse("2")
	delete(current.Spec.Labels, "example.com/disk")
	w.put(w.Home, current)

	w.reconcileNode()
	want := []string{"home patch Node " + turinNode, "home patch/status Node " + turinNode}
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	got := w.node()
	if cpu := got.Status.Allocatable.Cpu(); cpu.Value() != 2 {
		t.Errorf("cpu %s", cpu)
	}
	if _, ok := got.Labels["example.com/disk"]; ok {
		t.Error("a label stays that the peer no longer advertises")
	}
	if got.Labels["example.com/admin"] != "yes" || !got.Spec.Unschedulable || len(got.Spec.Taints) != 3 {
		t.Errorf("what others put on the node is gone: %v, %v", got.Labels, got.Spec)
	}
	if at := got.Status.Conditions[0].LastTransitionTime; !at.Time.Equal(testkit.Noon) {
		t.Errorf("the condition claims to have changed at %s", at)
	}
}

// judge changes our copy of turin's offer as the receiver does.
func (w *world) judge(status metav1.ConditionStatus, reason string) {
	w.Helper()
	w.changeOffer(func(ad *v1alpha1.Advertisement) {
		testkit.SetCondition(&ad.Status.Conditions, v1alpha1.ConditionAccepted, status, reason)
	})
}

func (w *world) changeOffer(change func(*v1alpha1.Advertisement)) {
	w.Helper()
	testkit.Change(w.Home, tenant, turinID, change)
	w.wrote()
}

func TestCapacityDoesNotFlap(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	w.reconcileNode()
	w.wrote()
	for _, step := range []struct{ offered, shown string }{
		{"7900m", "7900m"}, // less counts at once
		{"8", "7900m"},
		{"7950m", "7900m"},
		{"7850m", "7850m"},
		{"8", "7850m"},
		{"8010m", "8010m"}, // more than 2 % more
	} {
		before := w.node().Status.Allocatable.Cpu().String()
		w.changeOffer(func(ad *v1alpha1.Advertisement) {
			ad.Spec.Availability[corev1.ResourceCPU] = resource.MustParse(step.offered)
		})
		w.reconcileNode()
		status := w.node().Status
		if got := status.Allocatable.Cpu(); got.Cmp(resource.MustParse(step.shown)) != 0 || got.Cmp(*status.Capacity.Cpu()) != 0 {
			t.Errorf("offered %s: shows %s of %s, want %s", step.offered, got, status.Capacity.Cpu(), step.shown)
		}
		if wrote := w.wrote(); (wrote != nil) != (before != status.Allocatable.Cpu().String()) {
			t.Errorf("offered %s: wrote %v", step.offered, wrote)
		}
	}
}

func TestNodeOfARefusedOfferStaysClosed(t *testing.T) {
	closed := closedTaints()
	for reason, stays := range map[string]bool{
		v1alpha1.ReasonInvalidQuantity:        true,
		v1alpha1.ReasonPendingApproval:        true,
		v1alpha1.ReasonRefusedByPolicy:        true,
		v1alpha1.ReasonRefusedByAdministrator: true,
		v1alpha1.ReasonExpired:                false,
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, peer(), advertisement())
			w.reconcileNode()
			node := w.node()
			w.wrote()
			w.judge(metav1.ConditionFalse, reason)
			w.reconcileNode()
			if !stays {
				if diff := cmp.Diff([]string{"home delete Node " + turinNode}, w.wrote()); diff != "" {
					t.Errorf("writes (-want +got):\n%s", diff)
				}
				return
			}
			w.reconcileNode()
			if diff := cmp.Diff([]string{"home patch Node " + turinNode}, w.wrote()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(closed, w.node().Spec.Taints); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			w.judge(metav1.ConditionTrue, v1alpha1.ReasonApproved)
			w.reconcileNode()
			if diff := cmp.Diff(ownTaints, w.node().Spec.Taints); diff != "" || w.node().UID != node.UID {
				t.Errorf("taints when it is accepted again (-want +got):\n%s", diff)
			}

			w.judge(metav1.ConditionFalse, reason)
			w.reconcileNode()
			w.remove(w.Home, advertisement())
			w.reconcileNode()
			if diff := cmp.Diff([]string{"home delete Node " + turinNode}, w.wrote()); diff != "" {
				t.Errorf("when the offer is gone (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpiredOfferClosesANodeWithPods(t *testing.T) {
	w := newWorld(t, peer(), advertisement(), podCalled("web-1"))
	w.reconcileNode()
	w.judge(metav1.ConditionFalse, v1alpha1.ReasonExpired)
	w.reconcileNode()
	if diff := cmp.Diff(closedTaints(), w.node().Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

func TestNodeThatKubernetesGaveUpIsReadyAgain(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	w.reconcileNode()
	node := w.node()
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	w.put(w.Home, node)
	w.reconcileNode()
	if got := w.node().Status.Conditions[0].Status; got != corev1.ConditionTrue {
		t.Errorf("Ready is %s", got)
	}
}

func TestDeletedNodeIsMadeAgain(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	w.reconcileNode()
	w.remove(w.Home, w.node())
	w.reconcileNode()
	w.node()
}

func TestRefusedAdvertisementMakesNoNode(t *testing.T) {
	ad := advertisement()
	testkit.SetCondition(&ad.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidQuantity)
	w := newWorld(t, peer(), ad)
	w.reconcileNode()
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
}

func TestForeignNodeOfTheNameIsNotTouched(t *testing.T) {
	w := newWorld(t, peer(), advertisement(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: turinNode}, Spec: corev1.NodeSpec{ProviderID: "aws://i-1"},
	})
	w.nodes.client = withoutNodes{w.Home.Client} // the cache shows virtual nodes only
	_, err := w.nodes.Reconcile(w.Context(), testkit.Request("", turin))
	if !errors.Is(err, reconcile.TerminalError(nil)) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"home create Node " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if len(w.Events.Events) != 1 {
		t.Error("nobody is told")
	}
}

// withoutNodes is a client whose cache shows no Node.
type withoutNodes struct{ client.Client }

func (c withoutNodes) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption,
) error {
	if _, ok := object.(*corev1.Node); ok {
		return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
	}
	return c.Client.Get(ctx, key, object, opts...)
}

func TestWithdrawnNodeClosesAndGoesBehindItsLastPod(t *testing.T) {
	w := newWorld(t, peer(), advertisement(), podCalled("web-1"))
	w.reconcileNode()
	w.remove(w.Home, advertisement())
	w.reconcileNode()
	w.reconcileNode()
	if diff := cmp.Diff([]string{"home patch Node " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(closedTaints(), w.node().Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}

	w.put(w.Home, advertisement())
	w.reconcileNode()
	if diff := cmp.Diff(ownTaints, w.node().Spec.Taints); diff != "" {
		t.Errorf("taints when the offer is back (-want +got):\n%s", diff)
	}

	w.remove(w.Home, advertisement())
	w.remove(w.Home, podCalled("web-1"))
	w.reconcileNode()
	if diff := cmp.Diff([]string{"home delete Node " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestNodeComesUpThoughTheLinkHasNoCredentials(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	w.turin.RemoveCredentials()
	if result := w.reconcileNode(); result.RequeueAfter < resyncPeriod {
		t.Errorf("comes back after %s", result.RequeueAfter)
	}
	w.node()
}

func TestManyLeasesAreRenewedLessOften(t *testing.T) {
	nodes := 0
	leases := &leaseController{lasts: 40 * time.Second, renewal: 10 * time.Second, nodes: func() int { return nodes }}
	for count, want := range map[int]time.Duration{
		1: 10 * time.Second, 400: 10 * time.Second, 600: 15 * time.Second, 800: 20 * time.Second, 10_000: 20 * time.Second,
	} {
		nodes = count
		if got := leases.pause(); got != want {
			t.Errorf("of %d nodes each renews after %s, want %s", nodes, got, want)
		}
	}
	nodes, leases.renewal = 1000, 30*time.Second
	if got := leases.pause(); got != 30*time.Second {
		t.Errorf("who asked for 30s gets %s", got)
	}
}

func TestLeaseIsMadeAndRenewed(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	w.reconcileNode()
	w.wrote()
	leases := &leaseController{client: w.Home.Client, clock: w.Clock, lasts: 40 * time.Second, renewal: 10 * time.Second, nodes: func() int { return 1 }}
	renew := func() time.Duration {
		t.Helper()
		return w.Reconcile(leases, "", turinNode).RequeueAfter
	}
	if again := renew(); again < 10*time.Second || again > 11*time.Second {
		t.Errorf("renews after %s", again)
	}
	w.wrote()
	w.Clock.Step(10 * time.Second)
	renew()
	if diff := cmp.Diff([]string{"home patch Lease " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("a renewal takes (-want +got):\n%s", diff)
	}
	lease := testkit.Get[coordinationv1.Lease](w.Home, corev1.NamespaceNodeLease, turinNode)
	if !lease.Spec.RenewTime.Time.Equal(w.Clock.Now()) || *lease.Spec.LeaseDurationSeconds != 40 ||
		lease.OwnerReferences[0].UID != w.node().UID {
		t.Errorf("lease: %+v", lease)
	}

	w.remove(w.Home, w.node())
	if again := renew(); again != 0 {
		t.Error("a node that is gone is renewed")
	}
}
