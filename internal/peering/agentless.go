// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// agentlessPeriod is how often an agentless peer is asked at most: it takes a request for each right.
const agentlessPeriod = time.Minute

// agentlessLimits is what an administrator must know of an agentless peer that works.
func agentlessLimits(peer *v1alpha1.Peer) string {
	missing := "Services, ConfigMaps, Secrets, volumes"
	if peer.Protocol().Copies {
		missing = "Services, volumes"
	}
	return "Pods of this cluster may run at the peer. It runs no Hanse: there is no network between its pods and ours, and no " +
		missing + ", service account tokens and debug containers of ours"
}

// A right is to do with one kind of objects what the verbs say.
type right struct{ group, resource, verbs string }

// neededRights are what we must be allowed to do in each namespace of an agentless peer, and neededForCopies what else where
// ConfigMaps and Secrets are copied there.
var (
	neededRights = []right{
		{"apps", "replicasets", "create list watch patch delete"},
		{"", "pods", "list watch patch delete"},
		{"batch", "jobs", "create list watch patch delete"},
	}
	neededForCopies = []right{
		{"", "configmaps", "create get list watch update delete"},
		{"", "secrets", "create get list watch update delete"},
	}
)

// errLacking means that an agentless peer does not give us a right that we need.
var errLacking = errors.New("a right is missing")

// clusterInfoOf asks the peer to introduce itself. One without Hanse cannot, and is asked for our rights instead.
func clusterInfoOf(ctx context.Context, peer *v1alpha1.Peer, link *peers.Link, config Config) (peers.ClusterInfo, error) {
	if peer.Protocol().Identity {
		return link.ClusterInfo(ctx)
	}
	info, rights := peers.ClusterInfo{}, neededRights
	if peer.Protocol().Copies {
		rights = slices.Concat(rights, neededForCopies)
	}
	for _, namespace := range peer.Spec.Namespaces {
		for _, right := range rights {
			for verb := range strings.FieldsSeq(right.verbs) {
				start := config.Clock.Now()
				if err := checkRight(ctx, link, authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: right.group, Resource: right.resource,
				}); err != nil {
					return info, err
				}
				info.RoundTrip = config.Clock.Since(start)
			}
		}
	}
	return info, nil
}

func checkRight(ctx context.Context, link *peers.Link, right authorizationv1.ResourceAttributes) error {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
	}
	if err := link.Client().Create(ctx, review); err != nil {
		return fmt.Errorf("ask for our rights in namespace %s: %w", right.Namespace, peers.Classify(err))
	}
	if !review.Status.Allowed {
		return fmt.Errorf("%w: to %s %s in namespace %s", errLacking, right.Verb, right.Resource, right.Namespace)
	}
	return nil
}

// clearAgentless deletes what is left of ours at an agentless peer when its virtual node is gone, and says what to wait
// for. What our pods were, `hanse kubelet` has ended by then; this is for what it did not know of.
func clearAgentless(ctx context.Context, peer *v1alpha1.Peer, link *peers.Link, node obstacle) obstacle {
	if node.stands() || peer.Spec.ClusterID == "" {
		return node
	}
	left, err := endAgentless(ctx, peer, link, &appsv1.ReplicaSetList{}, &batchv1.JobList{}, &corev1.PodList{})
	if err == nil && !left { // pods may need the copies until they have ended
		left, err = endCopies(ctx, peer, link)
	}
	switch {
	case err != nil:
		return obstacle{thing: fmt.Sprintf("the peer to let us end what is left of ours there (%s)", cause(err)), theirs: true}
	case left:
		return obstacle{thing: "the peer to end what is left of ours there", theirs: true}
	default:
		return obstacle{}
	}
}

// endCopies deletes our copies of ConfigMaps and Secrets at an agentless peer, and says whether there were any. A peer that is to have
// none need not let us look.
func endCopies(ctx context.Context, peer *v1alpha1.Peer, link *peers.Link) (bool, error) {
	configMaps, secrets := &metav1.PartialObjectMetadataList{}, &metav1.PartialObjectMetadataList{}
	configMaps.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	left, err := endAgentless(ctx, peer, link, configMaps, secrets)
	if !peer.Protocol().Copies && apierrors.IsForbidden(err) {
		return left, nil
	}
	return left, err
}

// endAgentless deletes what is of ours at an agentless peer of the kinds of the lists, and says whether there was something.
func endAgentless(ctx context.Context, peer *v1alpha1.Peer, link *peers.Link, kinds ...client.ObjectList) (bool, error) {
	left := false
	for _, namespace := range peer.Spec.Namespaces {
		for _, list := range kinds {
			found, err := end(ctx, link.Client(), list, client.InNamespace(namespace),
				client.MatchingLabels{v1alpha1.LabelAgentless: peer.Spec.ClusterID})
			if err != nil {
				return left, err
			}
			left = left || found
		}
	}
	return left, nil
}
