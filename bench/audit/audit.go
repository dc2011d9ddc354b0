// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
)

// A Request is what an API server was asked: to change what it stores, or for many objects at once.
type Request struct {
	ID        string // what is logged of the same request has the same
	Agent     string // who made it
	Verb      string
	Resource  string // with its subresource, such as pods/status
	Namespace string
	Failed    bool // the server refused it, such as for a conflict
	Begins    bool // it is a watch that has just begun; that it has ended is a line of its own
	All       bool // it is a watch that first tells what is there already, in the place of a list
	Page      bool // it is a further page of a list
}

// IsEvent tells whether the request is about an Event object.
func (r Request) IsEvent() bool { return r.Resource == "events" }

// IsWrite tells whether the request was to change what the server stores.
func (r Request) IsWrite() bool { return slices.Contains(writes, r.Verb) }

// entry is what is read of a line of the log.
type entry struct {
	ID        string `json:"auditID"`
	Stage     string `json:"stage"`
	Verb      string `json:"verb"`
	URI       string `json:"requestURI"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// Verbs of requests.
var (
	writes = []string{"create", "update", "patch", "delete", "deletecollection"}
	reads  = []string{list, watch}
)

const (
	list  = "list"
	watch = "watch"
)

// questions are the API groups whose objects are asked by creating them and never stored.
var questions = []string{"authentication.k8s.io", "authorization.k8s.io"}

// maxLine bounds a line of the log: at level Metadata it holds no object.
const maxLine = 1 << 20

// Read returns the requests of a log, but for reads of single objects, and renewals of leases.
func Read(log io.Reader) ([]Request, error) {
	var requests []Request
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read line of audit log: %w", err)
		}
		if e.counts() {
			requests = append(requests, e.request())
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return requests, nil
}

func (e *entry) counts() bool {
	ref := e.ObjectRef
	switch {
	case ref == nil:
		return false
	case slices.Contains(reads, e.Verb):
		return true
	case e.begins() || !slices.Contains(writes, e.Verb):
		return false
	}
	return ref.Resource != "leases" && ref.Subresource != "token" && !slices.Contains(questions, ref.APIGroup)
}

// begins tells whether the answer has only begun: the server logs requests that last twice, all others when they end.
func (e *entry) begins() bool { return e.Stage == "ResponseStarted" }

func (e *entry) request() Request {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	r := Request{
		ID: e.ID, Agent: agent(e.UserAgent, e.User.Username), Verb: e.Verb, Resource: resource, Namespace: e.ObjectRef.Namespace,
		Failed: e.ResponseStatus.Code >= 400, Begins: e.begins(),
	}
	if uri, err := url.Parse(e.URI); err == nil && !r.IsWrite() {
		query := uri.Query()
		r.All = r.Verb == watch && query.Get("sendInitialEvents") == "true"
		r.Page = r.Verb == list && query.Get("continue") != ""
	}
	return r
}

// agent is the program's name. Kubernetes' own components share one program in the testbed, so there the user counts.
func agent(userAgent, user string) string {
	name, _, _ := strings.Cut(userAgent, "/")
	if strings.HasPrefix(name, "kube") {
		return user[strings.LastIndexByte(user, ':')+1:]
	}
	return name
}
