// SPDX-License-Identifier: Apache-2.0

// Command null is a null offloader: the least that can offload a pod, as a floor for what does it well. It copies pods
// that are bound to its node to another cluster and their status back, takes them away when home deletes them, and does
// nothing else: no checks, no names but one namespace, no restart, no second chance.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// offloader has a client of each side, the name of its node, label and namespace at home, and the namespace at the other side.
type offloader struct {
	home, remote kubernetes.Interface
	node, twin   string
	work         *errgroup.Group
}

func main() {
	home, remote := flag.String("home", "", "kubeconfig of the consumer"), flag.String("remote", "", "kubeconfig of the provider")
	o := &offloader{}
	flag.StringVar(&o.node, "node", "null", "name of the virtual node, its label and the namespace of the consumer")
	flag.StringVar(&o.twin, "twin", "null", "namespace of the provider")
	flag.Parse()
	if err := o.run(ctrl.SetupSignalHandler(), *home, *remote); err != nil {
		fmt.Fprintln(os.Stderr, "null:", err)
		os.Exit(1) //nolint:forbidigo // a program of its own
	}
}

func (o *offloader) run(ctx context.Context, home, remote string) error {
	for path, into := range map[string]*kubernetes.Interface{home: &o.home, remote: &o.remote} {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return err
		}
		config.QPS, config.UserAgent, config.ContentType = -1, "null-offloader", "application/vnd.kubernetes.protobuf"
		*into = kubernetes.NewForConfigOrDie(config)
	}
	if err := o.createNode(ctx); err != nil {
		return err
	}
	o.work, ctx = errgroup.WithContext(ctx)
	o.work.Go(func() error { return o.beat(ctx, clock.RealClock{}) })
	o.work.Go(func() error { return o.follow(ctx, o.home, o.node, "spec.nodeName="+o.node, o.out) })
	o.work.Go(func() error { return o.follow(ctx, o.remote, o.twin, "", o.back) })
	return o.work.Wait()
}

func (o *offloader) createNode(ctx context.Context) error {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("4Ti"), corev1.ResourcePods: resource.MustParse("10k"),
	}
	_, err := o.home.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.node, Labels: map[string]string{"type": o.node}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: o.node, Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
	}, metav1.CreateOptions{})
	return err
}

func (o *offloader) beat(ctx context.Context, clock clock.Clock) error {
	for ctx.Err() == nil {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Null","lastHeartbeatTime":%q}]}}`,
			clock.Now().UTC().Format(time.RFC3339))
		_, err := o.home.CoreV1().Nodes().Patch(ctx, o.node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
		select {
		case <-clock.After(10 * time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// follow handles each change of one side's pods, many at a time.
func (o *offloader) follow(ctx context.Context, side kubernetes.Interface, namespace, selector string, handle func(context.Context, *corev1.Pod, bool) error) error {
	do := func(object any, deleted bool) {
		if pod, ok := object.(*corev1.Pod); ok {
			o.work.Go(func() error {
				err := handle(ctx, pod, deleted)
				return utilerrors.FilterOut(err, apierrors.IsNotFound, apierrors.IsAlreadyExists)
			})
		}
	}
	pods := cache.NewFilteredListWatchFromClient(side.CoreV1().RESTClient(), "pods", namespace, func(options *metav1.ListOptions) {
		options.FieldSelector = selector
	})
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: pods, ObjectType: &corev1.Pod{}, Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { do(object, false) },
			UpdateFunc: func(_, object any) { do(object, false) },
			DeleteFunc: func(object any) { do(object, true) },
		},
	})
	informer.RunWithContext(ctx)
	return nil
}

// out handles an event of a home pod.
func (o *offloader) out(ctx context.Context, home *corev1.Pod, deleted bool) error {
	switch {
	case deleted:
		return nil
	case home.DeletionTimestamp != nil:
		return o.remote.CoreV1().Pods(o.twin).Delete(ctx, home.Name, metav1.DeleteOptions{})
	case home.Status.Phase != corev1.PodPending:
		return nil
	}
	remote := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: home.Name, Labels: home.Labels}, Spec: *home.Spec.DeepCopy()}
	remote.Spec.NodeName, remote.Spec.NodeSelector, remote.Spec.Tolerations = "", nil, nil
	_, err := o.remote.CoreV1().Pods(o.twin).Create(ctx, remote, metav1.CreateOptions{})
	return err
}

// back handles an event of a remote pod.
func (o *offloader) back(ctx context.Context, remote *corev1.Pod, deleted bool) error {
	if deleted {
		return o.home.CoreV1().Pods(o.node).Delete(ctx, remote.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	}
	if remote.Status.Phase == corev1.PodPending || remote.DeletionTimestamp != nil {
		return nil
	}
	status, err := json.Marshal(map[string]any{"status": remote.Status})
	if err == nil {
		_, err = o.home.CoreV1().Pods(o.node).Patch(ctx, remote.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
	}
	return err
}
