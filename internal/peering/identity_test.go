package peering

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestClusterIDComesFromTheKey(t *testing.T) {
	w := newWorld(t)
	config := Config{Version: "v0.1.0"}
	id, err := EnsureClusterInfo(t.Context(), w.client, config)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(id, "c-") || len(id) != 12 {
		t.Errorf("id %q", id)
	}
	info := &corev1.ConfigMap{}
	w.get("hanse-system", "hanse-cluster", info)
	if info.Data["clusterID"] != id || info.Data["version"] != "v0.1.0" || info.Data["publicKey"] == "" {
		t.Errorf("cluster info %v", info.Data)
	}

	writes := w.writes
	again, err := EnsureClusterInfo(t.Context(), w.client, config)
	if err != nil || again != id || w.writes != writes {
		t.Errorf("got %q, %v with %d writes, want the same id and none", again, err, w.writes-writes)
	}
}

func TestClusterInfoFollowsAnUpgrade(t *testing.T) {
	w := newWorld(t)
	id, err := EnsureClusterInfo(t.Context(), w.client, Config{Version: "v0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureClusterInfo(t.Context(), w.client, Config{Version: "v0.2.0"}); err != nil {
		t.Fatal(err)
	}
	info := &corev1.ConfigMap{}
	w.get("hanse-system", "hanse-cluster", info)
	if info.Data["version"] != "v0.2.0" || info.Data["clusterID"] != id {
		t.Errorf("cluster info after an upgrade %v", info.Data)
	}
}

func TestClusterIDNeverChanges(t *testing.T) {
	w := newWorld(t)
	if id, err := EnsureClusterInfo(t.Context(), w.client, Config{ClusterID: "lubeck"}); err != nil || id != "lubeck" {
		t.Fatalf("got %q, %v", id, err)
	}
	if id, err := EnsureClusterInfo(t.Context(), w.client, Config{}); err != nil || id != "lubeck" {
		t.Errorf("without a wish: got %q, %v", id, err)
	}
	if id, err := EnsureClusterInfo(t.Context(), w.client, Config{ClusterID: "hamburg"}); err == nil {
		t.Errorf("with another wish: got %q", id)
	}
	info := &corev1.ConfigMap{}
	w.get("hanse-system", "hanse-cluster", info)
	if info.Data["clusterID"] != "lubeck" {
		t.Errorf("the id is now %q", info.Data["clusterID"])
	}
}

func TestImpossibleClusterIDIsRefused(t *testing.T) {
	for _, id := range []string{"Lubeck", "a b", strings.Repeat("x", 31), "-a"} {
		if _, err := EnsureClusterInfo(t.Context(), newWorld(t).client, Config{ClusterID: id}); err == nil {
			t.Errorf("%q is taken", id)
		}
	}
}

func TestBrokenClusterKeyIsAnError(t *testing.T) {
	w := newWorld(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: "hanse-cluster-key"},
		Data:       map[string][]byte{"private-key": []byte("broken")},
	})
	if _, err := EnsureClusterInfo(t.Context(), w.client, Config{}); err == nil {
		t.Error("a broken key is taken")
	}
}
