// SPDX-License-Identifier: Apache-2.0

// Command snapshot-controller is that of Kubernetes SIG Storage: it binds VolumeSnapshots to their contents. Its own main package
// needs so much of the API server for what clusters of the testbed do not use that it takes minutes to build.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	"github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	controller "github.com/kubernetes-csi/external-snapshotter/v8/pkg/common-controller"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/metrics"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	workers = 10
	resync  = 15 * time.Minute
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	api, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := snapshotscheme.AddToScheme(scheme.Scheme); err != nil { // for its events
		return err
	}
	volumes, snapshots := informers.NewSharedInformerFactory(client, resync), externalversions.NewSharedInformerFactory(api, resync)
	kinds, core := snapshots.Snapshot().V1(), volumes.Core().V1()
	const (
		distributed     = false
		keepsVolumeMode = true
		groups          = false
	)
	binder := controller.NewCSISnapshotCommonController(api, client,
		kinds.VolumeSnapshots(), kinds.VolumeSnapshotContents(), kinds.VolumeSnapshotClasses(), nil, nil, nil,
		core.PersistentVolumeClaims(), core.PersistentVolumes(), nil, metrics.NewMetricsManager(), resync,
		limiter(), limiter(), limiter(), limiter(), distributed, keepsVolumeMode, groups)
	volumes.Start(ctx.Done())
	snapshots.Start(ctx.Done())
	binder.Run(workers, ctx.Done(), nil)
	return nil
}

// limiter says when to try again, as the controller does by default.
func limiter() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 5*time.Minute)
}
