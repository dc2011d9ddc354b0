package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
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

// placementFlags say which clusters a namespace prefers.
type placementFlags struct {
	prefer     string
	maxPrice   string
	maxLatency time.Duration
	exclude    []string
	strict     bool
}

func (f *placementFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.prefer, "prefer", "", "what makes a cluster better than another: price, latency or spread; by default home is preferred")
	flags.StringVar(&f.maxPrice, "max-price", "", "the most that a pod of 1 core and 1Gi may cost for an hour, such as '0.05 EUR'")
	flags.DurationVar(&f.maxLatency, "max-latency", 0, "the longest round trip to a cluster, such as 50ms")
	flags.StringSliceVar(&f.exclude, "exclude", nil, "peers that pods must not run in")
	flags.BoolVar(&f.strict, "strict", false, "use the best cluster that such a pod fits in, and no other")
}

// placement translates the flags; nil if there are none.
func (f *placementFlags) placement() (*v1alpha1.NamespacePlacement, error) {
	prefer, err := parsePreference(f.prefer)
	if err != nil {
		return nil, err
	}
	wish := v1alpha1.Placement{Prefer: prefer, Exclude: f.exclude, Strict: f.strict}
	for _, peer := range f.exclude {
		if problems := validation.IsDNS1123Label(peer); len(problems) > 0 {
			return nil, fmt.Errorf("--exclude: %q is no name of a peer", peer)
		}
	}
	if err := f.bounds(&wish); err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(wish, v1alpha1.Placement{}) {
		return nil, nil //nolint:nilnil // no wish is the default
	}
	return &v1alpha1.NamespacePlacement{Placement: wish}, nil
}

// bounds are the most that is put up with.
func (f *placementFlags) bounds(wish *v1alpha1.Placement) error {
	if f.maxLatency < 0 || f.maxLatency > time.Hour {
		return fmt.Errorf("--max-latency is at most 1h, such as 50ms, and not %s", f.maxLatency)
	}
	if f.maxLatency > 0 {
		wish.MaxLatency = &metav1.Duration{Duration: f.maxLatency}
	}
	if f.maxPrice == "" {
		return nil
	}
	price, err := parsePrice(f.maxPrice)
	if err != nil {
		return fmt.Errorf("read --max-price: %w", err)
	}
	wish.MaxPrice = price
	return nil
}

func parsePreference(text string) (v1alpha1.PlacementPreference, error) {
	preferences := map[string]v1alpha1.PlacementPreference{
		"": "", "price": v1alpha1.PreferPrice, "latency": v1alpha1.PreferLatency, "spread": v1alpha1.PreferSpread,
	}
	prefer, known := preferences[strings.ToLower(text)]
	if !known {
		return "", fmt.Errorf("--prefer is price, latency or spread, not %q", text)
	}
	return prefer, nil
}

// parsePrice reads an amount and its currency, such as 0.05 EUR.
func parsePrice(text string) (*v1alpha1.Price, error) {
	words := strings.Fields(text)
	if len(words) != 2 || !isCurrency(words[1]) {
		return nil, fmt.Errorf("%q is no amount with a currency, such as '0.05 EUR'", text)
	}
	amount, err := resource.ParseQuantity(words[0])
	if err != nil || amount.Sign() < 0 {
		return nil, fmt.Errorf("%q is no amount, such as 0.05", words[0])
	}
	return &v1alpha1.Price{Amount: amount, Currency: words[1]}, nil
}

func isCurrency(code string) bool {
	return len(code) == 3 && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
