// SPDX-License-Identifier: Apache-2.0

package volumes

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
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A claim begins with what another one held when its snapshot was taken, in the cluster in which that one's volume lies.
func TestVolumeBeginsWithSnapshot(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyLocalAndRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: "hamburg"}},
	})
	away := v1alpha1.VirtualNodeName("hamburg")
	claimed(t, lubeck, ns, "first", nil)
	first := framework.NewShellPod(ns, "first", framework.PersistentWordScript)
	framework.MountClaim(&first.Spec, "first")
	first.Spec.NodeSelector = map[string]string{corev1.LabelHostname: away}
	lubeck.MustCreate(t, first)
	lone := lubeck.AwaitReadyPods(t, ns, "first", 1)[0]
	word := wordOf(t, lubeck, ns, "first")

	snapshotClass := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: framework.ObjectMeta(ns), Driver: v1alpha1.VolumesDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	lubeck.MustCreate(t, snapshotClass)
	t.Cleanup(func() { lubeck.DeleteAndWait(t, snapshotClass) }) // no namespace takes it along
	monday := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "monday"},
		Spec: snapshotv1.VolumeSnapshotSpec{
			VolumeSnapshotClassName: &snapshotClass.Name, Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("first")},
		},
	}
	lubeck.MustCreate(t, monday)
	if out, err := lubeck.Kubectl(ctx, "-n", ns, "wait", "volumesnapshot/monday", "--for=jsonpath={.status.readyToUse}=true", "--timeout=60s"); err != nil {
		t.Fatal(err, out)
	}
	if _, err := lubeck.Kubectl(ctx, "-n", ns, "exec", "first", "--", "sh", "-c", "echo later > /data/word"); err != nil {
		t.Fatal(err)
	}

	claimed(t, lubeck, ns, "second", &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: "monday"})
	second := framework.NewShellPod(ns, "second", framework.PersistentWordScript) // it may run at home as well, and nothing but its claim says where it must
	framework.MountClaim(&second.Spec, "second")
	lubeck.MustCreate(t, second)
	copied := lubeck.AwaitReadyPods(t, ns, "second", 1)[0]
	if got := wordOf(t, lubeck, ns, "second"); got != word || copied.Spec.NodeName != away {
		t.Errorf("the copy holds %q and its pod runs on %s; the first held %q", got, copied.Spec.NodeName, word)
	}

	if out, err := lubeck.Hanse(ctx, "status", "hamburg"); err != nil || !strings.Contains(out, "snapshot "+ns+"/monday") {
		t.Errorf("status does not tell of the snapshot: %v\n%s", err, out)
	}
	kept := &snapshotv1.VolumeSnapshotList{}
	twin := hamburg.MustGetRemotePod(t, &lone).Namespace
	if err := hamburg.List(ctx, kept, client.InNamespace(twin)); err != nil || len(kept.Items) != 1 {
		t.Fatalf("hamburg keeps %v, %v", kept.Items, err)
	}
	if err := lubeck.Delete(ctx, monday); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the snapshot to be gone on both sides", func(ctx context.Context) error {
		if err := lubeck.CheckGone(ctx, monday.DeepCopy()); err != nil {
			return err
		}
		return hamburg.CheckGone(ctx, kept.Items[0].DeepCopy())
	})
}

// claimed makes a claim of class hanse, which begins as a copy of the source if there is one.
func claimed(t *testing.T, c *framework.Cluster, ns, name string, source *corev1.TypedLocalObjectReference) {
	t.Helper()
	claim := framework.NewClaimTemplate("hanse")
	claim.Namespace, claim.Name, claim.Spec.DataSource = ns, name, source
	c.MustCreate(t, &claim)
}

// wordOf is what a pod that runs wordKept says is in its volume.
func wordOf(t *testing.T, c *framework.Cluster, ns, pod string) (word string) {
	t.Helper()
	framework.Eventually(t, "the word of "+pod, func(ctx context.Context) error {
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
