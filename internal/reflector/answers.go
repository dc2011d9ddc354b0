// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/remoteevents"
)

// withoutSpec leaves of a ShadowEndpointSlice what the peer says. What is in it we know.
func withoutSpec(object client.Object) {
	if slice, ok := object.(*v1alpha1.ShadowEndpointSlice); ok {
		slice.Spec = v1alpha1.ShadowEndpointSliceSpec{}
	}
	object.SetManagedFields(nil)
}

// tellRefusals tells users what the peer does not make of what it has from us, and why.
func (c *copier) tellRefusals(ctx context.Context, l look) {
	peer := l.talk.about.Peer
	for name, found := range l.seen.Found {
		source, why := l.seen.Sources[name], reflection.Objection(found)
		if source == nil || source.Stays != "" || why == "" || !reflection.IsCopy(found) {
			continue
		}
		note := fmt.Sprintf("Peer %q does not make it: %s", peer, why)
		if l.talk.about.Kind == reflection.EndpointSlice {
			note = fmt.Sprintf("Pods at peer %q do not find the endpoints of EndpointSlice %q, which the peer does not make: %s. With the label "+
				"%s=true the Service has no copy there, and pods reach it at home", peer, name, why, v1alpha1.LabelSkipReflection)
		}
		step := reflection.Step{Name: name, Source: source}
		c.tell(ctx, move{request: l.talk.about, Step: step, talk: l.talk, known: l.wanted.known[name].Object}, message{
			kind: corev1.EventTypeWarning, reason: v1alpha1.ReasonReflectionRefused, note: note, ofPeer: true,
		})
	}
}

// tellEvents tells users what happened at the peer to Services whose endpoints it has from us.
func (c *copier) tellEvents(ctx context.Context, l look) error {
	happened := map[string][]v1alpha1.RemoteEvent{}
	for name, found := range l.seen.Found {
		answer, ok := found.(*v1alpha1.ShadowEndpointSlice)
		ours, known := l.wanted.known[name].Object.(*v1alpha1.ShadowEndpointSlice)
		if ok && known && reflection.IsCopy(answer) && len(answer.Status.Events) > 0 {
			happened[ours.Spec.Service] = append(happened[ours.Spec.Service], answer.Status.Events...)
		}
	}
	for name, events := range happened {
		key := client.ObjectKey{Namespace: l.talk.about.Namespace, Name: name}
		service, err := local.Find(ctx, c.Client, key, &corev1.Service{}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		if service != nil {
			c.Tell(remoteevents.Report{
				Peer: l.talk.about.Peer, Home: service, Action: "Reflect",
				Events: offload.InboundEventsOf(string(reflection.Service), service, events, c.Clock.Now()),
			})
		}
	}
	return nil
}
