package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"

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
			if document, err = json.Marshal(pod); err != nil {
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
	overridden, err := decodeOverridden(document)
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
	if operation.Op == "add" {
		var err error
		if document, err = withParents(document, operation.Path); err != nil {
			return nil, err
		}
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

func checkOperation(operation *v1alpha1.PatchOperation) error {
	if !patchPath.MatchString(operation.Path) {
		return errors.New("only labels, annotations, and the image, command, args, env and resources of containers can be changed")
	}
	switch operation.Op {
	case "remove":
		return nil
	case "add", "replace":
	default:
		return errors.New("op must be add, replace or remove")
	}
	if operation.Value == nil || len(operation.Value.Raw) == 0 {
		return errors.New("a value is needed")
	}
	if n := len(operation.Value.Raw); n > maxPatchValue {
		return fmt.Errorf("a value of %d bytes, at most %d are taken", n, maxPatchValue)
	}
	return checkExponents(operation.Value.Raw)
}

// withParents makes the maps and lists above the path that the pod leaves out because they are empty, so that the author
// of an override need not know whether a pod has labels.
func withParents(document []byte, path string) ([]byte, error) {
	var pod map[string]any
	// Numbers stay as they are written, a pod is not all that is in here.
	decoder := json.NewDecoder(strings.NewReader(string(document)))
	decoder.UseNumber()
	if err := decoder.Decode(&pod); err != nil {
		return nil, err
	}
	steps := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch steps[0] {
	case "metadata":
		makeMaps(pod, steps[:len(steps)-1])
	case "spec":
		container := containerAt(pod, steps[1], steps[2])
		if container == nil {
			return nil, errors.New("the pod has no such container")
		}
		makeContainerParents(container, steps[3:])
	}
	return json.Marshal(pod)
}

func containerAt(pod map[string]any, list, index string) map[string]any {
	spec, _ := pod["spec"].(map[string]any)
	containers, _ := spec[list].([]any)
	for i := range containers {
		if fmt.Sprint(i) == index {
			container, _ := containers[i].(map[string]any)
			return container
		}
	}
	return nil
}

// makeContainerParents makes a list where an element is added to one, and maps elsewhere.
func makeContainerParents(container map[string]any, steps []string) {
	switch steps[0] {
	case "resources":
		makeMaps(container, steps[:len(steps)-1])
	case "command", "args", "env":
		if _, there := container[steps[0]]; !there && len(steps) > 1 {
			container[steps[0]] = []any{}
		}
	}
}

func makeMaps(parent map[string]any, steps []string) {
	for _, step := range steps {
		if _, there := parent[step]; !there {
			parent[step] = map[string]any{}
		}
		child, ok := parent[step].(map[string]any)
		if !ok {
			return
		}
		parent = child
	}
}

func decodeOverridden(document []byte) (*corev1.Pod, error) {
	if err := checkExponents(document); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	unknown, err := strictjson.UnmarshalStrict(document, pod)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		return nil, unknown[0]
	}
	return pod, checkOverridden(pod)
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
