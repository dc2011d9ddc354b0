// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/internal/sanitize"
)

// What is taken from a peer at most.
const (
	// maxList bounds an answer with a list of objects, or one page of it.
	maxList = 4 << 20
	// maxObject bounds an answer with one object: what etcd holds at most.
	maxObject = 3 << 19
	// maxEvent bounds one event of a watch: an object and its envelope.
	maxEvent = maxObject + 4<<10
	// maxHeader bounds the headers of an answer.
	maxHeader = 64 << 10
	// mostOfObject bounds what an object takes when it is decoded, as Budget.ListBytes bounds that of lists.
	mostOfObject = 8 << 20
)

// A bounded transport limits the size and the duration of answers, and does nothing else that a server may ask a
// client for: no redirect, which would carry our token elsewhere, and no Retry-After, which would make us wait.
type bounded struct {
	next    http.RoundTripper
	prefix  string // path of the API server's URL
	timeout time.Duration
	closed  <-chan struct{}
	books   *ledger
	places  sanitize.Quantities // in answers
	now     func() time.Time
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.isClosed() {
		return nil, ErrClosed
	}
	what := answerOf(req, b.prefix)
	cancel := context.CancelFunc(func() {})
	if what == answerObject { // mirrors read lists, and take nobody's worker
		end, err := b.books.calls.begin(b.now)
		if err != nil {
			return nil, err
		}
		cancel = end
	}
	ctx, begun, stop := b.within(req.Context(), what)
	req, cancel = req.WithContext(ctx), both(stop, cancel)
	tell := outcomeOf(ctx)
	resp, err := b.next.RoundTrip(asksForJSON(req))
	begun()
	if err != nil {
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			err = context.DeadlineExceeded
		}
		cancel()
		tell(err)
		if b.isClosed() {
			return nil, fmt.Errorf("%w: %w", ErrClosed, err)
		}
		return nil, err
	}
	if err := check(resp, what); err != nil {
		cancel()
		_ = resp.Body.Close()
		return nil, err
	}
	resp.Header.Del("Retry-After")
	resp.Body = b.checked(ctx, resp, what, b.limit(ctx, resp, what, cancel))
	if what == answerWatch { // the body of a stream is written to as well
		resp.Body = &watchedBody{ReadCloser: resp.Body, ended: tell}
	}
	tell(nil)
	return resp, nil
}

// within bounds how long a request takes: until all of the answer is read, or of a watch, which has no end, until the answer
// has begun. Of a stream, which may wait for what somebody types, nothing is bounded.
func (b *bounded) within(ctx context.Context, what answer) (within context.Context, begun func(), stop context.CancelFunc) {
	switch what {
	case answerObject, answerList:
		within, stop = context.WithTimeout(ctx, b.timeout)
		return within, func() {}, stop
	case answerWatch:
		within, end := context.WithCancelCause(ctx)
		timer := time.AfterFunc(b.timeout, func() { end(context.DeadlineExceeded) })
		return within, func() { timer.Stop() }, func() { end(context.Canceled) }
	default:
		return ctx, func() {}, func() {}
	}
}

type outcomeKey struct{}

// withOutcome has tell called with nil when an answer comes, with the error when none does, and once more when a watch ends
// because the connection is given up over which it comes, or because it brings too much.
func withOutcome(ctx context.Context, tell func(error)) context.Context {
	return context.WithValue(ctx, outcomeKey{}, tell)
}

func outcomeOf(ctx context.Context) func(error) {
	if tell, ok := ctx.Value(outcomeKey{}).(func(error)); ok {
		return tell
	}
	return func(error) {}
}

// A watchedBody tells when its connection is given up, and when it brings too much.
type watchedBody struct {
	io.ReadCloser
	ended func(error)
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if isLost(err) || tooMuch(err) {
		b.ended(err)
	}
	return n, err
}

// asksForJSON returns the request without the other encodings that a client of metadata asks for by itself.
func asksForJSON(req *http.Request) *http.Request {
	accepted := req.Header.Get("Accept")
	if !strings.Contains(accepted, runtime.ContentTypeProtobuf) {
		return req
	}
	kept := slices.DeleteFunc(strings.Split(accepted, ","), func(part string) bool {
		return !strings.HasPrefix(strings.TrimSpace(part), runtime.ContentTypeJSON)
	})
	req = req.Clone(req.Context())
	req.Header.Set("Accept", strings.Join(kept, ","))
	return req
}

func (b *bounded) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}

// check refuses answers that no API server gives to the requests that we make.
func check(resp *http.Response, what answer) error {
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return fmt.Errorf("%w: status %d: redirects are not followed", ErrMalformed, resp.StatusCode)
	}
	// Client-go would decode other encodings too, with parsers that we have no use for.
	isJSON := strings.HasPrefix(resp.Header.Get("Content-Type"), runtime.ContentTypeJSON)
	switch {
	case resp.StatusCode >= 400:
		if !isJSON {
			resp.Header.Set("Content-Type", "text/plain")
		}
	case what != answerStream && !isJSON:
		return fmt.Errorf("%w: the answer is not JSON: is the server in the kubeconfig an API server?", ErrMalformed)
	}
	return nil
}

// checked returns the body of what is decoded, with all checked that could keep its decoder busy.
func (b *bounded) checked(ctx context.Context, resp *http.Response, what answer, body io.ReadCloser) io.ReadCloser {
	switch {
	case resp.StatusCode < 300 && what == answerStream:
		return body
	case resp.StatusCode < 300 && what == answerWatch:
		return checkEvents(ctx, body, b.places.Within("object"), b.books, b.now)
	default:
		most := mostOfObject
		if what == answerList {
			most = b.books.limit.ListBytes
		}
		return &checkedBody{ReadCloser: body, places: b.places, most: most, ctx: ctx, decoding: decodingOf(ctx)}
	}
}

// answer is the kind of answer to a request, by which it is bounded.
type answer int

const (
	answerObject answer = iota
	answerList
	answerWatch
	answerStream
)

// streams are subresources whose answers have no end of their own.
var streams = []string{"log", "exec", "attach", "portforward"}

func answerOf(req *http.Request, prefix string) answer {
	parts := resourcePath(req.URL.Path, prefix)
	watch := req.URL.Query().Get("watch")
	switch {
	case len(parts) == 3 && slices.Contains(streams, parts[2]):
		return answerStream
	case watch == "true" || watch == "1":
		return answerWatch
	case len(parts) == 1 && req.Method == http.MethodGet:
		return answerList
	default:
		return answerObject
	}
}

// resourcePath returns the resource, name and subresource of an API path, as far as it has them.
func resourcePath(path, prefix string) []string {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(path, prefix), "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return nil
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return parts
}

// limit returns the body, bounded in size and speed.
func (b *bounded) limit(ctx context.Context, resp *http.Response, what answer, done context.CancelFunc) io.ReadCloser {
	switch {
	case what == answerStream && resp.StatusCode < 300:
		return resp.Body // its reader decides how much it takes
	case what == answerWatch && resp.StatusCode < 300:
		return &eventBody{ReadCloser: b.paced(ctx, resp.Body, done), left: maxEvent, receipt: &receipt{books: b.books}}
	case what == answerList:
		return &limitedBody{ReadCloser: b.counted(b.paced(ctx, resp.Body, done)), left: maxList, done: done}
	default:
		return &limitedBody{ReadCloser: b.counted(resp.Body), left: maxObject, done: done}
	}
}

func (b *bounded) paced(ctx context.Context, body io.ReadCloser, done context.CancelFunc) io.ReadCloser {
	ctx, end := context.WithCancel(ctx)
	return &pacedBody{ReadCloser: body, books: b.books, now: b.now, ctx: ctx, end: both(end, done)}
}

// both returns what calls one and then the other.
func both(one, other context.CancelFunc) context.CancelFunc {
	return func() { one(); other() }
}

func (b *bounded) counted(body io.ReadCloser) io.ReadCloser {
	return &countedBody{ReadCloser: body, receipt: &receipt{books: b.books}}
}

// A limitedBody ends with ErrTooLarge instead of giving out more than left bytes.
type limitedBody struct {
	io.ReadCloser
	left int
	done context.CancelFunc
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// An eventBody ends with ErrTooLarge when one event of a watch has more than maxEvent bytes. Each event is a line: JSON
// has line breaks between values only, and API servers write one behind each event.
type eventBody struct {
	io.ReadCloser
	left    int
	receipt *receipt // of the event that is being received
}

// Read implements io.Reader.
func (b *eventBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if over := b.count(p[:n]); over != nil {
		return 0, over
	}
	for rest := p[:n]; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			b.left -= len(rest)
			break
		}
		if b.left < end {
			return 0, ErrTooLarge
		}
		b.left, rest = maxEvent, rest[end+1:]
	}
	if b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}

// count counts an event for as long as it is being received.
func (b *eventBody) count(read []byte) error {
	if end := bytes.LastIndexByte(read, '\n'); end >= 0 {
		return b.receipt.restart(len(read) - end - 1)
	}
	return b.receipt.add(len(read))
}

// Close implements io.Closer.
func (b *eventBody) Close() error {
	b.receipt.close()
	return b.ReadCloser.Close()
}
