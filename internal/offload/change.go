// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Asked is what home asked for in those parts of a pod that can change while it runs: a fingerprint of each by its path.
// What differs between an old and a new one was changed by home; all else is left as others have made it, such as a webhook
// or an autoscaler of the cluster that runs the pod.
type Asked map[string]string

const (
	labelPath      = "label/"
	annotationPath = "annotation/"
	imagePath      = "image/"
	deadlinePath   = "deadline"
	amountPath     = "amount/" // and container, which is empty for the pod as a whole, requests or limits, and the resource
)

// AskedOf returns what is asked for by the pod that home wants.
func AskedOf(meta *metav1.ObjectMeta, spec *corev1.PodSpec) Asked {
	out := Asked{}
	for key, value := range meta.Labels {
		out[labelPath+key] = fingerprint(value)
	}
	for key, value := range meta.Annotations {
		if key != v1alpha1.AnnotationAsked {
			out[annotationPath+key] = fingerprint(value)
		}
	}
	forEachContainer(spec, func(c *corev1.Container) {
		out[imagePath+c.Name] = fingerprint(c.Image)
		out.noteAmounts(c.Name, &c.Resources)
	})
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil {
		out[deadlinePath] = fingerprint(strconv.FormatInt(*deadline, 10))
	}
	if spec.Resources != nil {
		out.noteAmounts("", spec.Resources)
	}
	return out
}

func (a Asked) noteAmounts(container string, asked *corev1.ResourceRequirements) {
	for kind, amounts := range amountsOf(asked) {
		for name, amount := range *amounts {
			a[amountPath+container+"/"+kind+"/"+string(name)] = fingerprint(amount.String())
		}
	}
}

func amountsOf(asked *corev1.ResourceRequirements) map[string]*corev1.ResourceList {
	return map[string]*corev1.ResourceList{"requests": &asked.Requests, "limits": &asked.Limits}
}

func fingerprint(value string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(value)) // a hash never fails
	return strconv.FormatUint(uint64(sum.Sum32()), 36)
}

// NoteAsked writes onto a pod what it is made or changed by.
func NoteAsked(meta *metav1.ObjectMeta, asked Asked) {
	text, err := json.Marshal(asked)
	if err != nil {
		return // a map of strings can always be encoded
	}
	metav1.SetMetaDataAnnotation(meta, v1alpha1.AnnotationAsked, string(text))
}

// NotedAsked returns what a pod says that was asked for, and nil, by which all is new, if it does not say.
func NotedAsked(meta *metav1.ObjectMeta) Asked {
	var asked Asked
	if json.Unmarshal([]byte(meta.Annotations[v1alpha1.AnnotationAsked]), &asked) != nil {
		return nil
	}
	return asked
}

// WithAmountsOf returns the same with the resources of another.
func (a Asked) WithAmountsOf(other Asked) Asked {
	isAmount := func(path, _ string) bool { return strings.HasPrefix(path, amountPath) }
	out, amounts := maps.Clone(a), maps.Clone(other)
	maps.DeleteFunc(out, isAmount)
	maps.DeleteFunc(amounts, func(path, value string) bool { return !isAmount(path, value) })
	maps.Copy(out, amounts)
	return out
}

// Changed returns the running pod with the labels, annotations, images and deadline of the wanted one, as far as these differ from
// what was asked for before. What was and is wanted no more goes, and what others have put on the pod stays.
func Changed(pod *corev1.Pod, before Asked, wanted *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	out.Labels = before.changed(labelPath, pod.Labels, wanted.Labels)
	out.Annotations = before.changed(annotationPath, pod.Annotations, wanted.Annotations)
	for _, lists := range [][2][]corev1.Container{
		{out.Spec.InitContainers, wanted.Spec.InitContainers}, {out.Spec.Containers, wanted.Spec.Containers},
	} {
		eachPair(lists[0], lists[1], func(running, wanted *corev1.Container) {
			if wanted.Image != "" && before[imagePath+wanted.Name] != fingerprint(wanted.Image) {
				running.Image = wanted.Image
			}
		})
	}
	before.shorten(out, wanted.Spec.ActiveDeadlineSeconds)
	return out
}

// shorten gives the pod a deadline. Kubernetes lets nobody put one off.
func (a Asked) shorten(running *corev1.Pod, wanted *int64) {
	if wanted == nil || a[deadlinePath] == fingerprint(strconv.FormatInt(*wanted, 10)) {
		return
	}
	if has := running.Spec.ActiveDeadlineSeconds; has == nil || *wanted < *has {
		running.Spec.ActiveDeadlineSeconds = ptr.To(*wanted)
	}
}

func (a Asked) changed(kind string, running, wanted map[string]string) map[string]string {
	out := maps.Clone(running)
	maps.DeleteFunc(out, func(key, _ string) bool {
		_, asked := a[kind+key]
		_, still := wanted[key]
		return asked && !still
	})
	for key, value := range wanted {
		if a[kind+key] == fingerprint(value) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out
}

// Resized returns the running pod with the resources of the wanted one that can change while it runs, as far as these differ
// from what was asked for before. What is not asked for stays: the cluster that runs the pod may have set it.
func Resized(pod *corev1.Pod, before Asked, wanted *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	resize := func(running, wanted *corev1.Container) {
		before.resize(running.Name, &running.Resources, &wanted.Resources)
	}
	eachPair(out.Spec.Containers, wanted.Spec.Containers, resize)
	eachPair(out.Spec.InitContainers, wanted.Spec.InitContainers, func(running, wanted *corev1.Container) {
		if running.RestartPolicy != nil && *running.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			resize(running, wanted)
		}
	})
	if out.Spec.Resources != nil && wanted.Spec.Resources != nil {
		before.resize("", out.Spec.Resources, wanted.Spec.Resources)
	}
	return out
}

func (a Asked) resize(container string, running, wanted *corev1.ResourceRequirements) {
	asked := amountsOf(wanted)
	for kind, amounts := range amountsOf(running) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			amount, ok := (*asked[kind])[name]
			if !ok || a[amountPath+container+"/"+kind+"/"+string(name)] == fingerprint(amount.String()) {
				continue
			}
			if *amounts == nil {
				*amounts = corev1.ResourceList{}
			}
			(*amounts)[name] = amount
		}
	}
}

// eachPair goes through the containers that both lists have.
func eachPair(running, wanted []corev1.Container, do func(running, wanted *corev1.Container)) {
	for i := range running {
		for j := range wanted {
			if running[i].Name == wanted[j].Name {
				do(&running[i], &wanted[j])
			}
		}
	}
}
