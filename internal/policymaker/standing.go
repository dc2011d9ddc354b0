package policymaker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A standing is how the policies about one question stand, as the ConfigMap hanse-policy-status has it. Clients read it:
// fields are added, never renamed.
type standing struct {
	// Modules names what is in force. Default says that this is the built-in default, as there is nothing else.
	Modules []string `json:"modules"`
	Default bool     `json:"default"`
	// Broken are modules, or whole ConfigMaps, that cannot be used: name → why.
	Broken map[string]string `json:"broken,omitempty"`
	// Sources are those of the modules in force: name → source. A manager that starts has the last good ones from here.
	Sources map[string]string `json:"sources,omitempty"`
}

// standingOf returns how things stand with what is in force and what is broken.
func standingOf(r *ruling, broken map[string]string) standing {
	s := standing{Modules: []string{}, Default: len(r.modules) == 0, Broken: bounded(broken), Sources: map[string]string{}}
	for _, module := range r.modules {
		s.Modules = append(s.Modules, module.Name)
		s.Sources[module.Name] = module.Source
	}
	return s
}

// ruling returns what was in force, without a set.
func (s standing) ruling() *ruling {
	r := &ruling{}
	for _, name := range slices.Sorted(maps.Keys(s.Sources)) {
		r.modules = append(r.modules, policy.Module{Name: name, Source: s.Sources[name]})
	}
	return r
}

// text is empty if there is nothing to tell.
func (s standing) text() string {
	if !s.Default && len(s.Modules) == 0 && len(s.Broken) == 0 {
		return ""
	}
	return encode(s)
}

// encode is compact, and keeps the signs that Rego is full of.
func encode(what any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(what); err != nil {
		return "" // cannot be: there is nothing in it but text, lists and maps of text
	}
	return string(bytes.TrimSpace(text.Bytes()))
}

// readStanding returns what was written about the question last. It does not ask the cache, which may not have yet what
// a manager before this one has written.
func (m *Maker) readStanding(ctx context.Context, about string) (standing, error) {
	status := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: m.config.Namespace, Name: v1alpha1.PolicyStatus}
	if err := m.live.Get(ctx, key, status); err != nil {
		if apierrors.IsNotFound(err) {
			return standing{}, nil
		}
		return standing{}, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	var written standing
	if text, found := status.Data[about]; found {
		if err := json.Unmarshal([]byte(text), &written); err != nil {
			// Nobody but us should write there. It is written anew.
			ctrl.LoggerFrom(ctx).Error(err, "The status of policies is no JSON", "ConfigMap", key, "key", about)
			return standing{}, nil
		}
	}
	return written, nil
}

// report writes how things stand, and tells of what has broken since it was written last.
func (m *Maker) report(ctx context.Context, about string, before, now standing, labelled []corev1.ConfigMap) error {
	brokenModules.WithLabelValues(about).Set(float64(len(now.Broken)))
	text := now.text()
	if text == before.text() {
		return nil
	}
	status := corev1apply.ConfigMap(v1alpha1.PolicyStatus, m.config.Namespace)
	if text != "" {
		status.WithData(map[string]string{about: text})
	}
	// Each question has an owner of its own, so that the others' keys stay.
	if err := m.client.Apply(ctx, status, client.FieldOwner("hanse-policy-"+about), client.ForceOwnership); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", v1alpha1.PolicyStatus, err)
	}
	for name, why := range now.Broken {
		if before.Broken[name] == why {
			continue
		}
		for i := range labelled {
			if labelled[i].Name == configMapOf(name) {
				m.recorder.Eventf(&labelled[i], nil, corev1.EventTypeWarning, v1alpha1.ReasonPolicyInvalid, "Compile", "%s: %s", name, why)
			}
		}
	}
	return nil
}
