package offload

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const ownDomain = "hanse.dev"

// allowedEntries returns the entries of a map that the rule allows, and nil if there are none.
func allowedEntries(entries map[string]string, rule func(key, value string) bool) map[string]string {
	var out map[string]string
	for key, value := range entries {
		if !rule(key, value) {
			continue
		}
		if out == nil {
			out = make(map[string]string, len(entries))
		}
		out[key] = value
	}
	return out
}

// labelTravels says whether a label goes along: all do but Hanse's own, which mean something else over there.
func labelTravels(key, _ string) bool { return !isOwn(key) }

// annotationTravels says whether an annotation goes along. Annotations steer what runs on the provider's nodes
// (networks to join, roles to take, profiles to lift), so only those go that nothing there acts upon.
func annotationTravels(key, _ string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return true
	}
	switch prefix {
	case "prometheus.io", "kubectl.kubernetes.io", "batch.kubernetes.io":
		return true
	default:
		return false
	}
}

// annotationAllowed says what a provider takes: what travels, and the home namespace that downward volumes read.
func annotationAllowed(key, value string) bool {
	if key == v1alpha1.AnnotationHomeNamespace {
		return len(validation.IsDNS1123Label(value)) == 0
	}
	return annotationTravels(key, value)
}

func isOwn(key string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	return prefixed && (prefix == ownDomain || strings.HasSuffix(prefix, "."+ownDomain))
}
