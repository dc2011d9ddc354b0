// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"time"

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

// A Guest is a consumer that a test plays itself. All that it has of the provider is its invitation and its session, so that
// it can do what no Hanse would.
type Guest struct {
	client.Client // with the session
	ID            string
	Provider      *Cluster
	Invitation    *trust.Invitation
	Signer        harness.Signer
	Config        *rest.Config
	Bearer        client.Client // with the invitation alone
}

// Invite makes an invitation for a peer, which the cluster forgets at the end of the test.
func (c *Cluster) Invite(t T, name string, flags ...string) *trust.Invitation {
	t.Helper()
	t.Cleanup(func() { c.Forget(t, name) }) // also of an invitation that failed half-way
	invitation, err := trust.ParseInvitation(c.MustHanse(t, append([]string{"invite", name}, flags...)...))
	if err != nil {
		t.Fatal(err)
	}
	return invitation
}

// As returns a client of the cluster's API server that has nothing but the token.
func (c *Cluster) As(t T, token string) (client.Client, *rest.Config) {
	t.Helper()
	config := &rest.Config{
		Host: c.Config.Host, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.Config.CAData},
	}
	return clientOf(t, config), config
}

// Impersonate returns a client of the cluster's API server that acts as a user of these groups.
func (c *Cluster) Impersonate(t T, user string, groups ...string) client.Client {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return clientOf(t, config)
}

func clientOf(t T, config *rest.Config) client.Client {
	t.Helper()
	scheme, err := harness.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapperOf(scheme)})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// mapperOf maps kinds to resources without a request to the API server, which lets a guest read little.
func mapperOf(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		switch kind.Kind {
		case "Namespace", "Node", "PersistentVolume", "Peer", "Member", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition",
			"SelfSubjectAccessReview", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "FlowSchema", "StorageClass":
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	return mapper
}

// NewClaim makes the claim of a cluster of that id, and its keys.
func NewClaim(t T, invitation *trust.Invitation, id string) (*v1alpha1.PeeringClaim, trust.SealingKey, ed25519.PrivateKey) {
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

// Join uses an invitation as the consumer's Hanse would.
func (c *Cluster) Join(t T, invitation *trust.Invitation, id string) *Guest {
	t.Helper()
	bearer, _ := c.As(t, invitation.Token)
	claim, sealing, key := NewClaim(t, invitation, id)
	if err := bearer.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	session := awaitSession(t, bearer, claim, sealing, invitation)
	g := &Guest{
		ID: id, Provider: c, Invitation: invitation, Bearer: bearer,
		Signer: harness.Signer{Key: key, Consumer: id, Provider: invitation.ClusterID},
	}
	g.Client, g.Config = c.As(t, session.Token)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"phase":"Joined"}}`))
	if err := g.Patch(t.Context(), claim, patch); err != nil {
		t.Fatal(err)
	}
	return g
}

// ExpectInvitationEnded waits until the invitation that was used is void. API servers remember tokens for 10 s.
func (g *Guest) ExpectInvitationEnded(t T) {
	t.Helper()
	key := types.NamespacedName{Namespace: g.Invitation.Namespace, Name: v1alpha1.PeeringClaimName}
	Eventually(t, "an invitation ends once it was used", func(ctx context.Context) error {
		if err := g.Bearer.Get(ctx, key, &v1alpha1.PeeringClaim{}); err == nil {
			return errors.New("the API server still accepts its token")
		}
		return nil
	})
}

func awaitSession(t T, c client.Client, claim *v1alpha1.PeeringClaim, key trust.SealingKey, invitation *trust.Invitation) trust.Session {
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

// Welcome invites a guest, and joins as it.
func (c *Cluster) Welcome(t T, name string, flags ...string) *Guest {
	t.Helper()
	return c.Join(t, c.Invite(t, name, flags...), name)
}

// WelcomeWithin is Welcome for a peer with limits, such as {"resources":{"pods":"5"}}.
func (c *Cluster) WelcomeWithin(t T, name, limits string) *Guest {
	t.Helper()
	invitation := c.Invite(t, name)
	c.MustPatch(t, &v1alpha1.Peer{ObjectMeta: Named("", name)}, fmt.Sprintf(`{"spec":{"limits":%s}}`, limits))
	return c.Join(t, invitation, name)
}

// Twin asks for a remote namespace for the home namespace, and waits for it.
func (g *Guest) Twin(t T, home string) string {
	t.Helper()
	mapping := Mapping(g.Invitation.Namespace, home)
	if err := g.Create(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	Eventually(t, g.Provider.Name+" creates a remote namespace for "+home, func(ctx context.Context) error {
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

// MustCreate creates objects with the guest's session.
func (g *Guest) MustCreate(t T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := g.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// Mapping returns a NamespaceMapping in the tenant namespace for the home namespace.
func Mapping(tenant, home string) *v1alpha1.NamespaceMapping {
	return &v1alpha1.NamespaceMapping{ObjectMeta: Named(tenant, home), Spec: v1alpha1.NamespaceMappingSpec{HomeNamespace: home}}
}

// BusyPod is the template of a pod that any provider runs.
const BusyPod = `
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + TestImage + `
    imagePullPolicy: IfNotPresent
    command: [/bin/sh, -c, "true"]
    resources: {requests: {cpu: 1m, memory: 8Mi}}
`

// Shadow returns a ShadowPod in the remote namespace for a template of a pod.
func Shadow(t T, twin, name, template string) *v1alpha1.ShadowPod {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(template))
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.ShadowPod{
		ObjectMeta: Named(twin, name), Spec: v1alpha1.ShadowPodSpec{HomeUID: types.UID("uid-of-" + name), Pod: string(data)},
	}
}

// AwaitRunning waits until the guest sees its pods Ready.
func (g *Guest) AwaitRunning(t T, twin string, names ...string) {
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

// Sign signs a Request as the guest's Hanse would.
func (g *Guest) Sign(t T, request *v1alpha1.Request, changes ...func(*trust.Statement)) *v1alpha1.Request {
	t.Helper()
	if err := g.Signer.Sign(request, time.Now(), changes...); err != nil {
		t.Fatal(err)
	}
	return request
}

// Named returns the metadata of an object with a name, and with a namespace unless that is empty.
func Named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
