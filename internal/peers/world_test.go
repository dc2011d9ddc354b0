// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

const (
	token  = "secret-token"
	tenant = "hanse-peer-lubeck" // our tenant namespace at the peer
)

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// A world is our own cluster with running links, and the API server of one peer.
type world struct {
	t      *testing.T
	local  client.Client
	links  *Links
	server *httptest.Server
	wire   *wire
	peer   *v1alpha1.Peer

	mu     sync.Mutex
	answer http.HandlerFunc
	token  string // the one that the peer knows
}

func newWorld(t *testing.T, config Config) *world {
	t.Helper()
	w := &world{t: t, token: token, peer: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg"}}}
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.server.EnableHTTP2 = true
	_ = w.server.Listener.Close()
	w.wire = listen(t)
	w.server.Listener = w.wire
	w.server.StartTLS()
	w.local = fake.NewClientBuilder().WithScheme(testScheme(t)).Build()
	config.Local, config.Scheme = w.local, testScheme(t)
	w.links = NewLinks(config)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.links.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		w.server.Close()
	})
	return w
}

// wire is what the peer listens on, and the connections that it took.
type wire struct {
	net.Listener

	mu    sync.Mutex
	conns []net.Conn
	taken func(net.Conn) // called for each, if not nil
}

func listen(t *testing.T) *wire {
	t.Helper()
	config := net.ListenConfig{}
	config.SetMultipathTCP(false) // its sockets take no filters
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &wire{Listener: listener}
}

// Accept implements net.Listener.
func (w *wire) Accept() (net.Conn, error) {
	conn, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, conn)
	if w.taken != nil {
		w.taken(conn)
	}
	return conn, nil
}

func (w *world) serve(rw http.ResponseWriter, req *http.Request) {
	w.mu.Lock()
	answer, known := w.answer, w.token
	w.mu.Unlock()
	if req.Header.Get("Authorization") != "Bearer "+known {
		writeStatus(rw, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
		return
	}
	answer(rw, req)
}

func (w *world) answers(answer http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// knows makes the token the only one that the peer knows.
func (w *world) knows(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.token = token
}

func (w *world) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
}

func (w *world) kubeconfig() *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["peer"] = &clientcmdapi.Cluster{
		Server: w.server.URL, CertificateAuthorityData: w.ca(),
	}
	config.AuthInfos["us"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["link"] = &clientcmdapi.Context{Cluster: "peer", AuthInfo: "us", Namespace: tenant}
	config.CurrentContext = "link"
	return config
}

func encode(t testing.TB, config *clientcmdapi.Config) []byte {
	t.Helper()
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// store puts the Secret with the credentials into our own cluster.
func (w *world) store(data map[string][]byte) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.TenantNamespace(w.peer.Name), Name: v1alpha1.LinkSecret,
	}}
	_, err := controllerutil.CreateOrUpdate(w.t.Context(), w.local, secret, func() error {
		secret.Data = data
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// connect makes a link with good credentials.
func (w *world) connect() *Link {
	w.t.Helper()
	w.store(map[string][]byte{v1alpha1.LinkSecretKey: encode(w.t, w.kubeconfig())})
	return w.ensure()
}

func (w *world) ensure() *Link {
	w.t.Helper()
	link, err := w.links.Ensure(w.t.Context(), w.peer)
	if err != nil {
		w.t.Fatal(err)
	}
	return link
}

// join makes a link of credentials as joining gives them.
func (w *world) join(credentials Credentials) *Link {
	w.t.Helper()
	data, err := credentials.SecretData()
	if err != nil {
		w.t.Fatal(err)
	}
	w.store(data)
	return w.ensure()
}

func (w *world) credentials() Credentials {
	return Credentials{
		Servers: []string{w.server.URL}, CA: w.ca(), Namespace: tenant, Token: token, Invitation: "0123abcd",
	}
}

func writeJSON(rw http.ResponseWriter, object any) {
	rw.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(rw).Encode(object); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func writeStatus(rw http.ResponseWriter, code int32, reason metav1.StatusReason) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(int(code))
	_ = json.NewEncoder(rw).Encode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason,
	})
}

func clusterInfo(id, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.ClusterInfo},
		Data:       map[string]string{v1alpha1.ClusterInfoID: id, v1alpha1.ClusterInfoVersion: version},
	}
}
