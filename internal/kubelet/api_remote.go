// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	dialTimeout = 10 * time.Second
	// answerTimeout is how long a peer may think about a stream. Runtimes take their time to start a process.
	answerTimeout = 30 * time.Second
	// What is read of a refusal, and what is told of it.
	maxRefusal = 16 << 10
	maxReason  = 1 << 10
	// maxAnswerHeader bounds the headers of an answer.
	maxAnswerHeader = 64 << 10
)

// remotePod is where a home pod really runs.
type remotePod struct {
	link *peers.Link
	twin string
	name string
}

// locate finds the remote pod of the home pod that the request names, which must be bound to the node, and have the
// container if the request names one: those that the peer has added are none of ours.
func (a *apiServer) locate(r *http.Request, node string) (remotePod, error) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	absent := func(format string, values ...any) (remotePod, error) {
		return remotePod{}, &refusal{
			status: http.StatusNotFound, message: fmt.Sprintf("pod %s/%s "+format, append([]any{namespace, name}, values...)...),
		}
	}
	unknown := func(format string) (remotePod, error) {
		return remotePod{}, &refusal{status: http.StatusServiceUnavailable, message: fmt.Sprintf(format, peerOf(node))}
	}
	pod := &corev1.Pod{}
	err := a.reader.Get(r.Context(), client.ObjectKey{Namespace: namespace, Name: name}, pod, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err) || err == nil && pod.Spec.NodeName != node:
		return absent("is not on this node")
	case err != nil:
		return remotePod{}, failure("Cannot read pods", err)
	case container != "" && !hasContainer(pod, container):
		return absent("has no container %q", container)
	}
	link, linked := a.links.Get(peerOf(node))
	if !linked {
		return unknown("there is no link to peer %q")
	}
	seen := look(link, namespace, name)
	if !seen.synced() {
		return unknown("what runs at peer %q is being looked up: try again in a moment")
	}
	if seen.shadow == nil || seen.shadow.Spec.HomeUID != pod.UID {
		return absent("does not run at peer %q yet", peerOf(node))
	}
	remote, found := link.RemotePod(seen.shadow)
	if !found {
		return absent("is being made again at peer %q", peerOf(node))
	}
	return remotePod{link: link, twin: remote.Namespace, name: remote.Name}, nil
}

// hasContainer says whether the pod has a container of that name, of whatever kind.
func hasContainer(pod *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.Containers, named) || slices.ContainsFunc(pod.Spec.InitContainers, named) ||
		slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// context returns a context that ends with the request or with the link.
func (p remotePod) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := p.link.OnClose(cancel)
	return ctx, func() { stop(); cancel() }
}

// transport makes a transport for one request, with the credentials of this moment.
func (p remotePod) transport() (http.RoundTripper, error) {
	config := p.link.RESTConfig()
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	if secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secure.NextProtos = []string{"http/1.1"}
	return rest.HTTPWrappersForConfig(config, &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialPeer,
		TLSClientConfig:        secure,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  answerTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableKeepAlives:      true,
		DisableCompression:     true,
	})
}

// dialPeer makes the connection of one stream.
func dialPeer(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return stalling(conn, stallLimit), nil
}

func (p remotePod) unreachable(err error) error {
	return &refusal{
		status: http.StatusBadGateway, message: fmt.Sprintf("cannot reach peer %q", p.link.Peer()), err: err,
	}
}

// refused says what the peer answered instead of a stream. What it says of our rights there is not about those of
// whoever asks here.
func (p remotePod) refused(resp *http.Response) error {
	told := &refusal{status: resp.StatusCode, message: reasonOf(resp)}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		told.status = http.StatusBadGateway
		told.message = fmt.Sprintf("peer %q does not allow it: %s", p.link.Peer(), told.message)
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests:
	default:
		told.status = http.StatusBadGateway
		told.message = fmt.Sprintf("peer %q answers with status %d: %s", p.link.Peer(), resp.StatusCode, told.message)
	}
	return told
}

// reasonOf returns what an answer says, as one bounded line.
func reasonOf(resp *http.Response) string {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return "no reason was given"
	}
	said, status := string(body), metav1.Status{}
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		said = status.Message
	}
	said = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.TrimSpace(said))
	return sanitize.Text(said, maxReason)
}

// logParameters and streamParameters map what a kubelet calls the parameters of a log or a stream to what an API server
// calls them. Whoever asks may give no others.
var (
	logParameters = map[string]string{
		"follow": "follow", "previous": "previous", "sinceSeconds": "sinceSeconds", "sinceTime": "sinceTime",
		"timestamps": "timestamps", "tailLines": "tailLines", "limitBytes": "limitBytes", "stream": "stream",
	}
	streamParameters = map[string]string{
		"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty", "command": "command", "port": "ports",
	}
)

// queryOf returns the parameters of the request, as the peer's API server has them.
func queryOf(r *http.Request, parameters map[string]string) url.Values {
	given, query := r.URL.Query(), url.Values{}
	for theirs, ours := range parameters {
		if values, ok := given[theirs]; ok {
			query[ours] = values
		}
	}
	if container := r.PathValue("container"); container != "" {
		query.Set("container", container)
	}
	return query
}

// Headers of streams that travel: those of the request, and those of the answer. Whoever asks has other credentials here
// than we have there, and his address is none of the peer's business; and a peer sets nothing at whoever asks.
var (
	upgradeHeaders = []string{
		"Connection", "Upgrade", "X-Stream-Protocol-Version",
		"Sec-Websocket-Key", "Sec-Websocket-Version",
	}
	upgradedHeaders = []string{
		"Connection", "Upgrade", "X-Stream-Protocol-Version",
		"Sec-Websocket-Accept", webSocketProtocols,
	}
)

const (
	webSocketProtocols  = "Sec-Websocket-Protocol"
	tokenProtocolPrefix = "base64url.bearer.authorization.k8s.io." //nolint:gosec // what precedes a token, and none itself
)

// upgradeHeader returns what the peer must know of the stream that is asked for.
func upgradeHeader(asked http.Header) http.Header {
	header := only(asked, upgradeHeaders)
	if protocols := withoutTokens(asked[webSocketProtocols]); len(protocols) > 0 {
		header[webSocketProtocols] = protocols
	}
	return header
}

func only(header http.Header, names []string) http.Header {
	kept := http.Header{}
	for _, name := range names {
		if values, ok := header[name]; ok {
			kept[name] = values
		}
	}
	return kept
}

// withoutTokens takes bearer tokens off the list of protocols, where browsers have to put them.
func withoutTokens(headers []string) []string {
	var kept []string
	for _, header := range headers {
		for _, protocol := range strings.Split(header, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, tokenProtocolPrefix) {
				kept = append(kept, protocol)
			}
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return []string{strings.Join(kept, ", ")}
}
