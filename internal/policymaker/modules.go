package policymaker

import (
	"cmp"
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

// configMapOf returns the name of the ConfigMap that a broken module is in. A broken ConfigMap is returned itself.
func configMapOf(broken string) string {
	name, _, _ := strings.Cut(broken, "/")
	return name
}

// bounded returns at most maxBroken of the broken modules, each with a message of at most maxMessage bytes.
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
func shortened(text string, most int) string { return sanitize.Text(text, most) }

// A compiler makes a set of modules, or says why that is impossible.
type compiler func([]policy.Module) (*policy.Set, error)

// compilerOf returns the compiler of a question. It refuses modules that are too large to be kept in the status.
func compilerOf(question policy.Question) compiler {
	return func(modules []policy.Module) (*policy.Set, error) {
		size := 0
		for _, module := range modules {
			size += len(encode(module.Source))
		}
		if size > maxSources {
			return nil, fmt.Errorf("all modules together may have at most %d KiB", maxSources>>10)
		}
		return policy.Compile(question, modules)
	}
}

// A change of one module. One that is gone has no source.
type change struct {
	module policy.Module
	gone   bool
}

// changes returns the changes that make one list of modules into the other.
func changes(from, to []policy.Module) []change {
	var found []change
	for _, module := range to {
		if !slices.Contains(from, module) {
			found = append(found, change{module: module})
		}
	}
	for _, module := range from {
		if !names(to)[module.Name] {
			found = append(found, change{module: policy.Module{Name: module.Name}, gone: true})
		}
	}
	return found
}

func names(modules []policy.Module) map[string]bool {
	found := map[string]bool{}
	for _, module := range modules {
		found[module.Name] = true
	}
	return found
}

// appliedTo returns the modules with the change, by name.
func (c change) appliedTo(modules []policy.Module) []policy.Module {
	others := slices.DeleteFunc(slices.Clone(modules), func(m policy.Module) bool { return m.Name == c.module.Name })
	if c.gone {
		return others
	}
	others = append(others, c.module)
	slices.SortFunc(others, compareNames)
	return others
}

func compareNames(a, b policy.Module) int { return cmp.Compare(a.Name, b.Name) }

// advance returns the revision that follows current: with the wanted modules, as far as they compile. It also returns why
// modules are left out: name → what is wrong. Both lists are by name. If current is not compiled, it is what a former
// process had in force.
func advance(compile compiler, current *revision, wanted []policy.Module) (*revision, map[string]error, error) {
	if current.set == nil {
		var err error
		if current, err = restore(compile, current.modules); err != nil {
			return nil, nil, err
		}
	}
	next, failed := current.apply(compile, changes(current.modules, wanted))
	broken := map[string]error{}
	for _, f := range failed {
		broken[f.module.Name] = f.explain()
	}
	return next, broken, nil
}

// restore compiles all the modules, or as many as this version of Hanse understands.
func restore(compile compiler, modules []policy.Module) (*revision, error) {
	none, err := compile(nil)
	if err != nil {
		return nil, fmt.Errorf("compile the built-in default: %w", err)
	}
	restored, _ := (&revision{set: none}).apply(compile, changes(nil, modules))
	return restored, nil
}

// A failure is a change that cannot be made, and why.
type failure struct {
	change
	err error
}

func (f failure) explain() error {
	if f.gone {
		return fmt.Errorf("it was deleted, and stays in force since others need it: %w", f.err)
	}
	return f.err
}

// apply makes as many of the changes as possible, in any order. It returns the new revision, which is r itself if no change
// is possible, and the changes that are not possible.
func (r *revision) apply(compile compiler, pending []change) (*revision, []failure) {
	for {
		next, failed := r.applyTogether(compile, pending)
		if len(failed) == 0 || len(failed) == len(pending) {
			return next, failed
		}
		r, pending = next, nil
		for _, f := range failed {
			pending = append(pending, f.change)
		}
	}
}

// applyTogether makes all the changes at once. If that fails, it tries each half by itself.
func (r *revision) applyTogether(compile compiler, pending []change) (*revision, []failure) {
	if len(pending) == 0 {
		return r, nil
	}
	modules := r.modules
	for _, c := range pending {
		modules = c.appliedTo(modules)
	}
	set, err := compile(modules)
	if err == nil {
		return &revision{modules: modules, set: set}, nil
	}
	if len(pending) == 1 {
		return r, []failure{{pending[0], err}}
	}
	half := len(pending) / 2
	r, failed := r.applyTogether(compile, pending[:half])
	r, more := r.applyTogether(compile, pending[half:])
	return r, append(failed, more...)
}
