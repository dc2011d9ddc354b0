// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/offload"
)

// checkHope is an error if nothing would come of the offloading, as far as that is known before it is written. Where nodes or
// peers cannot be seen, it is not.
func checkHope(ctx context.Context, c client.Client, system string, wanted *v1alpha1.NamespaceOffloading) error {
	if v1alpha1.IsSystemNamespace(wanted.Namespace, system) {
		return errors.New(systemNamespace(wanted.Namespace))
	}
	s := take(ctx, c, scope{}, time.Time{}, partVirtualNodes, partPeers)
	if len(s.errs) > 0 {
		return nil
	}
	return hopeless(s, wanted)
}

// hopeless is why the pods of the namespace would have no node to go to, nil if they have one or will in a moment.
func hopeless(s *snapshot, wanted *v1alpha1.NamespaceOffloading) error {
	placement, err := offload.NewPlacement(wanted)
	switch {
	case err != nil:
		return err
	case placement.Strategy() == v1alpha1.StrategyLocal:
		return nil
	case slices.ContainsFunc(s.nodes.Items, func(n corev1.Node) bool { return placement.Selects(&n) }):
		return nil
	case slices.ContainsFunc(s.peers.Items, s.nodeIsComing):
		return nil
	}
	const anyway = ". Nothing was changed; to write it nevertheless: --dry-run=client -o yaml | kubectl apply -f -"
	if len(s.nodes.Items) == 0 {
		return errors.New("there is no virtual node that pods could go to: join a cluster (`kubectl hanse join`), or see with " +
			"`kubectl hanse status` why a peer has none" + anyway)
	}
	return fmt.Errorf("no virtual node has the labels that --cluster-selector asks for. There are %s, with these labels: "+
		"`kubectl get nodes -l %s=%s --show-labels`%s", some(s.virtualNodes()), v1alpha1.LabelType, v1alpha1.TypeVirtualNode, anyway)
}

// systemNamespace says why a namespace of the system is not offloaded.
func systemNamespace(name string) string {
	return fmt.Sprintf("namespace %s cannot be offloaded: it is one of Kubernetes or of Hanse, which providers refuse. Have the pods in "+
		"a namespace of their own (`kubectl create namespace NAME`), and offload that", name)
}

// nodeIsComing reports whether the peer will have a virtual node in a moment.
func (s *snapshot) nodeIsComing(peer v1alpha1.Peer) bool {
	return peer.HasRole(v1alpha1.RoleProvider) && s.node(v1alpha1.VirtualNodeName(peer.Name)) == nil &&
		meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionReady)
}

// final are the reasons with which an offloading stays as it is, however long one waits.
var final = []string{v1alpha1.ClusterRefused, v1alpha1.ReasonInvalidField, v1alpha1.ReasonRefusedByPolicy}

// awaitOffloaded waits until every selected peer has a namespace for this one and its new pods are placed, all as the spec is
// now.
func awaitOffloaded(ctx context.Context, cluster install.Cluster, namespace string) error {
	told := &progress{report: cluster.Report}
	err := install.Until(ctx, "namespace "+namespace+" to be offloaded as it is wanted", func(ctx context.Context) (bool, error) {
		offloading := offloadingOf(namespace)
		found, err := read(ctx, cluster.Client, namespace, offloading.Name, offloading)
		if err != nil {
			return false, err
		}
		if !found {
			return false, install.Final(errors.New("somebody has deleted its NamespaceOffloading"))
		}
		lacks := lacking(offloading)
		if len(lacks) == 0 {
			return true, nil
		}
		isFinal := func(p *podProblem) bool { return slices.Contains(final, p.Reason) }
		if end := find(lacks, isFinal); end != nil {
			return false, install.Final(end.err())
		}
		why := lacks[0].err()
		told.tell("Waiting: " + why.Error())
		return false, why
	})
	if err != nil {
		return fmt.Errorf("namespace %s is not offloaded as it is wanted: %w. What is wanted is written, and Hanse goes on with it: "+
			"see `kubectl hanse status -n %[1]s`; `kubectl hanse unoffload %[1]s` takes it back", namespace, err)
	}
	return nil
}

// lacking is what an offloading lacks as its spec is now. What stands of an older spec says nothing.
func lacking(o *v1alpha1.NamespaceOffloading) []podProblem {
	kinds := []string{v1alpha1.ConditionReady, v1alpha1.ConditionPlaced}
	if o.Spec.Strategy == v1alpha1.StrategyLocal {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		said := meta.FindStatusCondition(o.Status.Conditions, kind)
		if said == nil || said.ObservedGeneration < o.Generation {
			return problem(v1alpha1.ReasonPending, "The manager has not looked at it yet (does it run? See `kubectl hanse check`)", "", linkOffload)
		}
	}
	return offloadingProblems(o)
}

// namespaceOf is the namespace that a verb is about: its argument, or what --namespace names.
func (g *globalFlags) namespaceOf(command *cobra.Command, args []string) (string, error) {
	switch {
	case len(args) == 0 && g.namespace == "":
		return "", fmt.Errorf("which namespace? kubectl hanse %s", command.Use)
	case len(args) == 0:
		return g.namespace, nil
	case g.namespace != "" && g.namespace != args[0]:
		return "", fmt.Errorf("is it namespace %s, or %s, which --namespace names? Name one", args[0], g.namespace)
	default:
		return args[0], nil
	}
}
