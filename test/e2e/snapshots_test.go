package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A claim begins with what another one held when its snapshot was taken, in the cluster in which that one's volume lies.
func TestVolumeBeginsWithSnapshot(t *testing.T) {
	ctx := shared(t, "snapshots")
	ns := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyLocalAndRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: "hamburg"}},
	})
	away := v1alpha1.VirtualNodeName("hamburg")
	lubeck.claimed(t, ns, "first", nil)
	first := shellPod(ns, "first", wordKept)
	mount(&first.Spec, "first")
	first.Spec.NodeSelector = map[string]string{corev1.LabelHostname: away}
	lubeck.create(t, first)
	lone := lubeck.awaitReadyPods(t, ns, "first", 1)[0]
	word := lubeck.wordOf(t, ns, "first")

	snapshotClass := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: named(ns), Driver: v1alpha1.VolumesDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	lubeck.create(t, snapshotClass)
	t.Cleanup(func() { lubeck.deleteAndWait(t, snapshotClass) }) // no namespace takes it along
	monday := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "monday"},
		Spec: snapshotv1.VolumeSnapshotSpec{
			VolumeSnapshotClassName: &snapshotClass.Name, Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("first")},
		},
	}
	lubeck.create(t, monday)
	if out, err := lubeck.Kubectl(ctx, "-n", ns, "wait", "volumesnapshot/monday", "--for=jsonpath={.status.readyToUse}=true", "--timeout=60s"); err != nil {
		t.Fatal(err, out)
	}
	if _, err := lubeck.Kubectl(ctx, "-n", ns, "exec", "first", "--", "sh", "-c", "echo later > /data/word"); err != nil {
		t.Fatal(err)
	}

	lubeck.claimed(t, ns, "second", &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: "monday"})
	second := shellPod(ns, "second", wordKept) // it may run at home as well, and nothing but its claim says where it must
	mount(&second.Spec, "second")
	lubeck.create(t, second)
	copied := lubeck.awaitReadyPods(t, ns, "second", 1)[0]
	if got := lubeck.wordOf(t, ns, "second"); got != word || copied.Spec.NodeName != away {
		t.Errorf("the copy holds %q and its pod runs on %s; the first held %q", got, copied.Spec.NodeName, word)
	}

	if out, err := lubeck.Hanse(ctx, "status", "hamburg"); err != nil || !strings.Contains(out, "snapshot "+ns+"/monday") {
		t.Errorf("status does not tell of the snapshot: %v\n%s", err, out)
	}
	kept := &snapshotv1.VolumeSnapshotList{}
	twin := hamburg.mustRemotePod(t, &lone).Namespace
	if err := hamburg.List(ctx, kept, client.InNamespace(twin)); err != nil || len(kept.Items) != 1 {
		t.Fatalf("hamburg keeps %v, %v", kept.Items, err)
	}
	if err := lubeck.Delete(ctx, monday); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the snapshot to be gone on both sides", func(ctx context.Context) error {
		if err := lubeck.isGone(ctx, monday.DeepCopy()); err != nil {
			return err
		}
		return hamburg.isGone(ctx, kept.Items[0].DeepCopy())
	})
}

// claimed makes a claim of class hanse, which begins as a copy of the source if there is one.
func (c *cluster) claimed(t *testing.T, ns, name string, source *corev1.TypedLocalObjectReference) {
	t.Helper()
	claim := claimTemplate("hanse")
	claim.Namespace, claim.Name, claim.Spec.DataSource = ns, name, source
	c.create(t, &claim)
}

// wordOf is what a pod that runs wordKept says is in its volume.
func (c *cluster) wordOf(t *testing.T, ns, pod string) (word string) {
	t.Helper()
	eventually(t, "the word of "+pod, func(ctx context.Context) error {
		log, err := c.Kubectl(ctx, "-n", ns, "logs", pod)
		_, after, said := strings.Cut(strings.TrimSpace(log), "word ")
		if err == nil && !said {
			err = fmt.Errorf("it says %q", log)
		}
		word, _, _ = strings.Cut(after, "\n")
		return err
	})
	return word
}
