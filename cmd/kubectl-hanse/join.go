package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// tokenLife is how long a peer's credentials live.
const tokenLife = 30 * 24 * time.Hour

// side is one of two clusters that become peers.
type side struct {
	*connection
	id     string // its cluster id
	called string // what the other cluster calls it
	server string // its API server, as pods of the other cluster reach it
}

// openSide connects to a cluster and asks it who it is.
func openSide(ctx context.Context, where target, namespace, server string) (*side, error) {
	c, err := where.connect()
	if err != nil {
		return nil, err
	}
	id, err := clusterID(ctx, c.client, namespace)
	if err != nil {
		return nil, explain(err, c.name)
	}
	return &side{connection: c, id: id, server: orElse(server, c.config.Host)}, nil
}

// clusterID waits until the manager says who the cluster is: it may have been installed just now.
func clusterID(ctx context.Context, c client.Client, namespace string) (string, error) {
	info := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.ClusterInfo}
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); err != nil {
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("Hanse is not installed: run `kubectl hanse install`: %w", err) //nolint:staticcheck // Hanse is a name
		}
		return "", fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	err := until(ctx, "Hanse to say the cluster's id", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, info)
		return info.Data[v1alpha1.ClusterInfoID] != "", err
	})
	return info.Data[v1alpha1.ClusterInfoID], err
}

// join lets the consumer run pods at the provider: each gets a Peer, and the consumer the credentials.
func join(ctx context.Context, consumer, provider *side) error {
	if err := ensurePeer(ctx, provider, consumer, v1alpha1.RoleConsumer); err != nil {
		return err
	}
	credentials, err := issue(ctx, provider, consumer.called)
	if err != nil {
		return err
	}
	if err := ensurePeer(ctx, consumer, provider, v1alpha1.RoleProvider); err != nil {
		return err
	}
	return store(ctx, consumer, provider.called, credentials)
}

// ensurePeer makes `at` know the other cluster in the role, besides others that it may have already.
func ensurePeer(ctx context.Context, at, other *side, role v1alpha1.PeerRole) error {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: other.called}}
	_, err := controllerutil.CreateOrUpdate(ctx, at.client, peer, func() error {
		if peer.Spec.ClusterID != "" && peer.Spec.ClusterID != other.id {
			return fmt.Errorf("it stands for cluster %q and not for %q: say another name, or `kubectl hanse unpeer %s` first",
				peer.Spec.ClusterID, other.id, other.called)
		}
		if !peer.DeletionTimestamp.IsZero() {
			return errors.New("it is being deleted: try again when it is gone")
		}
		peer.Spec.ClusterID = other.id
		if !peer.HasRole(role) {
			peer.Spec.Roles = append(peer.Spec.Roles, role)
		}
		return nil
	})
	if err != nil {
		return explain(fmt.Errorf("write Peer %s in %s: %w", other.called, at.id, err), at.name)
	}
	return nil
}

// issue waits until the provider has prepared the consumer's identity, and returns a kubeconfig with a token of it.
func issue(ctx context.Context, provider *side, consumer string) ([]byte, error) {
	namespace := v1alpha1.TenantNamespace(consumer)
	account := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.PeerServiceAccount},
	}
	seconds := int64(tokenLife / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	err := until(ctx, "the manager of "+provider.id+" to prepare "+namespace, func(ctx context.Context) (bool, error) {
		err := provider.client.SubResource("token").Create(ctx, account, request)
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	return credentials(provider, namespace, request.Status.Token)
}

// credentials is a kubeconfig that holds all that it needs.
func credentials(provider *side, namespace, token string) ([]byte, error) {
	authority, err := authorityOf(provider.config)
	if err != nil {
		return nil, err
	}
	const name = "hanse"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   provider.server,
		CertificateAuthorityData: authority,
		InsecureSkipTLSVerify:    provider.config.Insecure,
		TLSServerName:            provider.config.ServerName,
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode the credentials: %w", err)
	}
	return data, nil
}

func authorityOf(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData, nil
	}
	data, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority of %s: %w", config.Host, err)
	}
	return data, nil
}

// store puts the credentials where the consumer's own Hanse finds them.
func store(ctx context.Context, consumer *side, provider string, credentials []byte) error {
	namespace := v1alpha1.TenantNamespace(provider)
	err := until(ctx, "the manager of "+consumer.id+" to prepare "+namespace, func(ctx context.Context) (bool, error) {
		err := consumer.client.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
		return err == nil, err
	})
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.LinkSecret}}
	_, err = controllerutil.CreateOrUpdate(ctx, consumer.client, secret, func() error {
		secret.Data = map[string][]byte{v1alpha1.LinkSecretKey: credentials}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write Secret %s/%s in %s: %w", namespace, v1alpha1.LinkSecret, consumer.id, err)
	}
	return nil
}

// waitPeerReady waits until the consumer's manager reaches the provider and has its offer.
func waitPeerReady(ctx context.Context, consumer *side, provider string) error {
	peer := &v1alpha1.Peer{}
	err := until(ctx, "Peer "+provider+" in "+consumer.id+" to be ready", func(ctx context.Context) (bool, error) {
		err := consumer.client.Get(ctx, client.ObjectKey{Name: provider}, peer)
		ready := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
		// It may still speak of the Peer as it was before it got another role.
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration >= peer.Generation, err
	})
	if err == nil {
		return nil
	}
	if ready := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return fmt.Errorf("%w: %s: %s", err, ready.Reason, ready.Message)
	}
	return err
}
