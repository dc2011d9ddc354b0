package invitation

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const tenant = "hanse-peer-hamburg"

var (
	ourServers = []string{"https://203.0.113.7:6443"}
	errKilled  = errors.New("the process was killed")
)

// A world is the provider: a fake API server that mints tokens, a clock, and the controller. It can be killed.
type world struct {
	t        *testing.T
	client   client.WithWatch
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	key      ed25519.PrivateKey
	config   Config
	reads    int
	writes   int
	limit    int                     // of writes, after which the process is dead, or -1
	uids     int                     // given so far
	tokens   map[string]boundToken   // token → what it was made for
	refuse   func(verb string) error // or nil
	*Controller
}

// A boundToken ends with its ServiceAccount and its Secret.
type boundToken struct {
	account, secret string
	accountUID      types.UID
	secretUID       types.UID
	seconds         int64
}

var testScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{ // the fewer, the faster is the fake
		corev1.AddToScheme, rbacv1.AddToScheme, discoveryv1.AddToScheme, flowcontrolv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, key: key, limit: -1, tokens: map[string]boundToken{},
		clock:    clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		recorder: events.NewFakeRecorder(100),
	}
	w.client = fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.PeeringClaim{}).WithInterceptorFuncs(w.interceptors()).Build()
	w.config = Config{ClusterID: "c-lubeck", ClusterKey: key, Servers: ourServers, Clock: w.clock}
	w.restart()
	return w
}

// restart begins a new process that knows nothing.
func (w *world) restart() {
	w.limit = -1
	w.Controller = New(w.config, w.client, w.client, w.recorder)
	if err := w.Controller.config.Validate(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) interceptors() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			w.reads++
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.uids++
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
			o.SetGeneration(1)
			return w.write("create", func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return w.write("update", func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if data, err := p.Data(o); err != nil || bytes.Contains(data, []byte(`"spec"`)) {
				o.SetGeneration(o.GetGeneration() + 1) // as the API server does
			}
			return w.write("patch", func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.write("delete", func() error { return w.delete(ctx, c, o, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return w.write("apply", func() error { return c.Apply(ctx, o, opts...) })
		},
		SubResourceCreate: func(
			_ context.Context, _ client.Client, sub string, o, body client.Object, _ ...client.SubResourceCreateOption,
		) error {
			return w.write("create "+sub, func() error { return w.mintToken(o, body.(*authenticationv1.TokenRequest)) })
		},
		SubResourceApply: func(
			ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
		) error {
			return w.write("apply "+sub, func() error { return c.SubResource(sub).Apply(ctx, o, opts...) })
		},
	}
}

// write counts, and kills the process when it has written as often as it may.
func (w *world) write(verb string, do func() error) error {
	if w.limit == 0 {
		return errKilled
	}
	if w.refuse != nil {
		if err := w.refuse(verb); err != nil {
			return err
		}
	}
	w.limit--
	w.writes++
	return do()
}

// delete minds the UID, which the fake does not.
func (w *world) delete(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	options := client.DeleteOptions{}
	options.ApplyOptions(opts)
	if options.Preconditions != nil && options.Preconditions.UID != nil {
		now := o.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
			return err
		}
		if now.GetUID() != *options.Preconditions.UID {
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("another UID"))
		}
	}
	return c.Delete(ctx, o, opts...)
}

func (w *world) mintToken(account client.Object, request *authenticationv1.TokenRequest) error {
	ref := request.Spec.BoundObjectRef
	secret := &corev1.Secret{}
	if !w.exists(account.GetNamespace(), ref.Name, secret) || secret.UID != ref.UID || ref.Kind != "Secret" {
		return apierrors.NewConflict(schema.GroupResource{}, ref.Name, errors.New("not the bound object"))
	}
	if *request.Spec.ExpirationSeconds < 600 {
		return apierrors.NewBadRequest("may not be less than 10 minutes")
	}
	token := fmt.Sprintf("token-%d", len(w.tokens)+1)
	w.tokens[token] = boundToken{account.GetName(), ref.Name, account.GetUID(), ref.UID, *request.Spec.ExpirationSeconds}
	request.Status.Token = token
	request.Status.ExpirationTimestamp = metav1.NewTime(
		w.clock.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second))
	return nil
}

// lives reports whether the API server still takes the token.
func (w *world) lives(token string) bool {
	w.t.Helper()
	bound, ok := w.tokens[token]
	secret, account := &corev1.Secret{}, &corev1.ServiceAccount{}
	return ok && w.exists(tenant, bound.secret, secret) && secret.UID == bound.secretUID &&
		w.exists(tenant, bound.account, account) && account.UID == bound.accountUID
}

func peerOf(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	return &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "hamburg", UID: "peer-uid", Generation: 1},
		Spec:       v1alpha1.PeerSpec{Roles: roles},
	}
}

func invited(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	peer := peerOf(roles...)
	peer.Spec.Invitation = &v1alpha1.PeerInvitation{}
	return peer
}

func tenantNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: tenant, UID: "namespace-uid", CreationTimestamp: metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Labels: map[string]string{
			v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: "hamburg", v1alpha1.LabelManaged: "true",
		},
		Annotations: map[string]string{v1alpha1.AnnotationPeerUID: "peer-uid"},
	}}
}

func (w *world) reconcile() reconcile.Result {
	w.t.Helper()
	result, err := w.tryReconcile()
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

func (w *world) tryReconcile() (reconcile.Result, error) {
	return w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "hamburg"}})
}

// edit changes the spec of the Peer as an administrator does.
func (w *world) edit(change func(*v1alpha1.PeerSpec)) {
	w.t.Helper()
	peer := w.peer()
	change(&peer.Spec)
	peer.Generation++
	if err := w.client.Update(w.t.Context(), peer); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) peer() *v1alpha1.Peer {
	w.t.Helper()
	peer := &v1alpha1.Peer{}
	w.get("", "hamburg", peer)
	return peer
}

func (w *world) claim() *v1alpha1.PeeringClaim {
	w.t.Helper()
	claim := &v1alpha1.PeeringClaim{}
	w.get(tenant, v1alpha1.PeeringClaimName, claim)
	return claim
}

func (w *world) get(namespace, name string, object client.Object) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exists(namespace, name string, object client.Object) bool {
	w.t.Helper()
	err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *world) expectNo(name string, object client.Object) {
	w.t.Helper()
	if w.exists(tenant, name, object) {
		w.t.Errorf("%T %s is there", object, name)
	}
}

func (w *world) expectJoined(status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	got := meta.FindStatusCondition(w.peer().Status.Conditions, v1alpha1.ConditionJoined)
	if got == nil {
		w.t.Fatal("no condition Joined")
	}
	if got.Status != status || got.Reason != reason {
		w.t.Errorf("Joined is %s, %s (%s), want %s, %s", got.Status, got.Reason, got.Message, status, reason)
	}
}

func (w *world) expectSubjects(binding string, want int) {
	w.t.Helper()
	got := &rbacv1.RoleBinding{}
	w.get(tenant, binding, got)
	if len(got.Subjects) != want {
		w.t.Errorf("RoleBinding %s has subjects %v, want %d", binding, got.Subjects, want)
	}
}

// expectEvents checks the reasons of the events since the last time.
func (w *world) expectEvents(want ...string) {
	w.t.Helper()
	got := []string{}
	for len(w.recorder.Events) > 0 {
		got = append(got, strings.Fields(<-w.recorder.Events)[1])
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		w.t.Errorf("events %v, want %v", got, want)
	}
}

// expectNoWrites looks at everything anew and sees that nothing is written.
func (w *world) expectNoWrites() {
	w.t.Helper()
	before := w.writes
	w.restart()
	w.reconcile()
	if w.writes != before {
		w.t.Errorf("%d writes though nothing changed", w.writes-before)
	}
}
