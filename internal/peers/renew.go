package peers

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// Renew asks the peer for a new token of our identity there, which lives for the given time or as long as the peer's API
// server allows, and ends with our session. The link goes on with the token that it has until Ensure finds another one in
// the Secret.
func (l *Link) Renew(ctx context.Context, life time.Duration) (trust.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.TenantNamespace(), Name: v1alpha1.PeerServiceAccount,
	}}
	seconds := int64(life.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Secret", Name: v1alpha1.SessionSecret,
		},
	}}
	if err := l.client.SubResource("token").Create(ctx, account, request); err != nil {
		return trust.Session{}, fmt.Errorf("request a token of the peer: %w", classify(err))
	}
	session := trust.Session{Token: request.Status.Token, Expires: request.Status.ExpirationTimestamp.Time}
	if err := session.Check(); err != nil {
		return trust.Session{}, fmt.Errorf("request a token of the peer: %w: %w", ErrMalformed, err)
	}
	return session, nil
}
