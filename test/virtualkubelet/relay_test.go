// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// relay is before the API server, and returns a kubeconfig that leads to it. The suite takes a virtual kubelet for a pod
// of its node's name, and asks that for metrics. Ours is no such pod, so what is asked of it is asked of the node.
func relay(t *testing.T, kubeconfig, namespace, node string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	pod := "/api/v1/namespaces/" + namespace + "/pods/https:" + node + ":10250/proxy/"
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			if path, asksPod := strings.CutPrefix(r.Out.URL.Path, pod); asksPod {
				r.Out.URL.Path, r.Out.URL.RawPath = "/api/v1/nodes/"+node+"/proxy/"+path, ""
			}
			r.SetURL(server)
		},
	})
	t.Cleanup(func() {
		proxy.CloseClientConnections() // watches would keep it open
		proxy.Close()
	})
	return kubeconfigFor(t, proxy.URL)
}

func kubeconfigFor(t *testing.T, server string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["relay"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["relay"] = &clientcmdapi.Context{Cluster: "relay"}
	config.CurrentContext = "relay"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
