// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// moduleSuffix is how the keys of ConfigMaps end that are modules.
const moduleSuffix = ".rego"

// isQuestion reports whether the value of a label is one of the questions.
func isQuestion(value string) bool {
	return slices.Contains(policy.Questions(), policy.Question(value))
}

// sourcesOf returns the modules for a question, and the ConfigMaps for it that have none: name → what is wrong.
func sourcesOf(labelled []corev1.ConfigMap, question policy.Question) (modules sources, broken map[string]string) {
	modules, broken = sources{}, map[string]string{}
	for i := range labelled {
		from := &labelled[i]
		if from.Labels[v1alpha1.LabelPolicy] != string(question) {
			continue
		}
		broken[from.Name] = "it has no key that ends in " + moduleSuffix
		for key, source := range from.Data {
			if strings.HasSuffix(key, moduleSuffix) {
				modules[from.Name+"/"+key] = source
				delete(broken, from.Name)
			}
		}
	}
	return modules, broken
}

// unknownOf returns the ConfigMaps whose label names no question: name → what is wrong.
func unknownOf(labelled []corev1.ConfigMap) map[string]string {
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

// bounded returns at most maxBroken of the broken modules, each with a message of at most maxMessage bytes.
func bounded(broken map[string]string) map[string]string {
	kept := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		if len(kept) == maxBroken {
			break
		}
		kept[name] = sanitize.Text(broken[name], maxMessage)
	}
	return kept
}

// sources are modules: name → source.
type sources map[string]string

// compile makes a set of the modules, or says why that is impossible. It refuses modules that are too large to be kept in
// the status.
func (s sources) compile(question policy.Question) (*policy.Set, error) {
	var modules []policy.Module
	size := 0
	for _, name := range slices.Sorted(maps.Keys(s)) {
		modules = append(modules, policy.Module{Name: name, Source: s[name]})
		size += len(encode(s[name]))
	}
	if size > maxSources {
		return nil, fmt.Errorf("all modules together may have at most %d KiB", maxSources>>10)
	}
	return policy.Compile(question, modules)
}

// A revision is a set of modules that answers one question.
type revision struct {
	question policy.Question
	sources  sources // none if the built-in default answers
	set      *policy.Set
}

// advance returns the revision that follows: with the wanted modules, as far as they compile. It also returns why modules
// are left out: name → what is wrong. A revision that is not compiled is what a former process had in force: as much of it
// counts as this version of Hanse understands.
func (r *revision) advance(wanted sources) (*revision, map[string]string, error) {
	if r.set == nil {
		none, err := sources{}.compile(r.question)
		if err != nil {
			return nil, nil, fmt.Errorf("compile the built-in default: %w", err)
		}
		r, _ = (&revision{question: r.question, set: none}).change(r.sources)
	}
	next, failed := r.change(wanted)
	for name, why := range failed {
		if _, isWanted := wanted[name]; !isWanted {
			failed[name] = "it was deleted, and stays in force since others need it: " + why
		}
	}
	return next, failed, nil
}

// change makes as many modules as possible what is wanted, in any order. It returns the new revision, which is r itself if
// nothing can be changed, and why the other modules cannot be changed.
func (r *revision) change(wanted sources) (*revision, map[string]string) {
	var pending []string
	for name, source := range wanted {
		if current, inForce := r.sources[name]; !inForce || current != source {
			pending = append(pending, name)
		}
	}
	for name := range r.sources {
		if _, isWanted := wanted[name]; !isWanted {
			pending = append(pending, name)
		}
	}
	for {
		slices.Sort(pending)
		failed := map[string]string{}
		next := r.changeTogether(wanted, pending, failed)
		if len(failed) == 0 || len(failed) == len(pending) {
			return next, failed
		}
		r, pending = next, slices.Collect(maps.Keys(failed))
	}
}

// changeTogether changes all those modules at once. If that fails, it tries each half by itself.
func (r *revision) changeTogether(wanted sources, pending []string, failed map[string]string) *revision {
	if len(pending) == 0 {
		return r
	}
	next := &revision{question: r.question, sources: sources{}}
	maps.Copy(next.sources, r.sources)
	for _, name := range pending {
		delete(next.sources, name)
		if source, isWanted := wanted[name]; isWanted {
			next.sources[name] = source
		}
	}
	var err error
	if next.set, err = next.sources.compile(r.question); err == nil {
		return next
	}
	if len(pending) == 1 {
		failed[pending[0]] = err.Error()
		return r
	}
	half := len(pending) / 2
	return r.changeTogether(wanted, pending[:half], failed).changeTogether(wanted, pending[half:], failed)
}
