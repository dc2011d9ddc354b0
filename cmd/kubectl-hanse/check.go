package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/version"
)

// checkAgain is how often everything is looked at while waiting.
const checkAgain = time.Second

type checkFlags struct {
	pre     bool
	peer    string
	output  string
	wait    bool
	timeout time.Duration
}

func newCheckCommand(global *globalFlags) *cobra.Command {
	flags := &checkFlags{}
	command := &cobra.Command{
		Use:   "check",
		Short: "Check that all is well, and say what to do where it is not",
		Long: "Looks at the cluster, the installation, the peers, the virtual nodes, the offloaded namespaces and the address ranges.\n" +
			"Each check says what it found, what to do, and where to read more. The exit code is 1 if one has failed.",
		Example: `  # Before the installation: can this cluster run Hanse, and may I install it?
  kubectl hanse check --pre

  # After it, until all is well
  kubectl hanse check --wait

  # One peer, and only problems
  kubectl hanse check --peer hamburg -o short`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return runCheck(command, global, flags) },
	}
	f := command.Flags()
	f.BoolVar(&flags.pre, "pre", false, "check only what an installation needs")
	f.StringVar(&flags.peer, "peer", "", "check only this peer and its virtual node")
	f.StringVarP(&flags.output, "output", "o", "table", "table, short (only problems) or json")
	f.BoolVar(&flags.wait, "wait", false, "check again until nothing fails")
	f.DurationVar(&flags.timeout, "timeout", 2*time.Minute, "how long to check")
	return command
}

// validate reports flags that make no sense.
func (f *checkFlags) validate() error {
	switch {
	case f.output != "table" && f.output != "short" && f.output != "json":
		return fmt.Errorf("--output is table, short or json, not %q", f.output)
	case f.pre && f.peer != "":
		return errors.New("before the installation there are no peers: say --pre or --peer")
	default:
		return nil
	}
}

func runCheck(command *cobra.Command, global *globalFlags, flags *checkFlags) error {
	if err := flags.validate(); err != nil {
		return err
	}
	return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
		d, err := c.discovery()
		if err != nil {
			return err
		}
		check := &checker{
			client: c.client, discovery: d, namespace: global.namespace, ours: version.Version, now: time.Now,
			reach: through(d.RESTClient()),
		}
		findings, err := check.repeat(ctx, flags, &progress{report: reporter(command)})
		if err != nil {
			return err
		}
		return errors.Join(printFindings(command.OutOrStdout(), findings, flags.output), verdict(findings))
	})
}

// A checker looks at one cluster.
type checker struct {
	client    client.Client
	discovery discovery.DiscoveryInterface
	namespace string // of Hanse
	ours      string // version of this client
	now       func() time.Time
	// reach has the API server connect to the kubelet API of a node.
	reach func(ctx context.Context, node string) error
}

// repeat checks once, or until nothing fails or the time is over. A look that the end of the time cut short does not count.
func (c *checker) repeat(ctx context.Context, flags *checkFlags, told *progress) ([]finding, error) {
	var last []finding
	for {
		findings, err := c.run(ctx, flags)
		if ctx.Err() != nil && last != nil {
			return last, nil
		}
		if err != nil || !flags.wait || verdict(findings) == nil {
			return findings, err
		}
		told.tell("Waiting: " + firstFailed(findings))
		last = findings
		select {
		case <-ctx.Done():
			return last, nil
		case <-time.After(checkAgain):
		}
	}
}

// run does every check that the flags ask for.
func (c *checker) run(ctx context.Context, flags *checkFlags) ([]finding, error) {
	if flags.peer != "" {
		peer, err := readPeer(ctx, c.client, flags.peer)
		if err != nil {
			return nil, err
		}
		s := take(ctx, c.client, scope{system: c.namespace}, c.now(), partVirtualNodes)
		return append(s.checkPeer(peer), s.checkNodeOf(peer)...), nil
	}
	findings := c.cluster()
	if flags.pre {
		return append(findings, c.rights(ctx)), nil
	}
	if missing := c.installed(ctx); missing != nil {
		return append(findings, *missing), nil
	}
	s := take(ctx, c.client, scope{system: c.namespace}, c.now(), partInfo, partPolicies, partPeers, partNamespaces, partOffloadings,
		partNodes, partDaemonSets, partDeployments, partAPIServers)
	findings = append(findings, c.chart(ctx, s)...)
	findings = append(findings, s.checkVersion(c.ours), s.checkPolicies())
	findings = append(findings, s.checkPeers()...)
	findings = append(findings, s.checkNodes()...)
	findings = append(findings, s.checkDaemonSets(), c.certificate(ctx, s))
	findings = append(findings, s.checkOffloadings()...)
	return append(findings, s.checkRanges()), nil
}

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

// troubleshooting is the page whose headings topics name.
const troubleshooting = "docs/how-to/troubleshoot.md"

// A topic is what a check is about: a heading of that page, as its anchor.
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
		Group: groups[t], Name: name, State: s, Found: printable(found), Fix: printable(fix), Link: troubleshooting + "#" + string(t),
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

// unknown is the finding where something could not be looked at.
func (t topic) unknown(name string, err error) finding {
	if apierrors.IsForbidden(err) {
		return t.skipped(name, "your rights do not suffice to look: "+err.Error())
	}
	return t.failed(name, "it could not be looked at: "+err.Error(), "check that the API server answers, and try again")
}

// verdict is an error if a check has failed.
func verdict(findings []finding) error {
	failed := slices.DeleteFunc(slices.Clone(findings), func(f finding) bool { return f.State != stateFailed })
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%s failed", count(len(failed), "check"))
}

// firstFailed names one that has failed.
func firstFailed(findings []finding) string {
	for _, f := range findings {
		if f.State == stateFailed {
			return f.Name + ": " + f.Found
		}
	}
	return ""
}

func printFindings(to io.Writer, findings []finding, output string) error {
	forPeople := output
	if output == "short" {
		forPeople = ""
	}
	return show(to, findings, forPeople, func(d *document) {
		if output == "short" {
			printShort(d, findings)
		} else {
			printGroups(d, findings)
		}
		d.printf("%s\n", sum(findings))
	})
}

// printShort prints only problems.
func printShort(d *document, findings []finding) {
	for _, f := range findings {
		if f.State == stateFailed || f.State == stateWarning {
			d.printf("%s: %s: %s (%s)\n", f.State, f.Name, f.Found, f.Link)
		}
	}
}

func printGroups(d *document, findings []finding) {
	width, group := 0, ""
	for _, f := range findings {
		width = max(width, len(f.Name))
	}
	for _, f := range findings {
		if f.Group != group {
			group = f.Group
			d.printf("%s\n", group)
		}
		d.printf("  %-7s  %-*s  %s\n", f.State, width, f.Name, f.Found)
		if f.Fix != "" {
			indent := strings.Repeat(" ", 2+7+2+width+2)
			d.printf("%sfix: %s\n%ssee: %s\n", indent, f.Fix, indent, f.Link)
		}
	}
	d.printf("\n")
}

// sum counts the findings of each state.
func sum(findings []finding) string {
	states := map[state]int{}
	for _, f := range findings {
		states[f.State]++
	}
	var words []string
	for _, s := range []state{stateOK, stateWarning, stateFailed, stateSkipped} {
		if states[s] > 0 {
			words = append(words, fmt.Sprintf("%d %s", states[s], s))
		}
	}
	return orElse(strings.Join(words, ", "), "nothing to check")
}
