package e2e

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
)

// Each replica of a StatefulSet finds its data again, in whichever cluster it runs, also after the namespace was not offloaded for a
// while; and the data goes with the claim.
func TestVolumesFollowPods(t *testing.T) {
	ctx := shared(t, "storage")
	ns := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyLocalAndRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: "hamburg"}},
	})
	lubeck.create(t, database(ns))
	before := lubeck.marks(t, ns)
	away := lubeck.claimsAway(t, ns)
	if len(away) == 0 || len(away) == 3 {
		t.Fatalf("claims at hamburg: %v", away)
	}

	if err := lubeck.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{"app": "db"}); err != nil {
		t.Fatal(err)
	}
	lubeck.expectMarks(t, ns, before)
	for name, volume := range away {
		lubeck.expand(t, ns, name)
		claim := hamburg.claimOf(t, volume)
		if room := claim.Status.Capacity[corev1.ResourceStorage]; room.String() != "20Mi" {
			t.Errorf("hamburg's claim for %s has %s", name, room.String())
		}
	}

	lubeck.scaleDatabase(ctx, t, ns, 0)
	if _, err := lubeck.Hanse(ctx, "unoffload", ns); err != nil {
		t.Fatal(err)
	}
	for _, volume := range away {
		hamburg.claimOf(t, volume)
	}
	if _, err := lubeck.Hanse(ctx, "offload", ns, "--cluster-selector", v1alpha1.LabelPeer+"=hamburg"); err != nil {
		t.Fatal(err)
	}
	lubeck.scaleDatabase(ctx, t, ns, 3)
	lubeck.expectMarks(t, ns, before)
	for name := range away {
		lubeck.describeSays(t, ns, "pvc/"+name, "ExternalProvisioning", "The provider waits for its provisioner", "hanse-hamburg")
	}

	lubeck.scaleDatabase(ctx, t, ns, 0)
	for name, volume := range away {
		expectDataGoesWithClaim(t, ns, name, volume)
	}
}

// expectDataGoesWithClaim deletes lubeck's claim, and waits until its volume at lubeck and the one at hamburg are gone.
func expectDataGoesWithClaim(t *testing.T, ns, name, volume string) {
	t.Helper()
	claim := hamburg.claimOf(t, volume)
	if err := lubeck.Delete(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "volume of "+name+" to be gone on both sides", func(ctx context.Context) error {
		if err := lubeck.isGone(ctx, &corev1.PersistentVolume{ObjectMeta: named(volume)}); err != nil {
			return err
		}
		return hamburg.isGone(ctx, &corev1.PersistentVolume{ObjectMeta: named(claim.Spec.VolumeName)})
	})
}

// A pod with a claim of another class runs at home, where its volume is, and says why. Nor does it move from there, whatever its owner. With a
// claim whose volume waits for a node it does not run, and there is nothing to move.
func TestPodWithClaimOfAnotherClassStaysHome(t *testing.T) {
	_ = shared(t, "storage")
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	claim := claimTemplate("local")
	claim.Namespace = ns
	lubeck.create(t, &claim)
	pod := shellPod(ns, "bound", forever)
	mount(&pod.Spec, "data")
	lubeck.create(t, pod)
	set := statefulSet(ns, "ordinal", 1, shellSpec(forever))
	set.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate("local")}
	lubeck.create(t, set)
	unbound, waits := claimTemplate("local"), shellPod(ns, "waits", forever)
	unbound.Namespace, unbound.Name = ns, "unbound"
	lubeck.create(t, &unbound)
	mount(&waits.Spec, "unbound")
	waits.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "nowhere"}
	lubeck.create(t, waits)
	notYet := lubeck.moves(t, waits, v1alpha1.MoveDestination{Peer: "hamburg"}, time.Minute)
	home := lubeck.awaitReadyPods(t, ns, "bound", 1)[0]
	if isVirtual(&home) {
		t.Errorf("it runs on %s", home.Spec.NodeName)
	}
	eventually(t, "the event that says why", func(ctx context.Context) error {
		events, err := lubeck.Kubectl(ctx, "-n", ns, "get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}")
		if err == nil && !strings.Contains(events, v1alpha1.ReasonRunsAtHome+" ") || !strings.Contains(events, `claim "data"`) {
			err = fmt.Errorf("events: %s", events)
		}
		return err
	})
	for _, pod := range []corev1.Pod{home, lubeck.awaitReadyPods(t, ns, "ordinal", 1)[0]} {
		stays := lubeck.awaitMove(t, lubeck.moves(t, &pod, v1alpha1.MoveDestination{Peer: "hamburg"}, time.Minute), v1alpha1.MoveFailed, v1alpha1.ReasonVolumeStays)
		if complete := meta.FindStatusCondition(stays.Status.Conditions, v1alpha1.ConditionComplete); !strings.Contains(complete.Message, "is not reached from node hanse-hamburg") {
			t.Errorf("%s: %s", pod.Name, complete.Message)
		}
		lubeck.isUntouched(t, &pod, stays)
	}
	lubeck.awaitMove(t, notYet, v1alpha1.MoveFailed, v1alpha1.ReasonPodNotRunning)
	if err := lubeck.Get(t.Context(), client.ObjectKeyFromObject(&unbound), &unbound); err != nil || unbound.Spec.VolumeName != "" {
		t.Errorf("the claim has volume %q (%v)", unbound.Spec.VolumeName, err)
	}
}

// wordKept prints the same word each time that it starts with the same data.
const wordKept = "[ -e /data/word ] || cat /proc/sys/kernel/random/uuid > /data/word; echo word $(cat /data/word); " + forever

// database is a StatefulSet of three, with a claim each, that spreads over nodes.
func database(ns string) *appsv1.StatefulSet {
	labels := map[string]string{"app": "db"}
	spec := shellSpec(wordKept)
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
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claimTemplate("hanse")},
		},
	}
}

func claimTemplate(class string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: named("data"),
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}},
		},
	}
}

// mount has the pod use the claim at /data.
func mount(spec *corev1.PodSpec, claim string) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
}

// marks waits for the three replicas, and returns by their names the word in the volume of each, and where it runs.
func (c *cluster) marks(t *testing.T, ns string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pod := range c.awaitReadyPods(t, ns, "db", 3) {
		found[pod.Name] = c.wordOf(t, ns, pod.Name) + " on " + pod.Spec.NodeName
	}
	return found
}

func (c *cluster) expectMarks(t *testing.T, ns string, want map[string]string) {
	t.Helper()
	if got := c.marks(t, ns); !maps.Equal(got, want) {
		t.Fatalf("the replicas have %v, and had %v", got, want)
	}
}

// claimsAway returns the claims whose volumes are at a peer, and these.
func (c *cluster) claimsAway(t *testing.T, ns string) map[string]string {
	t.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	if err := c.List(t.Context(), claims, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	away := map[string]string{}
	for i := range claims.Items {
		volume := &corev1.PersistentVolume{}
		if err := c.Get(t.Context(), types.NamespacedName{Name: claims.Items[i].Spec.VolumeName}, volume); err != nil {
			t.Fatal(err)
		}
		if volume.Spec.CSI != nil {
			away[claims.Items[i].Name] = volume.Name
		}
	}
	return away
}

// claimOf is the claim that is kept here for a volume of that name at another cluster.
func (c *cluster) claimOf(t *testing.T, volume string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	if err := c.List(t.Context(), claims, client.MatchingFields{"metadata.name": volume}); err != nil || len(claims.Items) != 1 {
		t.Fatalf("claims %s: %v, %v", volume, claims.Items, err)
	}
	return &claims.Items[0]
}

// expand asks for twice the room, and waits for it.
func (c *cluster) expand(t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, "claim "+name+" to have more room", func(ctx context.Context) error {
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
func (c *cluster) scaleDatabase(ctx context.Context, t *testing.T, ns string, replicas int) {
	t.Helper()
	if _, err := c.Kubectl(ctx, "-n", ns, "scale", "statefulset", "db", fmt.Sprintf("--replicas=%d", replicas)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others to go", func(ctx context.Context) error {
		pods, err := c.pods(ctx, ns, "db")
		if err == nil && len(pods) > replicas {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
}
