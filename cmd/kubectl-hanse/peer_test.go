package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

func TestPeeringGivesTheConsumerCredentials(t *testing.T) {
	lubeck, hamburg := newSide(t, "lubeck"), newSide(t, "hamburg")
	hamburg.server = "https://203.0.113.7:6443"
	for _, time := range []string{"once", "again"} {
		if err := joinSides(soon(t), quiet(), &peerFlags{}, lubeck, hamburg); err != nil {
			t.Fatal(time, err)
		}
	}
	want := map[string][]v1alpha1.PeerRole{"hamburg in lubeck": {"Provider"}, "lubeck in hamburg": {"Consumer"}}
	if diff := cmp.Diff(want, peersOf(t, lubeck, hamburg)); diff != "" {
		t.Errorf("peers (-want +got):\n%s", diff)
	}

	config := linkOf(t, lubeck, "hanse-peer-hamburg")
	access := config.Contexts[config.CurrentContext]
	cluster := config.Clusters[access.Cluster]
	if got, want := access.Namespace, "hanse-peer-lubeck"; got != want {
		t.Errorf("namespace %s, want %s", got, want)
	}
	if got := cluster.Server + " " + string(cluster.CertificateAuthorityData); got != "https://203.0.113.7:6443 authority of hamburg" {
		t.Errorf("the link leads to %s", got)
	}
	user := config.AuthInfos[access.AuthInfo]
	if user.Token == "" || user.Exec != nil || user.AuthProvider != nil || user.TokenFile != "" {
		t.Error("the link has no token of its own")
	}
	if _, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig(); err != nil {
		t.Error(err)
	}
}

func TestMutualPeeringGoesBothWays(t *testing.T) {
	lubeck, hamburg := newSide(t, "lubeck"), newSide(t, "hamburg")
	lubeck.called = "the-queen"
	if err := joinSides(soon(t), quiet(), &peerFlags{mutual: true}, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	want := map[string][]v1alpha1.PeerRole{
		"hamburg in lubeck": {"Provider", "Consumer"}, "the-queen in hamburg": {"Consumer", "Provider"},
	}
	if diff := cmp.Diff(want, peersOf(t, lubeck, hamburg)); diff != "" {
		t.Errorf("peers (-want +got):\n%s", diff)
	}
	for namespace, at := range map[string]*side{"hanse-peer-hamburg": lubeck, "hanse-peer-the-queen": hamburg} {
		key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.LinkSecret}
		if err := at.client.Get(t.Context(), key, &corev1.Secret{}); err != nil {
			t.Errorf("%s has no credentials: %v", at.id, err)
		}
	}
}

func TestPeerOfAnotherClusterIsNotTakenOver(t *testing.T) {
	other := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg"}, Spec: v1alpha1.PeerSpec{
		ClusterID: "bremen", Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider},
	}}
	err := joinSides(soon(t), quiet(), &peerFlags{}, newSide(t, "lubeck", other), newSide(t, "hamburg"))
	if err == nil || !strings.Contains(err.Error(), "bremen") {
		t.Errorf("error %v, want one that names the cluster that it stands for", err)
	}
}

func TestWaitingForAPeerSaysWhyItIsNotReady(t *testing.T) {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg"}}
	peer.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnreachable, Message: "no answer",
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := waitPeerReady(ctx, newSide(t, "lubeck", peer), "hamburg")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Unreachable: no answer") {
		t.Errorf("error %v", err)
	}
}

func TestUnpeeringIsRefusedWhilePodsRun(t *testing.T) {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg"}}
	away := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "hanse-hamburg"}}
	twin := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "twin", Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: "hamburg",
	}}}
	guest := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "twin", Name: "web"}}
	elsewhere := away.DeepCopy()
	elsewhere.Spec.NodeName = "hanse-bremen"
	for name, test := range map[string]struct {
		objects []client.Object
		force   bool
		refused bool
	}{
		"over there":          {objects: []client.Object{away}, refused: true},
		"over there, forced":  {objects: []client.Object{away}, force: true},
		"here":                {objects: []client.Object{twin, guest}, refused: true},
		"somewhere else only": {objects: []client.Object{elsewhere, twin}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, "lubeck", append(test.objects, peer)...)
			err := unpeer(soon(t), install.Cluster{Client: s.client, Report: t.Logf}, "hamburg", test.force)
			if refused := errors.Is(err, errPodsRun); refused != test.refused {
				t.Errorf("error %v", err)
			}
			gone := apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKey{Name: "hamburg"}, &v1alpha1.Peer{}))
			if gone == test.refused {
				t.Errorf("the Peer is gone: %v", gone)
			}
		})
	}
}

// linkOf is the kubeconfig that a side has been given.
func linkOf(t *testing.T, at *side, namespace string) *clientcmdapi.Config {
	t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.LinkSecret}
	if err := at.client.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(secret.Data[v1alpha1.LinkSecretKey])
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// peersOf tells which Peers there are, with their roles.
func peersOf(t *testing.T, sides ...*side) map[string][]v1alpha1.PeerRole {
	t.Helper()
	found := map[string][]v1alpha1.PeerRole{}
	for _, s := range sides {
		list := &v1alpha1.PeerList{}
		if err := s.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			found[list.Items[i].Name+" in "+s.id] = slices.Clone(list.Items[i].Spec.Roles)
		}
	}
	return found
}
