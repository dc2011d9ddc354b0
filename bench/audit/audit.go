package audit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Write is a request that changes what an API server stores.
type Write struct {
	Agent     string // who made it
	Verb      string
	Resource  string // with its subresource, such as pods/status
	Namespace string
	Failed    bool // the server refused it, such as for a conflict
}

// IsEvent tells whether the write is about an Event object.
func (w Write) IsEvent() bool { return w.Resource == "events" }

// entry is what is read of a line of the log.
type entry struct {
	Stage     string `json:"stage"`
	Verb      string `json:"verb"`
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

var verbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// questions are the API groups whose objects are asked by creating them and never stored.
var questions = []string{"authentication.k8s.io", "authorization.k8s.io"}

// maxLine bounds a line of the log: at level Metadata it holds no object.
const maxLine = 1 << 20

// Read returns the writes of a log, but for renewals of leases.
func Read(log io.Reader) ([]Write, error) {
	var writes []Write
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
		if w, ok := e.write(); ok {
			writes = append(writes, w)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return writes, nil
}

func (e *entry) write() (Write, bool) {
	ref := e.ObjectRef
	if e.Stage != "ResponseComplete" || ref == nil || !slices.Contains(verbs, e.Verb) {
		return Write{}, false
	}
	if ref.Resource == "leases" || ref.Subresource == "token" || slices.Contains(questions, ref.APIGroup) {
		return Write{}, false
	}
	resource := ref.Resource
	if ref.Subresource != "" {
		resource += "/" + ref.Subresource
	}
	return Write{
		Agent: agent(e.UserAgent, e.User.Username), Verb: e.Verb, Resource: resource, Namespace: ref.Namespace,
		Failed: e.ResponseStatus.Code >= 400,
	}, true
}

// agent is the program's name. Kubernetes' own components share one program in the testbed, so there the user counts.
func agent(userAgent, user string) string {
	name, _, _ := strings.Cut(userAgent, "/")
	if strings.HasPrefix(name, "kube") {
		return user[strings.LastIndexByte(user, ':')+1:]
	}
	return name
}
