// SPDX-License-Identifier: Apache-2.0

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

// ClusterInfo is what a peer says of itself.
type ClusterInfo struct {
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

// ClusterInfo reads what the peer says of itself. Besides the errors of this package it returns NotFound, as apimachinery's
// errors package tells, when the API server there knows us but Hanse has not prepared our tenant namespace.
func (l *Link) ClusterInfo(ctx context.Context) (ClusterInfo, error) {
	start := l.links.config.Clock.Now()
	answer, err := l.getConfigMap(ctx, v1alpha1.ClusterInfo)
	if err != nil {
		return ClusterInfo{}, err
	}
	took := l.links.config.Clock.Since(start)
	known := l.lastInfo.Load()
	if known == nil || !bytes.Equal(known.answer, answer) {
		info, err := parseClusterInfo(answer)
		if err != nil {
			return ClusterInfo{}, fmt.Errorf("%w: ConfigMap %s of the peer: %w", ErrMalformed, v1alpha1.ClusterInfo, err)
		}
		known = &parsedInfo{answer, info}
		l.lastInfo.Store(known)
	}
	info := known.info
	info.RoundTrip = took
	return info, nil
}

// parsedInfo is what a peer answered, and what that means. It seldom changes and is asked for very often.
type parsedInfo struct {
	answer []byte
	info   ClusterInfo
}

func parseClusterInfo(answer []byte) (ClusterInfo, error) {
	data, err := parseConfigMap(answer)
	if err != nil {
		return ClusterInfo{}, err
	}
	info := ClusterInfo{
		ClusterID: data[v1alpha1.ClusterInfoID],
		Version:   data[v1alpha1.ClusterInfoVersion],
		PublicKey: data[v1alpha1.ClusterInfoPublicKey],
	}
	if versions := data[v1alpha1.ClusterInfoAPIVersions]; versions != "" {
		info.APIVersions = strings.SplitN(versions, ",", maxAPIVersions+1)
	}
	return info, info.check()
}

func (h *ClusterInfo) check() error {
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

// Tombstone returns the statement that the peer has left for us because it has unpeered. The statement is still to
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

// getConfigMap returns the ConfigMap in our tenant namespace at the peer, as the peer's API server wrote it.
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

// Bandwidth measures how fast data comes from the peer, in bytes per second: it reads a sample that the peer keeps for
// that, and counts the time from the request to the last byte. Besides the errors of this package it returns NotFound, as
// apimachinery's errors package tells, when the peer keeps none.
func (l *Link) Bandwidth(ctx context.Context) (int64, error) {
	start := l.links.config.Clock.Now()
	answer, err := l.getConfigMap(ctx, v1alpha1.BandwidthSample)
	if err != nil {
		return 0, err
	}
	took := max(l.links.config.Clock.Since(start), time.Microsecond)
	if len(answer) < v1alpha1.BandwidthSampleSize {
		return 0, fmt.Errorf("%w: ConfigMap %s of the peer has %d bytes, too few to measure by", ErrMalformed, v1alpha1.BandwidthSample, len(answer))
	}
	return int64(float64(len(answer)) / took.Seconds()), nil
}
