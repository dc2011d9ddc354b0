// SPDX-License-Identifier: Apache-2.0

package peerstest

import (
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A Request is one request through the Client of a Peer. What feeds mirrors is none.
type Request struct {
	// Verb is get, list, create, update, patch, apply, delete or deletecollection, with "/" and the subresource if there is
	// one.
	Verb string
	// Kind and Name say what is asked for. They are empty for apply.
	Kind, Name string
}

// String is, for example, "get ConfigMap hanse-cluster".
func (r Request) String() string { return strings.TrimRight(r.Verb+" "+r.Kind+" "+r.Name, " ") }

// A refusal is how requests are answered whose text begins with the prefix.
type refusal struct {
	prefix string
	err    error
}

// Requests returns how many requests there were whose text, as Request.String gives it, begins with the prefix.
func (p *Peer) Requests(prefix string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := 0
	for text, times := range p.asked {
		if strings.HasPrefix(text, prefix) {
			count += times
		}
	}
	return count
}

// Refuse answers requests whose text begins with the prefix with the error, or again as usual if the error is nil. Each
// prefix is for itself. The error is as an API server gives it, such as Forbidden of apimachinery's errors package.
func (p *Peer) Refuse(prefix string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = append([]refusal{{prefix, err}}, p.refuse...)
	for i, older := range p.refuse[1:] {
		if older.prefix == prefix {
			p.refuse = append(p.refuse[:i+1], p.refuse[i+2:]...)
			return
		}
	}
}

// OnRequest has f called with each request, before it is answered. The answer waits for f, and is the error of f if there
// is one.
func (p *Peer) OnRequest(f func(Request) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks = append(p.hooks, f)
}

// IssueTokens has f answer what asks for tokens.
func (p *Peer) IssueTokens(f func(*authenticationv1.TokenRequest) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens = f
}

// ask counts the request, and returns an error if it is to be refused.
func (p *Peer) ask(request Request) error {
	text := request.String()
	p.mu.Lock()
	p.asked[text]++
	hooks := p.hooks
	p.mu.Unlock()
	for _, hook := range hooks {
		if err := hook(request); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, refused := range p.refuse {
		if refused.err != nil && strings.HasPrefix(text, refused.prefix) {
			return refused.err
		}
	}
	return nil
}

func (p *Peer) requestFor(verb string, object client.Object) Request {
	return Request{Verb: verb, Kind: p.kindOf(object), Name: object.GetName()}
}

func (p *Peer) kindOf(object runtime.Object) string {
	gvk, err := apiutil.GVKForObject(object, p.world.scheme)
	if err != nil {
		return "" // the cluster says what is wrong
	}
	return strings.TrimSuffix(gvk.Kind, "List")
}

// issue answers a request for a token, if somebody is to, and otherwise has do answer it.
func (p *Peer) issue(body client.Object, do func() error) error {
	p.mu.Lock()
	tokens := p.tokens
	p.mu.Unlock()
	if request, is := body.(*authenticationv1.TokenRequest); is && tokens != nil {
		return tokens(request)
	}
	return do()
}
