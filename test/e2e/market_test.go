package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// More clusters, of the market phase: lubeck consumes from hamburg and bremen, and wismar joins them in the pool. bremen is in the
// network phase too.
var bremen, wismar *cluster

// marketSettings are those of the market phase: stories cannot wait for ten minutes. bremen and wismar discover each other,
// and are peers in a few stories only.
func marketSettings(c *cluster) []string {
	values := []string{
		"advertising.helloInterval=3s", "advertising.helloTimeout=10s", "advertising.fullInterval=12s", "bandwidthInterval=1m",
		"accountingPeriod=3s",
	}
	if c == hamburg || c == bremen {
		values = append(values, "broker.enabled=true")
	}
	if c == bremen || c == wismar {
		values = append(values, "discovery.enabled=true", "discovery.multicast=true", "discovery.period=5s", "manager.apiServers[0]="+c.Config.Host)
	}
	return values
}

// market marks a story about offers, prices and policies. It begins when lubeck may use both providers, on the terms that
// hold without any policy.
func market(t *testing.T) context.Context {
	t.Helper()
	belongs(t, "market", nil)
	for _, provider := range []*cluster{hamburg, bremen} {
		lubeck.awaitOpen(t, provider)
	}
	return t.Context()
}

func setUpMarket(ctx context.Context) error {
	if err := installAll(ctx, lubeck, hamburg, bremen, wismar); err != nil {
		return err
	}
	for _, pair := range [][2]*cluster{{lubeck, hamburg}, {lubeck, bremen}, {hamburg, bremen}} {
		if err := peerBothWays(ctx, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// offerFor is what the cluster advertises to the consumer, with the consumer's answer.
func (c *cluster) offerFor(ctx context.Context, consumer *cluster) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	return ad, c.Get(ctx, types.NamespacedName{Namespace: v1alpha1.TenantNamespace(consumer.Name), Name: c.Name}, ad)
}

// copyFrom is what the cluster has taken in of the provider.
func (c *cluster) copyFrom(ctx context.Context, provider *cluster) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	return ad, c.Get(ctx, types.NamespacedName{Namespace: v1alpha1.TenantNamespace(provider.Name), Name: provider.Name}, ad)
}

// virtual is the node that stands for the provider.
func (c *cluster) virtual(ctx context.Context, provider *cluster) (*corev1.Node, error) {
	return c.node(ctx, v1alpha1.VirtualNodeName(provider.Name))
}

func isOpen(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1alpha1.TaintWithdrawn || taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	return nodeReady(node)
}

func (c *cluster) awaitOpen(t *testing.T, provider *cluster) *corev1.Node {
	t.Helper()
	return c.awaitVirtual(t, provider, "takes pods", isOpen)
}

func (c *cluster) awaitClosed(t *testing.T, provider *cluster) *corev1.Node {
	t.Helper()
	return c.awaitVirtual(t, provider, "takes no pods", func(node *corev1.Node) bool { return !isOpen(node) })
}

// awaitVirtual waits until the virtual node of the provider is as it should be.
func (c *cluster) awaitVirtual(t *testing.T, provider *cluster, what string, is func(*corev1.Node) bool) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	eventually(t, fmt.Sprintf("the node of %s at %s %s", provider.Name, c.Name, what), func(ctx context.Context) error {
		var err error
		if node, err = c.virtual(ctx, provider); err != nil {
			return err
		}
		if !is(node) {
			return fmt.Errorf("taints %v, allocatable %v", node.Spec.Taints, node.Status.Allocatable)
		}
		return nil
	})
	return node
}

// awaitAnswer waits until the provider reads this answer of the consumer on its own object, and returns it.
func (c *cluster) awaitAnswer(
	t *testing.T, consumer *cluster, state v1alpha1.AcknowledgementState, reason string,
) *v1alpha1.Acknowledgement {
	t.Helper()
	var ack *v1alpha1.Acknowledgement
	eventually(t, fmt.Sprintf("%s reads that %s says %s (%s)", c.Name, consumer.Name, state, reason), func(ctx context.Context) error {
		ad, err := c.offerFor(ctx, consumer)
		if err != nil {
			return err
		}
		ack = ad.Status.Acknowledgement
		if ack == nil || ack.Sequence < ad.Spec.FullSequence || ack.State != state || ack.Reason != reason {
			return fmt.Errorf("the acknowledgement of message %d is %+v", ad.Spec.FullSequence, ack)
		}
		return nil
	})
	return ack
}

// configMap puts a ConfigMap into Hanse's own namespace, as its administrator does, and takes it away at the story's end.
func (c *cluster) configMap(t *testing.T, name string, labels, data map[string]string) *corev1.ConfigMap {
	t.Helper()
	made := &corev1.ConfigMap{Data: data}
	made.Namespace, made.Name, made.Labels = v1alpha1.SystemNamespace, name, labels
	current := &corev1.ConfigMap{}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(made), current)
	switch {
	case apierrors.IsNotFound(err):
		c.create(t, made)
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), made); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete ConfigMap %s: %v", name, err)
			}
		})
		return made
	case err != nil:
		t.Fatal(err)
	}
	current.Labels, current.Data = labels, data
	if err := c.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	return current
}

// prices sets what a core costs for an hour, in euros. At the story's end it is nothing again, and lubeck is told so: the
// next story must not find terms that still change.
func (c *cluster) prices(t *testing.T, core string) {
	t.Helper()
	list := c.configMap(t, "hanse-prices", nil, map[string]string{"currency": "EUR", "cpu": core})
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), list); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		eventuallyAfter(t, c.Name+" offers lubeck what it has for nothing again", func(ctx context.Context) error {
			ad, err := c.offerFor(ctx, lubeck)
			if err == nil && ad.Spec.Prices != nil {
				err = fmt.Errorf("its prices are %+v", ad.Spec.Prices)
			}
			return err
		})
	})
}

// policy puts a module in force that answers the question.
func (c *cluster) policy(t *testing.T, question, source string) *corev1.ConfigMap {
	t.Helper()
	return c.configMap(t, "story-"+question, map[string]string{v1alpha1.LabelPolicy: question}, map[string]string{"story.rego": source})
}

// fromLibrary is a module of policies/library, edited as its comment tells.
func fromLibrary(t *testing.T, name string, edits ...string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, "policies", "library", name+".rego"))
	if err != nil {
		t.Fatal(err)
	}
	edited := string(source)
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(edited, edits[i]) {
			t.Fatalf("module %s does not say %q any more", name, edits[i])
		}
		edited = strings.ReplaceAll(edited, edits[i], edits[i+1])
	}
	return edited
}

// placed makes a namespace whose pods are offloaded with this wish, and waits until the admission policy knows the answer.
func (c *cluster) placed(
	t *testing.T, strategy v1alpha1.OffloadingStrategy, wish *v1alpha1.Placement, ready func(*v1alpha1.PlacementStatus) error,
	classes ...v1alpha1.PlacementClass,
) string {
	t.Helper()
	ns := c.namespace(t)
	offloading := &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{
		Strategy: strategy, Placement: &v1alpha1.NamespacePlacement{Placement: *wish, Classes: classes},
	}}
	offloading.Name, offloading.Namespace = v1alpha1.NamespaceOffloadingName, ns
	c.create(t, offloading)
	c.awaitPlacement(t, ns, ready)
	c.awaitPolicy(t, ns, strategy)
	return ns
}

// awaitPlacement waits for a decision in the status of the namespace's offloading, and for twins at the peers.
func (c *cluster) awaitPlacement(t *testing.T, ns string, ready func(*v1alpha1.PlacementStatus) error) {
	t.Helper()
	eventually(t, "it is decided where the pods of "+ns+" go", func(ctx context.Context) error {
		offloading := &v1alpha1.NamespaceOffloading{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
			return err
		}
		if offloading.Status.Placement == nil {
			return errors.New("there is no decision")
		}
		if err := ready(&offloading.Status.Placement.PlacementStatus); err != nil {
			return fmt.Errorf("%w: %+v", err, offloading.Status.Placement)
		}
		return nil
	})
}

// landsOn creates one pod, and expects it on the node, where it must run.
func (c *cluster) landsOn(t *testing.T, ns, node string) *corev1.Pod {
	t.Helper()
	return c.landsOnAs(t, ns, node, nil, nil)
}

// landsOnAs is landsOn for a pod with these labels and annotations.
func (c *cluster) landsOnAs(t *testing.T, ns, node string, labels, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod := shellPod(ns, "", forever)
	pod.GenerateName, pod.Labels, pod.Annotations = "try-", labels, annotations
	c.awaitAdmission(t, pod, node)
	c.create(t, pod)
	bound, err := c.awaitBound(t.Context(), pod)
	if err != nil || bound.Spec.NodeName != node {
		t.Fatalf("the first pod of %s after the decision is on %q, want %s (%v)", ns, bound.Spec.NodeName, node, err)
	}
	c.awaitRunning(t, bound)
	return bound
}

// awaitAdmission waits until admission has new pods of this kind prefer the node to all others: a change of what was decided
// takes effect there a moment later. A dry run shows it.
func (c *cluster) awaitAdmission(t *testing.T, pod *corev1.Pod, node string) {
	t.Helper()
	eventually(t, "admission sends pods of "+pod.Namespace+" to "+node, func(ctx context.Context) error {
		probe := pod.DeepCopy()
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		best, err := c.preferredNodes(ctx, probe)
		if err == nil && !slices.Equal(best, []string{node}) {
			err = fmt.Errorf("it prefers %v by affinity %+v", best, probe.Spec.Affinity)
		}
		return err
	})
}

// preferredNodes are the nodes on which the affinity and the tolerations of the pod let it run and that it prefers to all
// others. What admission knows of the largest pod may be older than a node's offer, and then the pod does not tolerate the node.
func (c *cluster) preferredNodes(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil, errors.New("the pod has no affinity to nodes")
	}
	preferred, err := nodeaffinity.NewPreferredSchedulingTerms(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil {
		return nil, err
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, err
	}
	var best []string
	most := int64(math.MinInt64)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if suits, err := required.Match(node); err != nil || !suits || !toleratesNode(pod, node) {
			continue
		}
		switch score := preferred.Score(node); {
		case score > most:
			best, most = []string{node.Name}, score
		case score == most:
			best = append(best, node.Name)
		}
	}
	return best, nil
}

// toleratesNode reports whether no taint of the node keeps the pod off it. Those that only make it less preferred do not.
func toleratesNode(pod *corev1.Pod, node *corev1.Node) bool {
	keepsOff := func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }
	_, untolerated := schedulinghelpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, keepsOff, false)
	return !untolerated
}

// awaitBound waits for a while until the scheduler has found a node for the pod.
func (c *cluster) awaitBound(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	bound := pod
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		bound, err = c.pod(ctx, pod.Namespace, pod.Name)
		return bound.Spec.NodeName != "", err
	})
	return bound, err
}

func (c *cluster) awaitRunning(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+pod.Name+" runs", func(ctx context.Context) error {
		now, err := c.pod(ctx, pod.Namespace, pod.Name)
		if err != nil {
			return err
		}
		if !podReady(now) {
			return errors.New(summary([]corev1.Pod{*now}))
		}
		return nil
	})
}
