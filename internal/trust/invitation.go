// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// prefix tells an invitation, and the version of its format, from other texts.
	prefix = "hanse1."
	// maxInvitation bounds an invitation as text, such that it fits, sealed, into a claim.
	maxInvitation = 24_000
	maxServers    = 8
)

// ErrInvitation means that a text is no invitation that can be used.
var ErrInvitation = errors.New("not an invitation")

// An Invitation is what a provider gives to a consumer so that the two become peers. Whoever has it can use it, once.
type Invitation struct {
	// ID tells this invitation from others of the same provider.
	ID string `json:"id"`
	// ClusterID is the id of the provider.
	ClusterID string `json:"clusterID"`
	// PublicKey is the provider's Ed25519 key, in base64.
	PublicKey string `json:"publicKey"`
	// Servers are the URLs of the provider's API server, the best first.
	Servers []string `json:"servers"`
	// CA are the certificates, in PEM, that the servers' own are signed by. Empty means those that every computer knows.
	CA []byte `json:"ca,omitempty"`
	// Namespace is the consumer's tenant namespace at the provider.
	Namespace string `json:"namespace"`
	// Token is the bearer token that can make one claim and read it.
	Token string `json:"token"`
	// SealingKey is the X25519 key to which an invitation back is sealed. It is set if the provider wants to be a
	// consumer as well.
	SealingKey string `json:"sealingKey,omitempty"`
	// Expires is when the invitation ends, by the provider's clock.
	Expires time.Time `json:"expires"`
}

// Mutual reports whether the provider would like to be invited back.
func (i *Invitation) Mutual() bool { return i.SealingKey != "" }

// Format returns the invitation as one line of text. The error is ErrInvitation if it is larger than ParseInvitation takes,
// which that of its certificates makes it.
func (i *Invitation) Format() (string, error) {
	data, err := json.Marshal(i)
	if err != nil {
		return "", fmt.Errorf("encode the invitation: %w", err)
	}
	text := prefix + base64.RawURLEncoding.EncodeToString(data)
	return text, checkSize(text)
}

// ParseInvitation reads an invitation and checks all of it but the time. Errors are ErrInvitation and never quote it.
func ParseInvitation(text string) (*Invitation, error) {
	text = strings.TrimSpace(text)
	if err := checkSize(text); err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrInvitation, prefix)
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	invitation := &Invitation{}
	if err != nil || json.Unmarshal(data, invitation) != nil {
		return nil, fmt.Errorf("%w: it was cut off or changed", ErrInvitation)
	}
	if err := invitation.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvitation, err)
	}
	return invitation, nil
}

func checkSize(text string) error {
	if len(text) > maxInvitation {
		return fmt.Errorf("%w: it is larger than %d bytes", ErrInvitation, maxInvitation)
	}
	return nil
}

func (i *Invitation) check() error {
	switch {
	case i.ID == "" || len(validation.IsValidLabelValue(i.ID)) > 0:
		return errors.New("its id is missing or broken")
	case len(i.ClusterID) > 30 || len(validation.IsDNS1123Label(i.ClusterID)) > 0:
		return errors.New("its cluster id is not a DNS label of at most 30 characters")
	case !strings.HasPrefix(i.Namespace, v1alpha1.TenantNamespacePrefix) || len(validation.IsDNS1123Label(i.Namespace)) > 0:
		return errors.New("its namespace is not a tenant namespace")
	case !isToken(i.Token):
		return errors.New("its token is missing or broken")
	case !isTime(i.Expires):
		return errors.New("it does not say when it ends")
	}
	return errors.Join(i.checkKeys(), CheckServers(i.Servers))
}

func (i *Invitation) checkKeys() error {
	if _, err := ParsePublicKey(i.PublicKey); err != nil {
		return fmt.Errorf("its public key: %w", err)
	}
	if i.SealingKey != "" {
		if _, err := parseSealingPublic(i.SealingKey); err != nil {
			return fmt.Errorf("its sealing key: %w", err)
		}
	}
	if len(i.CA) > 0 && !x509.NewCertPool().AppendCertsFromPEM(i.CA) {
		return errors.New("its certificate authority is not a certificate in PEM")
	}
	return nil
}

// CheckServers reports whether an invitation can name these addresses of an API server.
func CheckServers(servers []string) error {
	if len(servers) == 0 || len(servers) > maxServers {
		return fmt.Errorf("there must be 1 to %d servers", maxServers)
	}
	paths := map[string]bool{}
	for _, server := range servers {
		u, err := url.Parse(server)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return errors.New("servers must be URLs such as https://host:6443")
		}
		paths[strings.TrimSuffix(u.Path, "/")] = true
	}
	if len(paths) > 1 {
		return errors.New("servers must have the same path, since they are addresses of the same one")
	}
	return nil
}
