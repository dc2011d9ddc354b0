package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const dialTimeout = 10 * time.Second

// remotePod is where a home pod really runs.
type remotePod struct {
	site *site
	twin string
	name string
}

// locate finds the remote pod of a home pod that is bound to the node.
func (a *apiServer) locate(ctx context.Context, node, namespace, name string) (remotePod, *refusal) {
	absent := &refusal{status: http.StatusNotFound, message: fmt.Sprintf("pod %s/%s is not on this node", namespace, name)}
	pod := &corev1.Pod{}
	err := a.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && pod.Spec.NodeName != node {
		return remotePod{}, absent
	}
	if err != nil {
		return remotePod{}, &refusal{status: http.StatusInternalServerError, message: "Cannot read pods", err: err}
	}
	at := a.sites.get(peerOf(node))
	if at == nil {
		return remotePod{}, &refusal{
			status: http.StatusServiceUnavailable, message: fmt.Sprintf("there is no link to peer %q", peerOf(node)),
		}
	}
	seen := at.look(namespace, name)
	if seen.shadow == nil || seen.shadow.Spec.HomeUID != pod.UID {
		absent.message = fmt.Sprintf("pod %s/%s does not run at peer %q yet", namespace, name, at.peer)
		return remotePod{}, absent
	}
	return remotePod{site: at, twin: seen.twin, name: name}, nil
}

// address returns the URL of a subresource of the remote pod.
func (p remotePod) address(subresource string, query url.Values) (*url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(p.site.link.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("address of peer: %w", err)
	}
	address := base.JoinPath("api", "v1", "namespaces", p.twin, "pods", p.name, subresource)
	address.RawQuery = query.Encode()
	return address, nil
}

// logs copies the log of a container, each piece at once.
func (a *apiServer) logs(w http.ResponseWriter, r *http.Request, remote remotePod) {
	address, err := remote.address("log", logQuery(r))
	if err != nil {
		unreachable(remote, err).write(w, r)
		return
	}
	ctx, cancel := remote.context(r.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		unreachable(remote, err).write(w, r)
		return
	}
	resp, err := remote.site.link.HTTPClient().Do(req)
	if err != nil {
		unreachable(remote, err).write(w, r)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // it was read as far as it is wanted
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	// A broken stream ends without an error for whoever reads it, as that of a kubelet does.
	_, _ = io.Copy(flushing{w}, resp.Body)
}

// context returns a context that ends with the request or with the site.
func (p remotePod) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.site.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// flushing sends what is written on at once.
type flushing struct{ http.ResponseWriter }

// Write implements io.Writer.
func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	if err != nil {
		return n, err
	}
	return n, http.NewResponseController(f.ResponseWriter).Flush()
}

func unreachable(remote remotePod, err error) *refusal {
	return &refusal{
		status: http.StatusBadGateway, message: fmt.Sprintf("cannot reach peer %q", remote.site.peer), err: err,
	}
}

// stream joins an exec, attach or port-forward to that of the remote pod. The bytes of both sides are passed on as they
// are, so that every protocol works that the two API servers speak, and nothing is lost in translation.
func (a *apiServer) stream(subresource string) podHandler {
	return func(w http.ResponseWriter, r *http.Request, remote remotePod) {
		address, err := remote.address(subresource, streamQuery(r))
		if err != nil {
			unreachable(remote, err).write(w, r)
			return
		}
		connection := &upgrade{site: remote.site}
		defer connection.end()
		transport, err := connection.transport()
		if err != nil {
			unreachable(remote, err).write(w, r)
			return
		}
		handler := proxy.NewUpgradeAwareHandler(address, nil, false, true, streamErrors{remote})
		handler.UpgradeTransport = transport
		handler.UseLocationHost = true
		handler.ServeHTTP(w, upgradeRequest(r))
	}
}

// streamErrors answers for a stream that could not be joined.
type streamErrors struct{ remote remotePod }

// Error implements proxy.ErrorResponder.
func (s streamErrors) Error(w http.ResponseWriter, r *http.Request, err error) {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		(&refusal{status: int(status.Status().Code), message: err.Error()}).write(w, r)
		return
	}
	unreachable(s.remote, err).write(w, r)
}

// upgrade makes the one connection over which a stream goes to the peer. It ends with the site, too.
type upgrade struct {
	site *site
	stop func() bool
}

func (u *upgrade) transport() (proxy.UpgradeRequestRoundTripper, error) {
	config := u.site.link.RESTConfig()
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	if secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12} // without one, the proxy would verify nothing
	}
	authorized, err := rest.HTTPWrappersForConfig(config, proxy.MirrorRequest)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	plain := &http.Transport{TLSClientConfig: secure, DialContext: u.dial}
	return proxy.NewUpgradeRequestRoundTripper(plain, authorized), nil
}

func (u *upgrade) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	u.stop = context.AfterFunc(u.site.ctx, func() { _ = conn.Close() })
	return conn, nil
}

func (u *upgrade) end() {
	if u.stop != nil {
		u.stop()
	}
}
