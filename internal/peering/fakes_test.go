package peering

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A recorder keeps the events that were told.
type recorder struct{ events []toldEvent }

type toldEvent struct{ kind, reason, action, note string }

// Eventf implements events.EventRecorder.
//
//nolint:revive // the arguments are those of the interface
func (r *recorder) Eventf(_, _ runtime.Object, kind, reason, action, note string, args ...any) {
	r.events = append(r.events, toldEvent{kind, reason, action, fmt.Sprintf(note, args...)})
}

type fakeLinks struct {
	err     error // of Ensure
	over    error // of OverBudget
	link    *fakeLink
	ensured int
	renew   func(*fakeLink) // what Ensure finds out, nil for nothing

	rate      int64 // what Bandwidth measures
	rateErr   error
	transfers int
}

// Claimant implements Links.
func (*fakeLinks) Claimant(context.Context, *trust.Invitation) (Claimant, error) {
	return nil, peers.ErrCredentialsInvalid
}

// A fakeLink leads to a cluster of its own.
type fakeLink struct {
	links     *fakeLinks
	info      peers.ClusterInfo
	err       error
	asked     int
	wait      chan struct{} // until which there is no answer
	tombstone string
	remote    client.Client
	refuse    error // of every request of the client
}

// there is our tenant namespace at the peer.
const there = "hanse-peer-lubeck"

func (l *fakeLinks) Ensure(context.Context, *v1alpha1.Peer) (Link, error) {
	l.ensured++
	if l.err != nil {
		return nil, l.err
	}
	if l.renew != nil {
		l.renew(l.link)
	}
	return l.link, nil
}

// Bandwidth implements Link.
func (l *fakeLink) Bandwidth(context.Context) (int64, error) {
	l.links.transfers++
	if l.links.rateErr != nil {
		return 0, l.links.rateErr
	}
	return l.links.rate, nil
}

// Renew implements Link.
func (*fakeLink) Renew(context.Context, time.Duration) (trust.Session, error) {
	return trust.Session{}, peers.ErrUnreachable
}

func (l *fakeLinks) Close(string) {}

func (l *fakeLinks) OverBudget(string) error { return l.over }

// Changes implements Links. Tests look by themselves.
func (*fakeLinks) Changes() source.Source { return nil }

// ClusterInfo implements Link.
func (l *fakeLink) ClusterInfo(context.Context) (peers.ClusterInfo, error) {
	l.asked++
	if l.wait != nil {
		<-l.wait
	}
	return l.info, l.err
}

func (*fakeLink) Server() string          { return "https://192.0.2.1:6443" }
func (*fakeLink) Invitation() string      { return "their-invitation" }
func (*fakeLink) TenantNamespace() string { return there }
func (l *fakeLink) Client() client.Client { return l.remote }

func (l *fakeLink) Tombstone(context.Context) (string, error) {
	if l.tombstone == "" {
		return "", peers.ErrForbidden
	}
	return l.tombstone, nil
}

// connect makes the cluster that the link leads to.
func (l *fakeLink) connect(scheme *runtime.Scheme) {
	ourClaim := &v1alpha1.PeeringClaim{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "claim"}}
	l.remote = fake.NewClientBuilder().WithScheme(scheme).WithObjects(ourClaim).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l.refuse != nil {
				return l.refuse
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if l.refuse != nil {
				return l.refuse
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
}

var (
	start      = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ourServers = []string{"https://203.0.113.7:6443"}
	errKilled  = errors.New("the process was killed")
)

func (w *world) interceptors() interceptor.Funcs {
	return interceptor.Funcs{
		Get: w.read,
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if o.GetUID() == "" {
				w.uids++
				o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
				o.SetGeneration(1)
			}
			return w.write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return w.write("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if data, err := p.Data(o); err != nil || bytes.Contains(data, []byte(`"spec"`)) {
				o.SetGeneration(o.GetGeneration() + 1) // as the API server does
			}
			return w.write("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.write("delete", o, func() error { return w.delete(ctx, c, o, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return w.write("apply", nil, func() error { return c.Apply(ctx, o, opts...) })
		},
		SubResourceCreate: func(
			_ context.Context, _ client.Client, sub string, o, body client.Object, _ ...client.SubResourceCreateOption,
		) error {
			return w.write("create "+sub, o, func() error { return w.mintToken(o, body.(*authenticationv1.TokenRequest)) })
		},
		SubResourceApply: func(
			ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
		) error {
			return w.write("apply "+sub, &corev1.Pod{}, func() error { return w.applyStatus(ctx, c, o, opts...) })
		},
	}
}

func (w *world) read(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	if key.Namespace != "" && !isMessage(o) {
		w.reads++
	}
	_, binding := o.(*rbacv1.RoleBinding)
	if !binding && !isMessage(o) && key.Namespace == v1alpha1.TenantNamespace("hamburg") && w.noRights != nil && w.noRights() {
		return apierrors.NewForbidden(schema.GroupResource{}, key.Name, nil)
	}
	if err := c.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	if _, is := o.(*v1alpha1.Peer); is {
		o.SetManagedFields(w.managed)
	}
	return nil
}

// applyStatus notes who writes.
func (w *world) applyStatus(
	ctx context.Context, c client.Client, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	options := client.SubResourceApplyOptions{}
	options.ApplyOpts(opts)
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte("conditions")) {
		w.applied = append(w.applied, "nothing by "+options.FieldManager)
		return nil // the fake would take away what others own too
	}
	w.applied = append(w.applied, "status by "+options.FieldManager)
	return c.Status().Apply(ctx, o, opts...)
}

// A boundToken ends with its ServiceAccount and its Secret.
type boundToken struct {
	account, secret string
	accountUID      types.UID
	secretUID       types.UID
	seconds         int64
}

// isMessage reports whether the object is of a kind that is watched in tenant namespaces.
func isMessage(o client.Object) bool {
	switch o.(type) {
	case *v1alpha1.Advertisement, *v1alpha1.PeeringClaim:
		return true
	default:
		return false
	}
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
