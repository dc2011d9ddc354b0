// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/credentials"
)

// queued is how many spans wait for the collector. More of them are lost: nothing ever waits for a collector.
const queued = 4096

// Config says what is recorded, and where it goes.
type Config struct {
	// Service is what the spans are of, such as hanse-kubelet, and Version its version.
	Service, Version string
	// ClusterID is the id of this cluster. It may be left out.
	ClusterID string
	// Endpoint is where the collector takes OTLP over gRPC, as host:port. Without it nothing is recorded.
	Endpoint string
	// Insecure does without TLS.
	Insecure bool
	// CAFile holds the certificate authorities of the collector. By default those of the machine.
	CAFile string
	// SamplePercent is how many of 100 pods have their spans recorded.
	SamplePercent float64
	// Log is told when the collector takes nothing, and when it does again.
	Log logr.Logger
}

// Validate reports what is wrong with the configuration.
func (c *Config) Validate() error {
	if _, _, err := net.SplitHostPort(c.Endpoint); err != nil && c.Endpoint != "" {
		return fmt.Errorf("the collector: %w", err)
	}
	if c.Insecure && c.CAFile != "" {
		return errors.New("certificate authorities of the collector are of no use without TLS")
	}
	if !(c.SamplePercent >= 0 && c.SamplePercent <= 100) { // NaN is neither
		return fmt.Errorf("%v percent of all pods", c.SamplePercent)
	}
	return nil
}

// Start returns a Tracer that sends spans to the collector, and nil if there is none. It does not wait for it, now or
// later. Who starts it stops it.
func Start(ctx context.Context, cfg Config) (*Tracer, error) {
	if err := cfg.Validate(); err != nil || cfg.Endpoint == "" {
		return nil, err
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(cfg.Endpoint)}
	if cfg.Insecure {
		options = append(options, otlptracegrpc.WithInsecure())
	} else {
		authorities, err := cfg.authorities()
		if err != nil {
			return nil, err
		}
		options = append(options, otlptracegrpc.WithTLSCredentials(credentials.NewClientTLSFromCert(authorities, "")))
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("make the client of the collector: %w", err)
	}
	return New(cfg, batches(cfg, exporter)), nil
}

func batches(cfg Config, exporter sdktrace.SpanExporter) sdktrace.SpanProcessor {
	return sdktrace.NewBatchSpanProcessor(&reporting{SpanExporter: exporter, log: cfg.Log}, sdktrace.WithMaxQueueSize(queued))
}

// authorities returns the certificates that the collector's own is signed by.
func (c *Config) authorities() (*x509.CertPool, error) {
	if c.CAFile == "" {
		pool, err := x509.SystemCertPool()
		if err == nil && pool.Equal(x509.NewCertPool()) {
			err = errors.New("there are none: name a file, or do without TLS")
		}
		if err != nil {
			return nil, fmt.Errorf("certificate authorities of the machine: %w", err)
		}
		return pool, nil
	}
	data, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("read certificate authorities: there are none in %s", c.CAFile)
	}
	return pool, nil
}

// reporting counts what an exporter sends, and logs when it begins to fail and when that ends.
type reporting struct {
	sdktrace.SpanExporter

	log     logr.Logger
	failing atomic.Bool
}

// ExportSpans sends spans. It returns no error, because no caller could do anything about one.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		if !r.failing.Swap(true) {
			r.log.Info("The collector takes no spans; they are lost until it does", "cause", err.Error())
		}
		return nil
	}
	sent.Add(float64(len(spans)))
	if r.failing.Swap(false) {
		r.log.Info("The collector takes spans again")
	}
	return nil
}
