package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// careFlags say what becomes of pods when something happens, and what their namespaces are called elsewhere.
type careFlags struct {
	onDisconnect     string
	replaceAfter     time.Duration
	placementTimeout time.Duration
	scaleUpTimeout   time.Duration
	twinName         string
	sameName         bool
	onChange         string
}

func (f *careFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.onDisconnect, "on-disconnect", "wait", "what becomes of pods whose provider is cut off: wait or replace")
	flags.DurationVar(&f.replaceAfter, "replace-after", 0, "after how long they are replaced; by default 5m")
	flags.DurationVar(&f.placementTimeout, "placement-timeout", 0, "how long a provider may look for room for a pod; by default 30s")
	flags.DurationVar(&f.scaleUpTimeout, "scale-up-timeout", 0, "the same while the provider's autoscaler makes room; by default 10m")
	flags.StringVar(&f.twinName, "twin-name", "", "what the namespace is called at providers, where they let us choose")
	flags.BoolVar(&f.sameName, "same-name", false, "call it there as it is called here, where they let us choose")
	flags.StringVar(&f.onChange, "on-change", "keep", "what becomes of pods that run where new ones may not: keep or evict")
}

// fill puts what the flags mean into the spec.
func (f *careFlags) fill(spec *v1alpha1.NamespaceOffloadingSpec) error {
	modes := map[string]v1alpha1.DisconnectionMode{"wait": v1alpha1.DisconnectionWait, "replace": v1alpha1.DisconnectionReplace}
	changes := map[string]v1alpha1.ChangeMode{"keep": v1alpha1.ChangeKeep, "evict": v1alpha1.ChangeEvict}
	var known bool
	if spec.OnDisconnect, known = modes[strings.ToLower(f.onDisconnect)]; !known {
		return fmt.Errorf("--on-disconnect is wait or replace, not %q", f.onDisconnect)
	}
	if spec.OnChange, known = changes[strings.ToLower(f.onChange)]; !known {
		return fmt.Errorf("--on-change is keep or evict, not %q", f.onChange)
	}
	if f.replaceAfter != 0 && spec.OnDisconnect != v1alpha1.DisconnectionReplace {
		return errors.New("--replace-after is for --on-disconnect replace")
	}
	if err := f.times(spec); err != nil {
		return err
	}
	return f.naming(spec)
}

func (f *careFlags) times(spec *v1alpha1.NamespaceOffloadingSpec) error {
	for _, flag := range []struct {
		name  string
		value time.Duration
		most  time.Duration
		field **metav1.Duration
	}{
		{"replace-after", f.replaceAfter, 720 * time.Hour, &spec.ReplaceAfter},
		{"placement-timeout", f.placementTimeout, 24 * time.Hour, &spec.PlacementTimeout},
		{"scale-up-timeout", f.scaleUpTimeout, 24 * time.Hour, &spec.ScaleUpTimeout},
	} {
		if flag.value == 0 {
			continue
		}
		if flag.value < time.Second || flag.value > flag.most {
			return fmt.Errorf("--%s is at least 1s and at most %s, not %s", flag.name, flag.most, flag.value)
		}
		*flag.field = &metav1.Duration{Duration: flag.value}
	}
	return nil
}

func (f *careFlags) naming(spec *v1alpha1.NamespaceOffloadingSpec) error {
	switch {
	case f.twinName != "" && f.sameName:
		return errors.New("say --twin-name or --same-name")
	case f.sameName:
		spec.Twin = &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName}
	case f.twinName != "":
		if problems := validation.IsDNS1123Label(f.twinName); len(problems) > 0 {
			return fmt.Errorf("--twin-name: %q is no name of a namespace: %s", f.twinName, problems[0])
		}
		spec.Twin = &v1alpha1.TwinNaming{Naming: v1alpha1.TwinChosen, Name: f.twinName}
	}
	return nil
}
