package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// Gather returns what the policies would be asked with now about the pods of the namespace of that name, or, if the name is
// that of a namespace and of a class with a slash between them, about those of the class. It is an error if they would not
// be asked. It may be called while the controller works.
func (c *Controller) Gather(ctx context.Context, _ policy.Question, subject string) (policy.Facts, error) {
	name, class, _ := strings.Cut(subject, "/")
	namespace, err := c.readNamespace(ctx, name)
	if err != nil {
		return policy.Facts{}, err
	}
	offloading := &v1alpha1.NamespaceOffloading{}
	err = c.client.Get(ctx, requestFor(name).NamespacedName, offloading)
	switch {
	case apierrors.IsNotFound(err):
		return policy.Facts{}, fmt.Errorf("namespace %s is not offloaded", name)
	case err != nil:
		return policy.Facts{}, fmt.Errorf("read the NamespaceOffloading of namespace %s: %w", name, err)
	case offloading.Spec.Strategy == v1alpha1.StrategyLocal, !offloading.DeletionTimestamp.IsZero():
		return policy.Facts{}, fmt.Errorf("policies are not asked about namespace %s: its new pods stay in this cluster", name)
	}
	now, err := c.readMarket(ctx) // the one that is kept is the worker's own
	if err != nil {
		return policy.Facts{}, err
	}
	asked, err := newQuestions(now, offloading)
	if err != nil {
		return policy.Facts{}, err
	}
	which := slices.IndexFunc(asked, func(q question) bool { return q.class == class })
	if which < 0 {
		return policy.Facts{}, fmt.Errorf("namespace %s has no class %q in spec.placement", name, class)
	}
	return asked[which].facts(now, namespace, c.clock.Now()), nil
}
