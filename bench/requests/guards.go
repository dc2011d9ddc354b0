// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
)

// guards are those that look at what is made in a twin.
var guards = []lab.Guard{"hanse-guard-pods", "hanse-own-writes", "hanse-place-pods", "hanse-guard-objects", "hanse-guard-bytes", "hanse-hold-shadow-pods"}

// Who writes in a twin, to the API server.
const (
	manager = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":hanse-manager"
	peer    = "system:serviceaccount:hanse-peer-home:hanse-peer"
)

// makeTwin makes a namespace that is guarded as a twin is.
func (w *world) makeTwin(ctx context.Context) error {
	ns := &corev1.Namespace{}
	ns.Name = twin
	ns.Labels = map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: "home", v1alpha1.LabelClusterID: "home", v1alpha1.LabelManaged: "true",
		"pod-security.kubernetes.io/enforce": "baseline", v1alpha1.LabelRoom: "1073741824",
	}
	quota := &corev1.ResourceQuota{} // which counts nothing, but without one no record is taken
	quota.Namespace, quota.Name = twin, "hanse"
	return errors.Join(w.Create(ctx, ns), w.Create(ctx, quota))
}

// as returns a client that the API server takes for another user, who may do everything.
func (w *world) as(user string) (client.Client, error) {
	config := rest.CopyConfig(w.Cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return client.New(config, client.Options{Scheme: w.Scheme()})
}

// ablate measures what is made in a twin with all guards, and with one of them missing at a time.
func (w *world) ablate(ctx context.Context, into *Result) error {
	all := append([]lab.Guard{lab.NoGuard}, guards...)
	for _, i := range rand.Perm(len(all)) { //nolint:gosec // the order is no secret
		err := w.Without(ctx, all[i], func(ctx context.Context) error {
			for _, making := range []func(string) (way, error){w.makingPods, w.makingRecords} {
				way, err := making(missing(all[i]))
				if err != nil {
					return err
				}
				if err := w.measure(ctx, &way, into); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func missing(guard lab.Guard) string {
	if guard == lab.NoGuard {
		return "with all guards"
	}
	return "without " + string(guard)
}

// makingPods is as Hanse's manager makes pods.
func (w *world) makingPods(how string) (way, error) {
	c, err := w.as(manager)
	return way{"twin: Pod: create, " + how, func(context.Context) (func(context.Context, int) error, error) {
		w.made++
		round := w.made
		return func(ctx context.Context, n int) error {
			pod := lab.Pod(twin, fmt.Sprintf("t-%d-%d", round, n))
			pod.Spec.AutomountServiceAccountToken = ptr.To(false) // no guard lets one in
			pod.Spec.NodeSelector = map[string]string{"nowhere": "true"}
			pod.Spec.SchedulerName = "nobody"
			return c.Create(ctx, pod)
		}, nil
	}}, err
}

// makingRecords is as a peer makes records.
func (w *world) makingRecords(how string) (way, error) {
	c, err := w.as(peer)
	return way{"twin: ShadowPod: create, " + how, w.creating(c, read)}, err
}
