// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
	"github.com/hanse-dev/hanse/test/harness"
)

// A Guest is a consumer that a story plays itself: all that it has of the provider is what the invitation gave it. It can
// do what no honest cluster would.
type Guest struct {
	client.Client // with the session
	ID            string
	Provider      *Cluster
	Invitation    *trust.Invitation
	Signer        harness.Signer
	Config        *rest.Config
	Before        client.Client // with the invitation alone
}

// CreateInvitation asks the cluster's administrator for an invitation, and has the peer forgotten at the story's end.
func (c *Cluster) CreateInvitation(t *testing.T, name string, more ...string) *trust.Invitation {
	t.Helper()
	t.Cleanup(func() { c.ForgetPeer(t, name) }) // also of an invitation that failed half-way
	token, err := c.Hanse(t.Context(), append([]string{"invite", name}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	invitation, err := trust.ParseInvitation(token)
	if err != nil {
		t.Fatal(err)
	}
	return invitation
}

// ForgetPeer ends the relation with a peer that will not answer.
func (c *Cluster) ForgetPeer(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), WaitTimeout)
	defer cancel()
	isGone := func() bool {
		_, err := c.GetPeer(ctx, name)
		return apierrors.IsNotFound(err)
	}
	if isGone() {
		return
	}
	if _, err := c.Hanse(ctx, "unpeer", name, "--force", "--forget"); err != nil && !isGone() { // by agreement, meanwhile
		t.Errorf("forget %s: %v", name, err)
	}
}

// UnpeerAll has the cluster and the others forget each other, all at once: each waits for a namespace to end.
func (c *Cluster) UnpeerAll(t *testing.T, others ...*Cluster) {
	t.Helper()
	var forgetting sync.WaitGroup
	for _, other := range others {
		forgetting.Go(func() { c.ForgetPeer(t, other.Name) })
		forgetting.Go(func() { other.ForgetPeer(t, c.Name) })
	}
	forgetting.Wait()
}

// ClientWithToken returns a client of the provider's API server that has nothing but the token.
func (c *Cluster) ClientWithToken(t *testing.T, token string) (client.Client, *rest.Config) {
	t.Helper()
	config := &rest.Config{
		Host: c.Config.Host, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.Config.CAData},
	}
	scheme, err := harness.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.New(config, client.Options{Scheme: scheme, Mapper: MapperOf(scheme)})
	if err != nil {
		t.Fatal(err)
	}
	return made, config
}

// MapperOf maps kinds to resources without asking the API server, which tells a guest little.
func MapperOf(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		switch kind.Kind {
		case "Namespace", "Node", "PersistentVolume", "Peer", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "SelfSubjectAccessReview",
			"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	return mapper
}

// NewClaim makes the claim of a cluster of that id, and the keys that it needs.
func NewClaim(t *testing.T, invitation *trust.Invitation, id string) (*v1alpha1.PeeringClaim, trust.SealingKey, ed25519.PrivateKey) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	sealing, err := trust.NewSealingKey()
	if err != nil {
		t.Fatal(err)
	}
	claim := &v1alpha1.PeeringClaim{}
	claim.Namespace, claim.Name = invitation.Namespace, v1alpha1.PeeringClaimName
	claim.Spec = v1alpha1.PeeringClaimSpec{Invitation: invitation.ID, ClusterID: id, SealingKey: sealing.Public(), Version: "v0.1.0"}
	trust.SignClaim(key, invitation.PublicKey, &claim.Spec)
	return claim, sealing, key
}

// JoinAsGuest uses the invitation as the consumer's Hanse would.
func (c *Cluster) JoinAsGuest(t *testing.T, invitation *trust.Invitation, id string) *Guest {
	t.Helper()
	before, _ := c.ClientWithToken(t, invitation.Token)
	claim, sealing, key := NewClaim(t, invitation, id)
	if err := before.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	session := awaitSession(t, before, claim, sealing, invitation)
	g := &Guest{ID: id, Provider: c, Invitation: invitation, Before: before, Signer: harness.Signer{Key: key, Consumer: id, Provider: invitation.ClusterID}}
	g.Client, g.Config = c.ClientWithToken(t, session.Token)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"phase":"Joined"}}`))
	if err := g.Patch(t.Context(), claim, patch); err != nil {
		t.Fatal(err)
	}
	return g
}

func awaitSession(t *testing.T, c client.Client, claim *v1alpha1.PeeringClaim, key trust.SealingKey, invitation *trust.Invitation) trust.Session {
	t.Helper()
	var session trust.Session
	Eventually(t, "the provider answers the claim", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		if claim.Status.Session == nil {
			return fmt.Errorf("conditions: %+v", claim.Status.Conditions)
		}
		var err error
		session, err = trust.OpenSession(invitation.PublicKey, key, invitation.ID, claim.Status.Session)
		return err
	})
	return session
}

// PeerWithGuest invites a peer and plays it.
func (c *Cluster) PeerWithGuest(t *testing.T, name string, more ...string) *Guest {
	t.Helper()
	return c.JoinAsGuest(t, c.CreateInvitation(t, name, more...), name)
}

// SetLimits sets limits of the peer.
func (c *Cluster) SetLimits(t *testing.T, peer, limits string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"limits":%s}}`, limits)
	if _, err := c.Kubectl(context.Background(), "patch", "peer", peer, "--type", "merge", "-p", patch); err != nil {
		t.Fatal(err)
	}
}

// CreateTwin asks for a twin namespace and waits for it.
func (g *Guest) CreateTwin(t *testing.T, home string) string {
	t.Helper()
	mapping := &v1alpha1.NamespaceMapping{Spec: v1alpha1.NamespaceMappingSpec{HomeNamespace: home}}
	mapping.Namespace, mapping.Name = g.Invitation.Namespace, home
	if err := g.Create(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	Eventually(t, g.Provider.Name+" makes a twin of "+home, func(ctx context.Context) error {
		if err := g.Get(ctx, client.ObjectKeyFromObject(mapping), mapping); err != nil {
			return err
		}
		if mapping.Status.Twin == "" {
			return fmt.Errorf("conditions: %+v", mapping.Status.Conditions)
		}
		return nil
	})
	return mapping.Status.Twin
}

// BusyPodTemplate is a pod template that any provider runs.
const BusyPodTemplate = `
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + BusyboxImage + `
    imagePullPolicy: IfNotPresent
    command: [/bin/sh, -c, "` + RunForever + `"]
    resources: {requests: {cpu: 1m, memory: 8Mi}}
`

// NewShadowPod is a ShadowPod in the twin, as the template says.
func NewShadowPod(t *testing.T, twin, name, template string) *v1alpha1.ShadowPod {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(template))
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: name},
		Spec:       v1alpha1.ShadowPodSpec{HomeUID: types.UID("uid-of-" + name), Pod: string(data)},
	}
}

// AwaitRunning waits until the guest sees its pods Ready.
func (g *Guest) AwaitRunning(t *testing.T, twin string, names ...string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s run in %s", strings.Join(names, ", "), twin), func(ctx context.Context) error {
		for _, name := range names {
			got := &v1alpha1.ShadowPod{}
			if err := g.Get(ctx, types.NamespacedName{Namespace: twin, Name: name}, got); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionReady) {
				return fmt.Errorf("%s: %s %+v", name, got.Status.Phase, got.Status.Conditions)
			}
		}
		return nil
	})
}

// SelectPeer returns a selector of the cluster of that peer.
func SelectPeer(peer string) *v1alpha1.ClusterSelector {
	return &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: v1alpha1.LabelValue(peer)}}
}

// CheckExec checks that a command runs in the pod.
func (c *Cluster) CheckExec(ctx context.Context, home *corev1.Pod) error {
	out, err := c.Kubectl(ctx, "exec", "-n", home.Namespace, home.Name, "--", "echo", "still here")
	if err == nil && !strings.Contains(out, "still here") {
		err = fmt.Errorf("exec says %q", out)
	}
	return err
}
