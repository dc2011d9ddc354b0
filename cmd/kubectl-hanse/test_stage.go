// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/netprobe"
)

const (
	// The label by which what a killed test has left is found.
	stageLabel, stageName = "app.kubernetes.io/name", "network-test"
	spotLabel             = "app.kubernetes.io/instance"
	spotHome, spotNear    = "home", "near"
	spotHost              = "host"
	settling              = 90 * time.Second
	clearing              = time.Minute
	maxNodes              = 16 // from which --full tests
	ourHome               = "home"
)

var netprobeAsk = []string{"/hanse", "netprobe", "ask"}

// A stagePlan says which pods there are besides one at home and one at each peer.
type stagePlan struct {
	host      bool // one in the network of a node
	near      bool // another at home, on another node where there is one
	everyNode bool // one on each node
}

// A spot is one pod that asks and serves, and the Service in front of it.
type spot struct {
	place   string // "home", or the peer, for people
	peer    string // "" at home
	pod     *corev1.Pod
	service *corev1.Service
	trouble string // why it is of no use; "" if it is
}

// A stage is where the network is tried out: pods in namespaces of their own.
type stage struct {
	*connection
	cluster    install.Cluster
	system     string
	image      string
	peers      []string
	full       bool
	ca         string        // of the API server at home
	settling   time.Duration // how long one step may take before the test goes on without
	namespaces []string
	home       map[string]*spot // by spotHome, spotNear, spotHost or node
	away       map[string]*spot // peer → its pod
}

func newStage(ctx context.Context, c *connection, cluster install.Cluster, system, peer string) (*stage, error) {
	s := take(ctx, c.client, scope{system: system}, time.Time{}, partPeers, partDeployments)
	if err := s.err(partPeers, partDeployments); err != nil {
		return nil, err
	}
	peers, err := s.peersToTry(peer)
	if err != nil {
		return nil, err
	}
	made := &stage{
		connection: c, cluster: cluster, system: system, peers: peers, settling: settling, home: map[string]*spot{}, away: map[string]*spot{},
	}
	for _, d := range s.deployments.Items {
		if containers := d.Spec.Template.Spec.Containers; d.Name == "hanse-manager" && len(containers) > 0 {
			made.image = containers[0].Image
		}
	}
	if made.image == "" {
		return nil, fmt.Errorf("there is no Deployment hanse-manager in namespace %s, whose image the test needs: see `kubectl hanse check`", system)
	}
	return made, nil
}

// use sets the stage up, does the work, and removes everything, also when the user has interrupted.
func (s *stage) use(ctx context.Context, plan stagePlan, work func(context.Context, *stage) error) (err error) {
	defer func() {
		left, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearing)
		defer cancel()
		err = errors.Join(err, s.clear(left))
	}()
	if err := s.set(ctx, plan); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return work(ctx, s)
}

// set makes all pods. One that cannot be had at a peer is a trouble of its spot, and no reason to stop.
func (s *stage) set(ctx context.Context, plan stagePlan) error {
	s.full = plan.everyNode
	s.cluster.Report("Starting pods")
	namespace, err := s.makeNamespace(ctx, "network-test-home-")
	if err != nil {
		return err
	}
	if err := s.setHome(ctx, namespace, plan); err != nil {
		return err
	}
	for _, peer := range s.peers {
		if err := s.setAway(ctx, peer); err != nil {
			return err
		}
	}
	s.awaitPods(ctx)
	authority := &corev1.ConfigMap{}
	if _, err := read(ctx, s.client, namespace, "kube-root-ca.crt", authority); err != nil {
		return err
	}
	s.ca = authority.Data["ca.crt"]
	return nil
}

// makeNamespace makes one in which pods can be created: until its service account is there the API server refuses them.
func (s *stage) makeNamespace(ctx context.Context, prefix string) (string, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: map[string]string{
		stageLabel: stageName, "pod-security.kubernetes.io/enforce": "privileged", // a pod in the network of a node is
	}}}
	if err := s.client.Create(ctx, ns); err != nil {
		return "", fmt.Errorf("create a namespace for the test: %w", err)
	}
	s.namespaces = append(s.namespaces, ns.Name)
	wait, cancel := context.WithTimeout(ctx, s.settling)
	defer cancel()
	return ns.Name, install.Until(wait, "the service account of namespace "+ns.Name, func(ctx context.Context) (bool, error) {
		return read(ctx, s.client, ns.Name, "default", &corev1.ServiceAccount{})
	})
}

func (s *stage) setHome(ctx context.Context, namespace string, plan stagePlan) error {
	pods := map[string]func(*corev1.Pod){spotHome: func(*corev1.Pod) {}}
	if plan.near {
		pods[spotNear] = apartFromHome
	}
	if plan.host {
		pods[spotHost] = onNodeNetwork
	}
	if plan.everyNode {
		seen := take(ctx, s.client, scope{}, time.Time{}, partNodes)
		for _, node := range seen.nodesToTry() {
			pods[node] = func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
		}
	}
	for name, change := range pods {
		pod := s.newPod(namespace, name)
		change(pod)
		made, err := s.makeSpot(ctx, pod, "")
		if err != nil {
			return err
		}
		s.home[name] = made
	}
	return nil
}

// nodesToTry names the hosts of this cluster's own nodes that are Ready, the first few of many.
func (s *snapshot) nodesToTry() []string {
	hosts := namesOf(s.nodes.Items, func(n *corev1.Node) string {
		if n.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode || n.Spec.Unschedulable || !exchange.IsReady(n) {
			return ""
		}
		return n.Labels[corev1.LabelHostname]
	})
	return hosts[:min(len(hosts), maxNodes)]
}

// setAway makes a pod at a peer.
func (s *stage) setAway(ctx context.Context, peer string) error {
	namespace, err := s.makeNamespace(ctx, "network-test-away-")
	if err != nil {
		return err
	}
	offloading := offloadingOf(namespace)
	offloading.Spec = v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: v1alpha1.LabelValue(peer)}},
	}
	if err := s.client.Create(ctx, offloading); err != nil {
		return fmt.Errorf("offload namespace %s: %w", namespace, err)
	}
	wait, cancel := context.WithTimeout(ctx, s.settling)
	defer cancel()
	err = awaitOffloaded(wait, s.cluster, namespace)
	if err == nil {
		err = s.cluster.WaitPlaced(wait, namespace)
	}
	if err != nil {
		s.away[peer] = &spot{place: peer, peer: peer, trouble: err.Error()}
		return nil
	}
	s.away[peer], err = s.makeSpot(ctx, s.newPod(namespace, "remote"), peer)
	return err
}

func (s *stage) newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{stageLabel: stageName, spotLabel: name}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "netprobe", Image: s.image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"netprobe", "serve", "--name=" + name},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// apartFromHome has the pod run on another node than the first, where there is one.
func apartFromHome(pod *corev1.Pod) {
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{spotLabel: spotHome}},
		}}},
	}}
}

// onNodeNetwork has the pod use the network of its node, where it only asks: others may use the port there.
func onNodeNetwork(pod *corev1.Pod) {
	pod.Spec.HostNetwork, pod.Spec.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet
	pod.Spec.Containers[0].Args = append(pod.Spec.Containers[0].Args, "--address=127.0.0.1:0")
}

// makeSpot makes a pod, and a Service in front of it.
func (s *stage) makeSpot(ctx context.Context, pod *corev1.Pod, peer string) (*spot, error) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Labels: map[string]string{stageLabel: stageName}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{spotLabel: pod.Name}, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{{Name: "probe", Port: netprobe.Port, TargetPort: intstr.FromInt32(netprobe.Port)}},
		},
	}
	for _, object := range []client.Object{service, pod} {
		if err := s.client.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("create %s: %w", install.Describe(object), err)
		}
	}
	return &spot{place: cmp.Or(peer, ourHome), peer: peer, pod: pod, service: service}, nil
}

// spots are all pods of the stage that were made.
func (s *stage) spots() []*spot {
	var all []*spot
	for _, some := range []map[string]*spot{s.home, s.away} {
		for _, one := range some {
			if one.pod != nil {
				all = append(all, one)
			}
		}
	}
	return all
}

// awaitPods waits until all pods are ready, and notes of each that is not what keeps it.
func (s *stage) awaitPods(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, s.settling)
	defer cancel()
	_ = install.Until(wait, "pods of the test", func(ctx context.Context) (bool, error) { // each pod says what keeps it
		ready := true
		for _, one := range s.spots() {
			err := s.client.Get(ctx, client.ObjectKeyFromObject(one.pod), one.pod)
			one.trouble = notReady(one.pod, err)
			ready = ready && one.trouble == ""
		}
		return ready, nil
	})
}

// notReady says what keeps a pod, "" if nothing does.
func notReady(pod *corev1.Pod, err error) string {
	if err != nil {
		return err.Error()
	}
	of := func(kind corev1.PodConditionType) *corev1.PodCondition {
		return find(pod.Status.Conditions, func(c *corev1.PodCondition) bool { return c.Type == kind })
	}
	if ready := of(corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue {
		return ""
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			return strings.TrimSuffix(waiting.Reason+": "+waiting.Message, ": ")
		}
	}
	if scheduled := of(corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		return scheduled.Reason + ": " + scheduled.Message
	}
	return "the pod is " + orElse(string(pod.Status.Phase), "not started")
}

// ask runs the questions in the pod of the spot.
func (s *stage) ask(ctx context.Context, at *spot, questions []netprobe.Question) ([]netprobe.Answer, error) {
	input, err := json.Marshal(questions)
	if err != nil {
		return nil, err
	}
	said, err := s.exec(ctx, client.ObjectKeyFromObject(at.pod), netprobeAsk, input)
	if err != nil {
		return nil, fmt.Errorf("run a command in the pod: %w", err)
	}
	return netprobe.ReadAnswers(bytes.NewReader(said), len(questions))
}

// clear removes all that was made, and waits until it is gone.
func (s *stage) clear(ctx context.Context) error {
	if len(s.namespaces) == 0 {
		return nil
	}
	s.cluster.Report("Removing them again")
	var errs []error
	for _, name := range s.namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := s.client.Delete(ctx, ns); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete namespace %s: %w", name, err))
		}
	}
	errs = append(errs, install.Until(ctx, "the namespaces of the test to go: "+some(s.namespaces), func(ctx context.Context) (bool, error) {
		var err error
		s.namespaces = slices.DeleteFunc(s.namespaces, func(name string) bool {
			found, failed := read(ctx, s.client, "", name, &corev1.Namespace{})
			err = errors.Join(err, failed)
			return failed == nil && !found
		})
		return len(s.namespaces) == 0, err
	}))
	return errors.Join(errs...)
}

var probePort = strconv.Itoa(netprobe.Port)
