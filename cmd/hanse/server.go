// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/multicluster"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trace"
	"github.com/hanse-dev/hanse/internal/unread"
	"github.com/hanse-dev/hanse/internal/version"
)

// serverFlags are those that every server subcommand takes.
type serverFlags struct {
	namespace   string
	leaderElect bool
	metrics     string
	health      string
	profiles    string
	logFormat   string
	verbosity   int
	linkTimeout time.Duration
	timeout     time.Duration
	faults      faultFlags
	tracing     tracingFlags
	config      *rest.Config // where the API server is, and who we are to it
}

func (f *serverFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.namespace, "namespace", v1alpha1.SystemNamespace, "namespace that Hanse is installed in")
	flags.BoolVar(&f.leaderElect, "leader-elect", true, "let only one of several replicas act at a time")
	flags.StringVar(&f.metrics, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	flags.StringVar(&f.health, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	flags.StringVar(&f.profiles, "pprof-bind-address", "", "address of Go's profiles at /debug/pprof, such as 127.0.0.1:6060; by default none")
	flags.StringVar(&f.logFormat, "log-format", "json", "format of the log: json or text")
	flags.IntVarP(&f.verbosity, "verbosity", "v", 0, "how much to log: 0 is each change of the world, 1 and up are for debugging")
	flags.DurationVar(&f.linkTimeout, "link-timeout", peers.DefaultLinkTimeout,
		"how soon it is known that a peer is cut off; at least 3s")
	flags.DurationVar(&f.timeout, "request-timeout", 10*time.Second, "how long a request to a peer may take")
}

// gcPercent is how much the heap may grow before garbage is collected. With ten thousand pods what lives is what costs, and
// by Go's default of 100 the heap is twice as large. The garbage of a burst, or of a peer that sends too much, is little beside
// that.
const gcPercent = 33

// newManager makes the process around the controllers of one subcommand: caches, leader election, metrics, probes.
func (f *serverFlags) newManager(subcommand string, options ctrl.Options) (manager.Manager, error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	config := rest.CopyConfig(f.config)
	config.UserAgent = "hanse-" + subcommand + "/" + version.Version
	config.Wrap(unread.Transport)
	options.Scheme = runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(options.Scheme), v1alpha1.AddToScheme(options.Scheme), multicluster.AddToScheme(options.Scheme),
		snapshotv1.AddToScheme(options.Scheme)); err != nil {
		return nil, err
	}
	options.LeaderElection = f.leaderElect
	options.LeaderElectionID = "hanse-" + subcommand
	options.LeaderElectionNamespace = f.namespace
	options.LeaderElectionReleaseOnCancel = true // a graceful stop hands over at once
	if err := electAsPod(config, &options); err != nil {
		return nil, fmt.Errorf("prepare leader election: %w", err)
	}
	options.Metrics = server.Options{BindAddress: f.metrics}
	options.HealthProbeBindAddress = f.health
	options.PprofBindAddress = f.profiles
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, err
	}
	return mgr, errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", cachesSynced(mgr)))
}

// cachesSynced makes a check that fails while a cache cannot be filled, because of a missing right for example. The
// process is of no use then, and `kubectl hanse install` waits for it.
func cachesSynced(mgr manager.Manager) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("not all objects are read yet; the log says why if this lasts")
		}
		return nil
	}
}

func (f *serverFlags) setLogger() error {
	options := &slog.HandlerOptions{Level: slog.Level(-f.verbosity)}
	var handler slog.Handler = slog.NewJSONHandler(os.Stderr, options)
	switch f.logFormat {
	case "json":
	case "text":
		handler = slog.NewTextHandler(os.Stderr, options)
	default:
		return fmt.Errorf("--log-format is json or text, not %q", f.logFormat)
	}
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return nil
}

// freshCredentials is for how long the credentials of a link are not looked up again while its Peer does not change. The
// controllers ask for links at every turn.
const freshCredentials = 5 * time.Second

// pingAfter is how soon a silent connection to a peer is pinged. The kernel notices most cuts long before, and without any
// work of ours, which of pings to thousands of peers is more than of all else that an idle process does.
const pingAfter = time.Minute

// addLinks adds the connections to peers, which the manager ends with itself. The given configuration says what is special
// about this process.
func (f *serverFlags) addLinks(mgr manager.Manager, config peers.Config) (*peers.Links, error) {
	config.Local, config.Scheme = mgr.GetAPIReader(), mgr.GetScheme()
	config.UserAgent += "/" + version.Version
	config.LinkTimeout, config.Timeout = f.linkTimeout, f.timeout
	config.PingAfter, config.Fresh = pingAfter, freshCredentials
	config.Clock = f.faults.clock()
	links := peers.NewLinks(config)
	return links, mgr.Add(links)
}

// renewDeadline is controller-runtime's own default. A request for the lease must be shorter.
const renewDeadline = 10 * time.Second

// electAsPod makes the name of the pod the identity in leader election: a process that was killed and is started again
// in its pod holds the lease still, and need not wait until it ends. Outside of a pod every start is somebody new, as
// controller-runtime has it.
func electAsPod(config *rest.Config, options *ctrl.Options) error {
	pod := os.Getenv("POD_NAME")
	if pod == "" || !options.LeaderElection {
		return nil
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, options.LeaderElectionNamespace,
		options.LeaderElectionID, resourcelock.ResourceLockConfig{Identity: pod}, config, renewDeadline)
	options.LeaderElectionResourceLockInterface = lock
	return err
}

// lastSpans is how long a process that ends takes at most to send the spans that it has.
const lastSpans = time.Second

// tracingFlags say whether traces are recorded, and where they go.
type tracingFlags struct {
	config trace.Config
}

func (f *tracingFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.config.Endpoint, "tracing-endpoint", "",
		"host:port of the OpenTelemetry collector that takes traces of offloaded pods over gRPC; by default there are none")
	flags.Float64Var(&f.config.SamplePercent, "tracing-sample-percent", 100, "how many of 100 offloaded pods are traced")
	flags.BoolVar(&f.config.Insecure, "tracing-insecure", false, "reach the collector without TLS")
	flags.StringVar(&f.config.CAFile, "tracing-ca-file", "",
		"certificate authorities of the collector; by default those of the machine")
}

// run calls it with a tracer, nil if nothing is traced, whose last spans are sent when it is over.
func (f *tracingFlags) run(ctx context.Context, service, clusterID string, it func(*trace.Tracer) error) error {
	config := f.config
	config.Service, config.Version, config.ClusterID = service, version.Version, clusterID
	config.Log = ctrl.Log.WithName("trace")
	tracer, err := trace.Start(ctx, config)
	if err != nil {
		return fmt.Errorf("--tracing-*: %w", err)
	}
	err = it(tracer)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
	defer cancel()
	if tracer.Stop(ctx) != nil {
		config.Log.Info("The last spans were not sent in time")
	}
	return err
}
