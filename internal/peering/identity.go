package peering

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	// clusterKeySecret is the Secret in Hanse's namespace that holds the cluster's Ed25519 key.
	clusterKeySecret = "hanse-cluster-key" //nolint:gosec // a name, not a key
	// clusterKeyField is its key: a private key in PEM, PKCS #8.
	clusterKeyField = "private-key"
)

// public returns the public key as objects hold it.
func public(key ed25519.PrivateKey) string {
	return trust.FormatPublicKey(key.Public().(ed25519.PublicKey))
}

// EnsureClusterInfo makes sure that this cluster has a key and an id and tells both, with its version, in ConfigMap
// hanse-cluster in Hanse's namespace. The id is that of the ConfigMap if there is one already, else the one that config
// asks for, else one from the hash of the key. Both are set in the configuration. Neither ever changes, since peers have pinned them: to ask for another id
// is an error, and so is a key that is lost or not that of the ConfigMap.
func EnsureClusterInfo(ctx context.Context, c client.Client, config *Config) error {
	config.Default()
	info := configMap(config.Namespace, v1alpha1.ClusterInfo)
	name := client.ObjectKeyFromObject(info)
	// It is read before the key: another replica that starts at the same time makes the key first.
	if err := c.Get(ctx, name, info); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	key, err := ensureClusterKey(ctx, c, config.Namespace, info.Data)
	if err != nil {
		return err
	}
	_, err = controllerutil.CreateOrUpdate(ctx, c, info, func() error {
		config.ClusterKey = key
		config.ClusterID, err = chooseClusterID(info.Data[v1alpha1.ClusterInfoID], config.ClusterID, key)
		info.Data = config.clusterInfo()
		return err
	})
	if err != nil {
		return fmt.Errorf("keep ConfigMap %s: %w", name, err)
	}
	return nil
}

// clusterInfo is what this cluster tells of itself, as the data of a ConfigMap hanse-cluster.
func (c *Config) clusterInfo() map[string]string {
	return map[string]string{
		v1alpha1.ClusterInfoID:          c.ClusterID,
		v1alpha1.ClusterInfoVersion:     c.Version,
		v1alpha1.ClusterInfoPublicKey:   public(c.ClusterKey),
		v1alpha1.ClusterInfoAPIVersions: v1alpha1.GroupVersion.Version,
	}
}

func chooseClusterID(current, asked string, key ed25519.PrivateKey) (string, error) {
	if current != "" && asked != "" && current != asked {
		return "", fmt.Errorf("the id of this cluster is %q and can never change: peers know it by that id; "+
			"leave out --cluster-id, or set it to %q", current, current)
	}
	hash := sha256.Sum256(key.Public().(ed25519.PublicKey))
	id := cmp.Or(current, asked, "c-"+hex.EncodeToString(hash[:5]))
	return id, validateClusterID(id)
}

// ensureClusterKey returns the cluster's key, and makes one for a cluster that has told of none yet.
func ensureClusterKey(
	ctx context.Context, c client.Client, namespace string, told map[string]string,
) (ed25519.PrivateKey, error) {
	secret := secret(namespace, clusterKeySecret)
	name := client.ObjectKeyFromObject(secret)
	known := told[v1alpha1.ClusterInfoPublicKey]
	err := c.Get(ctx, name, secret)
	if apierrors.IsNotFound(err) {
		if told[v1alpha1.ClusterInfoID] != "" && known != "" {
			return nil, fmt.Errorf("the key of this cluster is lost: there is no Secret %s; %s", name, remedy(namespace))
		}
		if secret.Data, err = newClusterKey(); err == nil {
			err = c.Create(ctx, secret)
		}
		if apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, name, secret) // another replica was faster
		}
	}
	if err != nil {
		return nil, fmt.Errorf("keep Secret %s: %w", name, err)
	}
	key, err := trust.ParsePrivateKey(secret.Data[clusterKeyField])
	if err != nil {
		return nil, fmt.Errorf("read key %s of Secret %s: %w", clusterKeyField, name, err)
	}
	if known != "" && known != public(key) {
		return nil, fmt.Errorf("the key in Secret %s is not the one that this cluster has told its peers; %s", name, remedy(namespace))
	}
	return key, nil
}

// remedy says what to do about a cluster that cannot prove who it is.
func remedy(namespace string) string {
	return fmt.Sprintf("restore the Secret from a backup, or delete ConfigMap %s/%s to become a new cluster, which has to "+
		"peer with all others again", namespace, v1alpha1.ClusterInfo)
}

func newClusterKey() (map[string][]byte, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	pem, err := trust.FormatPrivateKey(private)
	return map[string][]byte{clusterKeyField: pem}, err
}
