package main

import "fmt"

// A state is how a check ended.
type state string

const (
	stateOK      state = "ok"
	stateWarning state = "warning"
	stateFailed  state = "failed"
	stateSkipped state = "skipped"
)

// A finding is what one check found. Its JSON is for scripts: fields are added, never renamed.
type finding struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	State state  `json:"state"`
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"`
	Link  string `json:"link"`
}

// page is the one whose headings topics name.
const page = "docs/how-to/troubleshoot.md"

// A topic is what a check is about: a heading of page, as its anchor.
type topic string

// The topics in the order of the page.
const (
	topicKubernetes  topic = "kubernetes-is-too-old"
	topicPolicies    topic = "admission-policies-are-not-served"
	topicRights      topic = "rights-for-the-installation-are-missing"
	topicInstalled   topic = "hanse-is-not-installed"
	topicKinds       topic = "a-kind-is-missing"
	topicDeployments topic = "hanses-own-pods-do-not-run"
	topicChart       topic = "a-policy-or-a-role-is-missing"
	topicVersions    topic = "client-and-server-differ"
	topicModules     topic = "a-policy-cannot-be-used"
	topicPeer        topic = "a-peer-is-not-ready"
	topicSession     topic = "the-session-with-a-peer-ends"
	topicInvitation  topic = "an-invitation-was-not-used"
	topicAccess      topic = "a-peer-is-cordoned-drained-or-suspended"
	topicTombstone   topic = "a-tombstone-is-left"
	topicNode        topic = "a-virtual-node-is-not-ready"
	topicDaemonSets  topic = "a-daemonset-comes-to-virtual-nodes"
	topicCertificate topic = "kubectl-logs-or-exec-fails-for-remote-pods-only"
	topicOffloading  topic = "a-namespace-is-not-offloaded-as-it-should-be"
	topicRanges      topic = "nodes-get-no-pod-range"
)

// groups are where topics are shown.
var groups = map[topic]string{
	topicKubernetes: "cluster", topicPolicies: "cluster", topicRights: "cluster",
	topicInstalled: "installation", topicKinds: "installation", topicDeployments: "installation",
	topicChart: "installation", topicVersions: "installation", topicModules: "installation",
	topicPeer: "peers", topicSession: "peers", topicInvitation: "peers", topicAccess: "peers", topicTombstone: "peers",
	topicNode: "nodes", topicDaemonSets: "nodes", topicCertificate: "nodes",
	topicOffloading: "namespaces",
	topicRanges:     "address ranges",
}

func (t topic) finding(name string, s state, found, fix string) finding {
	return finding{
		Group: groups[t], Name: name, State: s, Found: printable(found), Fix: printable(fix), Link: page + "#" + string(t),
	}
}

func (t topic) ok(name, found string, args ...any) finding {
	return t.finding(name, stateOK, fmt.Sprintf(found, args...), "")
}

func (t topic) skipped(name, found string) finding { return t.finding(name, stateSkipped, found, "") }

func (t topic) warning(name, found, fix string) finding {
	return t.finding(name, stateWarning, found, fix)
}

func (t topic) failed(name, found, fix string) finding {
	return t.finding(name, stateFailed, found, fix)
}
