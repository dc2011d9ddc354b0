// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// volumePod is a claim of a name, with what it begins from, and a pod of the same name that has the volume at /data.
func volumePod(name, source string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}%[2]s}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: shell
    image: hanse.dev/test/busybox:v1
    command: [sleep, infinity]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[1]s}}]
---
`, name, source)
}

const mondaySnapshot = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: monday}
spec: {source: {persistentVolumeClaimName: original}}
`

// snapshotsKeepAMoment takes a snapshot of a volume, and begins another one from it after the first has changed.
func snapshotsKeepAMoment(t *testing.T, b *bed) {
	b.run("up", "lubeck", "--snapshots")
	b.apply("lubeck", volumePod("original", ""))
	b.kubectl("lubeck", "wait", "--for=condition=Ready", "pod/original", "--timeout=60s")
	b.kubectl("lubeck", "exec", "original", "--", "sh", "-c", "echo old >/data/file && chmod 640 /data/file && chown 1000:1000 /data/file")
	b.apply("lubeck", mondaySnapshot)
	b.kubectl("lubeck", "wait", "--for=jsonpath={.status.readyToUse}=true", "volumesnapshot/monday", "--timeout=60s")
	b.kubectl("lubeck", "exec", "original", "--", "sh", "-c", "echo new >/data/file")

	b.apply("lubeck", volumePod("restored", ", dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: monday}")+
		volumePod("cloned", ", dataSource: {kind: PersistentVolumeClaim, name: original}"))
	b.kubectl("lubeck", "wait", "--for=condition=Ready", "pod/restored", "--timeout=60s")
	if got := b.kubectl("lubeck", "exec", "restored", "--", "sh", "-c", "cat /data/file; stat -c '%a %u' /data/file"); got != "old\n640 1000" {
		t.Errorf("what began from the snapshot has %q", got)
	}
	b.eventually("the claim that begins from another to say that it cannot", func() error {
		said, err := b.kubectlTry("lubeck", "events", "--for=pvc/cloned", "--types=Warning")
		if err == nil && !strings.Contains(said, "or from a VolumeSnapshot") {
			err = fmt.Errorf("it says %s", said)
		}
		return err
	})

	snapshots := filepath.Join(b.state, "lubeck", "worker-1", "var-lib", "snapshots")
	if kept, err := os.ReadDir(snapshots); err != nil || len(kept) != 1 {
		t.Errorf("the worker has %v, %v", kept, err)
	}
	b.kubectl("lubeck", "delete", "volumesnapshot/monday", "--timeout=60s")
	if kept, err := os.ReadDir(snapshots); err != nil || len(kept) != 0 {
		t.Errorf("the worker still has %v, %v", kept, err)
	}
	b.kubectl("lubeck", "delete", "pod/cloned", "pvc/cloned", "pod/restored", "pvc/restored", "pod/original", "pvc/original", "--timeout=60s")
	b.eventually("the volumes to be gone", func() error {
		left, err := os.ReadDir(filepath.Join(filepath.Dir(snapshots), "volumes"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the worker still has %v", left)
		}
		return err
	})
}
