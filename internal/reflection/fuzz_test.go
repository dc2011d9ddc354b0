// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Whatever a peer asks for, the claim that is made for it is of a class that is offered, and names no volume and no source.
func FuzzClaim(f *testing.F) {
	for _, seed := range []string{
		`{"homeUID":"u","storage":"1Gi","accessModes":["ReadWriteOnce"]}`,
		`{"homeUID":"u","storage":"-1","accessModes":[],"volumeMode":"Block","storageClass":"secret"}`,
		`{"homeUID":"u","storage":"1e30","storageClass":"fast","dataSource":{"kind":"PersistentVolumeClaim","name":"theirs"},"volumeName":"pv"}`,
	} {
		f.Add([]byte(seed))
	}
	offered := []string{"plain", "fast"}
	f.Fuzz(func(t *testing.T, spec []byte) {
		shadow := &v1alpha1.ShadowClaim{}
		shadow.Namespace, shadow.Name, shadow.UID = "twin", "pvc-1", "uid"
		if len(spec) > 200 || json.Unmarshal(spec, &shadow.Spec) != nil { // the API server bounds each field
			return
		}
		claim, err := Claim(shadow, offered)
		if err != nil {
			if !isRefusal(err) || claim != nil {
				t.Fatalf("%v and %v", claim, err)
			}
			return
		}
		expectNewVolume(t, claim, shadow.Spec.DataSource, offered)
	})
}

// expectNewVolume checks that the claim lies in the twin, and is for some room of an offered class that holds nothing yet, or what the
// snapshot holds.
func expectNewVolume(t *testing.T, claim *corev1.PersistentVolumeClaim, snapshot string, offered []string) {
	t.Helper()
	got := claim.Spec
	var source, wanted corev1.TypedLocalObjectReference
	if got.DataSource != nil {
		source = *got.DataSource
		source.APIGroup = nil
	}
	if snapshot != "" {
		wanted = corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: snapshot}
	}
	if got.VolumeName != "" || got.Selector != nil || source != wanted || got.DataSourceRef != nil || !slices.Contains(offered, *got.StorageClassName) {
		t.Errorf("made %v", got)
	}
	if room := got.Resources.Requests[corev1.ResourceStorage]; room.Sign() <= 0 || claim.Namespace != "twin" || len(claim.OwnerReferences) != 1 {
		t.Errorf("made %v", claim)
	}
}
