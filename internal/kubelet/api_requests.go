package kubelet

import (
	"net/http"
	"net/url"
	"strings"
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

// upgradeHeaders are what a peer must know of a stream that is asked for. Whoever asks has other credentials here than
// we have there, and his address is none of the peer's business, so nothing else travels.
var upgradeHeaders = []string{
	"Connection", "Upgrade", "X-Stream-Protocol-Version",
	"Sec-Websocket-Key", "Sec-Websocket-Version",
}

const (
	webSocketProtocols  = "Sec-Websocket-Protocol"
	tokenProtocolPrefix = "base64url.bearer.authorization.k8s.io." //nolint:gosec // what precedes a token, and none itself
)

// upgradeRequest returns the request with nothing in it but what may travel.
func upgradeRequest(r *http.Request) *http.Request {
	clean := r.Clone(r.Context())
	clean.Header = http.Header{}
	for _, name := range upgradeHeaders {
		if values, ok := r.Header[name]; ok {
			clean.Header[name] = values
		}
	}
	clean.Header[webSocketProtocols] = withoutTokens(r.Header[webSocketProtocols])
	if len(clean.Header[webSocketProtocols]) == 0 {
		clean.Header.Del(webSocketProtocols)
	}
	clean.RemoteAddr = "" // else the proxy tells it in X-Forwarded-For
	return clean
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
