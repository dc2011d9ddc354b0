package peering

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// agentlessPeriod is how often an agentless peer is asked at most: it takes a request for each right.
const agentlessPeriod = time.Minute

// agentlessLimits is what an administrator must know of an agentless peer that works.
const agentlessLimits = "Pods of this cluster may run at the peer. It runs no Hanse: there is no network between its pods and " +
	"ours, and no Services, ConfigMaps, Secrets, volumes, service account tokens and debug containers of ours"

// neededRights are what we must be allowed to do in each namespace of an agentless peer.
var neededRights = []struct{ group, resource, verbs string }{
	{"apps", "replicasets", "create list watch patch delete"},
	{"", "pods", "list watch patch delete"},
	{"batch", "jobs", "create list watch patch delete"},
}

// errLacking means that an agentless peer does not give us a right that we need.
var errLacking = errors.New("a right is missing")

// clusterInfoOf asks the peer to introduce itself. One without Hanse cannot, and is asked for our rights instead.
func clusterInfoOf(ctx context.Context, peer *v1alpha1.Peer, link *peers.Link, config Config) (peers.ClusterInfo, error) {
	if peer.Protocol().Identity {
		return link.ClusterInfo(ctx)
	}
	info := peers.ClusterInfo{}
	for _, namespace := range peer.Spec.Namespaces {
		for _, right := range neededRights {
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
	left := false
	for _, namespace := range peer.Spec.Namespaces {
		for _, list := range []client.ObjectList{&appsv1.ReplicaSetList{}, &batchv1.JobList{}, &corev1.PodList{}} {
			found, err := end(ctx, link.Client(), list, client.InNamespace(namespace),
				client.MatchingLabels{v1alpha1.LabelAgentless: peer.Spec.ClusterID})
			if err != nil {
				return obstacle{thing: fmt.Sprintf("the peer to let us end what is left of ours there (%s)", cause(err)), theirs: true}
			}
			left = left || found
		}
	}
	if left {
		return obstacle{thing: "the peer to end what is left of ours there", theirs: true}
	}
	return obstacle{}
}
