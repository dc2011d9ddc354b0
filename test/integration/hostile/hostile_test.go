// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestBrokenPeerStopsNobody: the API server of rostock accepts any Advertisement, so that the test can send what no Hanse would.
func TestBrokenPeerStopsNobody(t *testing.T) {
	t.Parallel()
	playPeer(t, rostock)
	consumeFromRostock(t, lubeck, &clientcmdapi.Cluster{Server: rostock.Config.Host, CertificateAuthorityData: rostock.Config.CAData})

	// Each is a first offer, since changes of one that follow each other this fast are taken more slowly each time.
	for _, first := range []struct {
		spoil   func(spec map[string]any)
		reasons []string
	}{
		{func(spec map[string]any) { spec["availability"].(map[string]any)["cpu"] = "-4" }, []string{v1alpha1.ReasonInvalidQuantity}},
		{func(spec map[string]any) { delete(spec["availability"].(map[string]any), "memory") }, []string{v1alpha1.ReasonInvalidQuantity}},
		{func(spec map[string]any) { spec["clusterID"] = "hamburg" }, []string{v1alpha1.ReasonClusterIDMismatch}},
		{func(spec map[string]any) { shiftTimes(spec, -time.Hour) }, []string{v1alpha1.ReasonClockSkew, v1alpha1.ReasonExpired}},
		{func(spec map[string]any) { shiftTimes(spec, time.Hour) }, []string{v1alpha1.ReasonClockSkew}},
	} {
		advertise(t, rostock, first.spoil)
		expectRefused(t, first.reasons...)
		withdraw(t, rostock)
	}

	advertise(t, rostock, func(spec map[string]any) { spec["availability"].(map[string]any)["cpu"] = "lots" })
	expectPeerComplains(t, v1alpha1.ReasonMalformed)
	withdraw(t, rostock)
	expectNoNode(t)

	// The others' pods still start.
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	lubeck.MustCreate(t, framework.Deployment(ns, "unbothered", 2, framework.PodSpec()))
	for _, home := range lubeck.AwaitReadyPods(t, ns, "unbothered", 2) {
		framework.ExpectSamePod(t, &home, hamburg.MustRemotePod(t, &home))
	}

	// Unknown flags are kept and ignored, and the link still works.
	advertise(t, rostock, func(spec map[string]any) { spec["flags"] = map[string]any{"mood": "better"} })
	node := awaitNode(t, lubeck, "rostock", "4")

	advertise(t, rostock, func(spec map[string]any) { spec["images"] = megabytesOfImages() })
	expectRefused(t, v1alpha1.ReasonMalformed)
	expectPeerMentions(t, "spec.images")
	advertise(t, rostock, func(spec map[string]any) { spec["availability"].(map[string]any)["cpu"] = "1e30" })
	expectRefused(t, v1alpha1.ReasonInvalidQuantity)
	if after := awaitNode(t, lubeck, "rostock", "4"); after.UID != node.UID {
		t.Errorf("the node was made anew: %s, then %s", node.UID, after.UID)
	}
}

func TestPeerThatCannotBeReached(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ClusterID: "visby", Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}}}
	peer.Name = "visby"
	lubeck.MustCreate(t, peer)
	t.Cleanup(func() { lubeck.DeleteAndWait(t, peer) })
	expectPeer := func(condition, reason string) {
		t.Helper()
		framework.Eventually(t, "peer visby says "+reason, func(ctx context.Context) error {
			return lubeck.PeerLacks(ctx, "visby", condition, reason)
		})
	}
	expectPeer(v1alpha1.ConditionReachable, v1alpha1.ReasonCredentialsMissing)

	secret := &corev1.Secret{Data: map[string][]byte{v1alpha1.LinkSecretKey: []byte("not a kubeconfig")}}
	secret.Name, secret.Namespace = v1alpha1.LinkSecret, v1alpha1.TenantNamespace("visby")
	lubeck.MustCreate(t, secret)
	expectPeer(v1alpha1.ConditionReachable, v1alpha1.ReasonCredentialsInvalid)

	// Hamburg answers, with credentials that are good, but it is not Visby.
	link := &corev1.Secret{}
	key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.LinkSecret}
	if err := lubeck.Get(ctx, key, link); err != nil {
		t.Fatal(err)
	}
	secret.Data = link.Data
	if err := lubeck.Update(ctx, secret); err != nil {
		t.Fatal(err)
	}
	expectPeer(v1alpha1.ConditionAuthenticated, v1alpha1.ReasonClusterIDMismatch)
}

// TestPeersOfTakenIDs: Peers made by hand may have the id of another Peer or of this cluster. A condition says so, and neither gets a
// virtual node.
func TestPeersOfTakenIDs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	before, err := lubeck.VirtualNode(ctx, hamburg)
	if err != nil {
		t.Fatal(err)
	}
	link := &corev1.Secret{}
	if err := lubeck.Get(ctx, types.NamespacedName{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.LinkSecret}, link); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ id, condition, reason string }{
		"second": {"hamburg", v1alpha1.ConditionAuthenticated, v1alpha1.ReasonClusterIDTaken},
		"own":    {"lubeck", v1alpha1.ConditionAdvertised, v1alpha1.ReasonClusterIDMismatch},
	} {
		peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ClusterID: want.id, Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}}}
		peer.Name = name
		lubeck.MustCreate(t, peer)
		t.Cleanup(func() { lubeck.DeleteAndWait(t, peer) })
		framework.Eventually(t, "it has a tenant namespace", func(ctx context.Context) error {
			return lubeck.Get(ctx, types.NamespacedName{Name: v1alpha1.TenantNamespace(name)}, &corev1.Namespace{})
		})
		secret := &corev1.Secret{Data: link.Data}
		secret.Name, secret.Namespace = v1alpha1.LinkSecret, v1alpha1.TenantNamespace(name)
		lubeck.MustCreate(t, secret)
		framework.Eventually(t, "peer "+name+" says "+want.reason, func(ctx context.Context) error {
			return lubeck.PeerLacks(ctx, name, want.condition, want.reason)
		})
		if err := lubeck.PeerHas(ctx, name, v1alpha1.ConditionReady); err == nil {
			t.Errorf("peer %s is Ready", name)
		}
		if _, err := lubeck.Node(ctx, v1alpha1.VirtualNodeName(name)); !apierrors.IsNotFound(err) {
			t.Errorf("there is a node of peer %s: %v", name, err)
		}
	}
	if err := lubeck.PeerHas(ctx, "hamburg", v1alpha1.ConditionReady); err != nil {
		t.Error(err)
	}
	if after, err := lubeck.VirtualNode(ctx, hamburg); err != nil || after.UID != before.UID || !framework.IsNodeReady(after) {
		t.Errorf("hamburg's node is not as it was: %v", err)
	}
}

// playPeer creates the objects that a provider's manager would create for the consumer lubeck.
func playPeer(t *testing.T, c *framework.Cluster) {
	t.Helper()
	for _, made := range []*apiextensionsv1.CustomResourceDefinition{looseKind(t), kind(t, "namespacemappings"), kind(t, "shadowpods")} {
		c.MustCreate(t, made)
		t.Cleanup(func() { c.DeleteAndWait(t, made) })
	}
	ns := v1alpha1.TenantNamespace("lubeck")
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&corev1.ServiceAccount{ObjectMeta: framework.Named(ns, v1alpha1.PeerServiceAccount)},
		&rbacv1.Role{ObjectMeta: framework.Named(ns, "peer"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: framework.Named(ns, "peer"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "peer"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: v1alpha1.PeerServiceAccount}},
		},
		&corev1.ConfigMap{ObjectMeta: framework.Named(ns, v1alpha1.ClusterInfo), Data: map[string]string{
			v1alpha1.ClusterInfoID: "rostock", v1alpha1.ClusterInfoVersion: "dev",
		}},
	} {
		c.MustCreate(t, object)
	}
	framework.Eventually(t, "rostock serves advertisements", func(ctx context.Context) error {
		return c.List(ctx, &v1alpha1.AdvertisementList{})
	})
	t.Cleanup(func() {
		c.DeleteAndWait(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	})
}

// looseKind returns the definition of Advertisements without any validation.
func looseKind(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := kind(t, "advertisements")
	anything := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = anything
	return crd
}

// kind returns the definition of one of Hanse's kinds.
func kind(t *testing.T, plural string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(harness.Root, "charts", "hanse", "crds", "hanse.dev_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// consumeFromRostock creates the Peer, and the credentials for a link to rostock at that server.
func consumeFromRostock(t *testing.T, c *framework.Cluster, server *clientcmdapi.Cluster) {
	t.Helper()
	ns := v1alpha1.TenantNamespace("lubeck")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.PeerServiceAccount}}
	token := &authenticationv1.TokenRequest{}
	if err := rostock.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["peer"] = server
	config.AuthInfos["peer"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["peer"] = &clientcmdapi.Context{Cluster: "peer", AuthInfo: "peer", Namespace: ns}
	config.CurrentContext = "peer"
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}

	peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ClusterID: "rostock", Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}}}
	peer.Name = "rostock"
	c.MustCreate(t, peer)
	t.Cleanup(func() {
		c.DeleteAndWait(t, peer)
		c.DeleteAndWait(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VirtualNodeName("rostock")}})
	})
	framework.Eventually(t, "lubeck has a tenant namespace for rostock", func(ctx context.Context) error {
		return c.Get(ctx, types.NamespacedName{Name: v1alpha1.TenantNamespace("rostock")}, &corev1.Namespace{})
	})
	secret := &corev1.Secret{Data: map[string][]byte{v1alpha1.LinkSecretKey: kubeconfig}}
	secret.Name, secret.Namespace = v1alpha1.LinkSecret, v1alpha1.TenantNamespace("rostock")
	c.MustCreate(t, secret)
}

// advertise writes the next Advertisement of rostock: a good one with a change by the caller.
func advertise(t *testing.T, c *framework.Cluster, spoil func(spec map[string]any)) {
	t.Helper()
	spec := map[string]any{
		"clusterID": "rostock", "sequence": time.Now().UnixNano(),
		"availability":  map[string]any{"cpu": "4", "memory": "8Gi", "pods": "50", "ephemeral-storage": "10Gi"},
		"network":       map[string]any{"podCIDRs": []any{"10.244.0.0/16"}},
		"architectures": []any{"amd64"},
	}
	shiftTimes(spec, 0)
	spoil(spec)
	ad := rostocksOffer()
	// It is never withdrawn, not even for a moment: a node without pods would go.
	if _, err := controllerutil.CreateOrUpdate(t.Context(), c, ad, func() error {
		ad.Object["spec"] = spec
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func withdraw(t *testing.T, c *framework.Cluster) {
	t.Helper()
	if err := c.Delete(t.Context(), rostocksOffer()); err != nil {
		t.Fatal(err)
	}
}

func rostocksOffer() *unstructured.Unstructured {
	ad := &unstructured.Unstructured{}
	ad.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Advertisement"))
	ad.SetNamespace(v1alpha1.TenantNamespace("lubeck"))
	ad.SetName("rostock")
	return ad
}

func shiftTimes(spec map[string]any, by time.Duration) {
	now := time.Now().Add(by).UTC()
	spec["timestamp"], spec["timeToLive"] = now.Format(time.RFC3339), now.Add(30*time.Minute).Format(time.RFC3339)
}

func megabytesOfImages() []any {
	var images []any
	for i := range 2500 {
		images = append(images, map[string]any{"names": []any{fmt.Sprintf("%0450d", i)}, "sizeBytes": int64(1)})
	}
	return images
}

// expectRefused waits until the Advertisement of rostock has the refusal of lubeck, for one of the reasons.
func expectRefused(t *testing.T, reasons ...string) {
	t.Helper()
	framework.Eventually(t, "rostock reads why its advertisement was refused: "+strings.Join(reasons, " or "), func(ctx context.Context) error {
		var sent v1alpha1.Advertisement
		key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: "rostock"}
		if err := rostock.Get(ctx, key, &sent); err != nil {
			return err
		}
		ack := sent.Status.Acknowledgement
		if ack == nil || ack.State != v1alpha1.AcknowledgementRefused || ack.Message == "" {
			return fmt.Errorf("acknowledgement is %+v", ack)
		}
		for _, reason := range reasons {
			if ack.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("reason is %s: %s", ack.Reason, ack.Message)
	})
}

func expectPeerComplains(t *testing.T, reason string) {
	t.Helper()
	framework.Eventually(t, "peer rostock says "+reason, func(ctx context.Context) error {
		return lubeck.PeerLacks(ctx, "rostock", v1alpha1.ConditionAdvertised, reason)
	})
}

// expectPeerMentions waits until the message of condition Advertised contains the text. The condition is True for the offer that stays
// in use, and its message is about the newest one.
func expectPeerMentions(t *testing.T, text string) {
	t.Helper()
	framework.Eventually(t, "peer rostock mentions "+text, func(ctx context.Context) error {
		peer, err := lubeck.Peer(ctx, "rostock")
		if err != nil {
			return err
		}
		said := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionAdvertised)
		if said == nil || !strings.Contains(said.Message, text) {
			return fmt.Errorf("condition Advertised is %+v", said)
		}
		return nil
	})
}

func expectNoNode(t *testing.T) {
	t.Helper()
	if _, err := lubeck.Node(t.Context(), v1alpha1.VirtualNodeName("rostock")); !apierrors.IsNotFound(err) {
		t.Errorf("there is a node for rostock, which never advertised anything good (%v)", err)
	}
}

func awaitNode(t *testing.T, c *framework.Cluster, peer, cpu string) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	framework.Eventually(t, "the node of "+peer+" is Ready with cpu "+cpu, func(ctx context.Context) error {
		var err error
		if node, err = c.Node(ctx, v1alpha1.VirtualNodeName(peer)); err != nil {
			return err
		}
		if !framework.IsNodeReady(node) || node.Status.Allocatable.Cpu().String() != cpu {
			return fmt.Errorf("ready: %v, cpu: %s", framework.IsNodeReady(node), node.Status.Allocatable.Cpu())
		}
		return nil
	})
	return node
}
