// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Parameters of StorageClasses of ours.
const (
	// LocalClass names the class of volumes on this cluster's own nodes. By default its default class.
	LocalClass = "localClass"
	// RemoteClass names the class of volumes at providers. By default the first that each offers.
	RemoteClass = "remoteClass"
)

// A Handle says where a volume of ours lies: at a peer, in the twin of a namespace, as the claim of that name.
type Handle struct{ Peer, Namespace, Claim string }

// String is the handle as volumes carry it.
func (h Handle) String() string { return h.Peer + "/" + h.Namespace + "/" + h.Claim }

// HandleOf returns the handle of the volume if it lies at a peer.
func HandleOf(volume *corev1.PersistentVolume) (Handle, bool) {
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != v1alpha1.VolumesDriver {
		return Handle{}, false
	}
	return ParseHandle(volume.Spec.CSI.VolumeHandle)
}

// ParseHandle reads a handle as volumes carry it.
func ParseHandle(text string) (Handle, bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return Handle{}, false
	}
	return Handle{parts[0], parts[1], parts[2]}, true
}

// VolumeName returns the name of the volume for the claim of that UID, which is also that of its claim at a peer.
func VolumeName(claim types.UID) string { return "pvc-" + string(claim) }

// Asked is how much room the claim asks for.
func Asked(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]}
}

// ShadowClaim returns what a peer is asked to keep for the claim, in the twin namespace, or a Refusal. It does not say what the
// volume begins with.
func ShadowClaim(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, twin string) (*v1alpha1.ShadowClaim, error) {
	if stays := Keeps(claim); stays != "" {
		return nil, stays
	}
	if claim.Spec.Selector != nil {
		return nil, Refusal("it selects volumes of this cluster by labels")
	}
	return &v1alpha1.ShadowClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: VolumeName(claim.UID)},
		Spec: v1alpha1.ShadowClaimSpec{
			HomeUID: claim.UID, Storage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			AccessModes: claim.Spec.AccessModes, VolumeMode: ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem),
			StorageClass: class.Parameters[RemoteClass],
		},
	}, nil
}

// Volume returns the volume that stands at home for the one at the peer. Pods with it run on the virtual node of the peer alone.
func Volume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, peer string) *corev1.PersistentVolume {
	name := VolumeName(claim.UID)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{AnnotationProvisionedBy: v1alpha1.VolumesDriver},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      Asked(claim),
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              class.Name,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			ClaimRef:                      claimRef(claim),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: v1alpha1.VolumesDriver, VolumeHandle: Handle{peer, claim.Namespace, name}.String(),
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.VirtualNodeName(peer)},
				}},
			}}}},
		},
	}
}

// Annotations by which Kubernetes and provisioners speak with each other.
const (
	// AnnotationProvisionedBy names, on a volume, the provisioner that made it.
	AnnotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// AnnotationSelectedNode names, on a claim, the node that the scheduler has selected for the first pod with it.
	AnnotationSelectedNode = "volume.kubernetes.io/selected-node"

	annotationDefaultClass = "storageclass.kubernetes.io/is-default-class"
)

// maxClasses is how many classes an offer may name.
const maxClasses = 16

// OfferedClasses returns the names of the classes whose volumes consumers can get, the default first: those that
// LabelOfferToPeers says so of, and the default unless it says otherwise. Classes of ours are none: their volumes may be at others.
func OfferedClasses(classes []storagev1.StorageClass) []string {
	first := DefaultClass(classes)
	var others []string
	for i := range classes {
		class := &classes[i]
		said := class.Labels[v1alpha1.LabelOfferToPeers]
		if class.Provisioner != v1alpha1.VolumesDriver && class.Name != first && said == "true" {
			others = append(others, class.Name)
		}
		if class.Name == first && said == "false" {
			first = ""
		}
	}
	slices.Sort(others)
	if first != "" {
		others = slices.Insert(others, 0, first)
	}
	return others[:min(len(others), maxClasses)]
}

// DefaultClass returns the name of the default class of the cluster, or "": of several the newest, as the API server has it.
func DefaultClass(classes []storagev1.StorageClass) string {
	var found *storagev1.StorageClass
	for i := range classes {
		class := &classes[i]
		if class.Annotations[annotationDefaultClass] != "true" || class.Provisioner == v1alpha1.VolumesDriver {
			continue
		}
		if found == nil || newer(class, found) {
			found = class
		}
	}
	if found == nil {
		return ""
	}
	return found.Name
}

func newer(a, b *storagev1.StorageClass) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name)) > 0
}

// Claim returns the claim that a provider makes for the ShadowClaim, from the fields that a consumer may choose, or a Refusal.
func Claim(shadow *v1alpha1.ShadowClaim, offered []string) (*corev1.PersistentVolumeClaim, error) {
	class := shadow.Spec.StorageClass
	switch {
	case len(offered) == 0:
		return nil, Refusal("no volumes are offered here")
	case class == "":
		class = offered[0]
	case !slices.Contains(offered, class):
		return nil, Refusal(fmt.Sprintf("volumes of class %q are not offered here", class))
	}
	if shadow.Spec.Storage.Sign() <= 0 {
		return nil, Refusal("it asks for no room")
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: ownedBy(shadow),
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      shadow.Spec.AccessModes,
			VolumeMode:       new(cmp.Or(shadow.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: shadow.Spec.Storage},
			},
		},
	}
	if source := shadow.Spec.DataSource; source != "" {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: kindSnapshot, Name: source}
	}
	return claim, nil
}

// ownedBy is the metadata of what a provider makes for the ShadowClaim.
func ownedBy(shadow *v1alpha1.ShadowClaim) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: shadow.Namespace, Name: shadow.Name,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ShadowClaim", Name: shadow.Name, UID: shadow.UID, Controller: new(true),
		}},
	}
}

// ClaimStatus returns what a provider tells of the claim that it keeps for the ShadowClaim: not which volume it has, nor where.
func ClaimStatus(shadow *v1alpha1.ShadowClaim, claim *corev1.PersistentVolumeClaim) v1alpha1.ShadowClaimStatus {
	status := v1alpha1.ShadowClaimStatus{
		Conditions: slices.Clone(shadow.Status.Conditions), ObservedGeneration: shadow.Generation,
		Phase: string(cmp.Or(claim.Status.Phase, corev1.ClaimPending)),
	}
	if capacity, bound := claim.Status.Capacity[corev1.ResourceStorage]; bound {
		status.Capacity = &capacity
	}
	return status
}

// A Growth is what there is to do so that a claim has as much room as it asks for.
type Growth struct {
	// Peer is whether the peer must be asked for more.
	Peer bool
	// Volume and Claim are whether our volume, and the status of our claim, must say that there is more.
	Volume, Claim bool
}

// Grow compares what the claim asks for with what the peer has made of it. What the peer tells counts up to what was asked for.
func Grow(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, shadow *v1alpha1.ShadowClaim) Growth {
	asked, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], volume.Spec.Capacity[corev1.ResourceStorage]
	told := claim.Status.Capacity[corev1.ResourceStorage]
	grown := shadow.Status.Capacity != nil && shadow.Status.Capacity.Cmp(asked) >= 0
	return Growth{
		Peer:   shadow.Spec.Storage.Cmp(asked) < 0,
		Volume: grown && has.Cmp(asked) < 0,
		Claim:  has.Cmp(asked) >= 0 && told.Cmp(asked) < 0 && claim.Status.Phase == corev1.ClaimBound,
	}
}

// StandIn returns the claim by which a volume for a claim of ours is ordered of another class, on the node that the scheduler has
// selected, or a Refusal.
func StandIn(
	claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, classes []storagev1.StorageClass, namespace string,
) (*corev1.PersistentVolumeClaim, error) {
	name := cmp.Or(class.Parameters[LocalClass], DefaultClass(classes))
	i := slices.IndexFunc(classes, func(c storagev1.StorageClass) bool { return c.Name == name })
	switch {
	case name == "":
		return nil, Refusal("class " + class.Name + " names no class for this cluster, which has no default one")
	case i < 0:
		return nil, Refusal("this cluster has no class " + name)
	case classes[i].Provisioner == v1alpha1.VolumesDriver:
		return nil, Refusal("class " + name + " is no class for volumes on nodes of this cluster")
	}
	spec := claim.Spec.DeepCopy()
	if spec.DataSource != nil || spec.DataSourceRef != nil {
		return nil, Refusal("it is to begin as a copy of a snapshot or of another volume: give it class " + name)
	}
	spec.StorageClassName, spec.VolumeName = &name, ""
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: VolumeName(claim.UID),
			Annotations: map[string]string{
				AnnotationSelectedNode:         claim.Annotations[AnnotationSelectedNode],
				v1alpha1.AnnotationStandsInFor: claim.Namespace + "/" + claim.Name,
			},
		},
		Spec: *spec,
	}, nil
}

// StandsInFor returns the claim that the object is a stand-in for. Its name is empty if it is none.
func StandsInFor(object metav1.Object) types.NamespacedName {
	namespace, name, _ := strings.Cut(object.GetAnnotations()[v1alpha1.AnnotationStandsInFor], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// Given returns the volume as that of the claim, which is of the class.
func Given(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.PersistentVolume {
	given := volume.DeepCopy()
	given.Spec.ClaimRef = claimRef(claim)
	given.Spec.StorageClassName = class.Name
	given.Spec.PersistentVolumeReclaimPolicy = ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	return given
}

func claimRef(claim *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}
}
