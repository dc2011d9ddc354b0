package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"
)

// within connects to the cluster and does a verb's work there, for no longer than the timeout.
func (g *globalFlags) within(
	command *cobra.Command, timeout time.Duration, work func(context.Context, *connection) error,
) error {
	ctx, cancel := context.WithTimeout(command.Context(), timeout)
	defer cancel()
	c, err := g.cluster.connect()
	if err != nil {
		return err
	}
	return explain(work(ctx, c), c.name)
}

// waitFlags are those of verbs that wait for what they have asked for.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (f *waitFlags) bind(flags *pflag.FlagSet, timeout time.Duration, what string) {
	flags.BoolVar(&f.wait, "wait", true, "wait until "+what)
	flags.DurationVar(&f.timeout, "timeout", timeout, "how long to wait")
}

// dryRunFlags are those of verbs that can print what they would write.
type dryRunFlags struct {
	dryRun string
	output string
}

func (f *dryRunFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.dryRun, "dry-run", "none", "none, or client: print what would be written, and write nothing")
	flags.StringVarP(&f.output, "output", "o", "", "yaml, with --dry-run=client")
}

// validate reports flags that make no sense.
func (f *dryRunFlags) validate() error {
	if f.dryRun != "none" && f.dryRun != "client" {
		return fmt.Errorf("--dry-run is none or client, not %q", f.dryRun)
	}
	if f.output != "" && (f.output != "yaml" || !f.dry()) {
		return errors.New("--output is yaml, and is for --dry-run=client")
	}
	return nil
}

// dry reports whether nothing is to be written.
func (f *dryRunFlags) dry() bool { return f.dryRun == "client" }

// printObjects prints objects as one would apply them.
func printObjects(to io.Writer, objects ...client.Object) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	for _, object := range objects {
		content, err := applicable(scheme, object)
		if err != nil {
			return fmt.Errorf("encode %T %s: %w", object, object.GetName(), err)
		}
		data, err := yaml.Marshal(content)
		if err != nil {
			return fmt.Errorf("encode %T %s: %w", object, object.GetName(), err)
		}
		if _, err := fmt.Fprintf(to, "---\n%s", data); err != nil {
			return err
		}
	}
	return nil
}

// applicable is the object without what the API server adds.
func applicable(scheme *runtime.Scheme, object client.Object) (map[string]any, error) {
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	content["apiVersion"], content["kind"] = kind.GroupVersion().String(), kind.Kind
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		for _, field := range []string{
			"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers", "generation",
			"managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid",
		} {
			delete(metadata, field)
		}
	}
	if spec, ok := content["spec"].(map[string]any); ok && len(spec) == 0 {
		delete(content, "spec")
	}
	return content, nil
}

// progress tells the user how something stands: again only when that has changed.
type progress struct {
	report func(format string, args ...any)
	last   string
}

func (p *progress) tell(text string) {
	if text == "" || text == p.last {
		return
	}
	p.last = text
	p.report("%s", printable(text))
}
