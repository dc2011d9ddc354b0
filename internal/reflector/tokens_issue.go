// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	// tokenPatience is for how long after a pod was made nothing is told: the right to make its tokens may be on its way.
	tokenPatience = 5 * time.Second
	// rootsLast is for how long the certificates of the API server are taken from memory.
	rootsLast = time.Minute
	mostRoots = 1000
)

// A tokenMove is what is being done about the tokens of a pod.
type tokenMove struct {
	tokenRequest
	verb  reflection.Verb
	pod   *corev1.Pod   // nil if it needs none
	found client.Object // the Secret as it is seen, nil if there is none
	twin  string        // the namespace at the peer
	link  *peers.Link
}

// isToken says whether the object is a token of a service account as there were before Kubernetes gave pods their own.
func isToken(object client.Object) bool {
	secret, is := object.(*corev1.Secret)
	return is && secret.Type == corev1.SecretTypeServiceAccountToken
}

func podOfTokens(secret string) (types.UID, bool) {
	uid, is := strings.CutPrefix(secret, offload.TokenSecretPrefix)
	return types.UID(uid), is
}

// take does it. Where the world has moved on meanwhile it does nothing: what moved it asks for another look.
func (t *tokens) take(ctx context.Context, m tokenMove) error {
	if m.verb == reflection.Yield {
		return fmt.Errorf("there is a Secret %s that is not of this cluster", m.found.GetName())
	}
	if m.verb == reflection.Delete {
		uid := m.found.GetUID()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.twin, Name: m.found.GetName()}}
		return t.wrote(ctx, m, client.IgnoreNotFound(m.link.Client().Delete(ctx, secret, client.Preconditions{UID: &uid})))
	}
	if m.link.TwinEnds(m.Namespace) {
		return nil // what is in the twin goes with it, and the mapping tells when there is another
	}
	if err := m.link.Busy(); err != nil {
		return err
	}
	secret, err := t.issue(ctx, m)
	if secret == nil || err != nil {
		return err
	}
	if m.verb == reflection.Create {
		return t.wrote(ctx, m, m.link.Client().Create(ctx, secret))
	}
	secret.ResourceVersion = m.found.GetResourceVersion()
	return t.wrote(ctx, m, client.IgnoreNotFound(m.link.Client().Update(ctx, secret)))
}

func (t *tokens) wrote(ctx context.Context, m tokenMove, err error) error {
	switch {
	case isAlreadySo(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s the Secret with its tokens at the peer: %w", m.verb, err)
	}
	tokensWritten.WithLabelValues(string(m.verb)).Inc()
	ctrl.LoggerFrom(ctx).V(1).Info("Changed the tokens of the pod at the peer", "verb", m.verb)
	return nil
}

// issue returns the Secret with new tokens of the pod, or nil if the pod is gone.
func (t *tokens) issue(ctx context.Context, m tokenMove) (*corev1.Secret, error) {
	roots, err := t.roots.of(ctx, t.Config, m.Namespace)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{offload.KeyRootCertificates: roots, offload.KeyNamespace: []byte(m.Namespace)}
	now := t.Clock.Now()
	due := reflection.Renewal(m.Pod, now, 2*24*time.Hour) // the certificates may be others after that
	for _, asked := range offload.Tokens(&m.pod.Spec) {
		token, life, err := t.request(ctx, m.pod, asked)
		if apierrors.IsConflict(err) { // there is another pod of that name by now
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("ask for a token of service account %s: %w", m.pod.Spec.ServiceAccountName, err)
		}
		data[asked.Key()] = token
		if sooner := reflection.Renewal(m.Pod, now, life); sooner.Before(due) {
			due = sooner
		}
	}
	return reflection.TokenSecret(m.Pod, m.twin, offload.TokenSecret(m.Pod), data, due), nil
}

// request asks the API server for a token that dies with the pod, and returns for how long it lives if the pod does.
func (t *tokens) request(ctx context.Context, pod *corev1.Pod, asked offload.Token) ([]byte, time.Duration, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &asked.Seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if asked.Audience != "" {
		request.Spec.Audiences = []string{asked.Audience}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	if err := t.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, 0, err
	}
	life := request.Status.ExpirationTimestamp.Sub(t.Clock.Now()) // which the API server may have shortened
	return []byte(request.Status.Token), min(life, time.Duration(asked.Seconds)*time.Second), nil
}

// tell makes an event on the pod, which cannot start without its tokens, or soon runs with old ones.
func (t *tokens) tell(m tokenMove, err error) {
	if t.Clock.Since(m.pod.CreationTimestamp.Time) < tokenPatience {
		return
	}
	regarding := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: m.pod.Namespace, Name: m.pod.Name, UID: m.pod.UID}
	note := fmt.Sprintf("The pod's tokens do not come to peer %q: %s. To run it without, set automountServiceAccountToken to false or "+
		"annotation %s to true", m.Peer, sanitize.Text(err.Error(), maxNote/2), v1alpha1.AnnotationSkipToken)
	t.Events.Eventf(regarding, nil, corev1.EventTypeWarning, v1alpha1.ReasonTokenRefused, "Reflect", "%s", note)
}

// rootCertificates are those of our API server, by namespace. They are kept for a while, so that a burst of pods does not read
// them as often.
type rootCertificates struct {
	mu    sync.Mutex
	known map[string]readRoots
}

type readRoots struct {
	at    time.Time
	roots []byte
}

func (r *rootCertificates) of(ctx context.Context, c Config, namespace string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.known[namespace]; ok && c.Clock.Since(known.at) < rootsLast {
		return known.roots, nil
	}
	found := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: namespace, Name: reflection.RootCertificates}
	if err := c.Live.Get(ctx, key, found); err != nil {
		return nil, fmt.Errorf("read the certificates of the API server: %w", err)
	}
	if r.known == nil || len(r.known) > mostRoots {
		r.known = map[string]readRoots{}
	}
	now := readRoots{at: c.Clock.Now(), roots: []byte(found.Data[offload.KeyRootCertificates])}
	r.known[namespace] = now
	return now.roots, nil
}

var tokensWritten = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "hanse_token_writes_total",
	Help: "Secrets with the tokens of a pod that were written at peers, by verb: create, update, delete.",
}, []string{"verb"})

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(tokensWritten)
}
