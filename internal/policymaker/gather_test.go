package policymaker

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// knowing has the world know of one peer and of one namespace.
func (w *world) knowing() *world {
	w.Gather(policy.Incoming, func(_ context.Context, question policy.Question, name string) (policy.Facts, error) {
		if question != policy.Incoming || name != "hamburg" {
			return policy.Facts{}, errors.New("there is no peer " + name)
		}
		return policy.Facts{Time: start, Previous: &v1alpha1.AdvertisementSpec{ClusterID: "c-before"}}, nil
	})
	w.Gather(policy.Placement, func(_ context.Context, question policy.Question, name string) (policy.Facts, error) {
		if question != policy.Placement || name != "shop" {
			return policy.Facts{}, errors.New("there is no namespace " + name)
		}
		return policy.Facts{Time: start, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}}, nil
	})
	return w
}

func TestTestsAreAskedWithWhatIsKnown(t *testing.T) {
	for name, test := range map[string]struct{ question, key, value, condition string }{
		"of a peer":      {"incoming", keyAdvertisement, "hamburg", `input.previous.clusterID == "c-before"`},
		"of a namespace": {"placement", keyNamespace, "shop", `input.namespace.name == "shop"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).knowing()
			w.look()
			module := "package hanse." + test.question + "\ndeny contains \"found\" if " + test.condition
			got := w.answer(configMap("try", v1alpha1.LabelPolicyTest, test.question, map[string]string{keyModule: module, test.key: test.value}))
			if got.Reason != "found" {
				t.Errorf("got %+v", got)
			}
		})
	}
}
