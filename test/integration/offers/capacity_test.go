// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestAvailabilityFollowsLoad: the offer to each consumer is what pods leave free on the schedulable nodes of the provider. A sidecar
// counts like a container.
func TestAvailabilityFollowsLoad(t *testing.T) {
	begin(t)
	idle := awaitIdle(t, hamburg, lubeck, bremen)
	busy := podFor(hamburg.MustNamespace(t), "busy", 7000, nil)
	busy.Spec.InitContainers = []corev1.Container{{
		Name: "sidecar", Image: framework.TestImage, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Resources: framework.Requests("2", "16Mi"),
	}}
	hamburg.MustCreate(t, busy)
	awaitOffered(t, "a pod requests 9 cores", hamburg, idle-9000, lubeck, bremen)
	mustDelete(t, hamburg, busy)
	awaitOffered(t, "the pod is gone", hamburg, idle, lubeck, bremen)

	hamburg.Cordon(t, hamburg.NodeNames(t)...)
	awaitOffered(t, "all nodes are cordoned", hamburg, 0, lubeck, bremen)
	hamburg.Uncordon(t, hamburg.NodeNames(t)...)
	awaitOffered(t, "no node is cordoned", hamburg, idle, lubeck, bremen)
}

// TestLabelsOfLocalPodsMeanNothing: a tenant of the provider cannot label pods as those of a consumer. The label for clusters without
// Hanse is allowed, and does not make a pod one of a consumer: its requests are subtracted from the offer.
func TestLabelsOfLocalPodsMeanNothing(t *testing.T) {
	begin(t)
	idle := awaitIdle(t, hamburg, lubeck, bremen)
	ns := hamburg.MustNamespace(t)
	labelled := func(name string, labels map[string]string) *corev1.Pod {
		pod := podFor(ns, name, 400, nil)
		pod.Labels = labels
		return pod
	}
	err := hamburg.Create(t.Context(), labelled("refused", map[string]string{v1alpha1.LabelPeer: "lubeck"}))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "hanse-guard-labels") {
		t.Errorf("the policy allows the label of a peer: %v", err)
	}
	hamburg.MustCreate(t, labelled("agentless", map[string]string{v1alpha1.LabelAgentless: "some-home", v1alpha1.LabelHomeUID: "u"}))
	awaitOffered(t, "the pod is not one of lubeck", hamburg, idle-400, lubeck, bremen)

	// A pod that is one of lubeck stays a part of the offer to lubeck.
	own := podFor(lubeck.MustOffloadTo(t, hamburg), "own", 300, nil)
	lubeck.MustCreate(t, own)
	home := awaitReady(t, lubeck, own)
	framework.ExpectSamePod(t, home, hamburg.MustRemotePod(t, home))
	awaitOffered(t, "a pod of lubeck requests 300m", hamburg, idle-700, bremen)
	awaitOffered(t, "the pod is one of lubeck", hamburg, idle-400, lubeck)
}

// TestCapacityNotCountedTwice: pods fill a virtual node completely, and no further. The scheduler subtracts pods that are bound to the
// node, so the offer includes what these pods hold at the provider.
func TestCapacityNotCountedTwice(t *testing.T) {
	begin(t)
	idle := useOneNode(t, hamburg, lubeck, bremen)
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote})
	const parts = 4
	share := idle / parts
	for i := range parts {
		pod := podFor(ns, "part-"+strconv.Itoa(i), share, hamburg)
		lubeck.MustCreate(t, pod)
		home := awaitReady(t, lubeck, pod)
		framework.ExpectSamePod(t, home, hamburg.MustRemotePod(t, home))
	}
	awaitOffered(t, "pods of lubeck hold all", hamburg, idle-parts*share, bremen)
	awaitOffered(t, "all pods are those of lubeck", hamburg, idle, lubeck)
	excess := podFor(ns, "excess", share, hamburg)
	lubeck.MustCreate(t, excess)
	awaitUnschedulable(t, lubeck, excess)
}

// TestNoLoop: the provider does not send a consumer's pod on, although its own nodes are full and its virtual nodes are not.
func TestNoLoop(t *testing.T) {
	begin(t)
	ns := lubeck.MustOffloadTo(t, hamburg)
	for _, provider := range []*framework.Cluster{lubeck, bremen} {
		hamburg.AwaitOpen(t, provider)
	}
	hamburg.Cordon(t, hamburg.NodeNames(t)...)
	// Bound by name, because the scheduler of lubeck would not choose a full cluster.
	pod := framework.Pod(ns, "homing")
	pod.Spec.NodeName = v1alpha1.VirtualNodeName("hamburg")
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	lubeck.MustCreate(t, pod)
	framework.Eventually(t, "the scheduler of hamburg finds no node", func(ctx context.Context) error {
		remote, err := hamburg.RemotePod(ctx, pod)
		if err != nil {
			return err
		}
		return isUnschedulable(remote)
	})
	hamburg.Uncordon(t, hamburg.NodeNames(t)...)
	home := awaitReady(t, lubeck, pod)
	framework.ExpectSamePod(t, home, hamburg.MustRemotePod(t, home))
}

// install installs Hanse with the values of the package, after the test.
func install(t *testing.T, c *framework.Cluster) {
	t.Helper()
	if err := c.Install(context.Background()); err != nil {
		t.Error(err)
	}
}

// contains returns the error, or one if the output does not contain the text.
func contains(out, text string, err error) error {
	if err == nil && !strings.Contains(out, text) {
		err = fmt.Errorf("the output lacks %q:\n%s", text, out)
	}
	return err
}
