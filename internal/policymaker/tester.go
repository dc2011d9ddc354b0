package policymaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// Keys of a ConfigMap that asks.
const (
	keyModule        = "module.rego"   // to be asked; without it, the policies in force are
	keyInput         = "input.json"    // to be asked with, or
	keyAdvertisement = "advertisement" // the Peer or cluster id whose advertisement it is about, or
	keyNamespace     = "namespace"     // the namespace whose placement it is about
	keyAnswer        = "answer.json"
)

const (
	// testLife is how long a ConfigMap that asks stays. Who asks takes it away; this is for those who forget.
	testLife = 10 * time.Minute
	// explainDeadline is how long it may take to find out which rules decided, which is slower than to decide.
	explainDeadline = 5 * time.Second
	// maxAsked is the size of all that is asked, so that the answer fits beside it.
	maxAsked = 768 << 10
)

// A tester answers questions that somebody wants to try.
type tester struct{ maker *Maker }

func (m *Maker) isTest(o client.Object) bool {
	_, labelled := o.GetLabels()[v1alpha1.LabelPolicyTest]
	return labelled && o.GetNamespace() == m.config.Namespace
}

// test answers one ConfigMap, and deletes it when it is old.
func (t *tester) test(ctx context.Context, key client.ObjectKey) (reconcile.Result, error) {
	asked := &corev1.ConfigMap{}
	if err := t.maker.client.Get(ctx, key, asked); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !t.maker.isTest(asked) || !asked.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	left := testLife - t.maker.clock.Since(asked.CreationTimestamp.Time)
	if left <= 0 {
		return reconcile.Result{}, t.remove(ctx, asked)
	}
	if _, answered := asked.Data[keyAnswer]; !answered {
		if err := t.reply(ctx, asked, t.answer(ctx, asked)); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: left}, nil
}

func (t *tester) remove(ctx context.Context, asked *corev1.ConfigMap) error {
	err := t.maker.client.Delete(ctx, asked, client.Preconditions(metav1.Preconditions{UID: &asked.UID}))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// reply writes the answer, unless the question has been changed meanwhile, which will have it looked at again.
func (t *tester) reply(ctx context.Context, asked *corev1.ConfigMap, given answer) error {
	before := asked.DeepCopy()
	if asked.Data == nil {
		asked.Data = map[string]string{}
	}
	asked.Data[keyAnswer] = given.encode()
	err := t.maker.client.Patch(ctx, asked, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err):
		return reconcile.TerminalError(fmt.Errorf("answer ConfigMap %s: %w", asked.Name, err))
	case err != nil:
		return fmt.Errorf("answer ConfigMap %s: %w", asked.Name, err)
	default:
		return nil
	}
}

// answer asks what the ConfigMap wants to know.
func (t *tester) answer(ctx context.Context, asked *corev1.ConfigMap) answer {
	question := policy.Question(asked.Labels[v1alpha1.LabelPolicyTest])
	d, known := t.maker.points[question]
	if !known {
		return answer{Error: fmt.Sprintf("the label %s names no question: %s", v1alpha1.LabelPolicyTest, question)}
	}
	given, err := t.ask(ctx, d, asked.Data)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return given
}

func (t *tester) ask(ctx context.Context, d *point, asked map[string]string) (answer, error) {
	size := 0
	for key, value := range asked {
		size += len(key) + len(value)
	}
	if size > maxAsked {
		return answer{}, fmt.Errorf("module and input may have at most %d KiB together", maxAsked>>10)
	}
	set, err := t.set(ctx, d, asked)
	if err != nil {
		return answer{}, err
	}
	input, err := t.input(ctx, d, asked)
	if err != nil {
		return answer{}, err
	}
	decision, err := t.maker.decideIn(ctx, d, set, input)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, explainDeadline)
	defer cancel()
	_, steps, err := set.Explain(ctx, input)
	if err != nil {
		return answer{}, fmt.Errorf("find out which rules decided: %w", err)
	}
	return answerOf(decision, steps), nil
}

// set returns the module to try, or what is in force.
func (t *tester) set(ctx context.Context, d *point, asked map[string]string) (*policy.Set, error) {
	source, given := asked[keyModule]
	if !given {
		return d.set(ctx)
	}
	return compilerOf(d.question)([]policy.Module{{Name: keyModule, Source: source}})
}

// input is the one that is given, or what is known now of what is named.
func (t *tester) input(ctx context.Context, d *point, asked map[string]string) (policy.Input, error) {
	subject := keyAdvertisement
	if d.question == policy.Placement {
		subject = keyNamespace
	}
	text, given := asked[keyInput]
	name, named := asked[subject]
	gather := d.gatherer()
	switch {
	case given && !named:
		return policy.ParseInput([]byte(text))
	case gather == nil:
		return policy.Input{}, fmt.Errorf("a question about %s needs %s (--input), and nothing else to ask about", d.question, keyInput)
	case given == named:
		return policy.Input{}, fmt.Errorf("a question about %s needs either %s or %s", d.question, keyInput, subject)
	case name == "":
		return policy.Input{}, errors.New(subject + " is empty")
	}
	facts, err := gather(ctx, d.question, name)
	if err != nil {
		return policy.Input{}, err
	}
	return policy.NewInput(facts)
}
