// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"crypto/ed25519"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

func TestClusterInfo(t *testing.T) {
	w := newWorld(t, Config{UserAgent: "hanse-manager/test"})
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		if want := "/api/v1/namespaces/" + tenant + "/configmaps/hanse-cluster"; req.URL.Path != want {
			t.Errorf("asked for %s, want %s", req.URL.Path, want)
		}
		if got := req.UserAgent(); got != "hanse-manager/test" {
			t.Errorf("user agent %q", got)
		}
		if req.ProtoMajor != 2 {
			t.Errorf("spoke %s: many watches should share one connection", req.Proto)
		}
		writeJSON(rw, infoWith(map[string]string{
			v1alpha1.ClusterInfoPublicKey: publicKey, v1alpha1.ClusterInfoAPIVersions: "v1alpha1,v1beta1",
		}))
	})
	link := w.connect()
	info, err := link.ClusterInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.RoundTrip <= 0 {
		t.Errorf("the answer took %s", info.RoundTrip)
	}
	want := ClusterInfo{
		ClusterID: "c-hamburg", Version: "v0.1.0", PublicKey: publicKey, APIVersions: []string{"v1alpha1", "v1beta1"},
		RoundTrip: info.RoundTrip,
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Error(diff)
	}
	if link.Peer() != "hamburg" || link.TenantNamespace() != tenant {
		t.Errorf("link leads to %s in %s", link.Peer(), link.TenantNamespace())
	}
}

func TestClusterInfoOfAPeerThatTellsLittle(t *testing.T) {
	w := newWorld(t, Config{})
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, infoWith(nil)) })
	info, err := w.connect().ClusterInfo(t.Context())
	if err != nil || info.PublicKey != "" || info.APIVersions != nil {
		t.Errorf("got %+v, %v", info, err)
	}
}

// publicKey is the key of a cluster.
var publicKey = trust.FormatPublicKey(
	ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)) //nolint:forcetypeassert // it is one

// infoWith is a good one, with more or other data.
func infoWith(more map[string]string) *corev1.ConfigMap {
	info := clusterInfo("c-hamburg", "v0.1.0")
	maps.Copy(info.Data, more)
	return info
}

func TestClusterInfosThatMakeNoSense(t *testing.T) {
	tests := map[string]map[string]string{
		"no cluster id":         {v1alpha1.ClusterInfoID: ""},
		"absurd cluster id":     {v1alpha1.ClusterInfoID: "../x"},
		"no version":            {v1alpha1.ClusterInfoVersion: ""},
		"long version":          {v1alpha1.ClusterInfoVersion: strings.Repeat("x", 65)},
		"key that is none":      {v1alpha1.ClusterInfoPublicKey: "AAAA"},
		"huge key":              {v1alpha1.ClusterInfoPublicKey: strings.Repeat("A", 100_000)},
		"empty API version":     {v1alpha1.ClusterInfoAPIVersions: "v1alpha1,"},
		"absurd API version":    {v1alpha1.ClusterInfoAPIVersions: "v1alpha1,../v2"},
		"long API version":      {v1alpha1.ClusterInfoAPIVersions: strings.Repeat("x", 64)},
		"too many API versions": {v1alpha1.ClusterInfoAPIVersions: strings.Repeat("v1,", maxAPIVersions) + "v1"},
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.answers(func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, infoWith(data)) })
			if info, err := w.connect().ClusterInfo(t.Context()); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %+v, %v, want %v", info, err, ErrMalformed)
			}
		})
	}
}

func TestClusterInfoSaysWhatIsWrong(t *testing.T) {
	huge := strings.Repeat("x", maxObject)
	tests := map[string]struct {
		answer  http.HandlerFunc
		timeout time.Duration // by default ample
		want    error
	}{
		"credentials unknown": {
			answer: func(rw http.ResponseWriter, _ *http.Request) {
				writeStatus(rw, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
			},
			want: ErrUnauthorized,
		},
		"rights taken away": {
			answer: func(rw http.ResponseWriter, _ *http.Request) {
				writeStatus(rw, http.StatusForbidden, metav1.StatusReasonForbidden)
			},
			want: ErrForbidden,
		},
		"overloaded, and asks to wait for a day": {
			answer: func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Retry-After", "86400")
				writeStatus(rw, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
			},
			want: ErrUnreachable,
		},
		"broken inside": {
			answer: func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) },
			want:   ErrUnreachable,
		},
		"slow to answer": {
			answer:  func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
			timeout: 100 * time.Millisecond,
			want:    ErrUnreachable,
		},
		"slow to finish its answer": {
			answer: func(rw http.ResponseWriter, req *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				rw.WriteHeader(http.StatusOK)
				rw.(http.Flusher).Flush()
				<-req.Context().Done()
			},
			timeout: 100 * time.Millisecond,
			want:    ErrUnreachable,
		},
		"too large": {
			answer: func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, clusterInfo("c-hamburg", huge)) },
			want:   ErrTooLarge,
		},
		"too large an error": {
			answer: func(rw http.ResponseWriter, _ *http.Request) {
				rw.WriteHeader(http.StatusBadRequest)
				_, _ = rw.Write([]byte(huge + huge))
			},
			want: ErrTooLarge,
		},
		"not JSON": {
			answer: func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				_, _ = rw.Write([]byte("{"))
			},
			want: ErrMalformed,
		},
		"another kind": {
			answer: func(rw http.ResponseWriter, _ *http.Request) {
				writeJSON(rw, map[string]any{"apiVersion": "v1", "kind": "Secret", "data": []int{1}})
			},
			want: ErrMalformed,
		},
		"a web page": {
			answer: func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>login</html>")) },
			want:   ErrMalformed,
		},
		"a redirect": {
			answer: func(rw http.ResponseWriter, req *http.Request) {
				http.Redirect(rw, req, "/elsewhere", http.StatusTemporaryRedirect)
			},
			want: ErrMalformed,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{Timeout: test.timeout})
			w.answers(test.answer)
			_, err := w.connect().ClusterInfo(t.Context())
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), token) {
				t.Errorf("the error tells the token: %v", err)
			}
		})
	}
}

func TestClusterInfoOfAClusterWithoutOurTenantNamespace(t *testing.T) {
	w := newWorld(t, Config{})
	w.answers(func(rw http.ResponseWriter, _ *http.Request) {
		writeStatus(rw, http.StatusNotFound, metav1.StatusReasonNotFound)
	})
	if _, err := w.connect().ClusterInfo(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

func TestClusterInfoOfAServerThatIsGone(t *testing.T) {
	w := newWorld(t, Config{})
	link := w.connect()
	w.server.Close()
	if _, err := link.ClusterInfo(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want %v", err, ErrUnreachable)
	}
}

func TestServerWithAForeignCertificate(t *testing.T) {
	w := newWorld(t, Config{})
	kubeconfig := w.kubeconfig()
	kubeconfig.Clusters["peer"].CertificateAuthorityData = nil // so that the system's authorities decide
	w.store(map[string][]byte{v1alpha1.LinkSecretKey: encode(t, kubeconfig)})
	link, err := w.links.Ensure(t.Context(), w.peer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.ClusterInfo(t.Context()); !errors.Is(err, ErrCredentialsInvalid) {
		t.Errorf("got %v, want %v", err, ErrCredentialsInvalid)
	}
}

func TestCancelledRequestBlamesNobody(t *testing.T) {
	w := newWorld(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	w.answers(func(_ http.ResponseWriter, req *http.Request) {
		cancel()
		<-req.Context().Done()
	})
	_, err := w.connect().ClusterInfo(ctx)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestEnsureFollowsTheSecret(t *testing.T) {
	w := newWorld(t, Config{})
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, clusterInfo("c-hamburg", "dev")) })

	_, err := w.links.Ensure(t.Context(), w.peer)
	if !errors.Is(err, ErrCredentialsMissing) {
		t.Fatalf("without a Secret: got %v, want %v", err, ErrCredentialsMissing)
	}

	first := w.connect()
	again, err := w.links.Ensure(t.Context(), w.peer)
	if err != nil || again != first {
		t.Errorf("with the same Secret: got %v, %v, want the same link", again, err)
	}

	good := encode(t, w.kubeconfig())
	other := w.kubeconfig()
	other.Contexts["link"].Namespace += "-2"
	w.store(map[string][]byte{v1alpha1.LinkSecretKey: encode(t, other)})
	second, err := w.links.Ensure(t.Context(), w.peer)
	if err != nil || second == first {
		t.Fatalf("with another Secret: got %v, %v, want another link", second, err)
	}
	expectClosed(t, first)
	if _, err := second.ClusterInfo(t.Context()); err != nil {
		t.Errorf("over the new link: %v", err)
	}

	w.store(map[string][]byte{v1alpha1.LinkSecretKey: []byte("nonsense")})
	if _, err := w.links.Ensure(t.Context(), w.peer); !errors.Is(err, ErrCredentialsInvalid) {
		t.Errorf("with a broken Secret: got %v, want %v", err, ErrCredentialsInvalid)
	}
	expectClosed(t, second)
	if _, ok := w.links.Get(w.peer.Name); ok {
		t.Error("a link is left")
	}

	w.store(map[string][]byte{"other": good})
	if _, err := w.links.Ensure(t.Context(), w.peer); !errors.Is(err, ErrCredentialsInvalid) {
		t.Errorf("with a Secret without the key: got %v, want %v", err, ErrCredentialsInvalid)
	}
}

func TestFreshCredentialsAreNotReadAgain(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w := newWorld(t, Config{Fresh: 5 * time.Second, Clock: clock})
	first := w.connect()
	other := w.kubeconfig()
	other.Contexts["link"].Namespace += "-2"
	w.store(map[string][]byte{v1alpha1.LinkSecretKey: encode(t, other)})

	clock.SetTime(clock.Now().Add(4 * time.Second))
	again, err := w.links.Ensure(t.Context(), w.peer)
	if err != nil || again != first {
		t.Errorf("while they are fresh: got %v, %v, want the same link", again, err)
	}
	clock.SetTime(clock.Now().Add(2 * time.Second))
	second, err := w.links.Ensure(t.Context(), w.peer)
	if err != nil || second == first {
		t.Errorf("afterwards: got %v, %v, want another link", second, err)
	}
}

// A session that begins anew is written to the Secret first and to the Peer at once after: who looked a moment before must
// look again.
func TestFreshCredentialsAreReadAgainWhenThePeerHasChanged(t *testing.T) {
	w := newWorld(t, Config{Fresh: time.Hour})
	link := w.join(w.credentials())
	renewed := w.credentials()
	renewed.Token = "renewed-token"
	w.peer.ResourceVersion = "changed"
	if w.join(renewed) != link {
		t.Fatal("a new token has made a new link")
	}
	if got := link.RESTConfig().BearerToken; got != "renewed-token" {
		t.Errorf("the link uses token %q", got)
	}
}

func TestCloseEndsTheLink(t *testing.T) {
	w := newWorld(t, Config{})
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, clusterInfo("c-hamburg", "dev")) })
	link := w.connect()
	w.links.Close(w.peer.Name)
	expectClosed(t, link)
	again, err := w.links.Ensure(t.Context(), w.peer)
	if err != nil || again == link {
		t.Errorf("got %v, %v, want a new link", again, err)
	}
}

func TestClosingInterruptsRequests(t *testing.T) {
	w := newWorld(t, Config{Timeout: time.Hour})
	asked := make(chan struct{})
	w.answers(func(_ http.ResponseWriter, req *http.Request) {
		close(asked)
		<-req.Context().Done()
	})
	link := w.connect()
	go func() {
		<-asked
		w.links.Close(w.peer.Name)
	}()
	if _, err := link.ClusterInfo(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
}

func TestNoLinksAfterRunHasEnded(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	links := NewLinks(w.links.config)
	ctx, cancel := context.WithCancel(t.Context())
	link, err := links.Ensure(ctx, w.peer)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := links.Run(ctx); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, link)
	if _, err := links.Ensure(t.Context(), w.peer); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
}

func expectClosed(t *testing.T, link *Link) {
	t.Helper()
	select {
	case <-link.Done():
	default:
		t.Error("the link is still open")
	}
	if _, err := link.ClusterInfo(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("over a closed link: got %v, want %v", err, ErrClosed)
	}
}
