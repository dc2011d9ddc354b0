package peering

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// clusterKeySecret is the Secret in Hanse's namespace that holds the cluster's Ed25519 key.
	clusterKeySecret = "hanse-cluster-key" //nolint:gosec // a name, not a key
	// clusterKeyField is its key: a private key in PEM, PKCS #8.
	clusterKeyField = "private-key"
	// publicKeyField is the key of the cluster's public key, in base64, in ConfigMap hanse-cluster in Hanse's namespace.
	publicKeyField = "publicKey"
)

// EnsureClusterInfo makes sure that this cluster has a key and an id and tells both, with its version, in ConfigMap
// hanse-cluster in Hanse's namespace. It returns the id: that of the ConfigMap if there is one already, else the one
// that config asks for, else one from the hash of the key. An id never changes, so asking for another one is an error.
func EnsureClusterInfo(ctx context.Context, c client.Client, config Config) (string, error) {
	config.Default()
	public, err := ensureClusterKey(ctx, c, config.Namespace)
	if err != nil {
		return "", err
	}
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: v1alpha1.ClusterInfo}}
	var id string
	_, err = controllerutil.CreateOrUpdate(ctx, c, info, func() error {
		if id, err = chooseClusterID(info.Data[v1alpha1.ClusterInfoID], config.ClusterID, public); err != nil {
			return err
		}
		info.Data = map[string]string{
			v1alpha1.ClusterInfoID:      id,
			v1alpha1.ClusterInfoVersion: config.Version,
			publicKeyField:              base64.StdEncoding.EncodeToString(public),
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("keep ConfigMap %s/%s: %w", info.Namespace, info.Name, err)
	}
	return id, nil
}

func chooseClusterID(current, asked string, public ed25519.PublicKey) (string, error) {
	if current != "" && asked != "" && current != asked {
		return "", fmt.Errorf("the id of this cluster is %q and can never change: peers know it by that id; "+
			"leave out --cluster-id, or set it to %q", current, current)
	}
	hash := sha256.Sum256(public)
	for _, id := range []string{current, asked} {
		if id != "" {
			return id, validateClusterID(id)
		}
	}
	return "c-" + hex.EncodeToString(hash[:5]), nil
}

func ensureClusterKey(ctx context.Context, c client.Client, namespace string) (ed25519.PublicKey, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterKeySecret}}
	key := client.ObjectKeyFromObject(secret)
	err := c.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		if err = createClusterKey(ctx, c, secret); apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, key, secret) // another replica was faster
		}
	}
	if err != nil {
		return nil, fmt.Errorf("keep Secret %s: %w", key, err)
	}
	public, err := publicKey(secret.Data[clusterKeyField])
	if err != nil {
		return nil, fmt.Errorf("read key %s of Secret %s: %w", clusterKeyField, key, err)
	}
	return public, nil
}

func createClusterKey(ctx context.Context, c client.Client, secret *corev1.Secret) error {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	secret.Data = map[string][]byte{
		clusterKeyField: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
	return c.Create(ctx, secret)
}

func publicKey(data []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is not a private key in PKCS #8")
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("it is not an Ed25519 key")
	}
	return private.Public().(ed25519.PublicKey), nil
}
