// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// HTTPRoute is the kind of routes of the Gateway API.
var HTTPRoute = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}

// ingressKind is that of Ingresses.
var ingressKind = schema.GroupKind{Group: networkingv1.GroupName, Kind: string(Ingress)}

// A Denial says why a provider does not make the object of a ShadowObject, for whoever wrote the object at home.
type Denial struct {
	// Reason is one of the reasons of conditions.
	Reason string
	// Message has the cause and what helps.
	Message string
}

// Error implements error.
func (d *Denial) Error() string { return d.Reason + ": " + d.Message }

func deny(reason, format string, args ...any) error {
	return &Denial{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Terms are what a provider lets a peer have beside pods and what these refer to.
type Terms struct {
	// Peer is what its Peer says.
	Peer *v1alpha1.PeerSpec
	// Allowed are the kinds that the cluster allows at all.
	Allowed []schema.GroupKind
}

// Make returns the object that the ShadowObject asks for, or a Denial. Nothing of its metadata is the peer's but its name and harmless
// labels.
func Make(shadow *v1alpha1.ShadowObject, terms Terms) (*unstructured.Unstructured, error) {
	var content map[string]any
	err := terms.allow(kindOf(shadow))
	if err == nil {
		content, err = terms.contentOf(shadow)
	}
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{Object: content}
	for _, ours := range []string{"metadata", "status"} {
		delete(content, ours)
	}
	out.SetGroupVersionKind(kindOf(shadow).WithVersion(shadow.Spec.Version))
	out.SetNamespace(shadow.Namespace)
	out.SetName(shadow.Spec.Name)
	out.SetLabels(metadata(shadow, "").Labels)
	version := Fingerprint(out)
	out.SetAnnotations(map[string]string{
		v1alpha1.AnnotationOriginUID: shadow.Annotations[v1alpha1.AnnotationOriginUID], v1alpha1.AnnotationOriginVersion: version,
	})
	out.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(shadow, v1alpha1.GroupVersion.WithKind("ShadowObject"))})
	return out, nil
}

func kindOf(shadow *v1alpha1.ShadowObject) schema.GroupKind {
	return schema.GroupKind{Group: shadow.Spec.Group, Kind: shadow.Spec.Kind}
}

// allow returns why the peer may have no objects of the kind.
func (t Terms) allow(kind schema.GroupKind) error {
	if kind == ingressKind {
		return nil // their hosts decide
	}
	named := slices.ContainsFunc(t.Peer.Objects, func(a v1alpha1.AllowedKind) bool { return a.Group == kind.Group && a.Kind == kind.Kind })
	switch {
	case forbiddenGroup(kind) != "":
		return deny(v1alpha1.ReasonKindNotAllowed, "%s", forbiddenGroup(kind))
	case !named:
		return deny(v1alpha1.ReasonKindNotAllowed, "the provider does not let this cluster have objects of kind %s: its administrator can add "+
			"the kind to spec.objects of the Peer", kind)
	case !slices.Contains(t.Allowed, kind):
		return deny(v1alpha1.ReasonKindNotAllowed, "the provider gives Hanse no rights to objects of kind %s: its administrator can add the kind "+
			"to the value allowedKinds", kind)
	default:
		return nil
	}
}

// contentOf returns what the object says besides its metadata, as the terms have it.
func (t Terms) contentOf(shadow *v1alpha1.ShadowObject) (map[string]any, error) {
	content, err := decode(shadow.Spec.Object)
	if err != nil || len(shadow.Spec.Object) > v1alpha1.MaxShadowObjectBytes {
		return nil, deny(v1alpha1.ReasonObjectRefused, "spec.object is no object as JSON of at most %d bytes", v1alpha1.MaxShadowObjectBytes)
	}
	switch kindOf(shadow) {
	case ingressKind:
		return t.ingress(shadow.Spec)
	case HTTPRoute:
		return content, t.route(content)
	default:
		return content, nil
	}
}

// ingress returns the content of an Ingress: of its fields those that a peer may set.
func (t Terms) ingress(asked v1alpha1.ShadowObjectSpec) (map[string]any, error) {
	if asked.Version != networkingv1.SchemeGroupVersion.Version {
		return nil, deny(v1alpha1.ReasonDefinitionMissing, "Ingresses are of version %s", networkingv1.SchemeGroupVersion.Version)
	}
	sent := networkingv1.Ingress{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(asked.Object), &sent); err != nil {
		return nil, deny(v1alpha1.ReasonObjectRefused, "spec.object is no Ingress: %v", err)
	}
	if why := foreignBackend(&sent.Spec); why != "" {
		return nil, deny(v1alpha1.ReasonObjectRefused, "%s", why)
	}
	hosts := HostsOf(&sent.Spec)
	for _, tls := range sent.Spec.TLS {
		hosts = append(hosts, tls.Hosts...)
	}
	if err := t.allowHosts(hosts); err != nil {
		return nil, err
	}
	spec := ingressOf(&sent.Spec)
	if class := t.Peer.Ingress.ClassName; class != "" {
		spec.IngressClassName = &class
	}
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return nil, fmt.Errorf("encode Ingress: %w", err)
	}
	return decode(string(text))
}

// route gives an HTTPRoute the Gateway that the peer has, instead of those that it names.
func (t Terms) route(content map[string]any) error {
	hosts, _, err := unstructured.NestedStringSlice(content, "spec", "hostnames")
	if err != nil {
		return deny(v1alpha1.ReasonObjectRefused, "spec.hostnames: %v", err)
	}
	if len(hosts) == 0 {
		hosts = []string{""}
	}
	if err := t.allowHosts(hosts); err != nil {
		return err
	}
	gateway := t.Peer.Ingress.Gateway
	if gateway == nil {
		return deny(v1alpha1.ReasonKindNotAllowed, "the provider has no Gateway for this cluster: its administrator can name one in "+
			"spec.ingress.gateway of the Peer")
	}
	parents := []any{map[string]any{"namespace": gateway.Namespace, "name": gateway.Name}}
	if err := unstructured.SetNestedSlice(content, parents, "spec", "parentRefs"); err != nil {
		return deny(v1alpha1.ReasonObjectRefused, "spec: %v", err)
	}
	return nil
}

// allowHosts returns which of the hosts the peer may not have. "" is any host.
func (t Terms) allowHosts(hosts []string) error {
	var patterns []string
	if t.Peer.Ingress != nil {
		patterns = t.Peer.Ingress.Hosts
	}
	const remedy = "the administrator of the provider can add %q to spec.ingress.hosts of the Peer"
	for _, host := range hosts {
		switch {
		case slices.ContainsFunc(patterns, func(pattern string) bool { return isBelow(host, pattern) }):
		case host == "":
			return deny(v1alpha1.ReasonHostNotAllowed, "it takes requests for any host, and the provider does not let this cluster have that: give each "+
				"rule a host and name no default backend, or "+remedy, "*")
		default:
			return deny(v1alpha1.ReasonHostNotAllowed, "the provider does not let this cluster have host %q: "+remedy, host, host)
		}
	}
	if len(hosts) == 0 {
		return deny(v1alpha1.ReasonHostNotAllowed, "it is for no host: give it a rule with one")
	}
	return nil
}

// isBelow says whether the pattern stands for the host.
func isBelow(host, pattern string) bool {
	domain, all := strings.CutPrefix(pattern, "*")
	return host == pattern || all && strings.HasSuffix(host, domain) && (domain == "" || host != domain)
}

// decode reads a JSON object, with whole numbers as Kubernetes has them.
func decode(text string) (map[string]any, error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if content == nil {
		content = map[string]any{}
	}
	return content, nil
}

// HostsOf returns the hosts that an Ingress takes requests for, "" for any.
func HostsOf(spec *networkingv1.IngressSpec) []string {
	var hosts []string
	if spec.DefaultBackend != nil {
		hosts = append(hosts, "")
	}
	for _, rule := range spec.Rules {
		hosts = append(hosts, rule.Host)
	}
	return hosts
}

// Overlap says whether an Ingress of one of these hosts would take requests for one of those.
func Overlap(these, those []string) bool {
	return slices.ContainsFunc(these, func(a string) bool {
		return slices.ContainsFunc(those, func(b string) bool { return overlap(a, b) })
	})
}

// overlap says whether two hosts have a name in common. A wildcard of an Ingress stands for one label.
func overlap(a, b string) bool {
	under := func(name, wildcard string) bool {
		domain, isWildcard := strings.CutPrefix(wildcard, "*.")
		_, parent, _ := strings.Cut(name, ".")
		return isWildcard && parent == domain
	}
	return a == b || under(a, b) || under(b, a)
}

// CheckHosts denies hosts that another namespace here has. An Ingress that is here already keeps those that it has had for longer than
// the other one is there: found is nil if it is not.
func CheckHosts(wanted []string, namespace string, found *networkingv1.Ingress, all []networkingv1.Ingress) error {
	for i := range all {
		other := &all[i]
		if other.Namespace == namespace {
			continue
		}
		for _, host := range wanted {
			held := found != nil && slices.Contains(HostsOf(&found.Spec), host) && isOlder(found, other)
			if !held && Overlap([]string{host}, HostsOf(&other.Spec)) {
				return deny(v1alpha1.ReasonHostTaken, "another namespace of the provider has host %q already: choose another, or have it given up there", host)
			}
		}
	}
	return nil
}

func isOlder(a, b *networkingv1.Ingress) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace < b.Namespace
}

// Includes says whether the found value has all that is wanted: there may be more in it, which defaults and controllers have added.
func Includes(found, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		found, ok := found.(map[string]any)
		for key, value := range wanted {
			ok = ok && Includes(found[key], value)
		}
		return ok
	case []any:
		found, ok := found.([]any)
		ok = ok && len(found) == len(wanted)
		for i := range wanted {
			ok = ok && Includes(found[i], wanted[i])
		}
		return ok
	default:
		return found == wanted
	}
}
