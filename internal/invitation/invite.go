package invitation

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	// sealingKey is the key of Secret hanse-invitation under which the private half of the invitation's SealingKey lies.
	sealingKey = "sealing-key"
	// minTokenLife is the shortest life of a token that Kubernetes takes. An invitation that ends sooner ends with its
	// Secret.
	minTokenLife = 10 * time.Minute
)

// prepare makes the Secret that the invitation's token is going to be bound to.
func (c *Controller) prepare(ctx context.Context, f *facts) error {
	// Expiry is kept in whole seconds; half a second less would be none for one of a second.
	expires := f.now.Add(timeToLive(f.peer) + time.Second - 1).Truncate(time.Second)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: f.draft.Namespace,
		Name:      v1alpha1.InvitationSecret,
		Labels:    map[string]string{v1alpha1.LabelManaged: "true", v1alpha1.LabelPeer: f.peer.Name},
		Annotations: map[string]string{
			v1alpha1.AnnotationSerial:  strconv.FormatInt(f.peer.Spec.Invitation.Serial, 10),
			v1alpha1.AnnotationExpires: expires.UTC().Format(time.RFC3339),
		},
	}}
	if f.peer.HasRole(v1alpha1.RoleProvider) {
		key, err := trust.NewSealingKey()
		if err != nil {
			return err
		}
		secret.Data = map[string][]byte{sealingKey: []byte(key.Format())}
	}
	if err := c.client.Create(ctx, secret); err != nil {
		return fmt.Errorf("create Secret %s: %w", secret.Name, err)
	}
	return nil
}

// mint makes the invitation and puts it into its Secret.
func (c *Controller) mint(ctx context.Context, f *facts) error {
	account, err := c.account(ctx, f, v1alpha1.InvitationServiceAccount)
	if err != nil {
		return err
	}
	err = c.bind(ctx, f.draft.Namespace, v1alpha1.ClusterRolePeerInvitation, serviceAccount(account.Namespace, account.Name))
	if err != nil {
		return err
	}
	life := max(minTokenLife, f.expires().Add(pickUpTime).Sub(f.now))
	token, err := c.token(ctx, account, f.secret, int64(life.Seconds()))
	if err != nil {
		return err
	}
	text, err := c.format(f, token.Token)
	if err != nil {
		return err
	}
	secret := f.secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[v1alpha1.InvitationToken] = []byte(text)
	if err := c.client.Update(ctx, secret); err != nil {
		return fmt.Errorf("put the invitation into Secret %s: %w", secret.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Inviting the peer", "serial", f.serial(), "expires", f.expires(), "servers", f.draft.Servers)
	return nil
}

func (c *Controller) format(f *facts, token string) (string, error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	invitation := f.draft
	invitation.ID, invitation.Token, invitation.Expires = hex.EncodeToString(id), token, f.expires()
	if private := f.secret.Data[sealingKey]; len(private) > 0 {
		key, err := trust.ParseSealingKey(string(private))
		if err != nil {
			return "", fmt.Errorf("read key %s of Secret %s: %w", sealingKey, f.secret.Name, err)
		}
		invitation.SealingKey = key.Public()
	}
	text, err := invitation.Format()
	if err != nil {
		return "", err
	}
	if _, err := trust.ParseInvitation(text); err != nil {
		return "", fmt.Errorf("make an invitation: %w", err)
	}
	return text, nil
}
