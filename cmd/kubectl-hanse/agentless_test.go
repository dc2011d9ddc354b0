// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// kubeconfig writes a kubeconfig of two contexts, changed as the test likes.
func kubeconfig(t *testing.T, change func(folder string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo)) string {
	t.Helper()
	folder := t.TempDir()
	config := clientcmdapi.NewConfig()
	for _, name := range []string{"bremen", "other"} {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name + ":6443", CertificateAuthorityData: []byte("authority")}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "token-of-" + name}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	}
	config.CurrentContext = "bremen"
	change(folder, config.Clusters["bremen"], config.AuthInfos["bremen"])
	path := filepath.Join(folder, "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKubeconfigsAreFlattened(t *testing.T) {
	path := kubeconfig(t, func(folder string, cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.CertificateAuthorityData, cluster.CertificateAuthority = nil, "ca.crt"
		if err := os.WriteFile(filepath.Join(folder, "ca.crt"), []byte("authority in a file"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	data, err := flattenKubeconfig(path, "bremen")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(data[v1alpha1.LinkSecretKey])
	if err != nil {
		t.Fatal(err)
	}
	if len(config.Clusters) != 1 || len(config.AuthInfos) != 1 || len(config.Contexts) != 1 {
		t.Errorf("it holds more than one connection:\n%s", data[v1alpha1.LinkSecretKey])
	}
	if got := string(config.Clusters["bremen"].CertificateAuthorityData); got != "authority in a file" {
		t.Errorf("authority %q", got)
	}
	if _, err := peers.ParseCredentials(data); err != nil {
		t.Errorf("Hanse does not take it: %v", err)
	}
}

func TestKubeconfigsThatNeedMoreThanThemselvesAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo)
		says   string
	}{
		"a program": {func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "aws", APIVersion: "v1"}
		}, "exec"},
		"a plugin": {func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "gcp"}
		}, "auth-provider"},
		"a token in a file": {func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token, u.TokenFile = "", "/var/token" }, "names a file"},
		"a password":        {func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Username = "admin" }, "password"},
		"impersonation":     {func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = "admin" }, "impersonates"},
		"no credentials":    {func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = "" }, "no token"},
		"no TLS":            {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "http://bremen" }, "https://"},
		"unchecked TLS": {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify = true
			c.CertificateAuthorityData = nil
		}, "insecure-skip-tls-verify"},
		"a proxy": {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://proxy" }, "proxy"},
		"a file that is not": {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData, c.CertificateAuthority = nil, "gone.crt"
		}, "gone.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			path := kubeconfig(t, func(_ string, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { test.change(c, u) })
			if _, err := flattenKubeconfig(path, "bremen"); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
		})
	}
}

func TestAgentlessJoinWritesPeerAndCredentials(t *testing.T) {
	w := newWorld(t, system()...)
	w.manager = func(ctx context.Context, c client.Client, written client.Object) error {
		peer, isPeer := written.(*v1alpha1.Peer)
		if !isPeer {
			return nil
		}
		setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonAgentless, "pods cannot be run there yet")
		return errors.Join(prepare(ctx, c, written), c.Update(ctx, peer))
	}
	flags := &agentlessFlags{agentless: true, namespaces: []string{"a", "b"}}
	if err := flags.joinAgentless(soon(t), w.client, "bremen", map[string][]byte{v1alpha1.LinkSecretKey: []byte("kubeconfig")}); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.PeerSpec{
		Mode: v1alpha1.ModeAgentless, Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, Namespaces: []string{"a", "b"},
	}
	if diff := cmp.Diff(want, w.peer(t, "bremen").Spec); diff != "" {
		t.Errorf("the Peer (-want +got):\n%s", diff)
	}
	secret, err := tenantSecret(t.Context(), w.client, "bremen", v1alpha1.LinkSecret)
	if err != nil || secret == nil || string(secret.Data[v1alpha1.LinkSecretKey]) != "kubeconfig" {
		t.Errorf("the credentials are %v, %v", secret, err)
	}
	command, out, _ := listener()
	if err := awaitAgentless(soon(t), command, w.client, "bremen"); err != nil || !strings.Contains(out.String(), "cannot be run there yet") {
		t.Errorf("stdout is %q, %v", out, err)
	}
	hanse := newPeer("hamburg", v1alpha1.RoleProvider)
	if err := flags.joinAgentless(soon(t), newWorld(t, hanse).client, "hamburg", nil); err == nil {
		t.Error("a peer with Hanse was taken over")
	}
}
