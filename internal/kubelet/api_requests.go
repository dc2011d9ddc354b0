package kubelet

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// logParameters are what a log may be asked for with. They have the same names at a kubelet and at an API server.
var logParameters = []string{
	"follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream",
}

func logQuery(r *http.Request) url.Values {
	given, query := r.URL.Query(), url.Values{}
	for _, name := range logParameters {
		if values, ok := given[name]; ok {
			query[name] = values
		}
	}
	query.Set("container", r.PathValue("container"))
	return query
}

// streamParameters maps what a kubelet calls the parameters of a stream to what an API server calls them.
var streamParameters = map[string]string{
	"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty", "command": "command", "port": "ports",
}

func streamQuery(r *http.Request) url.Values {
	given, query := r.URL.Query(), url.Values{}
	for theirs, ours := range streamParameters {
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

// upgradedHeader returns what the client must know of the stream that the peer opened.
func upgradedHeader(answered http.Header) http.Header { return only(answered, upgradedHeaders) }

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

// A gate lets requests in until it ends, and then waits for those inside. The zero value is open.
type gate struct {
	mu     sync.Mutex
	ended  bool
	inside sync.WaitGroup
}

// enter reports whether the request may begin. It must leave then.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.inside.Add(1)
	return true
}

func (g *gate) leave() { g.inside.Done() }

// end closes the gate and waits until nobody is inside.
func (g *gate) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.inside.Wait()
}
