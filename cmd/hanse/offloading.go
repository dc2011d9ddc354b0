package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/internal/namespaces"
)

// offloadingFlags say which namespaces are offloaded without their users doing anything.
type offloadingFlags struct {
	namespaces string
	spec       string
	defaults   *namespaces.Default
}

func (f *offloadingFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.namespaces, "offload-namespaces", "",
		"labels of the namespaces in which to keep a NamespaceOffloading, as in kubectl get -l; by default none")
	flags.StringVar(&f.spec, "offload-spec", "", "spec of those NamespaceOffloadings, as JSON; by default {}")
}

func (f *offloadingFlags) parse() error {
	if f.namespaces == "" {
		if f.spec != "" {
			return errors.New("--offload-spec is for --offload-namespaces")
		}
		return nil
	}
	selector, err := labels.Parse(f.namespaces)
	if err != nil {
		return fmt.Errorf("--offload-namespaces: %w", err)
	}
	f.defaults = &namespaces.Default{Selector: selector}
	if err := yaml.UnmarshalStrict([]byte(f.spec), &f.defaults.Spec); err != nil {
		return fmt.Errorf("--offload-spec: %w", err)
	}
	return nil
}
