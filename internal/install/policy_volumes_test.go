// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

func TestClaimsOfPeersAreGuarded(t *testing.T) {
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		made := withKind(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-turin", Name: "pvc-1",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "hanse.dev/v1alpha1", Kind: "ShadowClaim", Name: "pvc-1", UID: "u"}},
		}}, "", "v1", "PersistentVolumeClaim")
		if change != nil {
			change(made)
		}
		return made
	}
	const spec = "spec: a peer's claim gets a new volume"
	by := func(who string, change func(*corev1.PersistentVolumeClaim)) review {
		return review{by: who, in: inTwin, object: claim(change)}
	}
	ofSnapshot := func(kind string, namespace *string) func(c *corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			group := new("snapshot.storage.k8s.io")
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: group, Kind: kind, Name: "snapshot-1"}
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: group, Kind: kind, Name: "snapshot-1", Namespace: namespace}
		}
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-claims"), map[string]decision{
		"made by the manager":  {review: by(manager, nil)},
		"made by the peer":     {review: by(peer, nil), want: "metadata.namespace"},
		"made by anybody else": {review: by(admin, nil), want: "metadata.namespace"},
		"of a volume by name":  {review: by(manager, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }), want: spec},
		"of a volume by label": {review: by(manager, func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }), want: spec},
		"as a copy": {review: by(manager, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "X"}
		}), want: spec},
		"as a copy of a snapshot":          {review: by(manager, ofSnapshot("VolumeSnapshot", nil))},
		"as a copy of a kind of its group": {review: by(manager, ofSnapshot("VolumeSnapshotContent", nil)), want: spec},
		"as a copy of one elsewhere":       {review: by(manager, ofSnapshot("VolumeSnapshot", new("other"))), want: spec},
		"as a copy of another":             {review: by(manager, func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "X"} }), want: spec},
		"that belongs to nobody":           {review: by(manager, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil }), want: "metadata.ownerReferences"},
	})
}

func TestHanseWritesItsOwnVolumesAlone(t *testing.T) {
	volume := func(driver, claimIn string) *corev1.PersistentVolume {
		made := withKind(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}, "", "v1", "PersistentVolume")
		made.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/"}
		if driver != "" {
			made.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}}
		}
		if claimIn != "" {
			made.Spec.ClaimRef = &corev1.ObjectReference{Namespace: claimIn, Name: "c"}
		}
		return made
	}
	ours := volume(v1alpha1.VolumesDriver, "shop")
	labelled := volume("", "shop")
	labelled.Labels = map[string]string{"a": "b"}
	const refused = "spec.csi.driver"
	expectDecisions(t, validatingPolicy(t, "hanse-own-volumes"), map[string]decision{
		"one of ours":                 {review: review{by: manager, object: ours}},
		"its change":                  {review: review{by: manager, old: ours, object: ours}},
		"its end":                     {review: review{by: manager, old: ours}},
		"a directory of a node":       {review: review{by: manager, object: volume("", "shop")}, want: refused},
		"one of another driver":       {review: review{by: manager, object: volume("other.example.com", "shop")}, want: refused},
		"the end of another's":        {review: review{by: manager, old: volume("", "shop")}, want: refused},
		"a change of another's":       {review: review{by: manager, old: volume("", "shop"), object: volume("", "shop")}, want: refused},
		"one of a stand-in is given":  {review: review{by: manager, old: volume("", "hanse-system"), object: volume("", "shop")}},
		"and nothing else changed":    {review: review{by: manager, old: volume("", "hanse-system"), object: labelled}, want: refused},
		"whatever others do":          {review: review{by: admin, object: volume("", "shop")}},
		"none by `hanse kubelet`":     {review: review{by: kubelet, object: volume("", "shop")}, want: refused},
		"nor the end of a stand-in's": {review: review{by: manager, old: volume("", "hanse-system")}, want: refused},
	})
}

func TestHanseTellsOfItsOwnSnapshotsAlone(t *testing.T) {
	content := func(driver, volume string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": map[string]any{"name": "content"},
			"spec": map[string]any{"driver": driver, "source": map[string]any{"volumeHandle": volume}},
		}}
	}
	ours, others := content(v1alpha1.VolumesDriver, "v"), content("other.example.com", "v")
	expectDecisions(t, validatingPolicy(t, "hanse-own-snapshots"), map[string]decision{
		"of one of ours":                {review: review{by: manager, old: ours, object: ours}},
		"of another driver's":           {review: review{by: manager, old: others, object: others}, want: "spec.driver"},
		"and not what it is of":         {review: review{by: manager, old: ours, object: content(v1alpha1.VolumesDriver, "w")}, want: "spec.driver"},
		"the others do what they do":    {review: review{by: admin, old: others, object: others}},
		"nor does it make one of these": {review: review{by: manager, old: others, object: ours}, want: "spec.driver"},
	})
}

func TestHanseTakesTheChoiceOfANodeOffAClaimAlone(t *testing.T) {
	claim := func(annotations map[string]string, volume string) *corev1.PersistentVolumeClaim {
		made := withKind(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", Annotations: annotations,
		}}, "", "v1", "PersistentVolumeClaim")
		made.Spec.VolumeName = volume
		return made
	}
	chosen := map[string]string{"volume.kubernetes.io/selected-node": "worker", "team": "a"}
	left := map[string]string{"team": "a"}
	const refused = "metadata.annotations"
	change := func(who string, labels map[string]string, to *corev1.PersistentVolumeClaim) review {
		return review{by: who, in: labels, old: claim(chosen, ""), object: to}
	}
	expectDecisions(t, validatingPolicy(t, "hanse-own-claims"), map[string]decision{
		"the choice is taken off": {review: change(manager, inMarked, claim(left, ""))},
		"nothing":                 {review: change(manager, inMarked, claim(chosen, ""))},
		"another annotation":      {review: change(manager, inMarked, claim(map[string]string{"volume.kubernetes.io/selected-node": "worker"}, "")), want: refused},
		"another node is chosen":  {review: change(manager, inMarked, claim(map[string]string{"volume.kubernetes.io/selected-node": "w2", "team": "a"}, "")), want: refused},
		"a volume is named":       {review: change(manager, inMarked, claim(left, "pv")), want: refused},

		"a user does what it does": {review: change(admin, inShop, claim(nil, "pv"))},
	})
}

// Only the manager sees of which class a claim is.
func TestPodsWithClaimsThatMustLeaveWaitBehindTheGate(t *testing.T) {
	pod := podWith(t, "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]")
	params := admitted(t, "spec: {strategy: Remote}\nstatus: {placement: {nodes: [{name: hanse-hamburg}]}}")
	got := mutatingPolicy(t, "hanse-place-pods").mutate(review{object: pod, params: params}).(*corev1.Pod)
	if !offload.Gated(got) || len(got.Spec.Tolerations) > 0 || got.Spec.Affinity != nil {
		t.Errorf("it is to run as %v", got.Spec)
	}
}
