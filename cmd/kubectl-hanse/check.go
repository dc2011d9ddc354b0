package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
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

  # One peer, and only what is amiss
  kubectl hanse check --peer hamburg -o short`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return runCheck(command, global, flags) },
	}
	f := command.Flags()
	f.BoolVar(&flags.pre, "pre", false, "check only what an installation needs")
	f.StringVar(&flags.peer, "peer", "", "check only this peer and its virtual node")
	f.StringVarP(&flags.output, "output", "o", "table", "table, short (only what is amiss) or json")
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
