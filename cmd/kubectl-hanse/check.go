// SPDX-License-Identifier: Apache-2.0

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
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/install"
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
	flags := &checkFlags{output: "table"}
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
	f.VarP(oneOf(&flags.output, "table", "short", "json"), "output", "o", "table, short (only problems) or json")
	f.BoolVar(&flags.wait, "wait", false, "check again until nothing fails")
	f.DurationVar(&flags.timeout, "timeout", 2*time.Minute, "how long to check")
	command.MarkFlagsMutuallyExclusive("pre", "peer")
	return command
}

func runCheck(command *cobra.Command, global *globalFlags, flags *checkFlags) error {
	return global.withHanse(command, flags.timeout, func(ctx context.Context, c *connection, system string) error {
		check := &checker{
			client: c.client, discovery: c.discovery, system: system, about: global.namespace, ours: version.Version, now: time.Now,
			reach: through(c.discovery.RESTClient()),
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
	system    string // the namespace of Hanse
	about     string // the namespace of users to look at, "" for all
	ours      string // version of this client
	now       func() time.Time
	// reach has the API server connect to the kubelet API of a node.
	reach func(ctx context.Context, node string) error
}

// repeat checks once, or until nothing fails or the time is over. A look that the end of the time cut short does not count.
func (c *checker) repeat(ctx context.Context, flags *checkFlags, told *progress) ([]finding, error) {
	var last []finding
	err := wait.PollUntilContextCancel(ctx, checkAgain, true, func(ctx context.Context) (bool, error) {
		findings, err := c.run(ctx, flags)
		if err != nil || ctx.Err() != nil && last != nil {
			return false, err
		}
		last = findings
		if !flags.wait || verdict(findings) == nil {
			return true, nil
		}
		failed := find(findings, func(f *finding) bool { return f.State == stateFailed })
		told.tell("Waiting: " + failed.Name + ": " + failed.Found)
		return false, nil
	})
	if last != nil && ctx.Err() != nil {
		err = nil
	}
	return last, err
}

// run does every check that the flags ask for.
func (c *checker) run(ctx context.Context, flags *checkFlags) ([]finding, error) {
	if flags.peer != "" {
		peer, err := readPeer(ctx, c.client, flags.peer)
		if err != nil {
			return nil, err
		}
		s := take(ctx, c.client, scope{system: c.system}, c.now(), partVirtualNodes, partPeers, partOffers)
		return append(s.checkPeer(peer), s.checkNodeOf(peer)...), nil
	}
	findings := c.cluster()
	if flags.pre {
		return append(findings, c.rights(ctx, subject{topicRights, "your rights"})...), nil
	}
	if missing := c.installed(ctx, subject{topicInstalled, "Hanse"}); missing != nil {
		return append(findings, missing...), nil
	}
	for _, check := range c.checks(ctx) {
		findings = append(findings, check.run()...)
	}
	return findings, nil
}

// A check looks at parts of a snapshot. If it finds nothing, there is nothing of what it is about.
type check struct {
	subject
	seen  *snapshot
	needs []part
	look  func(subject) []finding
}

// checks are those of an installation, in the order in which they are shown.
func (c *checker) checks(ctx context.Context) []check {
	s := take(ctx, c.client, scope{system: c.system}, c.now(), partInfo, partPolicies, partPeers, partOffers, partNamespaces, partOffloadings,
		partNodes, partDaemonSets, partServices, partPodsAway, partDeployments, partOwnPods, partAPIServers)
	return []check{
		{subject{topicKinds, "kinds"}, s, nil, c.made(ctx, func(m install.Manifest) []*unstructured.Unstructured { return m.Definitions })},
		{subject{topicDeployments, "Deployments"}, s, []part{partDeployments}, s.checkDeployments},
		{subject{topicChart, "policies and roles"}, s, nil, c.made(ctx, install.Manifest.Guards)},
		{subject{topicVersions, "versions"}, s, []part{partInfo}, func(about subject) []finding { return s.checkVersion(about, c.ours) }},
		{subject{topicModules, "policies of yours"}, s, []part{partPolicies}, s.checkPolicies},
		{subject{topicPeer, "peers"}, s, []part{partPeers}, func(subject) []finding { return each(s.peers.Items, s.checkPeer) }},
		{subject{topicTombstone, "tombstones"}, s, []part{partNamespaces}, func(subject) []finding { return each(s.namespaces.Items, checkTombstone) }},
		{subject{topicNode, "virtual nodes"}, s, []part{partNodes}, func(subject) []finding { return each(s.nodes.Items, s.checkNode) }},
		{subject{topicDaemonSets, "DaemonSets"}, s, []part{partDaemonSets}, s.checkDaemonSets},
		{
			subject{topicCertificate, "certificate of the kubelet API"},
			s,
			[]part{partDeployments, partNodes},
			func(about subject) []finding { return c.certificate(ctx, about, s) },
		},
		{subject{topicOffloading, "offloaded namespaces"}, s, []part{partOffloadings}, func(a subject) []finding { return s.checkOffloadings(a, c.about) }},
		{subject{topicServices, "Services"}, s, []part{partServices, partPodsAway, partPeers}, s.checkServices},
		{subject{topicRanges, "pod ranges of nodes"}, s, []part{partNodes}, s.checkRanges},
	}
}

func (c check) run() []finding {
	if err := c.seen.err(c.needs...); err != nil {
		return c.unknown(err)
	}
	if found := c.look(c.subject); len(found) > 0 {
		return found
	}
	return c.ok("there are none")
}

// cluster checks what Hanse needs of any cluster.
func (c *checker) cluster() []finding {
	version, err := install.KubernetesVersion(c.discovery)
	findings := subject{topicKubernetes, "Kubernetes version"}.supported(err, "upgrade Kubernetes to "+install.MinimumKubernetes+" or newer",
		version+", and "+install.MinimumKubernetes+" is the oldest that will do")
	if err != nil {
		return findings
	}
	for _, kind := range install.PolicyKinds() {
		findings = append(findings, subject{topicPolicies, kind}.supported(install.CheckServed(c.discovery, kind),
			"turn it on with the API server's --runtime-config and --feature-gates", "served as v1")...)
	}
	return findings
}

// supported is the finding about something that the cluster has to support.
func (s subject) supported(err error, fix, found string) []finding {
	switch {
	case errors.Is(err, install.ErrUnsupported):
		return s.failed(err.Error(), fix)
	case err != nil:
		return s.unknown(err)
	default:
		return s.ok("%s", found)
	}
}

// rights checks whether the user may make what the chart consists of.
func (c *checker) rights(ctx context.Context, about subject) []finding {
	needed, err := c.needed()
	if err != nil {
		return about.unknown(err)
	}
	var missing []string
	for _, right := range needed {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
		}
		if err := c.client.Create(ctx, review); err != nil {
			return about.unknown(fmt.Errorf("ask whether you may %s %s: %w", right.Verb, right.Resource, err))
		}
		if !review.Status.Allowed {
			missing = append(missing, right.Verb+" "+right.Resource)
		}
	}
	if len(missing) > 0 {
		return about.failed("you may not "+strings.Join(missing, ", "), "install as an administrator of the cluster (ClusterRole cluster-admin)")
	}
	return about.ok("they suffice to install Hanse")
}

// needed are the rights that an installation takes.
func (c *checker) needed() ([]authorizationv1.ResourceAttributes, error) {
	manifest, err := c.manifest()
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	for _, object := range slices.Concat(manifest.Definitions, manifest.Objects) {
		if kind := object.GroupVersionKind(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	// A role may give only what its maker has, or whoever may escalate.
	needed := []authorizationv1.ResourceAttributes{
		{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"},
		{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles"},
	}
	for _, kind := range kinds {
		mapping, err := c.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			continue // that it is not served is another check's finding
		}
		if err != nil {
			return nil, fmt.Errorf("find the resource of kind %s: %w", kind.Kind, err)
		}
		for _, verb := range []string{"create", "patch", "delete"} {
			right := authorizationv1.ResourceAttributes{Verb: verb, Group: kind.Group, Resource: mapping.Resource.Resource}
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				right.Namespace = c.system
			}
			needed = append(needed, right)
		}
	}
	return needed, nil
}

// manifest is what this client would install.
func (c *checker) manifest() (install.Manifest, error) {
	return install.Render(install.Options{Namespace: c.system, Version: c.ours})
}

// installed returns a finding if there is no Hanse to look at.
func (c *checker) installed(ctx context.Context, about subject) []finding {
	found, err := read(ctx, c.client, "", c.system, &corev1.Namespace{})
	switch {
	case err != nil:
		return about.unknown(err)
	case !found:
		return about.failed("there is no namespace "+c.system, "run `kubectl hanse install`, or say with --hanse-namespace where it is")
	default:
		return nil
	}
}

// made checks that some of what the chart makes is there.
func (c *checker) made(ctx context.Context, some func(install.Manifest) []*unstructured.Unstructured) func(subject) []finding {
	return func(about subject) []finding {
		manifest, err := c.manifest()
		if err != nil {
			return about.unknown(err)
		}
		missing, err := install.Missing(ctx, c.client, some(manifest))
		switch {
		case err != nil:
			return about.unknown(err)
		case len(missing) > 0:
			return about.failed("missing or not established: "+list(missing, 10), reinstall)
		default:
			return about.ok("all %d are there", len(some(manifest)))
		}
	}
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

// A topic is what checks are about: the group in which it is shown, and the heading of that page, as its anchor.
type topic struct{ group, anchor string }

// The topics in the order of the page.
var (
	topicKubernetes  = topic{"cluster", "kubernetes-is-too-old"}
	topicPolicies    = topic{"cluster", "admission-policies-are-not-served"}
	topicRights      = topic{"cluster", "rights-for-the-installation-are-missing"}
	topicInstalled   = topic{"installation", "hanse-is-not-installed"}
	topicKinds       = topic{"installation", "a-kind-is-missing"}
	topicDeployments = topic{"installation", "hanses-own-pods-do-not-run"}
	topicChart       = topic{"installation", "a-policy-or-a-role-is-missing"}
	topicVersions    = topic{"installation", "client-and-server-differ"}
	topicModules     = topic{"installation", "a-policy-cannot-be-used"}
	topicPeer        = topic{"peers", "a-peer-is-not-ready"}
	topicSession     = topic{"peers", "the-session-with-a-peer-ends"}
	topicInvitation  = topic{"peers", "an-invitation-was-not-used"}
	topicAccess      = topic{"peers", "a-peer-is-cordoned-drained-or-suspended"}
	topicTombstone   = topic{"peers", "a-tombstone-is-left"}
	topicNode        = topic{"nodes", "a-virtual-node-is-not-ready"}
	topicDaemonSets  = topic{"nodes", "a-daemonset-comes-to-virtual-nodes"}
	topicCertificate = topic{"nodes", "kubectl-logs-or-exec-fails-for-remote-pods-only"}
	topicOffloading  = topic{"namespaces", "a-namespace-is-not-offloaded-as-it-should-be"}
	topicServices    = topic{"namespaces", "a-service-has-no-endpoints"}
	topicRanges      = topic{"address ranges", "nodes-get-no-pod-range"}
)

// A subject is a thing that is checked, and the topic that it belongs to.
type subject struct {
	topic
	name string
}

func (s subject) finding(state state, found, fix string) []finding {
	return []finding{{
		Group: s.group, Name: s.name, State: state, Found: printable(found), Fix: printable(fix), Link: troubleshooting + "#" + s.anchor,
	}}
}

func (s subject) ok(found string, args ...any) []finding {
	return s.finding(stateOK, fmt.Sprintf(found, args...), "")
}

func (s subject) skipped(found string) []finding      { return s.finding(stateSkipped, found, "") }
func (s subject) warning(found, fix string) []finding { return s.finding(stateWarning, found, fix) }
func (s subject) failed(found, fix string) []finding  { return s.finding(stateFailed, found, fix) }

// unknown is the finding where something could not be looked at.
func (s subject) unknown(err error) []finding {
	if apierrors.IsForbidden(err) {
		return s.skipped("your rights do not suffice to look: " + err.Error())
	}
	return s.failed("it could not be looked at: "+err.Error(), "check that the API server answers, and try again")
}

// verdict is an error if a check has failed.
func verdict(findings []finding) error {
	if failed := counted(findings)[stateFailed]; failed > 0 {
		return fmt.Errorf("%s failed", count(failed, "check"))
	}
	return nil
}

// counted is how many findings have each state.
func counted(findings []finding) map[state]int {
	states := map[state]int{}
	for _, f := range findings {
		states[f.State]++
	}
	return states
}

func printFindings(to io.Writer, findings []finding, output string) error {
	return show(to, findings, output, func(d *document) {
		if output == "short" {
			printShort(d, findings)
		} else {
			printGroups(d, findings)
		}
		var words []string
		for _, s := range []state{stateOK, stateWarning, stateFailed, stateSkipped} {
			if n := counted(findings)[s]; n > 0 {
				words = append(words, fmt.Sprintf("%d %s", n, s))
			}
		}
		d.printf("%s\n", strings.Join(words, ", "))
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
