package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trace"
	"github.com/hanse-dev/hanse/internal/version"
)

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

// clusterID returns the id of this cluster, if it is needed for traces. They do without where it cannot be read (yet).
func (f *tracingFlags) clusterID(ctx context.Context, reader client.Reader, namespace string) string {
	if f.config.Endpoint == "" {
		return ""
	}
	info := &corev1.ConfigMap{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ClusterInfo}, info); err != nil {
		ctrl.Log.Info("Traces do not tell the id of this cluster", "cause", err.Error())
	}
	return info.Data[v1alpha1.ClusterInfoID]
}
