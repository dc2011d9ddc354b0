package e2e

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

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

// A guest is a consumer that a story plays itself: all that it has of the provider is what the invitation gave it. It can
// do what no honest cluster would.
type guest struct {
	client.Client // with the session
	id            string
	provider      *cluster
	invitation    *trust.Invitation
	signer        harness.Signer
	config        *rest.Config
	before        client.Client // with the invitation alone
}

// invite asks the cluster's administrator for an invitation, and has the peer forgotten at the story's end.
func (c *cluster) invite(t *testing.T, name string, more ...string) *trust.Invitation {
	t.Helper()
	t.Cleanup(func() { c.forget(t, name) }) // also of an invitation that failed half-way
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

// forget ends the relation with a peer that will not answer.
func (c *cluster) forget(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	isGone := func() bool {
		_, err := c.peer(ctx, name)
		return apierrors.IsNotFound(err)
	}
	if isGone() {
		return
	}
	if _, err := c.Hanse(ctx, "unpeer", name, "--force", "--forget"); err != nil && !isGone() { // by agreement, meanwhile
		t.Errorf("forget %s: %v", name, err)
	}
}

// parts has the cluster and the others forget each other, all at once: each waits for a namespace to end.
func (c *cluster) parts(t *testing.T, others ...*cluster) {
	t.Helper()
	var forgetting sync.WaitGroup
	for _, other := range others {
		forgetting.Go(func() { c.forget(t, other.Name) })
		forgetting.Go(func() { other.forget(t, c.Name) })
	}
	forgetting.Wait()
}

// as returns a client of the provider's API server that has nothing but the token.
func (c *cluster) as(t *testing.T, token string) (client.Client, *rest.Config) {
	t.Helper()
	config := &rest.Config{
		Host: c.Config.Host, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.Config.CAData},
	}
	scheme, err := harness.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapperOf(scheme)})
	if err != nil {
		t.Fatal(err)
	}
	return made, config
}

// mapperOf maps kinds to resources without asking the API server, which tells a guest little.
func mapperOf(scheme *runtime.Scheme) meta.RESTMapper {
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

// newClaim makes the claim of a cluster of that id, and the keys that it needs.
func newClaim(t *testing.T, invitation *trust.Invitation, id string) (*v1alpha1.PeeringClaim, trust.SealingKey, ed25519.PrivateKey) {
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

// join uses the invitation as the consumer's Hanse would.
func (c *cluster) join(t *testing.T, invitation *trust.Invitation, id string) *guest {
	t.Helper()
	before, _ := c.as(t, invitation.Token)
	claim, sealing, key := newClaim(t, invitation, id)
	if err := before.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	session := awaitSession(t, before, claim, sealing, invitation)
	g := &guest{id: id, provider: c, invitation: invitation, before: before, signer: harness.Signer{Key: key, Consumer: id, Provider: invitation.ClusterID}}
	g.Client, g.config = c.as(t, session.Token)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"phase":"Joined"}}`))
	if err := g.Patch(t.Context(), claim, patch); err != nil {
		t.Fatal(err)
	}
	return g
}

// expectInvitationEnded waits until the invitation that was used is good for nothing: API servers remember tokens for 10 s.
func (g *guest) expectInvitationEnded(t *testing.T) {
	t.Helper()
	key := types.NamespacedName{Namespace: g.invitation.Namespace, Name: v1alpha1.PeeringClaimName}
	eventually(t, "the invitation ends once it was used", func(ctx context.Context) error {
		if err := g.before.Get(ctx, key, &v1alpha1.PeeringClaim{}); err == nil {
			return errors.New("it can still be used")
		}
		return nil
	})
}

func awaitSession(t *testing.T, c client.Client, claim *v1alpha1.PeeringClaim, key trust.SealingKey, invitation *trust.Invitation) trust.Session {
	t.Helper()
	var session trust.Session
	eventually(t, "the provider answers the claim", func(ctx context.Context) error {
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

// welcome invites a peer and plays it.
func (c *cluster) welcome(t *testing.T, name string, more ...string) *guest {
	t.Helper()
	return c.join(t, c.invite(t, name, more...), name)
}

// welcomeWithin is welcome for a peer that the administrator sets these limits.
func (c *cluster) welcomeWithin(t *testing.T, name, limits string) *guest {
	t.Helper()
	invitation := c.invite(t, name)
	c.limit(t, name, limits)
	return c.join(t, invitation, name)
}

// limit sets limits of the peer.
func (c *cluster) limit(t *testing.T, peer, limits string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"limits":%s}}`, limits)
	if _, err := c.Kubectl(context.Background(), "patch", "peer", peer, "--type", "merge", "-p", patch); err != nil {
		t.Fatal(err)
	}
}

// twin asks for a twin namespace and waits for it.
func (g *guest) twin(t *testing.T, home string) string {
	t.Helper()
	mapping := &v1alpha1.NamespaceMapping{Spec: v1alpha1.NamespaceMappingSpec{HomeNamespace: home}}
	mapping.Namespace, mapping.Name = g.invitation.Namespace, home
	if err := g.Create(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	eventually(t, g.provider.Name+" makes a twin of "+home, func(ctx context.Context) error {
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

// busyPod is a pod template that any provider runs.
const busyPod = `
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + busybox + `
    imagePullPolicy: IfNotPresent
    command: [/bin/sh, -c, "` + forever + `"]
    resources: {requests: {cpu: 1m, memory: 8Mi}}
`

// shadow is a ShadowPod in the twin, as the template says.
func shadow(t *testing.T, twin, name, template string) *v1alpha1.ShadowPod {
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

// awaitRunning waits until the guest sees its pods Ready.
func (g *guest) awaitRunning(t *testing.T, twin string, names ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s run in %s", strings.Join(names, ", "), twin), func(ctx context.Context) error {
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
