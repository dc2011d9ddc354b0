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
)

// chaos does to the clusters what the plan says.
type chaos struct {
	t        *testing.T
	clusters map[string]*cluster
	// expired counts watches that were seen to expire (410) because an API server came back without what it remembered.
	expired atomic.Int64
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
		subcommand, _, _ := strings.Cut(s.what, "/")
		arm := func(ctx context.Context) error { return where.arm(ctx, subcommand, s.what) }
		disarm := func(ctx context.Context) error { return where.arm(ctx, subcommand, "") }
		return errors.Join(again(ctx, arm), hold(), again(ctx, disarm))
	case killComponent:
		return c.killComponent(ctx, s, hold)
	case cutLink, cutOneWay:
		return errors.Join(cut(ctx, s), hold(), heal(ctx, s))
	case flapLink:
		return flap(ctx, s, end)
	default:
		return where.deleteRemote(ctx, s.what)
	}
}

// killComponent kills an API server or etcd, and starts it when the hold is over. A watch from before must expire then if
// it was the API server, whose memory of what happened is gone.
func (c *chaos) killComponent(ctx context.Context, s step, hold func() error) error {
	where := c.clusters[s.where]
	before := &corev1.PodList{}
	listErr := where.List(ctx, before)
	_, err := testbed(ctx, "kill", s.where, s.what)
	err = errors.Join(err, hold(), again(ctx, func(ctx context.Context) error {
		_, err := testbed(ctx, "start", s.where, s.what)
		return err
	}))
	if err != nil || listErr != nil || s.what != "apiserver" {
		return err
	}
	watch := fmt.Sprintf("/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=%s", before.ResourceVersion)
	return again(ctx, func(ctx context.Context) error {
		out, err := where.kubectl(ctx, "get", "--raw", watch)
		if err == nil && strings.Contains(out, `"code":410`) {
			c.expired.Add(1)
		}
		return err
	})
}

func cut(ctx context.Context, s step) error {
	args := []string{"cut", s.where, s.what}
	if s.kind == cutOneWay {
		args = append(args, "--one-way")
	}
	_, err := testbed(ctx, args...)
	return err
}

func heal(ctx context.Context, s step) error {
	_, err := testbed(ctx, "heal", s.where, s.what)
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

// arm has the processes of a subcommand start again, and end at the point; or no more, if that is empty.
func (c *cluster) arm(ctx context.Context, subcommand, point string) error {
	const flag = "--fail-at="
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "hanse-" + subcommand}
	if err := c.Get(ctx, key, deployment); err != nil {
		return err
	}
	container := &deployment.Spec.Template.Spec.Containers[0]
	args := slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool { return strings.HasPrefix(arg, flag) })
	if point != "" {
		args = append(args, flag+point)
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
	if err := c.List(ctx, pods, client.HasLabels{v1alpha1.LabelHomeUID, labelLong}); err != nil || len(pods.Items) == 0 {
		return err
	}
	number, err := strconv.Atoi(which)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(c.Delete(ctx, &pods.Items[number%len(pods.Items)]))
}

// end puts everything right.
func (c *chaos) end(ctx context.Context) error {
	var problems []error
	for _, name := range providers {
		_, err := testbed(ctx, "heal", consumer, name)
		problems = append(problems, err)
	}
	_, err := testbed(ctx, append([]string{"up"}, everyone...)...)
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
	if err := c.arm(ctx, subcommand, ""); err != nil {
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
