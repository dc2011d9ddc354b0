package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestEveryVerbExplainsItself(t *testing.T) {
	verbs := newCommand().Commands()
	if len(verbs) < 8 {
		t.Fatalf("%d verbs", len(verbs))
	}
	for _, verb := range verbs {
		if verb.Short == "" || verb.Example == "" || !strings.Contains(verb.Example, "kubectl hanse "+verb.Name()) {
			t.Errorf("%s lacks a description or an example", verb.Name())
		}
	}
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"peer without another cluster":         {"peer"},
		"offload without a namespace":          {"offload"},
		"offload with a comparing selector":    {"offload", "shop", "--cluster-selector", "size>3"},
		"offload with a broken selector":       {"offload", "shop", "--cluster-selector", "(in"},
		"install with another kind of dry run": {"install", "--dry-run=server"},
		"install that prints without dry run":  {"install", "-o", "yaml"},
		"install with a value that is none":    {"install", "--dry-run=client", "--set", "kubernetes=1"},
		"install with an id that is none":      {"install", "--dry-run=client", "--cluster-id", "Lübeck"},
		"version as XML":                       {"version", "--client", "-o", "xml"},
		"a cluster that does not exist":        {"status", "--kubeconfig", "/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, args...); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestDryRunPrintsEverything(t *testing.T) {
	out, err := run(t, "install", "--dry-run=client", "-o", "yaml", "--cluster-id", "lubeck", "--image", "example.com:5000/h@sha256:abc",
		"-n", "elsewhere", "--set", "manager.replicas=2")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kind: CustomResourceDefinition", "name: elsewhere", "--cluster-id=lubeck", "image: example.com:5000/h@sha256:abc",
		"replicas: 2", "kind: MutatingAdmissionPolicyBinding",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
}

func TestImagesAreSplit(t *testing.T) {
	for image, want := range map[string][2]string{
		"hanse":                            {"hanse", ""},
		"hanse:v1":                         {"hanse", "v1"},
		"registry.example.com:5000/hanse":  {"registry.example.com:5000/hanse", ""},
		"registry.example.com:5000/h:v1":   {"registry.example.com:5000/h", "v1"},
		"registry.example.com/h@sha256:ab": {"registry.example.com/h", "sha256:ab"},
	} {
		repository, tag := splitImage(image)
		if got := [2]string{repository, tag}; got != want {
			t.Errorf("%s is %q, want %q", image, got, want)
		}
	}
}

// run is what the user sees.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := newCommand()
	command.SetOut(&out)
	command.SetErr(&bytes.Buffer{})
	command.SetArgs(args)
	err := command.ExecuteContext(soon(t))
	return out.String(), err
}

// soon ends waiting in vain.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// quiet is a command that nobody listens to.
func quiet() *cobra.Command {
	command := &cobra.Command{}
	command.SetOut(&bytes.Buffer{})
	command.SetErr(&bytes.Buffer{})
	return command
}

// newSide is a cluster with a manager that prepares tenant namespaces as soon as it sees a Peer.
func newSide(t *testing.T, id string, objects ...client.Object) *side {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{Create: createAndPrepare}).
		Build()
	config := &rest.Config{Host: "https://" + id + ":6443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("authority of " + id)}}
	return &side{connection: &connection{name: id, config: config, client: c}, id: id, called: id, server: config.Host}
}

func createAndPrepare(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
	if err := c.Create(ctx, object, options...); err != nil {
		return err
	}
	peer, isPeer := object.(*v1alpha1.Peer)
	if !isPeer {
		return nil
	}
	namespace := v1alpha1.TenantNamespace(peer.Name)
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	return c.Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.PeerServiceAccount},
	})
}
