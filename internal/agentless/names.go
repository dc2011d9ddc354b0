package agentless

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// What our objects at the peer say of the home pod, besides labels v1alpha1.LabelAgentless and v1alpha1.LabelHomeUID and
// annotation v1alpha1.AnnotationHomeNamespace.
const (
	// annotationHomePod is its name.
	annotationHomePod = v1alpha1.AnnotationHomePod
	// annotationGrace is the grace with which it is deleted, in seconds.
	annotationGrace = v1alpha1.AnnotationDeletionGrace
	// annotationRecord is the record of earlier pods, as JSON.
	annotationRecord = v1alpha1.AnnotationRecord
	// annotationDebug is there when ephemeral containers were asked for.
	annotationDebug = v1alpha1.AnnotationDebugAsked
)

// ClusterID returns the id by which the cluster home knows its peer of that name, a cluster that has none of its own. No
// two homes know a cluster by the same id, so that all of them can share a namespace there.
func ClusterID(home, peer string) string { return "agentless-" + hash(home, peer)[:20] }

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// maxReadable is how much of a pod's name is in the name of what runs it: with the hash and what controllers add, no name
// is longer than a label may be.
const maxReadable = 40

// remoteName returns the name of what runs the home pod. Pods of that name in other namespaces, and of other homes, have
// other ones.
func remoteName(id string, home types.NamespacedName) string {
	readable := strings.ReplaceAll(home.Name, ".", "-")
	if len(readable) > maxReadable {
		readable = strings.TrimRight(readable[:maxReadable], "-")
	}
	return readable + "-" + hash(id, home.Namespace, home.Name)[:10]
}

// homeOf returns the home pod that an object at the peer is for. Whatever is not ours, or has been tampered with, is for
// none.
func homeOf(id string, object client.Object) (types.NamespacedName, bool) {
	annotations, labels := object.GetAnnotations(), object.GetLabels()
	home := types.NamespacedName{Namespace: annotations[v1alpha1.AnnotationHomeNamespace], Name: annotations[annotationHomePod]}
	ours := labels[v1alpha1.LabelAgentless] == id && labels[v1alpha1.LabelHomeUID] != ""
	sound := len(validation.IsDNS1123Label(home.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(home.Name)) == 0
	return home, ours && sound
}
