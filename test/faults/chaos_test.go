// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// chaos does to the clusters what the plan says.
type chaos struct {
	t        *testing.T
	clusters map[string]*cluster
	// since is from where the watches begin that are to expire, by cluster.
	since map[string]string
	// expired counts watches that were seen to expire (410) because an API server came back without what it remembered.
	expired atomic.Int64
	// wentOff counts points at which a process was seen to have ended.
	wentOff atomic.Int64
}

// prepare notes where the clusters are.
func (c *chaos) prepare(ctx context.Context) error {
	c.since = map[string]string{}
	for _, name := range everyone {
		pods := &corev1.PodList{}
		if err := c.clusters[name].List(ctx, pods); err != nil {
			return err
		}
		c.since[name] = pods.ResourceVersion
	}
	return nil
}

// run does each step at its time, and undoes it at the end of that.
func (c *chaos) run(ctx context.Context, steps []step) {
	start := time.Now()
	var work sync.WaitGroup
	for _, s := range steps {
		work.Go(func() {
			if wait(ctx, time.Until(start.Add(s.at))) != nil {
				return
			}
			// What fails here most often does because of another fault: all is put right at the end.
			if err := c.do(ctx, s, start.Add(s.at+s.hold)); err != nil {
				c.t.Logf("%s: %v", s, err)
			}
		})
	}
	work.Wait()
}

func (c *chaos) do(ctx context.Context, s step, end time.Time) error {
	hold := func() error { return wait(ctx, time.Until(end)) }
	where := c.clusters[s.where]
	switch s.kind {
	case killHanse:
		return where.killHanse(ctx, s.what)
	case armPoint:
		return c.failAt(ctx, s, hold)
	case killComponent:
		return c.killComponent(ctx, s, hold)
	case cutLink, cutOneWay:
		return errors.Join(cut(ctx, s), hold(), heal(ctx, s))
	case flapLink:
		return flap(ctx, s, end)
	case deleteTwin:
		return where.deleteTwin(ctx, s.what)
	default:
		return where.deleteRemote(ctx, s.what)
	}
}

// failAt has a process of Hanse end at a point, as often as it comes there, until the hold is over.
func (c *chaos) failAt(ctx context.Context, s step, hold func() error) error {
	where := c.clusters[s.where]
	subcommand, _, _ := strings.Cut(s.what, "/")
	arm := func(ctx context.Context) error { return where.setFlag(ctx, subcommand, flagFailAt, s.what) }
	disarm := func(ctx context.Context) error { return where.setFlag(ctx, subcommand, flagFailAt, "") }
	err := errors.Join(again(ctx, arm), hold())
	pods, listErr := where.hansePods(ctx, subcommand)
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			if ended := status.LastTerminationState.Terminated; listErr == nil && ended != nil && armed(&pod) && ended.ExitCode == 137 {
				c.wentOff.Add(1)
			}
		}
	}
	return errors.Join(err, again(ctx, disarm))
}

func armed(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers[0].Args, func(arg string) bool { return strings.HasPrefix(arg, flagFailAt) })
}

// killComponent kills an API server or etcd, and starts it when the hold is over. If it was the
// API server, watches expire then, since its memory of what happened is gone.
func (c *chaos) killComponent(ctx context.Context, s step, hold func() error) error {
	where := c.clusters[s.where]
	_, err := harness.Testbed(ctx, "kill", s.where, s.what)
	err = errors.Join(err, hold(), again(ctx, func(ctx context.Context) error {
		_, err := harness.Testbed(ctx, "start", s.where, s.what)
		return err
	}))
	if err != nil || s.what != "apiserver" {
		return err
	}
	watch := fmt.Sprintf("/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=%s", c.since[s.where])
	return again(ctx, func(ctx context.Context) error {
		out, err := where.Kubectl(ctx, "get", "--raw", watch)
		if err == nil && strings.Contains(out, `"code":410`) {
			c.expired.Add(1)
		}
		return err
	})
}

// supervise starts the schedulers that have ended, as a kubelet does elsewhere. kube-scheduler 1.37 gives up ("Scheduler cache is
// corrupted") when it finds, after its watch was interrupted, that a pod was deleted and another one of the name made.
func supervise(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for wait(t.Context(), 5*time.Second) == nil {
			for _, name := range everyone {
				_, _ = harness.Testbed(t.Context(), "start", name, "scheduler") // which leaves one that runs as it is
			}
		}
	}()
}

func cut(ctx context.Context, s step) error {
	args := []string{"cut", s.where, s.what}
	if s.kind == cutOneWay {
		args = append(args, "--one-way")
	}
	_, err := harness.Testbed(ctx, args...)
	return err
}

func heal(ctx context.Context, s step) error {
	_, err := harness.Testbed(ctx, "heal", s.where, s.what)
	return err
}

// flap cuts and heals a link once a second.
func flap(ctx context.Context, s step, end time.Time) error {
	for time.Now().Before(end) {
		err := errors.Join(cut(ctx, s), wait(ctx, 500*time.Millisecond), heal(ctx, s), wait(ctx, 500*time.Millisecond))
		if err != nil {
			return err
		}
	}
	return heal(ctx, s)
}

// killHanse kills a process of Hanse at once, as a crash would. It is found by the UID of its pod, which is in the names
// of its control groups.
func (c *cluster) killHanse(ctx context.Context, subcommand string) error {
	pods, err := c.hansePods(ctx, subcommand)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		pid, err := processOf(pod.UID)
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) hansePods(ctx context.Context, subcommand string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := c.List(ctx, list, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": subcommand})
	return list.Items, err
}

// processOf returns the id of the process of Hanse in the pod.
func processOf(pod types.UID) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(groups), string(pod)) {
			continue // a process that has just ended, or another pod's
		}
		dir := filepath.Dir(file)
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && strings.HasPrefix(string(command), "/hanse\x00") {
			return strconv.Atoi(filepath.Base(dir))
		}
	}
	return 0, fmt.Errorf("no process of Hanse in pod %s", pod)
}

// The hidden flags of Hanse's processes.
const (
	flagFailAt = "--fail-at="
	flagOffset = "--clock-offset="
)

// setFlag starts the processes of a subcommand again with the flag, or without it if the value is empty.
func (c *cluster) setFlag(ctx context.Context, subcommand, flag, value string) error {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "hanse-" + subcommand}
	if err := c.Get(ctx, key, deployment); err != nil {
		return err
	}
	container := &deployment.Spec.Template.Spec.Containers[0]
	args := slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool { return strings.HasPrefix(arg, flag) })
	if value != "" {
		args = append(args, flag+value)
	}
	if slices.Equal(args, container.Args) {
		return nil
	}
	container.Args = args
	return c.Update(ctx, deployment)
}

// deleteRemote deletes one of the pods that run here for others.
func (c *cluster) deleteRemote(ctx context.Context, which string) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.HasLabels{v1alpha1.LabelHomeUID}); err != nil {
		return err
	}
	return deleteOne(ctx, c, pods.Items, which)
}

// deleteTwin deletes one of the namespaces in which pods run here for others.
func (c *cluster) deleteTwin(ctx context.Context, which string) error {
	twins := &corev1.NamespaceList{}
	if err := c.List(ctx, twins, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin}); err != nil {
		return err
	}
	return deleteOne(ctx, c, twins.Items, which)
}

// deleteOne deletes that of the objects which the number falls on.
func deleteOne[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c *cluster, from []T, which string,
) error {
	number, err := strconv.Atoi(which)
	if err != nil || len(from) == 0 {
		return err
	}
	return client.IgnoreNotFound(c.Delete(ctx, P(&from[number%len(from)])))
}

// end puts everything right.
func (c *chaos) end(ctx context.Context) error {
	var problems []error
	for _, name := range providers {
		_, err := harness.Testbed(ctx, "heal", consumer, name)
		problems = append(problems, err)
	}
	_, err := harness.Testbed(ctx, append([]string{"up"}, everyone...)...)
	problems = append(problems, err)
	for _, name := range everyone {
		where := c.clusters[name]
		problems = append(problems, again(ctx, func(ctx context.Context) error {
			return errors.Join(where.calm(ctx, "manager"), where.calm(ctx, "kubelet"))
		}))
	}
	return errors.Join(problems...)
}

// calm disarms the processes of a subcommand. Those that Kubernetes lets wait, because they ended so often, begin anew.
func (c *cluster) calm(ctx context.Context, subcommand string) error {
	if err := c.setFlag(ctx, subcommand, flagFailAt, ""); err != nil {
		return err
	}
	pods, err := c.hansePods(ctx, subcommand)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Running == nil && pod.DeletionTimestamp.IsZero() {
				err = errors.Join(err, client.IgnoreNotFound(c.Delete(ctx, &pod)))
			}
		}
	}
	return err
}
