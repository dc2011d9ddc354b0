package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// errDataLost is returned for what would delete data that nobody said may go.
var errDataLost = errors.New("data would be lost")

// volumesAway returns the volumes at peers whose place is chosen.
func volumesAway(ctx context.Context, c client.Client, chosen func(reflection.Handle) bool) ([]corev1.PersistentVolume, error) {
	all := &corev1.PersistentVolumeList{}
	if err := c.List(ctx, all); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	return slices.DeleteFunc(all.Items, func(volume corev1.PersistentVolume) bool {
		at, away := reflection.HandleOf(&volume)
		return !away || !chosen(at)
	}), nil
}

// claimsOf names the claims of the volumes, or the volumes where the claims are gone.
func claimsOf(volumes []corev1.PersistentVolume) []string {
	return namesOf(volumes, func(volume *corev1.PersistentVolume) string {
		if ref := volume.Spec.ClaimRef; ref != nil && volume.Status.Phase != corev1.VolumeReleased {
			return ref.Namespace + "/" + ref.Name
		}
		return "volume " + volume.Name
	})
}

// deleteClaims deletes the claims of the volumes. Those that pods use go when these have gone.
func deleteClaims(ctx context.Context, c client.Client, volumes []corev1.PersistentVolume) error {
	for i := range volumes {
		ref := volumes[i].Spec.ClaimRef
		if ref == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
		err := c.Delete(ctx, claim, client.Preconditions{UID: &ref.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // a claim of the name that has another volume
			return fmt.Errorf("delete claim %s: %w", client.ObjectKeyFromObject(claim), err)
		}
	}
	return nil
}

// tellData says what becomes of volumes in other clusters when the namespace is no longer offloaded, and deletes their claims if
// that was asked for. Kubernetes keeps those that pods use until these have gone.
func tellData(ctx context.Context, cluster install.Cluster, flags *unoffloadFlags, namespace string) error {
	volumes, err := volumesAway(ctx, cluster.Client, func(at reflection.Handle) bool { return at.Namespace == namespace })
	if err != nil || len(volumes) == 0 {
		return err
	}
	if flags.deleteData {
		cluster.Report("Deleting the claims %s, whose volumes are in other clusters", some(claimsOf(volumes)))
		return deleteClaims(ctx, cluster.Client, volumes)
	}
	cluster.Report("The volumes of the claims %s are in other clusters and stay there: new pods with these claims wait until the namespace "+
		"is offloaded again. To delete them and their data: --delete-data", some(claimsOf(volumes)))
	return nil
}

// deleteDataAt deletes our claims whose volumes are at the peer. Without the peer they would be good for nothing.
func deleteDataAt(ctx context.Context, c client.Client, peer string, report func(string, ...any)) error {
	volumes, err := volumesAway(ctx, c, func(at reflection.Handle) bool { return at.Peer == peer })
	if err != nil || len(volumes) == 0 {
		return err
	}
	report("Deleting the claims %s, whose volumes are in %s", some(claimsOf(volumes)), peer)
	return deleteClaims(ctx, c, volumes)
}

// checkData refuses to leave a peer where that would delete data: of our claims there, or of its claims here.
func checkData(ctx context.Context, c client.Client, peer *v1alpha1.Peer) error {
	if !peer.DeletionTimestamp.IsZero() {
		return nil
	}
	ours, err := volumesAway(ctx, c, func(at reflection.Handle) bool { return at.Peer == peer.Name })
	if err != nil {
		return err
	}
	theirs, err := claimsOfPeer(ctx, c, peer.Name)
	if err != nil {
		return err
	}
	if len(ours) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: claims of this cluster have volumes in %s (%s)", errDataLost, peer.Name, some(claimsOf(ours))))
	}
	if theirs > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %s has %d claims with volumes in this cluster", errDataLost, peer.Name, theirs))
	}
	if err != nil {
		return fmt.Errorf("%w. Save what is needed and delete the claims, or say --delete-data", err)
	}
	return nil
}

// claimsOfPeer counts what the peer keeps in this cluster.
func claimsOfPeer(ctx context.Context, c client.Client, peer string) (int, error) {
	twins := &corev1.NamespaceList{}
	if err := c.List(ctx, twins, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer}); err != nil {
		return 0, fmt.Errorf("list twin namespaces: %w", err)
	}
	count := 0
	for i := range twins.Items {
		shadows := &v1alpha1.ShadowClaimList{}
		if err := c.List(ctx, shadows, client.InNamespace(twins.Items[i].Name)); err != nil {
			return 0, fmt.Errorf("list ShadowClaims in %s: %w", twins.Items[i].Name, err)
		}
		count += len(shadows.Items)
	}
	return count, nil
}
