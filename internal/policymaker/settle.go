package policymaker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hanse-dev/hanse/internal/policy"
)

// A compiler makes a set of modules, or says why that is impossible.
type compiler func([]policy.Module) (*policy.Set, error)

// compilerOf returns the compiler of a question. It keeps the bound of what can be written
// into the status.
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

// changes returns what makes one list of modules the other.
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

// settle returns what is to be in force after current where that is wanted, and why it is not all that is wanted: name of
// a module → what is wrong with it. Both lists are by name. A current ruling without a set is one of a former process.
func settle(compile compiler, current *ruling, wanted []policy.Module) (*ruling, map[string]error, error) {
	if current.set == nil {
		var err error
		if current, err = revive(compile, current.modules); err != nil {
			return nil, nil, err
		}
	}
	next, failed := current.grow(compile, changes(current.modules, wanted))
	broken := map[string]error{}
	for _, f := range failed {
		broken[f.module.Name] = f.explain()
	}
	return next, broken, nil
}

// revive makes a ruling of all the modules, or of as many as this version of Hanse understands.
func revive(compile compiler, modules []policy.Module) (*ruling, error) {
	none, err := compile(nil)
	if err != nil {
		return nil, fmt.Errorf("compile the built-in default: %w", err)
	}
	revived, _ := (&ruling{set: none}).grow(compile, changes(nil, modules))
	return revived, nil
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

// grow makes as many of the changes as can be made, in whatever order they can be. It returns what comes out, which is r
// itself if that is nothing, and the changes that cannot be made.
func (r *ruling) grow(compile compiler, pending []change) (*ruling, []failure) {
	for {
		next, failed := r.attempt(compile, pending)
		if len(failed) == 0 || len(failed) == len(pending) {
			return next, failed
		}
		r, pending = next, nil
		for _, f := range failed {
			pending = append(pending, f.change)
		}
	}
}

// attempt makes all the changes at once, or else those of each half that can be made.
func (r *ruling) attempt(compile compiler, pending []change) (*ruling, []failure) {
	if len(pending) == 0 {
		return r, nil
	}
	modules := r.modules
	for _, c := range pending {
		modules = c.appliedTo(modules)
	}
	set, err := compile(modules)
	if err == nil {
		return &ruling{modules: modules, set: set}, nil
	}
	if len(pending) == 1 {
		return r, []failure{{pending[0], err}}
	}
	half := len(pending) / 2
	r, failed := r.attempt(compile, pending[:half])
	r, more := r.attempt(compile, pending[half:])
	return r, append(failed, more...)
}
