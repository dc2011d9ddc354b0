package offload

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Options are what Outbound must know besides the pod.
type Options struct {
	// HostIP is the address of the virtual node, which the pod sees as its host's.
	HostIP string
	// Taints are those that the provider offers. Tolerations of other taints stay at home.
	Taints []corev1.Taint
}

// Outbound returns what a provider is asked to run for the home pod. What speaks of the consumer's nodes, scheduler
// and service accounts stays at home; what the pod can read of itself is home's. It returns an error, with the text of
// Refusal, for a pod that cannot run remotely.
func Outbound(home *corev1.Pod, o Options) (corev1.PodTemplateSpec, error) {
	if reason, refused := knownRefusal(home); refused {
		return corev1.PodTemplateSpec{}, refusalError(reason)
	}
	out := translate(home, o)
	if _, err := allow(&out, o.Taints); err != nil {
		return corev1.PodTemplateSpec{}, refusalError(err.Error())
	}
	return out, nil
}

// refusalError is why a pod cannot run remotely.
type refusalError string

func (e refusalError) Error() string { return "cannot run in another cluster: " + string(e) }

func translate(home *corev1.Pod, o Options) corev1.PodTemplateSpec {
	out := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      allowedEntries(home.Labels, labelTravels),
			Annotations: allowedEntries(home.Annotations, annotationTravels),
		},
		Spec: *home.Spec.DeepCopy(),
	}
	leaveConstraintsAtHome(&out.Spec)
	out.Spec.Tolerations = offeredTolerations(home.Spec.Tolerations, o.Taints)
	leaveTokenAtHome(&out.Spec)
	leaveEphemeralAtHome(&out.Spec)
	self := identity{home: home, hostIP: o.HostIP}
	forEachKindOfContainer(&out.Spec, func(c *corev1.Container) { self.inEnv(c.Env) })
	if self.inVolumes(out.Spec.Volumes) {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[v1alpha1.AnnotationHomeNamespace] = home.Namespace
	}
	return out
}

// leaveConstraintsAtHome drops what the consumer's own scheduler has already acted upon, and what its admission added
// for its own nodes.
func leaveConstraintsAtHome(spec *corev1.PodSpec) {
	spec.NodeName = ""
	spec.NodeSelector = nil
	spec.Affinity = nil
	spec.SchedulerName = ""
	spec.PriorityClassName = ""
	spec.Priority = nil
	spec.PreemptionPolicy = nil
	spec.TopologySpreadConstraints = nil
	spec.SchedulingGates = nil
	spec.SchedulingGroup = nil
	spec.EvictionResponders = nil
	spec.ReadinessGates = nil
	spec.ServiceAccountName = ""
	spec.DeprecatedServiceAccount = ""
}

// tokenVolumePrefix begins the name of the volume that Kubernetes adds for the token of a pod's service account.
const tokenVolumePrefix = "kube-api-access-"

func isTokenVolume(v *corev1.Volume) bool {
	return v.Projected != nil && strings.HasPrefix(v.Name, tokenVolumePrefix)
}

func leaveTokenAtHome(spec *corev1.PodSpec) {
	spec.AutomountServiceAccountToken = ptr.To(false)
	var dropped []string
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		if !isTokenVolume(&v) {
			return false
		}
		dropped = append(dropped, v.Name)
		return true
	})
	forEachKindOfContainer(spec, func(c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.Contains(dropped, m.Name)
		})
	})
}
