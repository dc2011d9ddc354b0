// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Bounds of the status of one question. The status of all questions must fit in one ConfigMap.
const (
	maxSources = 128 << 10 // bytes of all modules in force, encoded
	maxBroken  = 64
	maxMessage = 512 // bytes that say why one is broken
)

// A questionStatus says which policies answer one question. The ConfigMap hanse-policy-status holds it as JSON. Clients read
// it, so fields may be added but never renamed.
type questionStatus struct {
	// Modules names the modules in force. Default says that there are none, so the built-in default answers.
	Modules []string `json:"modules"`
	Default bool     `json:"default"`
	// Broken are modules, or whole ConfigMaps, that cannot be used: name → why.
	Broken map[string]string `json:"broken,omitempty"`
	// Sources are the modules in force: name → source. A manager that starts takes the last good ones from here.
	Sources sources `json:"sources,omitempty"`
}

// statusOf returns the status for the modules in force and the broken ones.
func statusOf(r *revision, broken map[string]string) questionStatus {
	names := slices.AppendSeq([]string{}, maps.Keys(r.sources))
	slices.Sort(names)
	return questionStatus{Modules: names, Default: len(names) == 0, Broken: bounded(broken), Sources: r.sources}
}

// text returns the status as JSON. It is empty if there is nothing to say.
func (s questionStatus) text() string {
	if !s.Default && len(s.Modules) == 0 && len(s.Broken) == 0 {
		return ""
	}
	return encode(s)
}

// encode writes compact JSON. It does not escape <, > and &, which are frequent in Rego.
func encode(what any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(what); err != nil {
		return "" // cannot happen: the status holds nothing but texts, lists and maps of texts
	}
	return string(bytes.TrimSpace(text.Bytes()))
}

// readStatus returns the status of the question that was written last. It reads from the API server, because the cache may
// be older than what the manager before this one wrote.
func (m *Maker) readStatus(ctx context.Context, about string) (questionStatus, error) {
	stored := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: m.config.Namespace, Name: v1alpha1.PolicyStatus}
	if err := m.live.Get(ctx, key, stored); err != nil {
		if apierrors.IsNotFound(err) {
			return questionStatus{}, nil
		}
		return questionStatus{}, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	var written questionStatus
	if text, found := stored.Data[about]; found {
		if err := json.Unmarshal([]byte(text), &written); err != nil {
			// Nobody else should write there. The manager overwrites it.
			ctrl.LoggerFrom(ctx).Error(err, "The status of policies is no JSON", "ConfigMap", key, "key", about)
			return questionStatus{}, nil
		}
	}
	return written, nil
}

// report writes the status, and sends an event for each module that has broken since the status was written last.
func (m *Maker) report(ctx context.Context, about string, before, now questionStatus, labelled []corev1.ConfigMap) error {
	brokenModules.WithLabelValues(about).Set(float64(len(now.Broken)))
	text := now.text()
	if text == before.text() {
		return nil
	}
	stored := corev1apply.ConfigMap(v1alpha1.PolicyStatus, m.config.Namespace)
	if text != "" {
		stored.WithData(map[string]string{about: text})
	}
	// Each question has a field owner of its own, so that writing one leaves the keys of the others alone.
	if err := m.client.Apply(ctx, stored, client.FieldOwner("hanse-policy-"+about), client.ForceOwnership); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", v1alpha1.PolicyStatus, err)
	}
	for name, why := range now.Broken {
		if before.Broken[name] == why {
			continue
		}
		configMap, _, _ := strings.Cut(name, "/") // a broken ConfigMap has no module
		for i := range labelled {
			if labelled[i].Name == configMap {
				m.recorder.Eventf(&labelled[i], nil, corev1.EventTypeWarning, v1alpha1.ReasonPolicyInvalid, "Compile", "%s: %s", name, why)
			}
		}
	}
	return nil
}
