// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Each replica of a StatefulSet finds its data again, in whichever cluster it runs, also after the namespace was not offloaded for a
// while; and the data goes with the claim.
func TestVolumesFollowPods(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyLocalAndRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: "hamburg"}},
	})
	lubeck.MustCreate(t, database(ns))
	before := marks(t, lubeck, ns)
	away := lubeck.RemoteClaims(t, ns)
	if len(away) == 0 || len(away) == 3 {
		t.Fatalf("claims at hamburg: %v", away)
	}

	if err := lubeck.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{"app": "db"}); err != nil {
		t.Fatal(err)
	}
	expectMarks(t, lubeck, ns, before)
	for name, volume := range away {
		expand(t, lubeck, ns, name)
		claim := hamburg.ClaimOfVolume(t, volume)
		if room := claim.Status.Capacity[corev1.ResourceStorage]; room.String() != "20Mi" {
			t.Errorf("hamburg's claim for %s has %s", name, room.String())
		}
	}

	scaleDatabase(ctx, t, lubeck, ns, 0)
	if _, err := lubeck.Hanse(ctx, "unoffload", ns); err != nil {
		t.Fatal(err)
	}
	for _, volume := range away {
		hamburg.ClaimOfVolume(t, volume)
	}
	if _, err := lubeck.Hanse(ctx, "offload", ns, "--cluster-selector", v1alpha1.LabelPeer+"=hamburg"); err != nil {
		t.Fatal(err)
	}
	scaleDatabase(ctx, t, lubeck, ns, 3)
	expectMarks(t, lubeck, ns, before)
	for name := range away {
		lubeck.AwaitDescription(t, ns, "pvc/"+name, "ExternalProvisioning", "The provider waits for its provisioner", "hanse-hamburg")
	}

	scaleDatabase(ctx, t, lubeck, ns, 0)
	for name, volume := range away {
		expectDataGoesWithClaim(t, ns, name, volume)
	}
}

// expectDataGoesWithClaim deletes lubeck's claim, and waits until its volume at lubeck and the one at hamburg are gone.
func expectDataGoesWithClaim(t *testing.T, ns, name, volume string) {
	t.Helper()
	claim := hamburg.ClaimOfVolume(t, volume)
	if err := lubeck.Delete(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "volume of "+name+" to be gone on both sides", func(ctx context.Context) error {
		if err := lubeck.CheckGone(ctx, &corev1.PersistentVolume{ObjectMeta: framework.ObjectMeta(volume)}); err != nil {
			return err
		}
		return hamburg.CheckGone(ctx, &corev1.PersistentVolume{ObjectMeta: framework.ObjectMeta(claim.Spec.VolumeName)})
	})
}

// A pod with a claim of another class runs at home, where its volume is, and says why. Nor does it move from there, whatever its owner. With a
// claim whose volume waits for a node it does not run, and there is nothing to move.
func TestPodWithClaimOfAnotherClassStaysHome(t *testing.T) {
	_ = framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	claim := framework.NewClaimTemplate("local")
	claim.Namespace = ns
	lubeck.MustCreate(t, &claim)
	pod := framework.NewShellPod(ns, "bound", framework.RunForever)
	framework.MountClaim(&pod.Spec, "data")
	lubeck.MustCreate(t, pod)
	set := framework.NewStatefulSet(ns, "ordinal", 1, framework.NewShellPodSpec(framework.RunForever))
	set.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{framework.NewClaimTemplate("local")}
	lubeck.MustCreate(t, set)
	unbound, waits := framework.NewClaimTemplate("local"), framework.NewShellPod(ns, "waits", framework.RunForever)
	unbound.Namespace, unbound.Name = ns, "unbound"
	lubeck.MustCreate(t, &unbound)
	framework.MountClaim(&waits.Spec, "unbound")
	waits.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "nowhere"}
	lubeck.MustCreate(t, waits)
	notYet := lubeck.CreatePodMove(t, waits, v1alpha1.MoveDestination{Peer: "hamburg"}, time.Minute)
	home := lubeck.AwaitReadyPods(t, ns, "bound", 1)[0]
	if framework.IsOnVirtualNode(&home) {
		t.Errorf("it runs on %s", home.Spec.NodeName)
	}
	framework.Eventually(t, "the event that says why", func(ctx context.Context) error {
		events, err := lubeck.Kubectl(ctx, "-n", ns, "get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}")
		if err == nil && !strings.Contains(events, v1alpha1.ReasonRunsAtHome+" ") || !strings.Contains(events, `claim "data"`) {
			err = fmt.Errorf("events: %s", events)
		}
		return err
	})
	for _, pod := range []corev1.Pod{home, lubeck.AwaitReadyPods(t, ns, "ordinal", 1)[0]} {
		stays := lubeck.AwaitMove(t, lubeck.CreatePodMove(t, &pod, v1alpha1.MoveDestination{Peer: "hamburg"}, time.Minute), v1alpha1.MoveFailed, v1alpha1.ReasonVolumeStays)
		if complete := meta.FindStatusCondition(stays.Status.Conditions, v1alpha1.ConditionComplete); !strings.Contains(complete.Message, "is not reached from node hanse-hamburg") {
			t.Errorf("%s: %s", pod.Name, complete.Message)
		}
		lubeck.ExpectNotMoved(t, &pod, stays)
	}
	lubeck.AwaitMove(t, notYet, v1alpha1.MoveFailed, v1alpha1.ReasonPodNotRunning)
	if err := lubeck.Get(t.Context(), client.ObjectKeyFromObject(&unbound), &unbound); err != nil || unbound.Spec.VolumeName != "" {
		t.Errorf("the claim has volume %q (%v)", unbound.Spec.VolumeName, err)
	}
}

// database is a StatefulSet of three, with a claim each, that spreads over nodes.
func database(ns string) *appsv1.StatefulSet {
	labels := map[string]string{"app": "db"}
	spec := framework.NewShellPodSpec(framework.PersistentWordScript)
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
	}}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{framework.NewClaimTemplate("hanse")},
		},
	}
}

// marks waits for the three replicas, and returns by their names the word in the volume of each, and where it runs.
func marks(t *testing.T, c *framework.Cluster, ns string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pod := range c.AwaitReadyPods(t, ns, "db", 3) {
		found[pod.Name] = wordOf(t, c, ns, pod.Name) + " on " + pod.Spec.NodeName
	}
	return found
}

func expectMarks(t *testing.T, c *framework.Cluster, ns string, want map[string]string) {
	t.Helper()
	if got := marks(t, c, ns); !maps.Equal(got, want) {
		t.Fatalf("the replicas have %v, and had %v", got, want)
	}
}

// expand asks for twice the room, and waits for it.
func expand(t *testing.T, c *framework.Cluster, ns, name string) {
	t.Helper()
	framework.Eventually(t, "claim "+name+" to have more room", func(ctx context.Context) error {
		claim := &corev1.PersistentVolumeClaim{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, claim); err != nil {
			return err
		}
		if room := claim.Status.Capacity[corev1.ResourceStorage]; room.String() == "20Mi" {
			return nil
		}
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("20Mi")
		if err := c.Update(ctx, claim); err != nil {
			return err
		}
		return fmt.Errorf("it has %v", claim.Status.Capacity)
	})
}

// scaleDatabase has so many replicas of the database run, and waits for the pods of those that are too many to go.
func scaleDatabase(ctx context.Context, t *testing.T, c *framework.Cluster, ns string, replicas int) {
	t.Helper()
	if _, err := c.Kubectl(ctx, "-n", ns, "scale", "statefulset", "db", fmt.Sprintf("--replicas=%d", replicas)); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the others to go", func(ctx context.Context) error {
		pods, err := c.GetPods(ctx, ns, "db")
		if err == nil && len(pods) > replicas {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
}
