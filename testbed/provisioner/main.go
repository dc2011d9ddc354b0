// SPDX-License-Identifier: Apache-2.0

// Command provisioner makes the volumes of a cluster of the testbed: directories on the disks of its workers. A claim gets its
// directory on the node that the scheduler has selected for the first pod with the claim. Snapshots are copies beside them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// name is what StorageClasses call this provisioner.
const name = "testbed.hanse.dev/local"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	made := &directories{disks: map[string]string{}}
	flag.Func("disk", "where the /var/lib of a node lies on this machine, as NODE=DIRECTORY", func(text string) error {
		node, dir, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q: want NODE=DIRECTORY", text)
		}
		made.disks[node] = dir
		return nil
	})
	withSnapshots := flag.Bool("snapshots", false, "take and restore VolumeSnapshots, whose definitions the cluster has")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig, made, *withSnapshots); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string, made *directories, withSnapshots bool) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	claims, err := resizer(ctx, client)
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, klog.Background())
	if withSnapshots {
		api, err := versioned.NewForConfig(config)
		if err != nil {
			return err
		}
		made.snapshots = api.SnapshotV1()
		taker := &snapshotter{volumes: client.CoreV1(), snapshots: api.SnapshotV1(), made: made, now: time.Now}
		if err := taker.start(ctx, api); err != nil {
			return err
		}
	}
	controller.NewProvisionController(ctx, client, name, made,
		controller.LeaderElection(false), controller.MetricsPort(0), controller.ClaimsInformer(claims),
		// A claim may come before the snapshot that it begins from is ready.
		controller.FailedProvisionThreshold(0),
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)),
	).Run(ctx)
	return nil
}
