// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// admissionPolicy is a policy of the chart, run by the API server's own code.
type admissionPolicy struct {
	t           *testing.T
	scheme      *runtime.Scheme
	compiler    *plugincel.CompositedCompiler
	conditions  matchconditions.Matcher
	patchers    []patch.Patcher
	validations plugincel.ConditionEvaluator
	messages    []string
	constraints *admissionregistrationv1.MatchResources
}

// review is one request to the API server: a creation without an old object, a deletion without a new one.
type review struct {
	object, old, params runtime.Object
	by                  string
	// of is the subresource, and the resource if it is not that of the object's kind, such as pods/eviction.
	of      string
	options runtime.Object
	in      map[string]string // labels of the object's namespace
	// may are the checks by the API server that the author passes, such as "delete pods web-1".
	may []string
}

func (r *review) operation() admission.Operation {
	switch {
	case r.object == nil:
		return admission.Delete
	case r.old == nil:
		return admission.Create
	default:
		return admission.Update
	}
}

// subject is the object that there is.
func (r *review) subject() runtime.Object {
	if r.object == nil {
		return r.old
	}
	return r.object
}

// namespace is that of the object, or nil.
func (r *review) namespace(t *testing.T) *corev1.Namespace {
	t.Helper()
	object, err := meta.Accessor(r.subject())
	if err != nil {
		t.Fatal(err)
	}
	if object.GetNamespace() == "" {
		return nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: object.GetNamespace(), Labels: r.in}}
}

func mutatingPolicy(t *testing.T, name string) *admissionPolicy {
	t.Helper()
	var spec admissionregistrationv1.MutatingAdmissionPolicy
	decodeInto(t, options(), "MutatingAdmissionPolicy", name, &spec)
	p, options := newPolicy(t, spec.Spec.ParamKind != nil)
	p.constraints = spec.Spec.MatchConstraints
	p.compile(spec.Spec.Variables, spec.Spec.MatchConditions, options)
	withPatches := options
	withPatches.HasPatchTypes = true
	for i := range spec.Spec.Mutations {
		condition := &patch.JSONPatchCondition{Expression: spec.Spec.Mutations[i].JSONPatch.Expression}
		evaluator := p.compiler.CompileMutatingEvaluator(condition, withPatches, environment.StoredExpressions)
		for _, err := range evaluator.CompilationErrors() {
			t.Fatal(err)
		}
		p.patchers = append(p.patchers, patch.NewJSONPatcher(evaluator))
	}
	return p
}

func validatingPolicy(t *testing.T, name string) *admissionPolicy {
	t.Helper()
	return validatingPolicyOf(t, options(), name)
}

func validatingPolicyOf(t *testing.T, o Options, name string) *admissionPolicy {
	t.Helper()
	var spec admissionregistrationv1.ValidatingAdmissionPolicy
	decodeInto(t, o, "ValidatingAdmissionPolicy", name, &spec)
	if spec.Spec.FailurePolicy == nil || *spec.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("policy %s does not fail closed", name)
	}
	p, options := newPolicy(t, spec.Spec.ParamKind != nil)
	p.constraints = spec.Spec.MatchConstraints
	p.compile(spec.Spec.Variables, spec.Spec.MatchConditions, options)
	var expressions []plugincel.ExpressionAccessor
	for _, v := range spec.Spec.Validations {
		expressions = append(expressions, &validating.ValidationCondition{Expression: v.Expression})
		p.messages = append(p.messages, v.Message)
	}
	p.validations = p.compiler.CompileCondition(expressions, options, environment.StoredExpressions)
	return p
}

func newPolicy(t *testing.T, hasParams bool) (*admissionPolicy, plugincel.OptionalVariableDeclarations) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	compiler, err := plugincel.NewCompositedCompiler(
		environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	return &admissionPolicy{t: t, scheme: scheme, compiler: compiler},
		plugincel.OptionalVariableDeclarations{HasParams: hasParams, HasAuthorizer: true}
}

func (p *admissionPolicy) compile(
	variables []admissionregistrationv1.Variable, conditions []admissionregistrationv1.MatchCondition,
	options plugincel.OptionalVariableDeclarations,
) {
	var named []plugincel.NamedExpressionAccessor
	for _, v := range variables {
		named = append(named, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	p.compiler.CompileAndStoreVariables(named, options, environment.StoredExpressions)

	var expressions []plugincel.ExpressionAccessor
	for i := range conditions {
		expressions = append(expressions, (*matchconditions.MatchCondition)(&conditions[i]))
	}
	fail := admissionregistrationv1.Fail
	p.conditions = matchconditions.NewMatcher(
		p.compiler.CompileCondition(expressions, options, environment.StoredExpressions), &fail, "policy", "", "test")
}

// mutate returns the object as the policy leaves it.
func (p *admissionPolicy) mutate(r review) runtime.Object {
	p.t.Helper()
	ctx := p.compiler.CreateContext(p.t.Context())
	attributes := p.attributes(r)
	if !p.matches(ctx, attributes, r) {
		return r.object
	}
	for _, patcher := range p.patchers {
		changed, err := patcher.Patch(ctx, patch.Request{
			MatchedResource:     attributes.GetResource(),
			VersionedAttributes: attributes,
			ObjectInterfaces:    admission.NewObjectInterfacesFromScheme(p.scheme),
			OptionalVariables:   plugincel.OptionalVariableBindings{VersionedParams: r.params},
		}, celconfig.RuntimeCELCostBudget)
		if err != nil {
			p.t.Fatal(err)
		}
		attributes.UpdateObject(changed)
	}
	return attributes.VersionedObject.Object()
}

// validate returns the messages of the validations that the request does not pass.
func (p *admissionPolicy) validate(r review) []string {
	p.t.Helper()
	ctx := p.compiler.CreateContext(p.t.Context())
	attributes := p.attributes(r)
	if !p.matches(ctx, attributes, r) {
		return nil
	}
	results, _, err := p.validations.ForInput(ctx, attributes, p.request(attributes),
		plugincel.OptionalVariableBindings{VersionedParams: r.params, Authorizer: checks(r.may)}, plugincel.CreateNamespaceObject(r.namespace(p.t)), celconfig.RuntimeCELCostBudget)
	if err != nil {
		p.t.Fatal(err)
	}
	var refused []string
	for i, result := range results {
		if result.Error != nil {
			p.t.Fatal(result.Error)
		}
		if result.EvalResult.Value() != true {
			refused = append(refused, p.messages[i])
		}
	}
	return refused
}

func (p *admissionPolicy) matches(ctx context.Context, attributes *admission.VersionedAttributes, r review) bool {
	p.t.Helper()
	if !p.constrainedTo(attributes, r) {
		return false
	}
	result := p.conditions.Match(ctx, attributes, r.params, nil)
	if result.Error != nil {
		p.t.Fatal(result.Error)
	}
	return result.Matches
}

// constrainedTo reports whether the policy is for requests of this kind, in namespaces of these labels.
func (p *admissionPolicy) constrainedTo(attributes admission.Attributes, r review) bool {
	p.t.Helper()
	if selector := p.constraints.NamespaceSelector; selector != nil {
		matcher, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			p.t.Fatal(err)
		}
		if !matcher.Matches(labels.Set(r.in)) {
			return false
		}
	}
	concerns := func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		matcher := rules.Matcher{Rule: rule.RuleWithOperations, Attr: attributes}
		return matcher.Matches()
	}
	return slices.ContainsFunc(p.constraints.ResourceRules, concerns) &&
		!slices.ContainsFunc(p.constraints.ExcludeResourceRules, concerns)
}

func (p *admissionPolicy) attributes(r review) *admission.VersionedAttributes {
	p.t.Helper()
	kind := r.subject().GetObjectKind().GroupVersionKind()
	object, err := meta.Accessor(r.subject())
	if err != nil {
		p.t.Fatal(err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	name, subresource, _ := strings.Cut(r.of, "/")
	if name != "" && name != resource.Resource {
		resource = corev1.SchemeGroupVersion.WithResource(name)
	}
	namespace := object.GetNamespace()
	if kind.Kind == "Namespace" {
		namespace = object.GetName() // as the API server has it
	}
	record := admission.NewAttributesRecord(r.object, r.old, kind, namespace, object.GetName(), resource, subresource,
		r.operation(), r.options, false, &user.DefaultInfo{Name: r.by})
	attributes := &admission.VersionedAttributes{Attributes: record, VersionedKind: kind}
	if r.object != nil {
		attributes.VersionedObject = admission.NewLazyObject(r.object)
	}
	if r.old != nil {
		attributes.VersionedOldObject = admission.NewLazyObject(r.old)
	}
	return attributes
}

func (*admissionPolicy) request(attributes *admission.VersionedAttributes) *admissionv1.AdmissionRequest {
	return plugincel.CreateAdmissionRequest(attributes.Attributes,
		metav1.GroupVersionResource(attributes.GetResource()), metav1.GroupVersionKind(attributes.VersionedKind))
}

// checks are what the author of a request may do, as the API server checks it.
type checks []string

// Authorize implements authorizer.UnconditionalAuthorizer.
func (r checks) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(r, strings.TrimSpace(a.GetVerb()+" "+a.GetResource()+" "+a.GetName())) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// A decision is what a policy should say to a request.
type decision struct {
	review
	want string // the beginning of the only message, or nothing if it is let through
}

// expectDecisions checks that each request is let through, or refused for the one reason that is wanted.
func expectDecisions(t *testing.T, policy *admissionPolicy, decisions map[string]decision) {
	t.Helper()
	for name, test := range decisions {
		t.Run(name, func(t *testing.T) {
			policy.t = t
			got := policy.validate(test.review)
			switch {
			case test.want == "" && len(got) > 0:
				t.Errorf("refused with %q", got)
			case test.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], test.want)):
				t.Errorf("answered with %q, want %q", got, test.want)
			}
		})
	}
}

func decodeInto(t *testing.T, o Options, kind, name string, into any) {
	t.Helper()
	object := find(t, mustRender(t, o), kind, name)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true); err != nil {
		t.Fatal(err)
	}
}

// read decodes YAML into an object without a Go type, as the API server has custom resources: whole numbers are integers.
func read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func withKind[T runtime.Object](object T, group, version, kind string) T {
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return object
}
