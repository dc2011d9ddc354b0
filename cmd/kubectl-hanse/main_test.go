// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

func TestEveryVerbExplainsItself(t *testing.T) {
	verbs := newCommand().Commands()
	if len(verbs) < 15 {
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
		"invite without a name":                {"invite"},
		"invite with a name that is none":      {"invite", "Lübeck", "--dry-run=client"},
		"invite with a life that is too long":  {"invite", "lubeck", "--ttl", "169h", "--dry-run=client"},
		"invite with a broken address":         {"invite", "lubeck", "--server", "203.0.113.7", "--dry-run=client"},
		"invite without a token to print":      {"invite", "lubeck", "-o", "token", "--dry-run=client"},
		"join without an invitation":           {"join"},
		"join with something else":             {"join", "hanse1.abc"},
		"join with an address for nobody":      {"join", "hanse1.abc", "--server", "https://203.0.113.7"},
		"join with namespaces":                 {"join", "hanse1.abc", "--namespaces", "a"},
		"join without Hanse or credentials":    {"join", "--agentless", "--as", "bremen"},
		"join without Hanse by invitation":     {"join", "hanse1.abc", "--agentless"},
		"join of a member by invitation":       {"join", "hanse1.abc", "--member", "bremen"},
		"join of a member both ways":           {"join", "--member", "bremen", "--mutual"},
		"join through nobody":                  {"join", "hanse1.abc", "--through", "hamburg"},
		"join that accepts members of nobody":  {"join", "hanse1.abc", "--accept-members", "bremen"},
		"join that asks members of nobody":     {"join", "hanse1.abc", "--ask-members", "bremen"},
		"join that asks names":                 {"join", "hanse1.abc", "--broker", "--ask-members", "Bremen"},
		"join that accepts names":              {"join", "hanse1.abc", "--broker", "--accept-members", "Bremen"},
		"join of a broker without Hanse":       {"join", "--broker", "--agentless", "--as", "b", "--remote-kubeconfig", "x", "--namespaces", "a"},
		"members as XML":                       {"members", "-o", "xml"},
		"unpeer that drains somehow":           {"unpeer", "hamburg", "--drain", "maybe"},
		"unpeer that forces and waits":         {"unpeer", "hamburg", "--force", "--drain", "wait"},
		"unpeer that forgets":                  {"unpeer", "hamburg", "--forget"},
		"check as XML":                         {"check", "-o", "xml"},
		"check of a peer before there are any": {"check", "--pre", "--peer", "hamburg"},
		"explain of nothing":                   {"explain", "pod"},
		"offload that changes somehow":         {"offload", "shop", "--on-change", "maybe"},
		"offload with two names":               {"offload", "shop", "--twin-name", "a", "--same-name", "--dry-run=client"},
		"offload that prints without dry run":  {"offload", "shop", "-o", "yaml"},
		"offload without a namespace":          {"offload"},
		"offload with a comparing selector":    {"offload", "shop", "--cluster-selector", "size>3"},
		"offload with a broken selector":       {"offload", "shop", "--cluster-selector", "(in"},
		"install with another kind of dry run": {"install", "--dry-run=server"},
		"install that prints without dry run":  {"install", "-o", "yaml"},
		"install with a value that is none":    {"install", "--dry-run=client", "--set", "kubernetes=1"},
		"install in a namespace of users":      {"install", "--dry-run=client", "-n", "elsewhere"},
		"install with an id that is none":      {"install", "--dry-run=client", "--cluster-id", "Lübeck"},
		"status as XML":                        {"status", "-o", "xml"},
		"table in an order that is none":       {"table", "--sort", "beauty"},
		"table for a pod that asks nothing":    {"table", "--for", "cpu"},
		"table for a pod that asks for many":   {"table", "--for", "cpu=many"},
		"table as XML":                         {"table", "-o", "xml"},
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
		"--hanse-namespace", "elsewhere", "--set", "manager.replicas=2")
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

func TestHanseIsFoundWhereverItIs(t *testing.T) {
	manager := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "elsewhere", Name: "hanse-manager", Labels: map[string]string{install.PartOfLabel: install.PartOf},
	}}
	resource := schema.GroupResource{Resource: "serviceaccounts"}
	for name, test := range map[string]struct {
		global  globalFlags
		objects []client.Object
		err     error // of looking for it
		want    string
	}{
		"it is named":               {global: globalFlags{system: "named"}, objects: []client.Object{manager}, want: "named"},
		"it is found by its label":  {global: globalFlags{namespace: "shop"}, objects: []client.Object{manager}, want: "elsewhere"},
		"it is not installed":       {want: v1alpha1.SystemNamespace},
		"nobody may look for it":    {err: apierrors.NewForbidden(resource, "", nil), want: v1alpha1.SystemNamespace},
		"the cluster has no answer": {err: apierrors.NewInternalError(errors.New("later"))},
	} {
		t.Run(name, func(t *testing.T) {
			c := interceptor.NewClient(newWorld(t, test.objects...).client, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					return cmp.Or(test.err, c.List(ctx, list, options...))
				},
			})
			found, err := test.global.hanseIn(soon(t), c)
			if found != test.want || (err != nil) != (test.want == "") {
				t.Errorf("found %q, %v, want %q", found, err, test.want)
			}
		})
	}
}

func TestANamespaceIsNamedAsInKubectl(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	config := clientcmdapi.NewConfig()
	config.Clusters["lubeck"] = &clientcmdapi.Cluster{Server: "https://203.0.113.7:6443"}
	config.Contexts["lubeck"] = &clientcmdapi.Context{Cluster: "lubeck", Namespace: "of-the-context"}
	config.CurrentContext = "lubeck"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	for named, want := range map[string]string{"": "of-the-context", "shop": "shop"} {
		c, err := (&globalFlags{kubeconfig: file, namespace: named}).connect()
		if err != nil || c.namespace != want {
			t.Errorf("-n %q is about namespace %q (%v), want %q", named, c.namespace, err, want)
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

func TestFlagsOfInstallChangeWhatWasInstalled(t *testing.T) {
	before := func() map[string]any {
		return map[string]any{
			"clusterID": "lubeck", "image": map[string]any{"repository": "r/hanse", "tag": "v1"}, "manager": map[string]any{"replicas": int64(2)},
		}
	}
	for name, test := range map[string]struct {
		flags installFlags
		want  func(values map[string]any)
	}{
		"none": {installFlags{}, func(map[string]any) {}},
		"one value": {installFlags{set: []string{"tracing.endpoint=c:1"}}, func(v map[string]any) {
			v["tracing"] = map[string]any{"endpoint": "c:1"}
		}},
		"a value again": {installFlags{set: []string{"manager.replicas=3"}}, func(v map[string]any) {
			v["manager"] = map[string]any{"replicas": int64(3)}
		}},
		"an image": {installFlags{image: "s/hanse:v2"}, func(v map[string]any) {
			v["image"] = map[string]any{"repository": "s/hanse", "tag": "v2"}
		}},
		"an image without a tag": {installFlags{image: "s/hanse"}, func(v map[string]any) {
			v["image"] = map[string]any{"repository": "s/hanse", "tag": ""}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := before(), before()
			test.want(want)
			if err := test.flags.setIn(got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestInstallingAgainKeepsWhatNoFlagSays(t *testing.T) {
	record := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: "hanse-values"},
		Data:       map[string]string{"values.yaml": "clusterID: lubeck\nimage: {repository: r/hanse, tag: v1}\n"},
	}
	for name, test := range map[string]struct {
		objects []client.Object
		want    map[string]any
	}{
		"for the first time": {nil, map[string]any{"tracing": map[string]any{"endpoint": "c:1"}}},
		"again": {[]client.Object{record}, map[string]any{
			"clusterID": "lubeck", "image": map[string]any{"repository": "r/hanse", "tag": "v1"}, "tracing": map[string]any{"endpoint": "c:1"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			command, _, _ := listener()
			flags := &installFlags{set: []string{"tracing.endpoint=c:1"}}
			got, err := valuesWith(soon(t), newWorld(t, test.objects...).cluster(command), "hanse-system", flags)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// listener is a command that writes into the buffers.
func listener() (command *cobra.Command, out, told *bytes.Buffer) {
	command, out, told = &cobra.Command{}, &bytes.Buffer{}, &bytes.Buffer{}
	command.SetOut(out)
	command.SetErr(told)
	return command, out, told
}

// A world is a cluster with a manager, which acts as soon as something is written.
type world struct {
	*connection
	manager func(ctx context.Context, c client.Client, written client.Object) error
}

// newWorld makes a cluster whose manager makes tenant namespaces and nothing else, unless a test tells it to.
func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{manager: prepare}
	inner := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&eventsv1.Event{}, "regarding.uid", func(o client.Object) []string { return []string{string(o.(*eventsv1.Event).Regarding.UID)} }).
		WithIndex(&eventsv1.Event{}, "type", func(o client.Object) []string { return []string{o.(*eventsv1.Event).Type} }).
		Build()
	outer := interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return cmp.Or(c.Create(ctx, o, options...), w.manager(ctx, inner, o.DeepCopyObject().(client.Object)))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return cmp.Or(c.Update(ctx, o, options...), w.manager(ctx, inner, o.DeepCopyObject().(client.Object)))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return cmp.Or(c.Patch(ctx, o, p, options...), w.manager(ctx, inner, o.DeepCopyObject().(client.Object)))
		},
	})
	w.connection = &connection{name: "lubeck", client: outer}
	return w
}

// prepare makes the tenant namespace of a Peer.
func prepare(ctx context.Context, c client.Client, written client.Object) error {
	peer, isPeer := written.(*v1alpha1.Peer)
	if !isPeer {
		return nil
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantNamespace(peer.Name), Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: peer.Name,
	}}}
	return client.IgnoreAlreadyExists(c.Create(ctx, ns))
}

// peer is a Peer as it is now.
func (w *world) peer(t *testing.T, name string) *v1alpha1.Peer {
	t.Helper()
	peer, err := readPeer(t.Context(), w.client, name)
	if err != nil {
		t.Fatal(err)
	}
	return peer
}

// system is what an installation has: its namespace and its name.
func system() []client.Object {
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ClusterInfo},
			Data:       map[string]string{v1alpha1.ClusterInfoID: "lubeck", v1alpha1.ClusterInfoVersion: "v0.1.0"},
		},
	}
}

func newPeer(name string, roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ClusterID: name, Roles: roles},
	}
}

func setCondition(peer *v1alpha1.Peer, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}
