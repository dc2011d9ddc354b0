package bursts

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
)

// Ways to run a pod in the provider. Each is also the name of the namespace that its pods are created in.
const (
	Plain     = "plain" // created in the provider directly
	Null      = "null"  // offloaded by the null offloader, which has the same name for its node
	Offloaded = "offloaded"
)

// patience is how long to wait for what is not measured.
const patience = 2 * time.Minute

// A Config says what to measure.
type Config struct {
	Bed    lab.Testbed
	Sizes  []int // of bursts
	Rounds int   // of each burst
	Single int   // rounds of one pod alone
	Floors bool  // measure the floors alone, without Hanse
	Nodes  int   // simulated nodes of the provider
	// SchedulerQPS is how many requests a second a scheduler may make; 0: as many as by default (50, at most 100 at
	// once), which hides everything that is faster than that.
	SchedulerQPS int
	Say          func(format string, args ...any)
}

// A world is the two clusters with Hanse in them.
type world struct {
	Config
	consumer, provider *lab.Cluster
	servers            []*lab.Server
	null               *lab.Server
	meter              lab.Meter
	clock              clock.Clock
	twin               string // the namespace at the provider of the offloaded pods
}

func (c Config) flags() []string {
	flags := []string{"--workers", "0", "--audit"}
	if c.SchedulerQPS > 0 {
		qps := strconv.Itoa(c.SchedulerQPS)
		flags = append(flags, "--arg", "scheduler:kube-api-qps="+qps, "--arg", "scheduler:kube-api-burst="+qps)
	}
	return flags
}

// open brings the clusters up and peers them.
func open(ctx context.Context, config Config, fail context.CancelCauseFunc) (*world, error) {
	w := &world{Config: config, clock: clock.RealClock{}}
	if err := w.Bed.Up(ctx, w.flags(), "consumer"); err != nil {
		return w, err
	}
	if err := w.Bed.Up(ctx, append(w.flags(), "--simulated-nodes", strconv.Itoa(w.Nodes)), "provider"); err != nil {
		return w, err
	}
	var err error
	if w.consumer, w.provider, err = w.Bed.Clusters(ctx); err != nil {
		return w, err
	}
	if err := errors.Join(w.consumer.Namespace(ctx, Null), w.provider.Namespace(ctx, Null), w.provider.Namespace(ctx, Plain)); err != nil {
		return w, err
	}
	w.null, err = w.consumer.StartProgram(fail, "null", "-home", w.consumer.Kubeconfig, "-remote", w.provider.Kubeconfig)
	if err != nil {
		return w, err
	}
	if !w.Floors {
		if err := w.hanse(ctx, fail); err != nil {
			return w, err
		}
	}
	return w, w.measureProcesses()
}

// hanse installs Hanse on both sides, starts its servers and lets the consumer's namespace be offloaded.
func (w *world) hanse(ctx context.Context, fail context.CancelCauseFunc) error {
	if err := errors.Join(w.consumer.Install(ctx), w.provider.Install(ctx)); err != nil {
		return err
	}
	for _, start := range []func(context.Context, context.CancelCauseFunc) (*lab.Server, error){
		w.consumer.StartManager, w.consumer.StartKubelet, w.provider.StartManager,
	} {
		server, err := start(ctx, fail)
		if err != nil {
			return err
		}
		w.servers = append(w.servers, server)
	}
	if err := w.consumer.Peer(ctx, w.provider); err != nil {
		return err
	}
	return w.offload(ctx)
}

func (w *world) measureProcesses() error {
	groups := map[string][]lab.Process{w.null.Name: {w.null.Process}}
	for _, server := range w.servers {
		groups[server.Name] = []lab.Process{server.Process}
	}
	for cluster, components := range map[*lab.Cluster][]string{
		w.consumer: {"apiserver", "etcd", "scheduler", "controller-manager"},
		w.provider: {"apiserver", "etcd", "scheduler", "controller-manager", "kwok"},
	} {
		for _, component := range components {
			process, err := cluster.Process(component)
			if err != nil {
				return err
			}
			groups[process.Name] = []lab.Process{process}
		}
	}
	w.meter = lab.NewMeter(groups)
	return nil
}

// offload makes a namespace and waits until its pods can be offloaded.
func (w *world) offload(ctx context.Context) error {
	if err := w.consumer.Namespace(ctx, Offloaded); err != nil {
		return err
	}
	offloading := &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}}
	offloading.Namespace, offloading.Name = Offloaded, v1alpha1.NamespaceOffloadingName
	if err := w.consumer.Create(ctx, offloading); err != nil {
		return fmt.Errorf("create NamespaceOffloading: %w", err)
	}
	return lab.Until(ctx, "pods can be offloaded", 200*time.Millisecond, patience, func(ctx context.Context) error {
		if err := w.consumer.Get(ctx, client.ObjectKeyFromObject(offloading), offloading); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(offloading.Status.Conditions, v1alpha1.ConditionReady) || len(offloading.Status.Clusters) != 1 {
			return fmt.Errorf("the NamespaceOffloading is not Ready: %v", offloading.Status)
		}
		w.twin = offloading.Status.Clusters[0].Twin
		return w.roomAndPolicy(ctx)
	})
}

// roomAndPolicy checks that the virtual node has room for the largest burst, and that admission sends pods there.
func (w *world) roomAndPolicy(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := w.consumer.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}); err != nil {
		return err
	}
	if len(nodes.Items) != 1 || !lab.Ready(&nodes.Items[0]) {
		return fmt.Errorf("%d virtual nodes, want one that is Ready", len(nodes.Items))
	}
	needed := 1
	for _, size := range w.Sizes {
		needed = max(needed, size)
	}
	if room := nodes.Items[0].Status.Allocatable.Pods().Value(); room < int64(needed) {
		return fmt.Errorf("the virtual node has room for %d pods, %d are needed", room, needed)
	}
	probe := Pod(Offloaded, "probe")
	if err := w.consumer.Create(ctx, probe, client.DryRunAll); err != nil {
		return err
	}
	if probe.Spec.Affinity == nil {
		return errors.New("the admission policy leaves pods as they are")
	}
	return nil
}

// close ends the servers and the clusters.
func (w *world) close(ctx context.Context) error {
	for _, server := range append(w.servers, w.null) {
		if server != nil {
			server.Stop()
		}
	}
	return w.Bed.Down(context.WithoutCancel(ctx))
}

// Pod is what bursts are made of: one small container.
func Pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "burst"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/library/application:v1", Command: []string{"/application", "--serve"},
				Env: []corev1.EnvVar{{Name: "MODE", Value: "burst"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
				}},
			}},
		},
	}
}
