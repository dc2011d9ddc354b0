// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// secretThere returns the Secret password in the twin, or nil.
func (w *world) secretThere() *corev1.Secret {
	w.Helper()
	found := &corev1.Secret{}
	if !w.Away.Find(found, twinName, "password") {
		return nil
	}
	return found
}

// has says whether the copy there has the value.
func (w *world) has(value string) func() bool {
	return func() bool {
		found := w.secretThere()
		return found != nil && string(found.Data["password"]) == value
	}
}

// withCopy is a world in which a pod refers to a Secret that is at the peer.
func withCopy(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, podUsing("web"))
	w.save(password("a"))
	w.connect().look(reflection.Secret)
	w.settle(w.has("a"))
	return w
}

func TestWhatPodsReferToGoesWithThem(t *testing.T) {
	w := withCopy(t)
	got := w.secretThere()
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: twinName, Name: "password",
			UID: got.UID, ResourceVersion: got.ResourceVersion, CreationTimestamp: got.CreationTimestamp,
			Labels: map[string]string{v1alpha1.LabelReflected: "true"},
			Annotations: map[string]string{
				v1alpha1.AnnotationOriginUID: "u-1", v1alpha1.AnnotationOriginVersion: "1",
			},
		},
		Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"password": []byte("a")},
	}
	want.TypeMeta = got.TypeMeta
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.Away.Writes()
	w.look(reflection.Secret)
	w.Away.ExpectWrites() // nothing changed
	w.ExpectEvents()
}

func TestNothingElseIsRead(t *testing.T) {
	w := newWorld(t, podUsing("web"))
	w.save(password("a"))
	other := password("b")
	other.Name = "unconcerned"
	w.save(other)
	w.connect().look(reflection.Secret)
	w.settle(w.has("a"))
	if diff := cmp.Diff([]string{"password"}, w.reads); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

func TestChangesAreCarried(t *testing.T) {
	w := withCopy(t)
	w.save(password("b"))
	w.settle(w.has("b"))

	successor := password("c")
	successor.UID, successor.Type = "u-2", corev1.SecretTypeBasicAuth
	w.remove(password("b"))
	w.save(successor)
	w.settle(w.has("c"))
	if got := w.secretThere(); got.Type != corev1.SecretTypeBasicAuth || got.Annotations[v1alpha1.AnnotationOriginUID] != "u-2" {
		t.Errorf("the successor is a %s of %s", got.Type, got.Annotations[v1alpha1.AnnotationOriginUID])
	}
}

func TestCopiesGo(t *testing.T) {
	for name, end := range map[string]func(*world){
		"with the source": func(w *world) { w.remove(password("a")) },
		"when it is told": func(w *world) {
			skipped := password("a")
			skipped.Annotations = map[string]string{v1alpha1.LabelSkipReflection: "true"}
			w.save(skipped)
		},
		"with the pod": func(w *world) {
			w.Home.Remove(podUsing("web"))
			w.look(reflection.Secret)
		},
		"when the pod has ended": func(w *world) {
			testkit.Change(w.Home, "shop", "web", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
			w.look(reflection.Secret)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := withCopy(t)
			end(w)
			w.settle(func() bool { return w.secretThere() == nil })
		})
	}
}

func TestNothingIsWatchedThatNobodyNeeds(t *testing.T) {
	w := withCopy(t)
	secrets := place{Namespace: "shop", Kind: reflection.Secret}
	if w.watches(secrets) == nil || !w.follows("Secret") {
		t.Fatal("what pods refer to is not watched")
	}
	if w.watches(place{Namespace: "shop", Kind: reflection.ConfigMap}) != nil {
		t.Error("ConfigMaps are watched too, which nobody has looked at")
	}
	w.Home.Remove(podUsing("web"))
	w.look(reflection.Secret)
	w.look(reflection.Secret)
	w.settle(func() bool { return w.watches(secrets) == nil && !w.follows("Secret") })
}

// What a manager has left behind that was ended at a bad moment is found by its label.
func TestCopiesThatAreLeftOver(t *testing.T) {
	w := newWorld(t)
	left := password("a")
	left.Namespace, left.Labels = twinName, map[string]string{v1alpha1.LabelReflected: "true"}
	left.Annotations = map[string]string{v1alpha1.AnnotationOriginUID: "u-1"}
	w.put(left)
	w.connect().look(reflection.Secret)
	if w.secretThere() != nil {
		t.Error("it is still there")
	}
}

func TestObjectsOfThePeerAreLeftAlone(t *testing.T) {
	w := newWorld(t, podUsing("web"))
	w.save(password("ours"))
	theirs := password("theirs")
	theirs.Namespace = twinName
	w.put(theirs)
	w.connect()
	w.Away.Writes()
	w.look(reflection.Secret)
	w.ExpectEventWith("Warning", v1alpha1.ReasonReflectionConflict, `"turin"`)
	w.Home.Remove(podUsing("web"))
	w.look(reflection.Secret)
	if !w.has("theirs")() {
		t.Error("it was touched")
	}
	w.Away.ExpectWrites()
}

func TestUsersAreToldWhatDoesNotGo(t *testing.T) {
	skipped, token := password("a"), password("a")
	skipped.Labels = map[string]string{v1alpha1.LabelSkipReflection: "true"}
	token.Type = corev1.SecretTypeBootstrapToken
	for name, test := range map[string]struct {
		secret *corev1.Secret
		want   string
	}{
		"by its author's will": {skipped, "skip-reflection"},
		"by its kind":          {token, "nodes join"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, podUsing("web"))
			w.save(test.secret)
			w.connect().look(reflection.Secret)
			w.ExpectEventWith("Warning", v1alpha1.ReasonReflectionRefused, test.want)
			if w.secretThere() != nil {
				t.Error("it went all the same")
			}
		})
	}
}

func TestUsersAreToldWhatIsMissing(t *testing.T) {
	for reason, optional := range map[string]*bool{
		v1alpha1.ReasonMandatorySecretNotFound: nil, v1alpha1.ReasonOptionalSecretNotFound: new(true),
	} {
		pod := podUsing("web")
		pod.Spec.Volumes = pod.Spec.Volumes[:1]
		pod.Spec.Volumes[0].Secret.Optional = optional
		w := newWorld(t, pod)
		w.connect().look(reflection.Secret)
		w.ExpectEventWith(reason, `"password"`, "namespace shop")
	}
}

// Each pod that comes has all looked at again.
func TestUsersAreToldOnceWhatIsMissing(t *testing.T) {
	const pods, looks = 5, 4
	for reason, optional := range map[string]*bool{
		v1alpha1.ReasonMandatorySecretNotFound: nil, v1alpha1.ReasonOptionalSecretNotFound: new(true),
	} {
		w := newWorld(t)
		w.connect()
		for i := range pods {
			pod := podUsing(fmt.Sprint("web-", i))
			pod.Spec.Volumes = pod.Spec.Volumes[:1]
			pod.Spec.Volumes[0].Secret.Optional = optional
			w.Home.Put(pod)
			for range looks {
				w.look(reflection.Secret)
			}
		}
		if got := w.EventReasons(); len(got) != pods || got[0] != reason {
			t.Errorf("got events %v, want %d of %s", got, pods, reason)
		}
		w.save(password("a"))
		w.settle(w.has("a"))
		w.remove(password("a"))
		w.settle(func() bool { return w.secretThere() == nil })
		w.look(reflection.Secret)
		if got := w.EventReasons(); len(got) != pods {
			t.Errorf("when it went again there were events %v", got)
		}
	}
}

func TestPodThatRunsIsNotToldWhatItDoesWithout(t *testing.T) {
	pod := podUsing("web")
	pod.Spec.Volumes = pod.Spec.Volumes[:1]
	pod.Spec.Volumes[0].Secret.Optional = new(true)
	pod.Status.Phase = corev1.PodRunning
	w := newWorld(t, pod)
	w.connect().look(reflection.Secret)
	w.ExpectEvents()
}

func TestUsersAreToldOnceWhatDoesNotGo(t *testing.T) {
	w := newWorld(t, podUsing("web"))
	w.save(password("a"))
	w.connect()
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "password", errors.New("exceeded quota"))
	accept := w.Away.Refuse("create Secret", refusal)
	for range 4 {
		if _, err := w.copier.Reconcile(t.Context(), w.warm(reflection.Secret)); !errors.Is(err, refusal) {
			t.Errorf("got %v, want the refusal, to try again", err)
		}
	}
	if got := w.EventReasons(); len(got) != 1 {
		t.Errorf("got events %v, want 1", got)
	}
	accept()
	w.look(reflection.Secret)
	w.Home.Remove(podUsing("web"))
	w.look(reflection.Secret)
	if left := len(w.copier.teller.said); left != 0 {
		t.Errorf("what was said of %d is kept", left)
	}
}

func TestThePeersRefusalIsTold(t *testing.T) {
	w := newWorld(t, podUsing("web"))
	w.save(password("a"))
	w.connect()
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "password", errors.New("exceeded quota"))
	w.Away.Refuse("create Secret", refusal)
	req := w.warm(reflection.Secret)
	if _, err := w.copier.Reconcile(t.Context(), req); !errors.Is(err, refusal) {
		t.Errorf("got %v, want the refusal, to try again", err)
	}
	w.ExpectEventWith("Warning", v1alpha1.ReasonReflectionRefused, "exceeded quota")
}

// answer has the peer say of its twin of namespace shop.
func (w *world) answer(status metav1.ConditionStatus, reason string) {
	w.Helper()
	m := testkit.Get[v1alpha1.NamespaceMapping](w.Away, tenant, "shop")
	m.Status.Conditions[0].Status, m.Status.Conditions[0].Reason = status, reason
	if err := w.turin.Client.Status().Update(w.Context(), m); err != nil {
		w.Fatal(err)
	}
}

func TestNothingIsWrittenIntoATwinThatIsBeingDeleted(t *testing.T) {
	w := newWorld(t, podUsing("web"))
	w.save(password("a"))
	w.connect()
	w.answer(metav1.ConditionFalse, v1alpha1.ReasonNamespaceTerminating)
	req := w.warm(reflection.Secret)
	w.Away.Writes()
	if result, err := w.copier.Reconcile(t.Context(), req); err != nil || !result.IsZero() {
		t.Errorf("got %v, %v, want no other look", result, err)
	}
	w.Away.ExpectWrites()
	w.ExpectEvents()

	w.answer(metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
	w.settle(w.has("a"))
}

// The mapping tells later than the API server that the twin is being deleted, and not at all at a peer without Hanse.
func TestATwinThatIsBeingDeletedIsNotTriedAgainAndAgain(t *testing.T) {
	w := newWorld(t, podUsing("web"))
	w.save(password("a"))
	w.connect()
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "password", errors.New("it is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	accept := w.Away.Refuse("create Secret", ending)
	req := w.warm(reflection.Secret)
	result, err := w.copier.Reconcile(t.Context(), req)
	if err != nil || result.RequeueAfter != lastRetry {
		t.Errorf("got %v, %v, want another look after %s", result, err, lastRetry)
	}
	w.ExpectEvents()

	accept()
	w.look(reflection.Secret)
	if !w.has("a")() {
		t.Error("the copy does not go when there is a new twin")
	}
}

func TestAPeerThatDoesNotAnswerIsNotAsked(t *testing.T) {
	w := withCopy(t)
	w.save(password("b"))
	w.turin.Fail(errors.New("no answer"))
	w.Away.Writes()
	w.settle(func() bool { // until the change is seen
		result, err := w.copier.Reconcile(t.Context(), secretsOfShop)
		return err == nil && result.RequeueAfter == outageDelay
	})
	w.Away.ExpectWrites()
	w.turin.Heal()
	w.settle(func() bool { // the first copy may have been what there was to do, and the change is seen only now
		w.mustReconcile(secretsOfShop)
		return w.has("b")()
	})
}

func TestPodsOnRealNodesTakeNothingAlong(t *testing.T) {
	w := newWorld(t, podUsing("web"))
	testkit.Change(w.Home, "", "hanse-turin", func(node *corev1.Node) { node.Labels = nil })
	w.save(password("a"))
	w.connect().look(reflection.Secret)
	if w.secretThere() != nil || len(w.reads) > 0 {
		t.Error("the Secret of a pod that is at home went out")
	}
}

func TestObjectsThatNoPodRefersToGoWhereThatIsSet(t *testing.T) {
	for reach, want := range map[reflection.Reach][]string{
		reflection.ReachAll: {"annotated", "password", "plain"}, reflection.ReachAnnotated: {"annotated"},
		reflection.ReachReferenced: {"password"}, reflection.ReachNone: nil,
	} {
		t.Run(string(reach), func(t *testing.T) {
			w := newWorld(t, podUsing("web"))
			w.copier.Reach = reflection.Reaches{reflection.Secret: reach}
			annotated, plain, token := password("a"), password("a"), password("a")
			annotated.Name, annotated.Annotations = "annotated", map[string]string{v1alpha1.AnnotationReflect: "true"}
			plain.Name, token.Name, token.Type = "plain", "token", corev1.SecretTypeServiceAccountToken
			for _, secret := range []*corev1.Secret{password("a"), annotated, plain, token} {
				w.save(secret)
			}
			w.connect().look(reflection.Secret)
			if diff := cmp.Diff(want, w.Away.Names(&corev1.SecretList{}, twinName)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if reach == reflection.ReachAll || reach == reflection.ReachReferenced {
				w.ExpectEvents()
				return
			}
			w.ExpectEventWith("Warning", v1alpha1.ReasonReflectionRefused, "administrators of this cluster")
		})
	}
}
