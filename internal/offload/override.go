// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const maxPatchValue = 4096

// patchPath is what an override may change. The API server checks the same when the override is written.
var patchPath = regexp.MustCompile(
	`^/(metadata/(labels|annotations)(/[^/]+)?|spec/(containers|initContainers)/[0-9]{1,3}/(image|command|args|env|resources)(/.*)?)$`)

// Override returns the home pod as the overrides of its namespace want it in a cluster whose virtual node has the labels.
// The pod that is passed in is not changed; where no override is for that cluster, it is what is returned. An error is
// for the author of the overrides: it names the first one that does not fit the pod.
func Override(pod *corev1.Pod, overrides []v1alpha1.ClusterOverride, nodeLabels labels.Set) (*corev1.Pod, error) {
	var document []byte
	for i := range overrides {
		selector, err := overrides[i].ClusterSelector.Selector()
		if err != nil {
			return nil, fmt.Errorf("spec.overrides[%d].%w", i, err)
		}
		if !selector.Matches(nodeLabels) {
			continue
		}
		if document == nil {
			if document, err = complete(pod); err != nil {
				return nil, fmt.Errorf("encode the pod: %w", err)
			}
		}
		if document, err = patched(document, overrides[i].Patch); err != nil {
			return nil, fmt.Errorf("spec.overrides[%d].%w", i, err)
		}
	}
	if document == nil {
		return pod, nil
	}
	overridden := &corev1.Pod{}
	err := decode(document, overridden, true)
	if err == nil {
		err = checkOverridden(overridden)
	}
	if err != nil {
		return nil, fmt.Errorf("spec.overrides: the changed pod is none: %s", bounded(err.Error(), maxMessage))
	}
	return overridden, nil
}

// patched applies operation by operation, so that an error names the one that does not fit.
func patched(document []byte, operations []v1alpha1.PatchOperation) ([]byte, error) {
	for i := range operations {
		next, err := operate(document, &operations[i])
		if err != nil {
			return nil, fmt.Errorf("patch[%d]: %s %s: %s", i, bounded(operations[i].Op, maxWord),
				bounded(operations[i].Path, maxMessage), bounded(err.Error(), maxMessage))
		}
		document = next
	}
	return document, nil
}

func operate(document []byte, operation *v1alpha1.PatchOperation) ([]byte, error) {
	if err := checkOperation(operation); err != nil {
		return nil, err
	}
	raw, err := json.Marshal([]*v1alpha1.PatchOperation{operation})
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		return nil, err
	}
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices = false
	return patch.ApplyWithOptions(document, options)
}

// checkOperation bounds what is changed. The API server has checked the rest when the override was written.
func checkOperation(operation *v1alpha1.PatchOperation) error {
	if !patchPath.MatchString(operation.Path) {
		return errors.New("only labels, annotations, and the image, command, args, env and resources of containers can be changed")
	}
	if value := operation.Value; value != nil && len(value.Raw) > maxPatchValue {
		return fmt.Errorf("a value of %d bytes, at most %d are taken", len(value.Raw), maxPatchValue)
	}
	return nil
}

// complete encodes the pod with the maps and lists that it leaves out because they are empty, so that the author of an
// override need not know whether a pod has labels.
func complete(pod *corev1.Pod) ([]byte, error) {
	document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, err
	}
	parent := func(name string) map[string]any { found, _ := document[name].(map[string]any); return found }
	addMissing(parent("metadata"), map[string]any{}, "labels", "annotations")
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := parent("spec")[list].([]any)
		for i := range containers {
			container, _ := containers[i].(map[string]any)
			addMissing(container, []any{}, "command", "args", "env")
			addMissing(container, map[string]any{}, "resources")
			resources, _ := container["resources"].(map[string]any)
			addMissing(resources, map[string]any{}, "limits", "requests")
		}
	}
	return json.Marshal(document)
}

func addMissing(parent map[string]any, empty any, names ...string) {
	for _, name := range names {
		if _, there := parent[name]; !there {
			parent[name] = empty
		}
	}
}

// checkOverridden looks for what the API server would have refused in a pod of these labels, annotations and images.
func checkOverridden(pod *corev1.Pod) error {
	problems := metav1validation.ValidateLabels(pod.Labels, field.NewPath("metadata", "labels"))
	problems = append(problems,
		apivalidation.ValidateAnnotations(pod.Annotations, field.NewPath("metadata", "annotations"))...)
	forEachContainer(&pod.Spec, func(c *corev1.Container) {
		if c.Image == "" {
			problems = append(problems, field.Required(field.NewPath("spec", "containers").Key(c.Name).Child("image"), ""))
		}
	})
	return problems.ToAggregate()
}
