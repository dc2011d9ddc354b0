// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
)

// logs passes on the log of a container, each piece at once. It ends when either side does, or when the client takes
// nothing any more.
func logs(w http.ResponseWriter, r *http.Request, remote remotePod) error {
	query := queryOf(r, logParameters)
	limit, err := strconv.ParseInt(query.Get("limitBytes"), 10, 64)
	bounded := err == nil && limit >= 0
	return remote.forward(w, r, "log", query, func(resp *http.Response) error {
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return &refusal{status: http.StatusBadGateway, message: "the peer does not send a log"}
		}
		log := io.Reader(unbroken{resp.Body})
		if bounded {
			log = io.LimitReader(log, limit)
		}
		resp.Body = struct {
			io.Reader
			io.Closer
		}{log, resp.Body}
		resp.Header = http.Header{"Content-Type": {"text/plain"}}
		return nil
	})
}

// unbroken is a stream that ends without an error also where it breaks, as that of a kubelet does.
type unbroken struct{ io.Reader }

// Read implements io.Reader.
func (u unbroken) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// upgraded joins an exec, attach or port-forward to that of the remote pod. The bytes of both sides are passed on as they
// are, so that every protocol works that the two API servers speak, and nothing is lost in translation.
func upgraded(subresource string) func(http.ResponseWriter, *http.Request, remotePod) error {
	return func(w http.ResponseWriter, r *http.Request, remote remotePod) error {
		if !httpstream.IsUpgradeRequest(r) {
			return &refusal{status: http.StatusBadRequest, message: "a stream is asked for by an upgrade of the connection"}
		}
		return remote.forward(w, r, subresource, queryOf(r, streamParameters), func(resp *http.Response) error {
			if resp.StatusCode != http.StatusSwitchingProtocols {
				return &refusal{status: http.StatusBadGateway, message: "the peer does not open a stream"}
			}
			resp.Header = only(resp.Header, upgradedHeaders)
			resp.Request = &http.Request{Method: http.MethodGet} // for that of a POST a Content-Length would be written
			return nil
		})
	}
}

// forward asks the peer for a subresource of the remote pod, over a connection of its own, so that a stream that nobody
// reads holds up nothing else. It passes the answer on, as the function makes it of one that is good, until the request or
// the link ends.
func (p remotePod) forward(
	w http.ResponseWriter, r *http.Request, subresource string, query url.Values, answer func(*http.Response) error,
) error {
	base, _, err := rest.DefaultServerUrlFor(p.link.RESTConfig())
	if err != nil {
		return p.unreachable(err)
	}
	path := "/api/v1/namespaces/" + p.twin + "/pods/" + p.name + "/" + subresource
	transport, err := p.transport()
	if err != nil {
		return p.unreachable(err)
	}
	ctx, cancel := p.context(r.Context())
	defer cancel()
	proxy := httputil.ReverseProxy{
		Rewrite: func(to *httputil.ProxyRequest) {
			to.Out.URL, to.Out.Header = &url.URL{Path: path, RawQuery: query.Encode()}, upgradeHeader(to.In.Header)
			to.SetURL(base)
		},
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode >= http.StatusMultipleChoices {
				return p.refused(resp)
			}
			return answer(resp)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var told *refusal
			if !errors.As(err, &told) {
				err = p.unreachable(err)
			}
			refuse(w, r, err)
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
	return nil
}
