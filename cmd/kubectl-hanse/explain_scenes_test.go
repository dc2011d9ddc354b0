// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// scene is a pod in the offloaded namespace shop, with what there is around it.
type scene struct {
	pod        *corev1.Pod
	offloading *v1alpha1.NamespaceOffloading
	turin      *corev1.Node
	others     []client.Object
}

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func virtualNodeOf(peer, region string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VirtualNodeName(peer), Labels: map[string]string{
			v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeer: peer, v1alpha1.LabelClusterID: peer + "-id", "region": region,
		}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// newScene is a pod that runs in turin, and all is well.
func newScene() *scene {
	s := &scene{
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "u-1", CreationTimestamp: ago(time.Hour)},
			Spec:       corev1.PodSpec{NodeName: "hanse-turin", Containers: []corev1.Container{{Name: "web"}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Hour)},
					{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: "web", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				}},
			},
		},
		offloading: offloadingOf("shop"),
		turin:      virtualNodeOf("turin", "south"),
	}
	s.offloading.CreationTimestamp = ago(2 * time.Hour)
	s.offloading.Spec = v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyLocalAndRemote, ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{"region": "south"}},
		Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: []string{"milan"}}},
	}
	s.offloading.Status = v1alpha1.NamespaceOffloadingStatus{
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}},
		Clusters:   []v1alpha1.ClusterOffloading{{Peer: "turin", State: "Ready", Twin: "shop-lubeck-abcdef"}},
		Placement: &v1alpha1.NamespacePlacementStatus{PlacementStatus: v1alpha1.PlacementStatus{Nodes: []v1alpha1.NodePlacement{
			{Name: "hanse-turin", Weight: 80, WeightByPrice: 7}, {Name: "hanse-rome", Excluded: "its price is above maxPrice"},
		}}},
	}
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.TenantNamespace("turin"), Name: "turin-id", Labels: map[string]string{v1alpha1.LabelPeer: "turin"},
		},
		Spec: v1alpha1.AdvertisementSpec{
			ClusterID: "turin-id", TimeToLive: metav1.NewTime(now.Add(time.Hour)),
			Prices: &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse("0.04")}},
		},
		Status: v1alpha1.AdvertisementStatus{Acknowledgement: &v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted}},
	}
	turin := newPeer("turin", v1alpha1.RoleProvider)
	turin.Spec.ClusterID = "turin-id"
	s.others = []client.Object{ad, turin, virtualNodeOf("bergen", "north"), virtualNodeOf("milan", "south"), virtualNodeOf("rome", "south")}
	return s
}

func (s *scene) warn(reason, note string, at time.Duration) {
	s.others = append(s.others, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: reason}, EventTime: metav1.NewMicroTime(now.Add(-at)),
		Reason: reason, Note: note, Type: corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: s.pod.Name, UID: s.pod.UID},
	})
}

// warnOf is a warning about another object than the pod.
func (s *scene) warnOf(kind, name, reason, note string) {
	s.others = append(s.others, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: kind + name}, EventTime: metav1.NewMicroTime(now.Add(-time.Minute)),
		Reason: reason, Note: note, Type: corev1.EventTypeWarning, Regarding: corev1.ObjectReference{Kind: kind, Namespace: "shop", Name: name},
	})
}

func (s *scene) explain(t *testing.T) podExplained {
	t.Helper()
	objects := append(slices.Clone(s.others), s.pod)
	if s.turin != nil {
		objects = append(objects, s.turin)
	}
	if s.offloading != nil {
		objects = append(objects, s.offloading)
	}
	seen, err := observePod(soon(t), newWorld(t, objects...).client, v1alpha1.SystemNamespace, client.ObjectKeyFromObject(s.pod), now)
	if err != nil {
		t.Fatal(err)
	}
	return explainPod(seen)
}

// held has the pod's status say why it does not run.
func (s *scene) held(reason, message string) {
	s.pod.Status = corev1.PodStatus{
		Phase: corev1.PodPending, Reason: reason, Message: message, Conditions: s.pod.Status.Conditions[:1],
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}},
	}
}

func (s *scene) unbound() {
	s.pod.Spec.NodeName = ""
	s.pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.",
	}}}
}

// notPlaced has the pod say by a condition, too, why it waits there.
func (s *scene) notPlaced() {
	s.pod.Status.Conditions = append(s.pod.Status.Conditions, corev1.PodCondition{
		Type: v1alpha1.PodPlaced, Status: corev1.ConditionFalse, Reason: s.pod.Status.Reason, Message: s.pod.Status.Message,
	})
}

// waits is a pod that admission let go to virtual nodes, and that no node takes.
func (s *scene) waits() {
	s.unbound()
	s.pod.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
}

var scenes = map[string]func(*scene){
	"well": func(*scene) {},
	"no-cluster-fits": func(s *scene) {
		s.unbound()
		s.offloading.Spec.Strategy = v1alpha1.StrategyRemote
		s.offloading.Status.Placement.Strict = true
		meta.SetStatusCondition(&s.offloading.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoClusterFits, Message: "rome: its price is above maxPrice",
		})
		s.warn("FailedScheduling", "0/4 nodes are available", time.Minute)
	},
	"held": func(s *scene) {
		s.held(v1alpha1.ReasonOffloadingBackOff, "The pod is not offloaded: the peer has no namespace for it yet")
		s.offloading.Status.Clusters[0] = v1alpha1.ClusterOffloading{Peer: "turin", State: "Refused", Message: "TwinNameForbidden: kitchen matches no pattern"}
		s.warn(v1alpha1.ReasonOffloadingBackOff, "The pod is not offloaded: the peer has no namespace for it yet", time.Minute)
	},
	"no-room": func(s *scene) {
		s.held(v1alpha1.ReasonNoRoom, "The provider has no node with room for the pod: Insufficient cpu")
		s.notPlaced()
		s.pod.Annotations = map[string]string{v1alpha1.AnnotationPrefer: "Price", v1alpha1.AnnotationExclude: "rome, bergen"}
	},
	"refused-by-the-provider": func(s *scene) {
		s.held(v1alpha1.ReasonRefusedByProvider, "The provider refuses to run the pod: PodRefused: no quota")
		s.notPlaced()
	},
	"cut-off": func(s *scene) {
		s.turin.Status.Conditions[0].Status = corev1.ConditionUnknown
		s.pod.Status.Reason = v1alpha1.ReasonDisconnected
		s.pod.Status.Conditions[1].Status = corev1.ConditionFalse
		s.offloading.Spec.OnDisconnect = v1alpha1.DisconnectionReplace
	},
	"without-credentials": func(s *scene) {
		ready := &s.turin.Status.Conditions[0]
		ready.Status, ready.Reason = corev1.ConditionUnknown, v1alpha1.ReasonDisconnected
		ready.Message = "There are no credentials for the peer: see the conditions of the Peer"
		s.pod.Status.Conditions[1].Status = corev1.ConditionFalse
	},
	"runs-at-home": func(s *scene) {
		s.pod.Spec.NodeName, s.pod.Spec.HostNetwork = "worker-1", true
		s.pod.Annotations = map[string]string{v1alpha1.AnnotationRunsAtHome: "whatever a user may have written there"}
		s.offloading.Spec.Strategy = v1alpha1.StrategyRemote
		s.others = append(s.others, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}})
	},
	"older-than-the-offloading": func(s *scene) {
		s.pod.Spec.NodeName = "worker-1"
		s.offloading.CreationTimestamp = ago(time.Minute)
		s.offloading.Spec.Strategy = v1alpha1.StrategyRemote
	},
	"crashes": func(s *scene) {
		s.pod.Status.Conditions[1].Status = corev1.ConditionFalse
		s.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 40s restarting failed container",
		}}
		s.warn("BackOff", "Back-off restarting failed container web", time.Minute)
	},
	"left-behind": func(s *scene) { s.offloading = nil },
	"never-offloaded": func(s *scene) {
		s.held(v1alpha1.ReasonOffloadingBackOff, "The pod is not offloaded: its namespace is not")
		s.offloading = nil
	},
	"does-not-go": func(s *scene) {
		s.pod.Finalizers = []string{"example.com/backup"}
		deleted := ago(10 * time.Minute)
		s.pod.DeletionTimestamp = &deleted
		s.offloading.Spec.Strategy = v1alpha1.StrategyLocal
	},
	"terminates": func(s *scene) {
		s.pod.DeletionTimestamp, s.pod.Finalizers = ptr.To(ago(-30*time.Second)), nil
		s.pod.Finalizers = []string{"hanse.dev/pod"}
	},
	"suspended": func(s *scene) {
		s.pod.DeletionTimestamp, s.pod.Finalizers = ptr.To(ago(time.Minute)), []string{"hanse.dev/pod"}
		s.others[1].(*v1alpha1.Peer).Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionAuthenticated, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonForbidden,
		}}
	},
	"fails-its-probe": func(s *scene) {
		s.pod.Status.Conditions[1].Status = corev1.ConditionFalse
		s.warn("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", time.Minute)
	},
	"fails-its-probe-again": func(s *scene) {
		s.pod.Status.Conditions[1].LastTransitionTime = ago(10 * time.Minute)
		s.warn("Unhealthy", "Liveness probe failed: timeout", 5*time.Minute)
		s.warn("Failed", "Failed to pull image: of long ago", time.Hour)
	},
	"out-of-memory": func(s *scene) {
		s.pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: "OOMKilled", ExitCode: 137, FinishedAt: ago(time.Minute),
		}
	},
	"node-cordoned": func(s *scene) {
		s.unbound()
		s.offloading.Spec.Strategy = v1alpha1.StrategyRemote
		s.turin.Spec.Unschedulable = true
		s.pod.Status.Conditions[0].Message = "0/5 nodes are available: 1 Insufficient cpu, 4 node(s) were unschedulable."
	},
	"offer-refused": func(s *scene) {
		s.unbound()
		s.turin.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintWithdrawn, Effect: corev1.TaintEffectNoSchedule}}
		s.others[0].(*v1alpha1.Advertisement).Status.Acknowledgement = &v1alpha1.Acknowledgement{
			State: v1alpha1.AcknowledgementRefused, Reason: v1alpha1.ReasonRefusedByPolicy, Message: "too dear",
		}
	},
	"peer-cordons-us": func(s *scene) {
		s.unbound()
		s.others[0].(*v1alpha1.Advertisement).Spec.Phase = v1alpha1.OfferCordoned
	},
	"node-is-full": func(s *scene) {
		s.waits()
		s.turin.Spec.Taints = []corev1.Taint{{Key: "hanse.dev/full", Value: "turin", Effect: corev1.TaintEffectNoSchedule}}
	},
	"made-too-early": func(s *scene) { s.unbound() },
	"no-room-anywhere": func(s *scene) {
		s.waits()
		s.pod.Status.Conditions[0].Message = "0/5 nodes are available: 5 Insufficient cpu."
	},
	"in-default": func(s *scene) {
		s.unbound()
		s.pod.Namespace, s.offloading = "default", nil
		s.pod.Status.Conditions[0].Message = "0/1 nodes are available: 1 Insufficient memory."
	},
	"no-room-at-home": func(s *scene) {
		s.unbound()
		s.offloading = nil
		s.pod.Status.Conditions[0].Message = "0/1 nodes are available: 1 Insufficient memory."
	},
	"without-its-token": func(s *scene) {
		s.pod.Spec.ServiceAccountName = "robot"
		s.pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
		}}}}
	},
	"without-its-service": func(s *scene) {
		s.pod.Labels = map[string]string{"app": "web"}
		s.others = append(s.others, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
		})
	},
	"waits-for-its-token": func(s *scene) {
		s.pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: append(s.pod.Status.Conditions[:1], corev1.PodCondition{
			Type: v1alpha1.PodToken, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonTokenRefused, Message: "The pod waits for its tokens",
		})}
	},
	"service-refused": func(s *scene) {
		s.pod.Labels = map[string]string{"app": "web"}
		s.others = append(s.others, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
		})
		for _, o := range s.others {
			if peer, is := o.(*v1alpha1.Peer); is {
				peer.Status.Conditions = append(peer.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionTrue})
			}
		}
		s.warnOf("Service", "web", v1alpha1.ReasonReflectionRefused, "Pods at peer \"turin\" do not find the endpoints of EndpointSlice \"web-1\"")
		s.warnOf("Service", "other", v1alpha1.ReasonReflectionRefused, "It is none of this pod's")
	},
	"claim-not-made": func(s *scene) {
		s.pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: s.pod.Status.Conditions[:1]}
		s.pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
		s.warnOf("PersistentVolumeClaim", "data", "ProvisioningFailed", "no room on (node)")
	},
	"succeeded": func(s *scene) {
		s.pod.Status.Phase = corev1.PodSucceeded
		s.pod.Status.Conditions[1].Status = corev1.ConditionFalse
		s.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	},
	"starts": func(s *scene) {
		s.pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Second)},
		}}
	},
	"does-not-start": func(s *scene) {
		s.pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: s.pod.Status.Conditions[:1]}
	},
}
