// Command provisioner makes the volumes of a cluster of the testbed: directories on the disks of its workers. A claim gets its
// directory on the node that the scheduler has selected for the first pod with the claim.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
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
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig, made); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string, made *directories) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	claims, err := resizer(ctx, client)
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, klog.Background())
	controller.NewProvisionController(ctx, client, name, made,
		controller.LeaderElection(false), controller.MetricsPort(0), controller.ClaimsInformer(claims)).Run(ctx)
	return nil
}
