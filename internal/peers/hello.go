package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// maxAPIVersions bounds how many versions of Hanse's API a peer may tell.
const maxAPIVersions = 16

// Hello is how a peer introduces itself.
type Hello struct {
	// ClusterID is the id that the cluster claims.
	ClusterID string
	// Version is the version of Hanse there.
	Version string
	// PublicKey is the Ed25519 key, in base64, that the cluster claims. It is empty when the peer does not tell it.
	PublicKey string
	// APIVersions are the versions of Hanse's API that the peer speaks. There are none when the peer does not tell them.
	APIVersions []string
	// RoundTrip is how long the answer took.
	RoundTrip time.Duration
}

// Hello asks the peer to introduce itself. Besides the errors of this package it returns NotFound, as apimachinery's
// errors package tells, when the API server there knows us but Hanse has not prepared our tenant namespace.
func (l *Link) Hello(ctx context.Context) (Hello, error) {
	start := l.links.config.Clock.Now()
	answer, err := l.getConfigMap(ctx, v1alpha1.ClusterInfo)
	if err != nil {
		return Hello{}, err
	}
	took := l.links.config.Clock.Since(start)
	known := l.heard.Load()
	if known == nil || !bytes.Equal(known.answer, answer) {
		hello, err := parseHello(answer)
		if err != nil {
			return Hello{}, fmt.Errorf("%w: ConfigMap %s of the peer: %w", ErrMalformed, v1alpha1.ClusterInfo, err)
		}
		known = &heard{answer, hello}
		l.heard.Store(known)
	}
	hello := known.hello
	hello.RoundTrip = took
	return hello, nil
}

// heard is what a peer answered, and what that means. It seldom changes and is asked for very often.
type heard struct {
	answer []byte
	hello  Hello
}

func parseHello(answer []byte) (Hello, error) {
	info, err := parseConfigMap(answer)
	if err != nil {
		return Hello{}, err
	}
	hello := Hello{
		ClusterID: info[v1alpha1.ClusterInfoID],
		Version:   info[v1alpha1.ClusterInfoVersion],
		PublicKey: info[v1alpha1.ClusterInfoPublicKey],
	}
	if versions := info[v1alpha1.ClusterInfoAPIVersions]; versions != "" {
		hello.APIVersions = strings.SplitN(versions, ",", maxAPIVersions+1)
	}
	return hello, hello.check()
}

func (h *Hello) check() error {
	if len(validation.IsDNS1123Label(h.ClusterID)) > 0 || h.Version == "" || len(h.Version) > 64 {
		return errors.New("it holds no cluster id and version")
	}
	if len(h.APIVersions) > maxAPIVersions {
		return fmt.Errorf("it holds more than %d versions of the API", maxAPIVersions)
	}
	for _, version := range h.APIVersions {
		if len(validation.IsDNS1123Label(version)) > 0 {
			return errors.New("it holds what is no version of the API")
		}
	}
	if h.PublicKey == "" {
		return nil
	}
	_, err := trust.ParsePublicKey(h.PublicKey)
	return err
}

// Tombstone returns the statement that the peer has left for us because it has parted from us. The statement is still to
// be verified. Besides the errors of this package it returns NotFound, as apimachinery's errors package tells.
func (l *Link) Tombstone(ctx context.Context) (string, error) {
	answer, err := l.getConfigMap(ctx, v1alpha1.Tombstone)
	if err != nil {
		return "", err
	}
	data, err := parseConfigMap(answer)
	if err != nil {
		return "", fmt.Errorf("%w: ConfigMap %s of the peer: %w", ErrMalformed, v1alpha1.Tombstone, err)
	}
	statement := data[v1alpha1.TombstoneStatement]
	if statement == "" {
		return "", fmt.Errorf("%w: ConfigMap %s of the peer holds no statement", ErrMalformed, v1alpha1.Tombstone)
	}
	return statement, nil
}

// getConfigMap returns the ConfigMap in our tenant namespace over there, as the peer's API server wrote it.
func (l *Link) getConfigMap(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if l.raw == nil {
		return l.readConfigMap(ctx, name)
	}
	answer, err := l.raw.Get().AbsPath("api", "v1", "namespaces", l.TenantNamespace(), "configmaps", name).
		SetHeader("Accept-Encoding", "identity"). // what is measured is not compressed, and the rest is too short for that
		Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s of the peer: %w", l.TenantNamespace(), name, classify(err))
	}
	return answer, nil
}

// readConfigMap is getConfigMap where there is no API server whose answer could be kept as it is.
func (l *Link) readConfigMap(ctx context.Context, name string) ([]byte, error) {
	info := &corev1.ConfigMap{}
	if err := l.client.Get(ctx, types.NamespacedName{Namespace: l.TenantNamespace(), Name: name}, info); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s of the peer: %w", l.TenantNamespace(), name, classify(err))
	}
	return json.Marshal(info)
}

// parseConfigMap returns what a ConfigMap holds.
func parseConfigMap(answer []byte) (map[string]string, error) {
	info := &corev1.ConfigMap{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(answer, info); err != nil {
		return nil, err
	}
	return info.Data, nil
}
