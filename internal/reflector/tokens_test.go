// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const tokenSecret = "hanse-token-u-web"

var ofWeb = tokenRequest{Peer: "turin", Namespace: "shop", Pod: "u-web"}

// podWithToken has the volume that Kubernetes adds, as the cache keeps it.
func podWithToken() *corev1.Pod {
	pod := testkit.Pod("shop", "web", "hanse-turin")
	pod.UID, pod.CreationTimestamp = "u-web", metav1.NewTime(testkit.Noon.Add(-time.Minute))
	pod.Spec.ServiceAccountName = "robot"
	pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x7k2p", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
		}},
	}}}
	pod.Spec.Volumes = offload.KeepTokens(pod)
	return pod
}

// withTokens is a world in which the pod is at turin, to which a network leads or not.
func withTokens(t *testing.T, connected bool, pods ...*corev1.Pod) (*world, *tokens) {
	t.Helper()
	w := newWorld(t)
	for _, pod := range pods {
		w.Home.Put(pod)
	}
	w.Home.Put(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot"}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "home's"},
		})
	w.connectNetwork(connected)
	w.connect()
	tokens := newTokens(w.copier)
	tokens.Client = w.Home.Client
	return w, tokens
}

func (w *world) connectNetwork(connected bool) {
	w.Helper()
	peer := &v1alpha1.Peer{}
	w.Home.Get(peer, "", "turin")
	condition := metav1.Condition{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoNetworkFabric}
	if connected {
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonReady
	}
	meta.SetStatusCondition(&peer.Status.Conditions, condition)
	w.Home.Put(peer)
}

func (w *world) mustLook(t *tokens) reconcile.Result {
	w.Helper()
	result, err := t.Reconcile(w.Context(), ofWeb)
	if err != nil {
		w.Fatal(err)
	}
	return result
}

// tokensThere returns the Secret in the twin, or nil.
func (w *world) tokensThere() *corev1.Secret {
	w.Helper()
	found := &corev1.Secret{}
	if !w.Away.Find(found, twinName, tokenSecret) {
		return nil
	}
	return found
}

func TestPodFindsItsTokensAtThePeer(t *testing.T) {
	pod := podWithToken()
	pod.Spec.Volumes[0].Projected.Sources = append(pod.Spec.Volumes[0].Projected.Sources, corev1.VolumeProjection{
		ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: new(int64(600))},
	})
	w, tokens := withTokens(t, true, pod)
	var asked []authenticationv1.TokenRequestSpec
	w.Home.Before(func(write testkit.Write) error {
		if write.Verb == "create/token" && write.Name != "robot" {
			return errors.New("another account")
		}
		return nil
	})
	tokens.Client = tokenCatcher{tokens.Client, &asked}
	w.mustLook(tokens)

	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "u-web"}
	wantAsked := []authenticationv1.TokenRequestSpec{
		{ExpirationSeconds: new(int64(3607)), BoundObjectRef: bound},
		{ExpirationSeconds: new(int64(600)), BoundObjectRef: bound, Audiences: []string{"vault"}},
	}
	if diff := cmp.Diff(wantAsked, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	got := w.tokensThere()
	if got == nil {
		t.Fatal("there is no Secret")
	}
	want := map[string][]byte{
		offload.Token{Seconds: 3607}.Key(): []byte("fake-token"), offload.Token{Audience: "vault", Seconds: 600}.Key(): []byte("fake-token"),
		"ca.crt": []byte("home's"), "namespace": []byte("shop"),
	}
	if diff := cmp.Diff(want, got.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	w.Away.Writes()
	if wait := w.mustLook(tokens).RequeueAfter; wait <= 0 || wait > 8*time.Minute {
		t.Errorf("the token of ten minutes is looked at after %s", wait)
	}
	w.Away.ExpectWrites() // nothing changed
	w.look(reflection.Secret)
	w.Away.ExpectWrites() // the copier leaves it alone
}

func TestTokensAreRenewedInTimeAndGoWithThePod(t *testing.T) {
	w, tokens := withTokens(t, true, podWithToken())
	w.mustLook(tokens)
	wait := w.mustLook(tokens).RequeueAfter
	w.Away.Writes()
	w.Clock.Step(wait - time.Second)
	w.mustLook(tokens)
	w.Away.ExpectWrites()
	w.Clock.Step(time.Second)
	w.mustLook(tokens)
	w.Away.ExpectWrites("update Secret " + tokenSecret)
	if again := w.mustLook(tokens).RequeueAfter; again != wait {
		t.Errorf("after the renewal: %s, and at first %s", again, wait)
	}
	w.Home.Remove(podWithToken())
	w.mustLook(tokens)
	if w.tokensThere() != nil {
		t.Error("the tokens outlive their pod")
	}
	w.look(reflection.Secret)
	if w.follows("Secret") {
		t.Error("the twin's Secrets are still watched")
	}
}

func TestWhichPodsGetTokens(t *testing.T) {
	real, ended, other := podWithToken(), podWithToken(), podWithToken()
	real.Spec.NodeName = "hanse-milan"
	ended.Status.Phase = corev1.PodSucceeded
	other.UID = "u-other"
	own := podWithToken()
	own.Spec.Volumes[0].Name = "vault"
	for name, test := range map[string]struct {
		pod       *corev1.Pod
		connected bool
		want      bool
	}{
		"where home is reached":                      {podWithToken(), true, true},
		"where it is not":                            {podWithToken(), false, false},
		"one that the author asks for goes anywhere": {own, false, true},
		"a pod that has ended":                       {ended, true, false},
		"a pod somewhere else":                       {real, true, false},
		"another pod of the name":                    {other, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, tokens := withTokens(t, test.connected, test.pod)
			w.mustLook(tokens)
			if got := w.tokensThere() != nil; got != test.want {
				t.Errorf("it gets tokens: %t", got)
			}
		})
	}
}

// A pod that runs goes on to be served when nobody connects the clusters any more: it may be started again.
func TestTokensStayWhenTheNetworkGoes(t *testing.T) {
	w, tokens := withTokens(t, true, podWithToken())
	w.mustLook(tokens)
	w.connectNetwork(false)
	w.Away.Writes()
	w.mustLook(tokens)
	w.Away.ExpectWrites()
}

// A network may end between the time when a pod goes out and the time when its tokens are made. The pod waits for these, and says so.
func TestAPodThatWaitsForTokensGetsThemAlsoWithoutANetwork(t *testing.T) {
	waiting := podWithToken()
	waiting.Status.Conditions = []corev1.PodCondition{{Type: v1alpha1.PodToken, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonTokenRefused}}
	waiting.Spec.Volumes = offload.KeepTokens(waiting) // as the cache has it, without its status
	waiting.Status.Conditions = nil
	if !tokensMove.UpdateFunc(event.UpdateEvent{ObjectOld: podWithToken(), ObjectNew: waiting}) {
		t.Error("nobody looks at a pod that begins to wait")
	}
	w, tokens := withTokens(t, false, waiting)
	w.mustLook(tokens)
	if w.tokensThere() == nil {
		t.Error("it waits for ever")
	}
}

func TestNoTokensForPodsOfARealNode(t *testing.T) {
	w, tokens := withTokens(t, true, podWithToken())
	node := &corev1.Node{}
	w.Home.Get(node, "", "hanse-turin")
	node.Labels = nil
	w.Home.Put(node)
	w.mustLook(tokens)
	if w.tokensThere() != nil {
		t.Error("a pod of a real node has its tokens sent away")
	}
}

func TestWhyThereAreNoTokensIsToldOnThePod(t *testing.T) {
	accounts, secrets := schema.GroupResource{Resource: "serviceaccounts"}, schema.GroupResource{Resource: "secrets"}
	for name, prepare := range map[string]func(w *world){
		"home refuses": func(w *world) {
			w.Home.Refuse("create/token ServiceAccount", apierrors.NewForbidden(accounts, "robot", errors.New("no right")))
		},
		"there is no such account": func(w *world) {
			w.Home.Remove(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot"}})
		},
		"the peer refuses": func(w *world) {
			w.Away.Refuse("create Secret", apierrors.NewForbidden(secrets, tokenSecret, errors.New("exceeded quota")))
		},
		"the peer has a Secret of the name": func(w *world) {
			w.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: twinName, Name: tokenSecret}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, tokens := withTokens(t, true, podWithToken())
			prepare(w)
			if _, err := tokens.Reconcile(w.Context(), ofWeb); err == nil {
				t.Error("nobody tries again")
			}
			w.ExpectEventWith(v1alpha1.ReasonTokenRefused, `peer "turin"`, "automountServiceAccountToken")
		})
	}
}

func TestTheRightToMakeTokensMayBeOnItsWay(t *testing.T) {
	pod := podWithToken()
	pod.CreationTimestamp = metav1.NewTime(testkit.Noon)
	w, tokens := withTokens(t, true, pod)
	stop := w.Home.Refuse("create/token ServiceAccount", apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "robot", errors.New("not yet")))
	if _, err := tokens.Reconcile(w.Context(), ofWeb); err == nil {
		t.Error("nobody tries again")
	}
	w.ExpectEvents()
	stop()
	w.mustLook(tokens)
	if w.tokensThere() == nil {
		t.Error("there are no tokens")
	}
}

// A peer that deletes what we make has us make no end of tokens otherwise.
func TestPeerThatUndoesTokensHasToWait(t *testing.T) {
	w, tokens := withTokens(t, true, podWithToken())
	for range 100 {
		if wait := w.mustLook(tokens).RequeueAfter; wait > 0 && w.tokensThere() == nil {
			return
		}
		if found := w.tokensThere(); found != nil {
			if err := w.turin.Client.Delete(t.Context(), found); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Error("tokens were made 100 times at once")
}

func TestPodsAreLookedAtWhenSomethingOfTheirTokensMoves(t *testing.T) {
	w, tokens := withTokens(t, true, podWithToken(), podUsing("other"))
	link, _ := w.peers.Links.Get("turin")
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[tokenRequest]())
	t.Cleanup(queue.ShutDown)
	next := func() string {
		if queue.Len() == 0 {
			return "nothing"
		}
		req, _ := queue.Get()
		queue.Done(req)
		return fmt.Sprint(req.Peer, " ", req.Namespace, " ", req.Pod)
	}
	to := peers.Queue[tokenRequest]{TypedRateLimitingInterface: queue}
	const web = "turin shop u-web"
	tokens.twinMoved(t.Context(), peers.Change{Link: link, Mirror: link.Mappings(), Name: "shop"}, to)
	if got := next() + ", " + next(); got != web+", nothing" {
		t.Errorf("its twin came: %s", got)
	}
	w.mustLook(tokens)
	mirror := link.Followed(copies[reflection.Secret], "shop")
	w.Home.Remove(podWithToken())
	tokens.secretMoved(t.Context(), peers.Change{Link: link, Mirror: mirror}, to)
	if got := next() + ", " + next(); got != web+", nothing" {
		t.Errorf("tokens of a pod that is gone are seen: %s", got)
	}
	w.Home.Put(podWithToken())
	if got := tokens.networkMoved(t.Context(), turin()); len(got) != 1 || got[0] != ofWeb {
		t.Errorf("the network came: %v", got)
	}
}
