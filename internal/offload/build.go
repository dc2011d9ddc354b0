// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Rules are what a provider adds to the pods of one consumer. The zero value adds what every pod gets.
type Rules struct {
	// Restricted sets what Pod Security "restricted" asks for, where the author of the pod left it open.
	Restricted bool
	// LeastRequests are what a container counts for that asks for nothing of that resource (cpu or memory).
	LeastRequests corev1.ResourceList
	// Path are the ids of the clusters that the pod has come through, this one included, if it may be sent on to another.
	// A pod without one stays on the provider's real nodes.
	Path []string
	// Next are the ids of the clusters that the pod may be sent on to, where the ShadowPod bounds that by spec.onward. Without
	// any it stays.
	Next []string
	// Home is how the pod reaches its home, nil where no network leads there.
	Home *HomeNetwork
	// Metadata says which labels and annotations the pods have besides the harmless ones.
	Metadata Metadata
}

// maxContainers is how many containers a pod may have. The record of its restarts holds as many.
const maxContainers = 250

// Build makes the pod that a provider runs for the ShadowPod, from the fields on the allow-list. It reads strictly: a
// field that is unknown or not on the list is an error that names it. The pod is owned by the ShadowPod, stays off
// virtual nodes unless the rules let it go on, has neither token nor address of the provider's API, has the names of its home where
// a network leads there, is confined where its author left that open, says itself what it asks for, and has of its labels and
// annotations those that the provider takes, see LeftOut. It has no ephemeral containers, see Debugging.
func Build(shadow *v1alpha1.ShadowPod, rules Rules) (*corev1.Pod, error) {
	asked, err := readTemplate(shadow)
	if err != nil {
		return nil, err
	}
	if problems := validation.IsValidLabelValue(string(shadow.Spec.HomeUID)); shadow.Spec.HomeUID == "" || len(problems) > 0 {
		return nil, errors.New("spec.homeUID: not a UID")
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: asked.Labels, Annotations: asked.Annotations}, Spec: asked.Spec,
	}
	pod.Spec.EphemeralContainers = nil
	rules.Metadata.leaveOut(pod)
	own(pod, shadow)
	rules.Home.lead(&pod.Spec)
	confine(&pod.Spec, rules.Restricted)
	writeRequests(&pod.Spec, rules.LeastRequests)
	route(pod, rules, shadow.Spec.Onward)
	return pod, nil
}

// Debugging returns the ephemeral containers that a provider adds to the running pod of the ShadowPod, from the fields on
// the allow-list and confined as the pod's own containers are. Build leaves them out, because a new pod cannot have any.
func Debugging(shadow *v1alpha1.ShadowPod, rules Rules) ([]corev1.EphemeralContainer, error) {
	asked, err := readTemplate(shadow)
	if err != nil {
		return nil, err
	}
	for i := range asked.Spec.EphemeralContainers {
		confineContainer(asContainer(&asked.Spec.EphemeralContainers[i]), rules.Restricted)
	}
	return asked.Spec.EphemeralContainers, nil
}

// readTemplate decodes what a consumer sent, and checks that each field may pass.
func readTemplate(shadow *v1alpha1.ShadowPod) (*corev1.PodTemplateSpec, error) {
	if shadow.Spec.Pod == "" {
		return nil, errors.New("spec.pod: empty")
	}
	asked := &corev1.PodTemplateSpec{}
	if err := decode([]byte(shadow.Spec.Pod), asked, true); err != nil {
		return nil, fmt.Errorf("spec.pod: %w", err)
	}
	return asked, checkTemplate(asked)
}

var (
	podRule       = ruleFor("spec", reflect.TypeFor[corev1.PodSpec]())
	ephemeralRule = ruleFor("spec.ephemeralContainers[]", reflect.TypeFor[corev1.EphemeralContainer]())
)

// checkTemplate returns an error that names the first field of a template that a provider does not take.
func checkTemplate(asked *corev1.PodTemplateSpec) error {
	spec := &asked.Spec
	if count := len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers); count > maxContainers {
		return fmt.Errorf("spec.containers: %d with the init and ephemeral ones, at most %d are taken", count, maxContainers)
	}
	if found := refusedMetadata(&asked.ObjectMeta); found != nil {
		return found.under("metadata")
	}
	if found := podRule.firstRefused(reflect.ValueOf(spec)); found != nil {
		return found.under("spec")
	}
	return nil
}

// refusedMetadata returns the first part of the metadata that a provider does not take: it takes labels and annotations.
func refusedMetadata(asked *metav1.ObjectMeta) *refusedField {
	others := *asked
	others.Labels, others.Annotations = nil, nil
	if !equality.Semantic.DeepEqual(others, metav1.ObjectMeta{}) {
		return &refusedField{path: singlePath(reflect.ValueOf(others))}
	}
	return mayBeSent(asked)
}

func own(pod *corev1.Pod, shadow *v1alpha1.ShadowPod) {
	pod.Name, pod.Namespace = shadow.Name, shadow.Namespace
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelHomeUID] = string(shadow.Spec.HomeUID)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(),
		Kind:       "ShadowPod",
		Name:       shadow.Name,
		UID:        shadow.UID,
		Controller: ptr.To(true),
	}}
}

// confine sets safe values where the author of the pod left the choice open.
func confine(spec *corev1.PodSpec, restricted bool) {
	spec.AutomountServiceAccountToken = ptr.To(false)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.SecurityContext.SeccompProfile == nil {
		spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if restricted && spec.SecurityContext.RunAsNonRoot == nil {
		spec.SecurityContext.RunAsNonRoot = ptr.To(true)
	}
	letPing(spec)
	forEachContainer(spec, func(c *corev1.Container) { confineContainer(c, restricted) })
}

// apiServerVariables are those by which a kubelet tells each container where the API server is.
var apiServerVariables = []string{
	"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT_HTTPS",
	"KUBERNETES_PORT", "KUBERNETES_PORT_443_TCP", "KUBERNETES_PORT_443_TCP_PROTO",
	"KUBERNETES_PORT_443_TCP_PORT", "KUBERNETES_PORT_443_TCP_ADDR",
}

// hideAPIServer empties these variables, unless the container sets them itself: the kubelet adds only those that a container
// does not have. They come first, so that a variable that refers to one is empty too.
func hideAPIServer(c *corev1.Container) {
	for _, name := range slices.Backward(apiServerVariables) {
		setFirst(c, corev1.EnvVar{Name: name})
	}
}

func confineContainer(c *corev1.Container, restricted bool) {
	hideAPIServer(c)
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	if c.SecurityContext.AllowPrivilegeEscalation == nil {
		c.SecurityContext.AllowPrivilegeEscalation = ptr.To(false)
	}
	if c.SecurityContext.Capabilities == nil {
		c.SecurityContext.Capabilities = &corev1.Capabilities{}
	}
	drops := &c.SecurityContext.Capabilities.Drop
	switch {
	case restricted && len(*drops) == 0:
		*drops = []corev1.Capability{"ALL"}
	case !slices.Contains(*drops, "ALL") && !slices.Contains(*drops, rawPackets):
		*drops = append(slices.Clone(*drops), rawPackets)
	}
}

// rawPackets is the capability to send packets as they are. Runtimes give it to all, and who has it can send with the address
// of another pod. What a node keeps pods of peers from goes by their addresses.
const rawPackets corev1.Capability = "NET_RAW"

// letPing has all users of the pod send echo requests without that capability: that is all that most need it for.
func letPing(spec *corev1.PodSpec) {
	const groups = "net.ipv4.ping_group_range"
	isSet := func(s corev1.Sysctl) bool { return s.Name == groups }
	if spec.OS != nil && spec.OS.Name != corev1.Linux || slices.ContainsFunc(spec.SecurityContext.Sysctls, isSet) {
		return
	}
	spec.SecurityContext.Sysctls = append(slices.Clone(spec.SecurityContext.Sysctls), corev1.Sysctl{Name: groups, Value: "0 2147483647"})
}

// forEachKindOfContainer visits the ephemeral containers too.
func forEachKindOfContainer(spec *corev1.PodSpec, f func(*corev1.Container)) {
	forEachContainer(spec, f)
	for i := range spec.EphemeralContainers {
		f(asContainer(&spec.EphemeralContainers[i]))
	}
}

// forEachContainer visits the containers that a pod begins with.
func forEachContainer(spec *corev1.PodSpec, f func(*corev1.Container)) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			f(&containers[i])
		}
	}
}

// writeRequests sets the requests that the API server would set for the pod, so that the pod can be counted before it is
// created. A container without requests gets the least ones.
func writeRequests(spec *corev1.PodSpec, least corev1.ResourceList) {
	forEachContainer(spec, func(c *corev1.Container) {
		for name, limit := range c.Resources.Limits {
			if _, asked := c.Resources.Requests[name]; !asked {
				request(&c.Resources, name, limit)
			}
		}
	})
	if spec.Resources != nil {
		writePodRequests(spec)
	}
	for name, quantity := range least {
		atLeast(spec, name, quantity)
	}
}

// writePodRequests does the same for the pod as a whole: its limit becomes its request unless a container has a request.
func writePodRequests(spec *corev1.PodSpec) {
	for name, limit := range spec.Resources.Limits {
		_, asked := spec.Resources.Requests[name]
		forEachContainer(spec, func(c *corev1.Container) {
			_, has := c.Resources.Requests[name]
			asked = asked || has
		})
		if !asked {
			request(spec.Resources, name, limit)
		}
	}
}

// atLeast raises requests of zero. Containers that share a request of their pod need none of their own: an explicit zero
// keeps the LimitRange of the namespace from setting one.
func atLeast(spec *corev1.PodSpec, name corev1.ResourceName, least resource.Quantity) {
	if spec.Resources != nil {
		if shared, ok := spec.Resources.Requests[name]; ok {
			if shared.IsZero() {
				request(spec.Resources, name, within(spec.Resources.Limits, name, least))
			}
			least = resource.Quantity{}
		}
	}
	forEachContainer(spec, func(c *corev1.Container) {
		if asked, ok := c.Resources.Requests[name]; !ok || asked.IsZero() {
			request(&c.Resources, name, within(c.Resources.Limits, name, least))
		}
	})
}

// within returns the quantity, or the limit if that is lower. A limit of zero means no limit to the kernel, so it does not
// count here. The API server then refuses the pod, because it asks for more than its limit.
func within(limits corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) resource.Quantity {
	if limit, ok := limits[name]; ok && limit.Sign() > 0 && limit.Cmp(quantity) < 0 {
		return limit.DeepCopy()
	}
	return quantity.DeepCopy()
}

func request(resources *corev1.ResourceRequirements, name corev1.ResourceName, quantity resource.Quantity) {
	if resources.Requests == nil {
		resources.Requests = corev1.ResourceList{}
	}
	resources.Requests[name] = quantity.DeepCopy()
}

// Path returns the ids of the clusters that a pod has come through, the one that it is in last. It is nil for a pod that
// began here, whatever its annotations say: only a pod that was made for a ShadowPod has come from elsewhere.
func Path(pod *corev1.Pod) []string {
	text := pod.Annotations[v1alpha1.AnnotationPath]
	if text == "" || v1alpha1.OwnerShadowPod(pod) == nil {
		return nil
	}
	return strings.Split(text, ",")
}

// Onward returns the path of the ShadowPod's pod here, in the cluster of that id, if the pod may go on from here: it has
// come neither through here before nor through too many clusters.
func Onward(shadow *v1alpha1.ShadowPod, consumer, here string) (path []string, may bool) {
	path = slices.Clone(shadow.Spec.Path)
	if !slices.Contains(path, consumer) {
		path = append(path, consumer)
	}
	if here == "" || slices.Contains(path, here) || len(path) >= v1alpha1.MaxPath {
		return nil, false
	}
	return append(path, here), true
}

// route keeps the pod off the virtual nodes here: off all of them, or off those of the clusters on its path, where there
// is one, and off all but those of the next clusters, where something is asked of them. Which of the others it may use, and
// that it tolerates them, is said by the NamespaceOffloading of the twin.
func route(pod *corev1.Pod, rules Rules, onward string) {
	term := func(key string, values []string) []corev1.NodeSelectorTerm {
		return []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpNotIn, Values: values},
		}}}
	}
	next := slices.DeleteFunc(slices.Clone(rules.Next), func(id string) bool { return slices.Contains(rules.Path, id) })
	goesOn := len(rules.Path) > 0 && !readsItsHome(pod.Spec.Volumes) && !UsesClaims(&pod.Spec) && (onward == "" || len(next) > 0)
	terms := term(v1alpha1.LabelType, []string{v1alpha1.TypeVirtualNode})
	if goesOn {
		terms = term(v1alpha1.LabelClusterID, rules.Path)
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationPath, strings.Join(rules.Path, ","))
	}
	if goesOn && onward != "" {
		terms = hereOr(next)
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationOnward, onward)
	}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

// readsItsHome says whether the pod reads from a volume what its first consumer has put into metadata of ours. That does
// not travel any further.
func readsItsHome(volumes []corev1.Volume) bool {
	reads := false
	forEachDownwardFile(volumes, func(file *corev1.DownwardAPIVolumeFile) {
		if file.FieldRef != nil && strings.Contains(file.FieldRef.FieldPath, "['"+v1alpha1.Domain+"/") {
			reads = true
		}
	})
	return reads
}
