package kubelet

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/streaming/pkg/httpstream"
)

// logs copies the log of a container, each piece at once. It ends when either side does, or when the client takes
// nothing any more.
func (a *apiServer) logs(w http.ResponseWriter, r *http.Request, remote remotePod) {
	query := logQuery(r)
	ctx, cancel := remote.context(r.Context())
	defer cancel()
	req, err := remote.request(ctx, http.MethodGet, "log", query.Encode())
	if err != nil {
		remote.unreachable(err).write(w, r)
		return
	}
	resp, refused := remote.open(req)
	if refused != nil {
		refused.write(w, r)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // it was read as far as it is wanted
	w.Header().Set("Content-Type", "text/plain")
	log := io.Reader(resp.Body)
	if limit, err := strconv.ParseInt(query.Get("limitBytes"), 10, 64); err == nil && limit >= 0 {
		log = io.LimitReader(log, limit)
	}
	// A broken stream ends without an error for whoever reads it, as that of a kubelet does.
	_, _ = io.Copy(flushing{w}, log)
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

// upgrade joins an exec, attach or port-forward to that of the remote pod. The bytes of both sides are passed on as they
// are, so that every protocol works that the two API servers speak, and nothing is lost in translation.
func (a *apiServer) upgrade(kind string) podHandler {
	subresource := strings.ToLower(kind)
	return func(w http.ResponseWriter, r *http.Request, remote remotePod) {
		if !httpstream.IsUpgradeRequest(r) {
			http.Error(w, "a stream is asked for by an upgrade of the connection", http.StatusBadRequest)
			return
		}
		ctx, cancel := remote.context(r.Context())
		defer cancel()
		req, err := remote.request(ctx, r.Method, subresource, streamQuery(r).Encode())
		if err != nil {
			remote.unreachable(err).write(w, r)
			return
		}
		req.Header = upgradeHeader(r.Header)
		resp, refused := remote.open(req)
		if refused != nil {
			refused.write(w, r)
			return
		}
		defer resp.Body.Close() //nolint:errcheck // the stream has ended
		peer, ok := resp.Body.(io.ReadWriteCloser)
		if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
			http.Error(w, "the peer does not open a stream", http.StatusBadGateway)
			return
		}
		switchProtocols(ctx, w, resp.Header, peer)
	}
}

// switchProtocols answers that the connection is upgraded, and joins it to the peer's until either ends, or ctx.
func switchProtocols(ctx context.Context, w http.ResponseWriter, answer http.Header, peer io.ReadWriteCloser) {
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "the connection cannot be upgraded", http.StatusInternalServerError)
		return
	}
	defer client.Close() //nolint:errcheck // the stream has ended
	head := http.Response{
		StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: upgradedHeader(answer),
	}
	if err := head.Write(client); err != nil {
		return
	}
	early, err := buffered.Peek(buffered.Reader.Buffered())
	if err != nil {
		return
	}
	join(ctx, client, io.MultiReader(bytes.NewReader(early), client), peer)
}

// join passes bytes on in both directions until one of them ends, or ctx. Both connections are closed then.
func join(ctx context.Context, client net.Conn, fromClient io.Reader, peer io.ReadWriteCloser) {
	ended := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // that the other side has gone is how streams end
		ended <- struct{}{}
	}
	go pass(peer, fromClient)
	go pass(client, peer)
	left := 2
	select {
	case <-ended:
		left--
	case <-ctx.Done():
	}
	_, _ = peer.Close(), client.Close()
	for range left {
		<-ended
	}
}
