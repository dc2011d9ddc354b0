// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
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

// there is our tenant namespace at the peer.
const there = "hanse-peer-lubeck"

// What a peer is asked for, as requests of package peerstest.
const (
	readInfo   = "get ConfigMap " + v1alpha1.ClusterInfo
	readSample = "get ConfigMap " + v1alpha1.BandwidthSample
	renewal    = "create/token ServiceAccount"
	joining    = "create PeeringClaim"
)

// How a peer answers that does not do what it is asked for.
var (
	noAnswer     = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	untrusted    = &tls.CertificateVerificationError{Err: errors.New("x509: the time is 12:00:01")}
	unauthorized = apierrors.NewUnauthorized("who are you?")
	forbidden    = apierrors.NewForbidden(schema.GroupResource{Resource: "namespacemappings"}, "", nil)
)

// connect gives the world links that lead nowhere yet, and a cluster for the peer.
func (w *world) connect(credentials client.Reader) {
	w.away, w.stopwatch = testkit.NewCluster(w.t, w.clock), clocktesting.NewFakeClock(start)
	w.links = peerstest.New(w.t, testkit.Scheme(), peers.Config{Local: credentials, Clock: linkClock{w}})
}

// A linkClock shows links the time of the world, and what requests have taken besides.
type linkClock struct{ *world }

// Now implements clock.PassiveClock.
func (c linkClock) Now() time.Time { return c.clock.Now().Add(c.stopwatch.Since(start)) }

// Since implements clock.PassiveClock.
func (c linkClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// lead has our credentials lead to the cluster.
func (w *world) lead(cluster client.WithWatch) {
	w.remote = w.links.Add("hamburg", there, cluster)
	w.joinBy("their-invitation")
	w.remote.OnRequest(w.travel)
}

// joinBy gives us credentials for the peer.
func (w *world) joinBy(invitation string) { w.remote.JoinBy(there, invitation) }

// travel is how long a request is on its way.
func (w *world) travel(request peerstest.Request) error {
	switch request.String() {
	case readInfo:
		if w.wait != nil {
			<-w.wait
		}
		w.stopwatch.Step(w.roundTrip)
	case readSample:
		w.stopwatch.Step(w.transfer)
	}
	return nil
}

// introduces has the peer say this of itself.
func (w *world) introduces(info peers.ClusterInfo) {
	w.t.Helper()
	introduction := configMap(there, v1alpha1.ClusterInfo)
	introduction.Data = map[string]string{
		v1alpha1.ClusterInfoID: info.ClusterID, v1alpha1.ClusterInfoVersion: info.Version,
		v1alpha1.ClusterInfoPublicKey: info.PublicKey, v1alpha1.ClusterInfoAPIVersions: strings.Join(info.APIVersions, ","),
	}
	w.away.Put(introduction)
}

// keepsTombstone has the peer keep that statement for us, if there is one.
func (w *world) keepsTombstone(statement string) {
	w.t.Helper()
	if statement == "" {
		return
	}
	tombstone := configMap(there, v1alpha1.Tombstone)
	tombstone.Data = map[string]string{v1alpha1.TombstoneStatement: statement}
	w.away.Put(tombstone)
}

// sends has the peer keep a sample that comes at that rate, in bytes per second.
func (w *world) sends(rate float64) {
	w.t.Helper()
	sample := configMap(there, v1alpha1.BandwidthSample)
	sample.Data = map[string]string{v1alpha1.BandwidthSampleKey: strings.Repeat("x", v1alpha1.BandwidthSampleSize)}
	w.away.Put(sample)
	answer, err := json.Marshal(testkit.Get[corev1.ConfigMap](w.away, there, sample.Name))
	if err != nil {
		w.t.Fatal(err)
	}
	w.transfer = time.Duration(float64(len(answer)) / rate * float64(time.Second))
}

// refuseWork has the peer answer what would change something there with the error, or as usual if there is none.
func (w *world) refuseWork(err error) {
	w.remote.Refuse("list", err)
	w.remote.Refuse("patch", err)
}

// asked returns how often the peer was asked to introduce itself.
func (w *world) asked() int { return w.remote.Requests(readInfo) }

// samples returns how often its bandwidth was measured.
func (w *world) samples() int { return w.remote.Requests(readSample) }

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
	if key.Namespace != "" && !isMessage(o) && key.Name != v1alpha1.OwnNetwork {
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

// isMessage reports whether the object is of a kind that is watched.
func isMessage(o client.Object) bool {
	switch o.(type) {
	case *v1alpha1.Advertisement, *v1alpha1.Connection, *v1alpha1.PeeringClaim, *appsv1.Deployment, *corev1.Service:
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
