// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

func (w *world) identify(config Config) Config {
	w.t.Helper()
	if err := EnsureClusterInfo(w.t.Context(), w.client, &config); err != nil {
		w.t.Fatal(err)
	}
	return config
}

func (w *world) clusterInfo() *corev1.ConfigMap {
	w.t.Helper()
	info := &corev1.ConfigMap{}
	w.get("hanse-system", "hanse-cluster", info)
	return info
}

func TestClusterIDComesFromTheKey(t *testing.T) {
	w := newWorld(t)
	config := Config{Version: "v0.1.0"}
	identity := w.identify(config)
	if id := identity.ClusterID; !strings.HasPrefix(id, "c-") || len(id) != 12 {
		t.Errorf("id %q", id)
	}
	info := w.clusterInfo().Data
	if info["clusterID"] != identity.ClusterID || info["version"] != "v0.1.0" || info["apiVersions"] != "v1alpha1" ||
		info["publicKey"] != trust.PublicKeyOf(identity.ClusterKey) {
		t.Errorf("cluster info %v", info)
	}

	writes := w.writes
	again := w.identify(config)
	if again.ClusterID != identity.ClusterID || !again.ClusterKey.Equal(identity.ClusterKey) || w.writes != writes {
		t.Errorf("got %q with %d writes, want the same identity and none", again.ClusterID, w.writes-writes)
	}
}

func TestClusterInfoFollowsAnUpgrade(t *testing.T) {
	w := newWorld(t)
	id := w.identify(Config{Version: "v0.1.0"}).ClusterID
	w.identify(Config{Version: "v0.2.0"})
	if info := w.clusterInfo().Data; info["version"] != "v0.2.0" || info["clusterID"] != id {
		t.Errorf("cluster info after an upgrade %v", info)
	}
}

func TestClusterIDNeverChanges(t *testing.T) {
	w := newWorld(t)
	if id := w.identify(Config{ClusterID: "lubeck"}).ClusterID; id != "lubeck" {
		t.Fatalf("got %q", id)
	}
	if id := w.identify(Config{}).ClusterID; id != "lubeck" {
		t.Errorf("without an id asked for: got %q", id)
	}
	if err := EnsureClusterInfo(t.Context(), w.client, &Config{ClusterID: "hamburg"}); err == nil {
		t.Error("the id of this cluster was changed")
	}
	if id := w.clusterInfo().Data["clusterID"]; id != "lubeck" {
		t.Errorf("the id is now %q", id)
	}
}

func TestImpossibleClusterIDIsRefused(t *testing.T) {
	for _, id := range []string{"Lubeck", "a b", strings.Repeat("x", 31), "-a"} {
		if err := EnsureClusterInfo(t.Context(), newWorld(t).client, &Config{ClusterID: id}); err == nil {
			t.Errorf("%q is taken", id)
		}
	}
}

func TestBrokenClusterKeyIsAnError(t *testing.T) {
	w := newWorld(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: "hanse-cluster-key"},
		Data:       map[string][]byte{"private-key": []byte("broken")},
	})
	if err := EnsureClusterInfo(t.Context(), w.client, &Config{}); err == nil {
		t.Error("a broken key is taken")
	}
}

func TestLostClusterKeyIsNeverReplacedSilently(t *testing.T) {
	w := newWorld(t)
	before := w.identify(Config{})
	w.remove(secret("hanse-system", "hanse-cluster-key"))
	err := EnsureClusterInfo(t.Context(), w.client, &Config{})
	if err == nil || !strings.Contains(err.Error(), "restore the Secret") {
		t.Errorf("got %v", err)
	}
	if w.exists("hanse-system", "hanse-cluster-key", &corev1.Secret{}) {
		t.Error("there is a new key")
	}

	w.remove(w.clusterInfo())
	if after := w.identify(Config{}); after.ClusterID == before.ClusterID || after.ClusterKey.Equal(before.ClusterKey) {
		t.Error("without its ConfigMap this is not another cluster")
	}
}

func TestForeignClusterKeyIsRefused(t *testing.T) {
	w := newWorld(t)
	w.identify(Config{})
	w.remove(secret("hanse-system", "hanse-cluster-key"))
	foreign := secret("hanse-system", "hanse-cluster-key")
	var err error
	if foreign.Data, err = newClusterKey(); err != nil {
		t.Fatal(err)
	}
	w.create(foreign)
	told := w.clusterInfo().Data["publicKey"]
	if err := EnsureClusterInfo(t.Context(), w.client, &Config{}); err == nil {
		t.Error("another key is taken")
	}
	if w.clusterInfo().Data["publicKey"] != told {
		t.Error("the public key was replaced")
	}
}

func TestClusterThatHasNotToldItsKeyGetsOne(t *testing.T) {
	info := configMap("hanse-system", v1alpha1.ClusterInfo)
	info.Data = map[string]string{"clusterID": "lubeck"}
	w := newWorld(t, info)
	if id := w.identify(Config{}).ClusterID; id != "lubeck" {
		t.Errorf("got %q", id)
	}
}
