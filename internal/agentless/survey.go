package agentless

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// What is read of a peer at most.
const (
	pageSize   = 500
	maxObjects = 50_000
)

// A survey is what a peer lets us read about its capacity.
type survey struct {
	ledger *exchange.Ledger // of its nodes and all its pods; nil if we may not read them
	own    *exchange.Ledger // of our own pods in the namespace that pods run in
	quotas []corev1.ResourceQuota
	// hidden says that we may not read the namespace's quotas either.
	hidden bool
}

// surveyor reads capacity at a peer.
type surveyor struct {
	reader    client.Reader
	id        string
	peer      string
	namespace string // that pods run in
}

// look reads what it may. That it may not is no error.
func (s surveyor) look(ctx context.Context) (survey, error) {
	seen := survey{own: exchange.NewLedger()}
	whole := exchange.NewLedger()
	err := s.readNodes(ctx, whole)
	if err == nil {
		err = s.readPods(ctx, func(pod *corev1.Pod) { whole.SetPod(s.marked(pod)) })
	}
	switch {
	case err == nil:
		seen.ledger = whole
	case !apierrors.IsForbidden(err):
		return seen, fmt.Errorf("read nodes and pods of the peer: %w", err)
	}
	quotas := &corev1.ResourceQuotaList{}
	err = s.reader.List(ctx, quotas, client.InNamespace(s.namespace), client.Limit(pageSize))
	if seen.hidden = apierrors.IsForbidden(err); err != nil && !seen.hidden {
		return seen, fmt.Errorf("read quotas of namespace %s of the peer: %w", s.namespace, err)
	}
	if seen.quotas = quotas.Items; len(seen.quotas) == 0 {
		return seen, nil
	}
	// One node of its own stands for all, since a quota counts also what has no node yet.
	quotaNode := &corev1.Node{}
	quotaNode.Name = "quota"
	seen.own.SetNode(quotaNode)
	err = s.readPods(ctx, func(pod *corev1.Pod) {
		pod.Spec.NodeName = quotaNode.Name
		seen.own.SetPod(s.marked(pod))
	}, client.InNamespace(s.namespace), client.MatchingLabels{v1alpha1.LabelAgentless: s.id})
	if err != nil {
		return seen, fmt.Errorf("read our pods in namespace %s of the peer: %w", s.namespace, err)
	}
	return seen, nil
}

// marked says on the pod whether it is ours. What the peer itself says about that means nothing.
func (s surveyor) marked(pod *corev1.Pod) *corev1.Pod {
	delete(pod.Labels, v1alpha1.LabelPeer)
	if pod.Labels[v1alpha1.LabelAgentless] == s.id {
		pod.Labels[v1alpha1.LabelPeer] = s.peer
	}
	return pod
}

func (s surveyor) readNodes(ctx context.Context, into *exchange.Ledger) error {
	fresh := func() client.ObjectList { return &corev1.NodeList{} }
	return s.each(ctx, fresh, func(item runtime.Object) {
		if node, is := item.(*corev1.Node); is {
			_, _ = exchange.TrimNode(node) // of a node it says no error
			into.SetNode(node)
		}
	})
}

func (s surveyor) readPods(ctx context.Context, take func(*corev1.Pod), of ...client.ListOption) error {
	fresh := func() client.ObjectList { return &corev1.PodList{} }
	return s.each(ctx, fresh, func(item runtime.Object) {
		if pod, is := item.(*corev1.Pod); is {
			take(pod)
		}
	}, of...)
}

// each lists page by page, and has each object taken.
func (s surveyor) each(
	ctx context.Context, fresh func() client.ObjectList, take func(runtime.Object), of ...client.ListOption,
) error {
	seen, next := 0, ""
	for {
		list := fresh()
		options := append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, of...)
		if err := s.reader.List(ctx, list, options...); err != nil {
			return err
		}
		// An empty page counts too, so that a list of nothing but pages ends.
		if seen += max(meta.LenList(list), pageSize/10); seen > maxObjects {
			return fmt.Errorf("the peer lists more than %d objects", maxObjects)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			take(item)
			return nil
		})
		if err != nil {
			return err
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
