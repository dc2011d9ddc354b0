package reflector

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// tellAnswers tells users what the peer says of the endpoints that it has from us: which it refuses, and what happened to their
// Services.
func (c *copier) tellAnswers(ctx context.Context, l look) error {
	happened := map[string][]v1alpha1.RemoteEvent{}
	for _, found := range l.over.List() {
		answer, ok := found.(*v1alpha1.ShadowEndpointSlice)
		ours, known := l.wanted.known[found.GetName()].Object.(*v1alpha1.ShadowEndpointSlice)
		if !ok || !known || !reflection.IsCopy(answer) {
			continue
		}
		happened[ours.Spec.Service] = append(happened[ours.Spec.Service], answer.Status.Events...)
		if why := refusalOf(answer); why != "" {
			step := reflection.Step{Name: answer.Name, Source: l.seen.Sources[answer.Name]}
			c.tell(ctx, move{request: l.talk.about, Step: step, talk: l.talk, known: ours}, message{
				kind: corev1.EventTypeWarning, reason: v1alpha1.ReasonReflectionRefused, ofPeer: true, note: fmt.Sprintf(
					"Pods at peer %q do not find the endpoints of EndpointSlice %q, which the peer refuses: %s. With the label %s=true "+
						"the Service has no copy there, and pods reach it at home", l.talk.about.Peer, answer.Name, why, v1alpha1.LabelSkipReflection),
			})
		}
	}
	for name, events := range happened {
		if len(events) == 0 {
			continue
		}
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

// refusalOf says why the peer has no EndpointSlice of what it was told last, and nothing if it has one or has yet to look.
func refusalOf(answer *v1alpha1.ShadowEndpointSlice) string {
	accepted := meta.FindStatusCondition(answer.Status.Conditions, v1alpha1.ConditionAccepted)
	if accepted == nil || accepted.Status != metav1.ConditionFalse || accepted.ObservedGeneration != answer.Generation {
		return ""
	}
	return accepted.Message
}
