// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// What the reflector follows.
var (
	followedSecrets    = &peers.Subject{Example: local.Metadata(corev1.SchemeGroupVersion.WithKind("Secret"))}
	followedConfigMaps = &peers.Subject{Example: local.Metadata(corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
)

// copies is a cluster without Hanse, in memory, and the link of the manager to it.
type copies struct {
	*peerstest.World
	t       *testing.T
	cluster *testkit.Cluster
	remote  *peerstest.Peer
	link    *peers.Link
}

func newCopies(t *testing.T, change func(*v1alpha1.Peer), objects ...client.Object) *copies {
	t.Helper()
	clock := clocktesting.NewFakeClock(testkit.Noon)
	c := &copies{t: t, cluster: testkit.NewCluster(t, clock, objects...)}
	c.World = peerstest.New(t, testkit.Scheme(), peers.Config{Adapt: Offers(Config{ClusterID: homeID, Clock: clock})})
	c.remote = c.Add(peerName, v1alpha1.TenantNamespace(peerName), c.cluster.Client)
	to := peer()
	to.Spec.Copies = v1alpha1.CopiesConfiguration
	if change != nil {
		change(to)
	}
	c.link = c.Link(to)
	return c
}

// synced waits until all copies are known.
func (c *copies) synced() *copies {
	c.t.Helper()
	if err := c.link.Mappings().WaitForSync(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return c
}

// shown returns the Secrets that the reflector sees in the twin of shop: name → version of the object at home.
func (c *copies) shown() map[string]string {
	c.t.Helper()
	seen := map[string]string{}
	for _, object := range c.link.FollowTwin(followedSecrets, "shop").List() {
		if !reflection.IsCopy(object) {
			c.t.Errorf("%s is taken for none of ours", object.GetName())
		}
		seen[object.GetName()] = originVersion(object)
	}
	return seen
}

func (c *copies) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// password is the copy of Secret shop/password, as the reflector makes it.
func password(version string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "password", Labels: map[string]string{v1alpha1.LabelReflected: "true"},
			Annotations: map[string]string{v1alpha1.AnnotationOriginUID: "u-1", v1alpha1.AnnotationOriginVersion: version},
		},
		Data: map[string][]byte{"version": []byte(version)}, Immutable: ptr.To(false),
	}
}

var copyName = remoteName(peerID, types.NamespacedName{Namespace: "shop", Name: "password"})

// at returns the copy as it lies in that namespace of the peer.
func (c *copies) at(namespace string) *corev1.Secret {
	c.t.Helper()
	return testkit.Get[corev1.Secret](c.cluster, namespace, copyName)
}

func TestCopiesHaveNamesOfTheirOwn(t *testing.T) {
	c := newCopies(t, nil).synced()
	c.must(c.link.Client().Create(t.Context(), password("1")))
	made := c.at(there)
	wantLabels := map[string]string{v1alpha1.LabelReflected: "true", v1alpha1.LabelAgentless: peerID}
	wantAnnotations := map[string]string{
		v1alpha1.AnnotationOriginUID: "u-1", v1alpha1.AnnotationOriginVersion: "1",
		v1alpha1.AnnotationHomeNamespace: "shop", v1alpha1.AnnotationHomeName: "password",
	}
	if diff := cmp.Diff(wantLabels, made.Labels) + cmp.Diff(wantAnnotations, made.Annotations); diff != "" {
		t.Error(diff)
	}
	if string(made.Data["version"]) != "1" || made.Immutable == nil {
		t.Errorf("its content is another: %+v", made)
	}
	if diff := cmp.Diff(map[string]string{"password": "1"}, c.shown()); diff != "" {
		t.Errorf("the reflector sees %s", diff)
	}
	if seen := c.link.FollowTwin(followedConfigMaps, "shop").List(); len(seen) > 0 {
		t.Errorf("it is taken for a ConfigMap: %v", seen)
	}
	if diff := cmp.Diff([]string{"shop"}, c.link.Leftovers()); diff != "" {
		t.Errorf("namespaces of which there is something: %s", diff)
	}
	c.must(c.link.Client().Update(t.Context(), password("2")))
	if got := c.shown()["password"]; got != "2" || string(c.at(there).Data["version"]) != "2" {
		t.Errorf("after a change at home it is of version %s", got)
	}
	c.must(c.link.Client().Delete(t.Context(), password("")))
	if left := c.cluster.Names(&corev1.SecretList{}, there); len(left)+len(c.shown()) > 0 {
		t.Errorf("after it was deleted there are %v", left)
	}
}

// Pods may still run in another namespace, where they were started before an administrator changed the order.
func TestCopiesInOtherNamespacesAreKeptUpToDate(t *testing.T) {
	c := newCopies(t, nil).synced()
	c.must(c.link.Client().Create(t.Context(), password("1")))
	c = newCopies(t, func(p *v1alpha1.Peer) { p.Spec.Namespaces = []string{"first", there, "empty"} }, unversioned(c.at(there))).synced()
	if diff := cmp.Diff(map[string]string{"password": ""}, c.shown()); diff != "" {
		t.Errorf("where there is none in the first namespace the reflector sees %s", diff)
	}
	c.must(c.link.Client().Update(t.Context(), password("2")))
	if diff := cmp.Diff(map[string]string{"password": "2"}, c.shown()); diff != "" {
		t.Errorf("when it was written the reflector sees %s", diff)
	}
	if got := string(c.at("first").Data["version"]) + string(c.at(there).Data["version"]); got != "22" {
		t.Errorf("the versions are %s", got)
	}
	if made := c.cluster.Names(&corev1.SecretList{}, "empty"); len(made) > 0 {
		t.Errorf("there is %v where no pod needs it", made)
	}
	c.must(c.link.Client().Delete(t.Context(), password("")))
	if len(c.shown()) > 0 {
		t.Error("it is still there")
	}
}

func unversioned(object *corev1.Secret) *corev1.Secret {
	object.ResourceVersion = ""
	return object
}

func TestNothingOfOthersIsOverwrittenOrDeleted(t *testing.T) {
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: there, Name: copyName, UID: "theirs",
		Labels:      map[string]string{v1alpha1.LabelReflected: "true", v1alpha1.LabelAgentless: "of-another-home"},
		Annotations: map[string]string{v1alpha1.AnnotationHomeNamespace: "shop", v1alpha1.AnnotationHomeName: "password", v1alpha1.AnnotationOriginUID: "u"},
	}}
	renamed := unversioned(theirs.DeepCopy())
	renamed.Name, renamed.Labels[v1alpha1.LabelAgentless] = "renamed", peerID
	c := newCopies(t, nil, theirs, renamed).synced()
	if seen := c.shown(); len(seen) > 0 {
		t.Errorf("they are taken for ours: %v", seen)
	}
	err := c.link.Client().Create(t.Context(), password("1"))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not of this cluster") {
		t.Errorf("got %v", err)
	}
	c.must(c.link.Client().Delete(t.Context(), password("")))
	if diff := cmp.Diff([]string{copyName, "renamed"}, c.cluster.Names(&corev1.SecretList{}, there)); diff != "" {
		t.Error(diff)
	}
	if data := c.at(there).Data; len(data) > 0 {
		t.Errorf("it has %v", data)
	}
}

func TestPeersWithoutCopiesAreNotReadForThem(t *testing.T) {
	c := newCopies(t, func(p *v1alpha1.Peer) { p.Spec.Copies = "" })
	if got := c.remote.Follows(); len(got) > 0 || c.link.Twin("shop") != "" {
		t.Errorf("follows %v, twin %q", got, c.link.Twin("shop"))
	}
	with := peer()
	with.Spec.Copies = v1alpha1.CopiesConfiguration
	if c.Link(with) == c.link {
		t.Error("an administrator has allowed copies, and there is no other link")
	}
}

// Pods that need no copies go on, where there are not the rights for these.
func TestAPeerThatMayNotBeReadForCopiesIsNotCutOff(t *testing.T) {
	c := newCopies(t, nil)
	mappings := c.link.Mappings()
	twin := c.link.FollowTwin(followedSecrets, "shop")
	c.remote.Fail(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no")))
	<-twin.Failed()
	if err := errors.Join(mappings.Err(), c.link.Err()); err != nil || c.link.State() == peers.Cut {
		t.Errorf("the link is %v: %v", c.link.State(), err)
	}
}

func TestAPodRefersToCopies(t *testing.T) {
	w := newWorld(t)
	named := corev1.LocalObjectReference{Name: "a"}
	w.create(shadow(t, func(p *corev1.PodTemplateSpec) {
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{named}
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named}}}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named, Key: "k"},
		}}}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "a"}}},
			{Name: "b", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named}}, {Secret: &corev1.SecretProjection{LocalObjectReference: named}},
			}}}},
		}
	}))
	want := remoteName(peerID, types.NamespacedName{Namespace: web.Namespace, Name: "a"})
	mentions := 0
	reflection.Visit(&w.replicaSet().Spec.Template.Spec, func(kind reflection.Kind, name *string, _ *bool) {
		if mentions++; *name != want {
			t.Errorf("it refers to %s %s, want %s", kind, *name, want)
		}
	})
	if mentions != 6 {
		t.Errorf("it refers to %d objects", mentions)
	}
}

// What is followed first while the peer fails for a moment is up to date in the end, although nobody has seen the moment's end.
func TestAFailureThatIsOverIsNotShownForEver(t *testing.T) {
	c := newCopies(t, nil).synced()
	for i := range 150 {
		c.remote.Fail(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no")))
		twin := c.link.FollowTwin(followedSecrets, fmt.Sprintf("shop-%d", i))
		c.remote.Heal()
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return twin.Err() == nil, nil
		})
		if err != nil {
			t.Fatalf("the peer answers, and the twin is said not to be read: %v", twin.Err())
		}
	}
}
