// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestPodsAreExplained(t *testing.T) {
	for name, change := range scenes {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			change(s)
			var text bytes.Buffer
			if err := printExplained(&text, s.explain(t), "", now); err != nil {
				t.Fatal(err)
			}
			golden(t, "explain-"+name+".txt", text.String())
		})
	}
	var text bytes.Buffer
	s := newScene()
	scenes["no-room"](s)
	if err := printExplained(&text, s.explain(t), "json", now); err != nil {
		t.Fatal(err)
	}
	golden(t, "explain.json", text.String())
}

// Whatever else there is: all is well only with a pod that serves, or has.
func TestNothingIsWrongOnlyWithPodsThatServe(t *testing.T) {
	for name, change := range scenes {
		for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown} {
			for _, ready := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
				for _, node := range []string{"", "hanse-turin", "worker-1"} {
					for _, deleted := range []bool{false, true} {
						s := newScene()
						change(s)
						s.pod.Spec.NodeName, s.pod.Status.Phase = node, phase
						s.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
						if deleted {
							s.pod.DeletionTimestamp = ptr.To(ago(-time.Second))
						}
						f := s.facts()
						serves := phase == corev1.PodSucceeded || ready == corev1.ConditionTrue && s.pod.DeletionTimestamp == nil
						if problems := problemsOf(f, placeOf(f)); len(problems) == 0 && !serves {
							t.Errorf("%s, %s, ready %s, on %q, deleted %t: nothing is wrong", name, phase, ready, node, deleted)
						}
					}
				}
			}
		}
	}
}

// facts are those of the scene for who sees all but the cluster's other things.
func (s *scene) facts() podFacts {
	f := podFacts{snapshot: &snapshot{now: now, errs: map[part]error{}}, pod: s.pod, offloading: s.offloading}
	if s.turin != nil {
		f.nodes.Items = append(f.nodes.Items, *s.turin)
		f.node = f.snapshot.node(s.pod.Spec.NodeName)
	}
	return f
}

// Users of a namespace see neither nodes nor peers.
func TestAPodIsExplainedToWhoSeesLittle(t *testing.T) {
	s := newScene()
	inner := newWorld(t, append(s.others, s.pod, s.offloading, s.turin)...).client
	forbidden := func(what string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: what}, "", nil)
	}
	c := interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, isNode := o.(*corev1.Node); isNode {
				return forbidden("nodes")
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			switch list.(type) {
			case *eventsv1.EventList, *corev1.ServiceList, *v1alpha1.NamespaceOffloadingList: // which lie in the namespace
				return c.List(ctx, list, options...)
			default:
				return forbidden("things")
			}
		},
	})
	seen, err := observePod(soon(t), c, v1alpha1.SystemNamespace, client.ObjectKeyFromObject(s.pod), now)
	if err != nil {
		t.Fatal(err)
	}
	found := explainPod(seen)
	if diff := cmp.Diff([]string{"nodes", "peers", "offers"}, found.Hidden); diff != "" {
		t.Errorf("hidden (-want +got):\n%s", diff)
	}
	if found.Where.Peer != "turin" || found.Where.TwinNamespace != "shop-lubeck-abcdef" || len(found.Problems) != 0 {
		t.Errorf("found %+v", found)
	}
}

func TestAPodThatThereIsNot(t *testing.T) {
	_, err := observePod(soon(t), newWorld(t).client, v1alpha1.SystemNamespace, client.ObjectKey{Namespace: "shop", Name: "web"}, now)
	if !apierrors.IsNotFound(err) {
		t.Errorf("error %v, want not found", err)
	}
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	for _, link := range []string{linkPending, linkNode, linkDisconnect, linkReasons, linkOffload, linkNobody, linkGone, linkPlace, linkPeer, linkServices, linkTokens} {
		if !leads(t, link) {
			t.Errorf("%s leads nowhere", link)
		}
	}
}
