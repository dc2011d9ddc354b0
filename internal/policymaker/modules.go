package policymaker

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// moduleSuffix is how the keys of ConfigMaps end that are modules.
const moduleSuffix = ".rego"

// isQuestion reports whether the value of a label is one of the questions.
func isQuestion(value string) bool {
	return slices.Contains(policy.Questions(), policy.Question(value))
}

// modulesOf returns the modules for a question by name, and the ConfigMaps for it that have none: name → what is wrong.
func modulesOf(labelled []corev1.ConfigMap, question policy.Question) ([]policy.Module, map[string]string) {
	var modules []policy.Module
	empty := map[string]string{}
	for i := range labelled {
		from := &labelled[i]
		if from.Labels[v1alpha1.LabelPolicy] != string(question) {
			continue
		}
		before := len(modules)
		for key, source := range from.Data {
			if strings.HasSuffix(key, moduleSuffix) {
				modules = append(modules, policy.Module{Name: from.Name + "/" + key, Source: source})
			}
		}
		if len(modules) == before {
			empty[from.Name] = "it has no key that ends in " + moduleSuffix
		}
	}
	slices.SortFunc(modules, compareNames)
	return modules, empty
}

// straysOf returns the ConfigMaps whose label names no question: name → what is wrong.
func straysOf(labelled []corev1.ConfigMap) map[string]string {
	var questions []string
	for _, question := range policy.Questions() {
		questions = append(questions, string(question))
	}
	found := map[string]string{}
	for i := range labelled {
		value := labelled[i].Labels[v1alpha1.LabelPolicy]
		if !isQuestion(value) {
			found[labelled[i].Name] = "its label " + v1alpha1.LabelPolicy + " is " + strings.Join(questions, ", ") + ", not " + value
		}
	}
	return found
}

// configMapOf returns the name of the ConfigMap that a broken module, or what is broken itself, is.
func configMapOf(broken string) string {
	name, _, _ := strings.Cut(broken, "/")
	return name
}

// bounded returns what is broken, with messages that are not too long, and not too many of them.
func bounded(broken map[string]string) map[string]string {
	kept := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		if len(kept) == maxBroken {
			break
		}
		kept[name] = shortened(broken[name], maxMessage)
	}
	return kept
}

// shortened cuts a text to so many bytes, between characters.
func shortened(text string, most int) string {
	const ellipsis = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(ellipsis)], "") + ellipsis
}
