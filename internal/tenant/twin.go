// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	podSecurityPrefix = "pod-security.kubernetes.io/"
	hashLength        = 6
)

// TwinName returns the name of the twin of a peer's namespace. The hash keeps twins of two peers apart, whatever their
// names are.
func TwinName(peer, home string) string {
	sum := sha256.Sum256([]byte(peer + "/" + home))
	suffix := "-" + peer + "-" + hex.EncodeToString(sum[:])[:hashLength]
	if room := max(validation.DNS1123LabelMaxLength-len(suffix), 0); len(home) > room {
		home = home[:room]
	}
	return strings.TrimRight(home, "-") + suffix
}

// twinOf identifies a twin namespace: whose it is and what it stands for.
type twinOf struct {
	peer      string
	clusterID string
	home      string
	chosen    string // its name, where that is not the one that we make
}

// twinFor returns the twin that a mapping of the peer asks for.
func twinFor(peer, clusterID string, mapping *v1alpha1.NamespaceMapping) twinOf {
	return twinOf{peer: peer, clusterID: clusterID, home: mapping.Spec.HomeNamespace}.called(mapping.Spec.Twin)
}

func (t twinOf) called(name string) twinOf {
	if name != TwinName(t.peer, t.home) {
		t.chosen = name
	}
	return t
}

func (t twinOf) name() string { return cmp.Or(t.chosen, TwinName(t.peer, t.home)) }

// granted says whether the peer may give the twin its name. One that we make has
// its name by right.
func (t twinOf) granted(peer *v1alpha1.Peer, system string) bool {
	return t.chosen == "" ||
		len(validation.IsDNS1123Label(t.chosen)) == 0 && !v1alpha1.IsSystemNamespace(t.chosen, system) && peer.AllowsTwinName(t.chosen)
}

func (t twinOf) namespace(level v1alpha1.PodSecurityLevel) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: t.name(),
		Labels: map[string]string{
			v1alpha1.LabelType:      v1alpha1.TypeTwin,
			v1alpha1.LabelPeer:      t.peer,
			v1alpha1.LabelClusterID: t.clusterID,
			v1alpha1.LabelManaged:   "true",
		},
		Annotations: map[string]string{v1alpha1.AnnotationHomeNamespace: t.home},
	}}
	maps.Copy(ns.Labels, podSecurity(level))
	return ns
}

// podSecurity returns the labels of a namespace whose pods must meet the level. What the API server itself learns of
// the level holds too.
func podSecurity(level v1alpha1.PodSecurityLevel) map[string]string {
	labels := map[string]string{}
	for _, mode := range []string{"enforce", "audit", "warn"} {
		labels[podSecurityPrefix+mode] = strings.ToLower(string(cmp.Or(level, v1alpha1.PodSecurityBaseline)))
		labels[podSecurityPrefix+mode+"-version"] = "latest"
	}
	return labels
}

// owns says whether the namespace is exactly this twin. Any other is never touched.
func (t twinOf) owns(ns *corev1.Namespace) bool {
	return ns.Name == t.name() && ns.Labels[v1alpha1.LabelType] == v1alpha1.TypeTwin &&
		ns.Labels[v1alpha1.LabelPeer] == t.peer &&
		ns.Labels[v1alpha1.LabelClusterID] == t.clusterID &&
		ns.Labels[v1alpha1.LabelManaged] == "true" &&
		ns.Annotations[v1alpha1.AnnotationHomeNamespace] == t.home
}

// managerBinding lets our manager make the peer's pods in the twin, and guard it.
func (t twinOf) managerBinding(cfg *Config) *rbacv1.RoleBinding {
	return t.binding(v1alpha1.ClusterRoleManagerInTwin, cfg.Namespace, cfg.ServiceAccount)
}

// peerBinding lets the peer work in its twin, unless it is suspended.
func (t twinOf) peerBinding(access v1alpha1.PeerAccess) *rbacv1.RoleBinding {
	binding := t.binding(v1alpha1.ClusterRolePeerTwin, v1alpha1.TenantNamespace(t.peer), v1alpha1.PeerServiceAccount)
	if access == v1alpha1.AccessSuspended {
		binding.Subjects = nil
	}
	return binding
}

func (t twinOf) binding(role, namespace, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: role, Namespace: t.name(), Finalizers: []string{v1alpha1.FinalizerRoleBinding},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
}

// twinIn reads which twin a namespace is. An admission policy lets our manager alone set the labels and annotations that say so. One of the
// system is none, whatever it says.
func twinIn(ns *corev1.Namespace) (twinOf, bool) {
	t := twinOf{
		peer:      ns.Labels[v1alpha1.LabelPeer],
		clusterID: ns.Labels[v1alpha1.LabelClusterID],
		home:      ns.Annotations[v1alpha1.AnnotationHomeNamespace],
	}.called(ns.Name)
	return t, v1alpha1.TwinPeer(ns) != "" && t.home != "" && t.owns(ns)
}
