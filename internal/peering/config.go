// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	// maxClusterID is how long a cluster id may be.
	maxClusterID = 30
	// minTokenLife is the shortest life that Kubernetes gives a token.
	minTokenLife = 10 * time.Minute
)

// Config is what an administrator may set. What is not set has the default that is named.
type Config struct {
	// Namespace is Hanse's own. Default v1alpha1.SystemNamespace.
	Namespace string
	// ClusterID is the id of this cluster, as EnsureClusterInfo sets it.
	ClusterID string
	// ClusterKey is the key of this cluster, as EnsureClusterInfo sets it.
	ClusterKey ed25519.PrivateKey
	// Version is the version of Hanse that runs here.
	Version string
	// PodCIDRs are the ranges of this cluster's own pods, as far as nodes do not tell.
	PodCIDRs []netip.Prefix
	// AddressPools are where the ranges come from in which this cluster sees the pods of its peers, tried in this order.
	// ServicePools are the same for their Services. Default those of overlay.DefaultPools.
	AddressPools, ServicePools []netip.Prefix
	// Gateway says that this cluster has a gateway, by which it connects to peers that have one too.
	Gateway bool
	// SendOn says that pods of consumers go on to providers of ours. Then the two reach each other through our gateway.
	SendOn bool
	// GatewayEndpoints are where peers reach the gateway. By default those of Service v1alpha1.GatewayName are used.
	GatewayEndpoints []string
	// Nameservers are the addresses of this cluster's DNS. By default those of the DNS Service in kube-system.
	Nameservers []string
	// ProbePeriod is how often a provider is probed. One that does not answer is probed again at once, and then ever
	// more rarely. With hundreds of peers it is less often. Default 30 s.
	ProbePeriod time.Duration
	// BandwidthInterval is how often it is measured how fast data comes from a provider. It is also what lets consumers
	// measure that of this cluster. Default 0: never.
	BandwidthInterval time.Duration
	// PartingDeadline is how long a peer that is our consumer has to leave after its Peer was deleted. Default 5 min.
	PartingDeadline time.Duration
	// TombstoneLife is how long it is remembered that we have parted from a peer by force. Default 30 days.
	TombstoneLife time.Duration
	// SessionLife is for how long a consumer's session lives unless it is renewed, and for how long ours are asked for.
	// Default 30 days.
	SessionLife time.Duration
	// RenewalPeriod is how often our own sessions are renewed, more or less. Default 24 h.
	RenewalPeriod time.Duration
	// Servers are the addresses of this cluster's API server as peers reach it, the best first. By default those of
	// Service kubernetes are used.
	Servers []string
	// CA are the certificates, in PEM, that the API server's own is signed by. Empty means those that every computer
	// knows.
	CA []byte
	// ManagerServiceAccount and KubeletServiceAccount are the names of Hanse's own service accounts. Default
	// hanse-manager and hanse-kubelet.
	ManagerServiceAccount, KubeletServiceAccount string
	// Clock is the time. Default the real one.
	Clock clock.Clock
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.Namespace = cmp.Or(c.Namespace, v1alpha1.SystemNamespace)
	c.ManagerServiceAccount = cmp.Or(c.ManagerServiceAccount, "hanse-manager")
	c.KubeletServiceAccount = cmp.Or(c.KubeletServiceAccount, "hanse-kubelet")
	c.ProbePeriod = cmp.Or(c.ProbePeriod, 30*time.Second)
	c.PartingDeadline = cmp.Or(c.PartingDeadline, 5*time.Minute)
	c.TombstoneLife = cmp.Or(c.TombstoneLife, 30*24*time.Hour)
	c.SessionLife = cmp.Or(c.SessionLife, 30*24*time.Hour)
	c.RenewalPeriod = cmp.Or(c.RenewalPeriod, 24*time.Hour)
	if len(c.AddressPools) == 0 {
		c.AddressPools = overlay.DefaultPools().Pods
	}
	if len(c.ServicePools) == 0 {
		c.ServicePools = overlay.DefaultPools().Services
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	problems := []error{validateClusterID(c.ClusterID), c.validateInvitation()}
	for _, check := range []struct {
		fails   bool
		problem string
	}{
		{c.Version == "" || len(c.Version) > 64, "the version must have 1 to 64 characters"},
		{min(c.ProbePeriod, c.PartingDeadline, c.TombstoneLife) <= 0, "probe period, parting deadline and life of a tombstone must be positive"},
		{c.BandwidthInterval != 0 && c.BandwidthInterval < time.Minute, "the bandwidth interval must be 0 or at least 1m"},
		{c.SessionLife < minTokenLife, "the life of a session must be at least 10m"},
		{
			c.RenewalPeriod < minInterval || c.RenewalPeriod > c.SessionLife/2,
			"the renewal period must be between 1s and half of the session's life",
		},
	} {
		if check.fails {
			problems = append(problems, errors.New(check.problem))
		}
	}
	return errors.Join(append(problems, c.validateNetwork())...)
}

// validateNetwork checks that what peers are told of the network is written as such.
func (c *Config) validateNetwork() error {
	var problems []error
	for _, prefix := range slices.Concat(c.PodCIDRs, c.AddressPools, c.ServicePools) {
		if !prefix.IsValid() || prefix != prefix.Masked() {
			problems = append(problems, fmt.Errorf("%s is not a range: the bits behind its length must be 0", prefix))
		}
	}
	for _, text := range c.Nameservers {
		if _, err := netip.ParseAddr(text); err != nil {
			problems = append(problems, fmt.Errorf("nameserver %q is no address", text))
		}
	}
	if len(c.GatewayEndpoints) > maxEndpoints {
		problems = append(problems, fmt.Errorf("a gateway has at most %d endpoints", maxEndpoints))
	}
	for _, text := range c.GatewayEndpoints {
		host, port, err := net.SplitHostPort(text)
		if number, noPort := strconv.ParseUint(port, 10, 16); err != nil || noPort != nil || number == 0 || !isHost(host) {
			problems = append(problems, fmt.Errorf("gateway endpoint %q is not HOST:PORT", text))
		}
	}
	return errors.Join(problems...)
}

func isHost(text string) bool {
	_, noAddress := netip.ParseAddr(text)
	return noAddress == nil || len(validation.IsDNS1123Subdomain(text)) == 0
}

// validateInvitation checks that the invitations of this cluster can be used.
func (c *Config) validateInvitation() error {
	if len(c.ClusterKey) != ed25519.PrivateKeySize {
		return errors.New("the cluster key is missing")
	}
	servers := c.Servers
	if len(servers) == 0 {
		servers = []string{"https://found-out-later"}
	}
	return usable(c.draft("any", servers))
}

func validateClusterID(id string) error {
	if len(id) > maxClusterID || len(validation.IsDNS1123Label(id)) > 0 {
		return fmt.Errorf("cluster id %q must be a DNS label of at most %d characters", id, maxClusterID)
	}
	return nil
}

// draft returns an invitation of the peer without what is made for it alone.
func (c *Config) draft(peer string, servers []string) trust.Invitation {
	return trust.Invitation{
		ClusterID: c.ClusterID,
		PublicKey: trust.PublicKeyOf(c.ClusterKey),
		Servers:   servers,
		CA:        c.CA,
		Namespace: v1alpha1.TenantNamespace(peer),
	}
}

const (
	// clusterKeySecret is the Secret in Hanse's namespace that holds the cluster's Ed25519 key.
	clusterKeySecret = "hanse-cluster-key" //nolint:gosec // a name, not a key
	// clusterKeyField is its key: a private key in PEM, PKCS #8.
	clusterKeyField = "private-key"
)

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
		v1alpha1.ClusterInfoPublicKey:   trust.PublicKeyOf(c.ClusterKey),
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
	if known != "" && known != trust.PublicKeyOf(key) {
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
