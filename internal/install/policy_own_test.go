// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var (
	inHanse  = map[string]string{"app.kubernetes.io/name": "hanse"}
	inMarked = map[string]string{v1alpha1.LabelOffloads: "true"}
)

func in(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func TestHanseWritesWhereItIsAtHome(t *testing.T) {
	secret := func(namespace string) runtime.Object {
		return withKind(&corev1.Secret{ObjectMeta: in(namespace, "hanse-link")}, "", "v1", "Secret")
	}
	pod := withKind(&corev1.Pod{ObjectMeta: in("shop", "web")}, "", "v1", "Pod")
	lease := func(namespace, name string) runtime.Object {
		return withKind(&coordinationv1.Lease{ObjectMeta: in(namespace, name)}, "coordination.k8s.io", "v1", "Lease")
	}
	event := withKind(&corev1.Event{ObjectMeta: in("shop", "e")}, "", "v1", "Event")
	newer := withKind(&eventsv1.Event{ObjectMeta: in("shop", "e")}, "events.k8s.io", "v1", "Event")
	eviction := withKind(&policyv1.Eviction{ObjectMeta: in("shop", "web")}, "policy", "v1", "Eviction")
	binding := func(name string) runtime.Object {
		return withKind(&rbacv1.RoleBinding{ObjectMeta: in("shop", name)}, "rbac.authorization.k8s.io", "v1", "RoleBinding")
	}
	const refused = "metadata.namespace: Hanse writes only"
	expectDecisions(t, validatingPolicy(t, "hanse-own-writes"), map[string]decision{
		"in its own namespace":           {review: review{by: manager, in: inHanse, object: secret("hanse-system")}},
		"in a tenant namespace":          {review: review{by: manager, in: inTenant, object: secret("hanse-peer-turin")}},
		"in a twin":                      {review: review{by: manager, in: inTwin, object: pod}},
		"in a namespace of users":        {review: review{by: manager, in: inShop, object: secret("shop")}, want: refused},
		"in the system's":                {review: review{by: manager, object: secret("kube-system")}, want: refused},
		"in one that only looks like it": {review: review{by: manager, in: map[string]string{v1alpha1.LabelManaged: "false"}, object: secret("hanse-peer-x")}, want: refused},
		"a change there":                 {review: review{by: manager, in: inShop, old: secret("shop"), object: secret("shop")}, want: refused},
		"a deletion there":               {review: review{by: kubelet, in: inShop, old: pod}, want: refused},
		"a deletion where it is marked":  {review: review{by: kubelet, in: inMarked, old: pod}},
		"an eviction":                    {review: review{by: kubelet, in: inShop, of: "pods/eviction", object: eviction}, want: refused},
		"an eviction where it is marked": {review: review{by: kubelet, in: inMarked, of: "pods/eviction", object: eviction}},
		"one by the manager":             {review: review{by: manager, in: inMarked, of: "pods/eviction", object: eviction}},
		"one by it for a move":           {review: review{by: manager, in: inShop, of: "pods/eviction", object: eviction}}, // hanse-own-moves looks at it
		"a pod for a move":               {review: review{by: manager, in: inShop, object: pod}},
		"not by the kubelet":             {review: review{by: kubelet, in: inShop, object: pod}, want: refused},
		"the same pod as before":         {review: review{by: manager, in: inShop, old: pod, object: pod}, want: refused},
		"the status of a pod":            {review: review{by: kubelet, in: inShop, of: "pods/status", old: pod, object: pod}},
		"the status of a Service":        {review: review{by: kubelet, in: inShop, of: "services/status", old: pod, object: pod}, want: refused},
		"an event":                       {review: review{by: manager, in: inShop, object: event}},
		"an event of the newer kind":     {review: review{by: manager, in: inShop, object: newer}},
		"the state of an offloading":     {review: review{by: manager, in: inShop, of: "namespaceoffloadings/status", old: message(t, "NamespaceOffloading", ""), object: message(t, "NamespaceOffloading", "")}},
		"the heartbeat of its node":      {review: review{by: kubelet, object: lease("kube-node-lease", "hanse-turin")}},
		"that of another node":           {review: review{by: kubelet, object: lease("kube-node-lease", "worker-1")}, want: refused},
		"a lease of the system":          {review: review{by: kubelet, object: lease("kube-system", "hanse-scheduler")}, want: refused},
		"its own lease":                  {review: review{by: kubelet, in: inHanse, object: lease("hanse-system", "hanse-kubelet")}},
		"the end of a right":             {review: review{by: manager, in: inShop, old: binding("hanse-reflector-in-namespace")}},
		"that of another right":          {review: review{by: manager, in: inShop, old: binding("admins")}, want: refused},
		"a right where it is not marked": {review: review{by: manager, in: inShop, object: binding("hanse-reflector-in-namespace")}, want: refused},
		"users write where they like":    {review: review{by: admin, in: inShop, object: secret("shop")}},
	})
}

func TestHanseHandsOutItsFixedRolesAlone(t *testing.T) {
	binds := func(labels map[string]string, role, subjects string) review {
		namespace := "hanse-peer-turin"
		if role == v1alpha1.ClusterRoleReflectorInNamespace {
			namespace = "shop"
		}
		binding := withKind(&rbacv1.RoleBinding{ObjectMeta: in(namespace, role)}, "rbac.authorization.k8s.io", "v1", "RoleBinding")
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		if err := yaml.UnmarshalStrict([]byte(subjects), &binding.Subjects); err != nil {
			t.Fatal(err)
		}
		return review{by: manager, in: labels, object: binding}
	}
	const (
		toManager = "[{kind: ServiceAccount, namespace: hanse-system, name: hanse-manager}]"
		toKubelet = "[{kind: ServiceAccount, namespace: hanse-system, name: hanse-kubelet}]"
		toPeer    = "[{kind: ServiceAccount, namespace: hanse-peer-turin, name: hanse-peer}]"
		toInvited = "[{kind: ServiceAccount, namespace: hanse-peer-turin, name: hanse-invitation}]"
		subjects  = "subjects: "
	)
	ofRole := binds(inTenant, "hanse-peer-tenant", toPeer)
	ofRole.object.(*rbacv1.RoleBinding).RoleRef.Kind = "Role"
	emptied := binds(inTenant, "hanse-peer-tenant", "[]")
	emptied.old = ofRole.object
	reads := func(namespace string) review {
		bound := binds(inMarked, "hanse-reflector-in-namespace", toManager)
		bound.object.(*rbacv1.RoleBinding).Namespace = namespace
		return bound
	}
	byHand := binds(inShop, "cluster-admin", "[{kind: User, name: me}]")
	byHand.by = admin
	expectDecisions(t, validatingPolicy(t, "hanse-own-bindings"), map[string]decision{
		"the manager in a tenant namespace": {review: binds(inTenant, "hanse-manager-in-tenant", toManager)},
		"the manager in a twin":             {review: binds(inTwin, "hanse-manager-in-twin", toManager)},
		"hanse kubelet":                     {review: binds(inTenant, "hanse-kubelet-in-tenant", toKubelet)},
		"the invited":                       {review: binds(inTenant, "hanse-peer-invitation", toInvited)},
		"the peer":                          {review: binds(inTenant, "hanse-peer-tenant", toPeer)},
		"the peer in its twin":              {review: binds(inTwin, "hanse-peer-twin", toPeer)},
		"the peer that was left":            {review: binds(inTenant, "hanse-peer-tombstone", toPeer)},
		"nobody any more":                   {review: emptied},
		"the peer in the twin of another":   {review: binds(map[string]string{v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelManaged: "true", v1alpha1.LabelPeer: "milan"}, "hanse-peer-twin", toPeer), want: subjects},
		"the peer as the manager":           {review: binds(inTenant, "hanse-manager-in-tenant", toPeer), want: subjects},
		"the invited as the peer":           {review: binds(inTenant, "hanse-peer-tenant", toInvited), want: subjects},
		"a user":                            {review: binds(inTenant, "hanse-peer-tenant", "[{kind: User, name: hanse-peer}]"), want: subjects},
		"everybody":                         {review: binds(inTenant, "hanse-peer-tenant", "[{kind: Group, name: system:authenticated}]"), want: subjects},
		"the peer and another":              {review: binds(inTwin, "hanse-peer-twin", toPeer[:len(toPeer)-1]+", {kind: ServiceAccount, namespace: shop, name: hanse-peer}]"), want: subjects},
		"in a namespace of users":           {review: binds(inShop, "hanse-manager-in-twin", toManager), want: "metadata.namespace"},
		"in one that is marked":             {review: binds(inMarked, "hanse-manager-in-twin", toManager), want: "metadata.namespace"},
		"to read where it is marked":        {review: binds(inMarked, "hanse-reflector-in-namespace", toManager)},
		"to read where it is not":           {review: binds(inShop, "hanse-reflector-in-namespace", toManager), want: "metadata.namespace"},
		"to read what a peer has":           {review: binds(inTenant, "hanse-reflector-in-namespace", toManager), want: "metadata.namespace"},
		"to read what the system has":       {review: reads("kube-system"), want: "metadata.namespace"},
		"to read what anybody has":          {review: reads("default"), want: "metadata.namespace"},
		"to read what Hanse has":            {review: reads("hanse-system"), want: "metadata.namespace"},
		"to read as somebody else":          {review: binds(inMarked, "hanse-reflector-in-namespace", toKubelet), want: subjects},
		"a Role":                            {review: ofRole, want: "roleRef"},
		"an administrator may":              {review: byHand},
	})
	// Another role is no one's, so it is refused for two reasons.
	policy := validatingPolicy(t, "hanse-own-bindings")
	if got := policy.validate(binds(inTenant, "cluster-admin", toManager)); len(got) == 0 {
		t.Error("the manager may bind cluster-admin")
	}
}

func TestHanseWritesOnlyOffloadingsThatItKeeps(t *testing.T) {
	offloading := func(annotations map[string]string) runtime.Object {
		return withKind(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName, Annotations: annotations,
		}}, "hanse.dev", "v1alpha1", "NamespaceOffloading")
	}
	kept, own := offloading(map[string]string{v1alpha1.AnnotationKeptOffloading: "true"}), offloading(nil)
	const refused = "metadata.annotations: Hanse makes"
	expectDecisions(t, validatingPolicy(t, "hanse-own-offloadings"), map[string]decision{
		"one that it keeps":      {review: review{by: manager, in: inShop, object: kept}},
		"a change of it":         {review: review{by: manager, in: inShop, old: kept, object: kept}},
		"its end":                {review: review{by: manager, in: inShop, old: kept}},
		"one without the mark":   {review: review{by: manager, in: inShop, object: own}, want: refused},
		"a change of a user's":   {review: review{by: manager, in: inShop, old: own, object: own}, want: refused},
		"the end of a user's":    {review: review{by: manager, in: inShop, old: own}, want: refused},
		"one that it takes over": {review: review{by: manager, in: inShop, old: own, object: kept}, want: refused},
		"one that it gives up":   {review: review{by: manager, in: inShop, old: kept, object: own}, want: refused},
		"users do as they like":  {review: review{by: admin, in: inShop, old: kept, object: own}},
	})
}

func TestHanseKubeletKeepsToVirtualNodes(t *testing.T) {
	on := func(node string) *corev1.Pod { return podWith(t, "nodeName: "+node) }
	eviction := withKind(&policyv1.Eviction{ObjectMeta: in("shop", "web")}, "policy", "v1", "Eviction")
	tolerant := podWith(t, "{nodeName: hanse-turin, tolerations: [{key: a, tolerationSeconds: 300}]}")
	labelled := tolerant.DeepCopy()
	labelled.Labels = map[string]string{"app": "other"}
	const (
		refused   = "spec.nodeName: hanse kubelet"
		otherwise = "spec: hanse kubelet changes of a pod nothing but"
	)
	expectDecisions(t, validatingPolicy(t, "hanse-kubelet-pods"), map[string]decision{
		"the status of its pod":    {review: review{by: kubelet, of: "pods/status", old: on("hanse-turin"), object: on("hanse-turin")}},
		"that of another":          {review: review{by: kubelet, of: "pods/status", old: on("worker-1"), object: on("worker-1")}, want: refused},
		"that of a pending pod":    {review: review{by: kubelet, of: "pods/status", old: podWith(t, "{}"), object: on("hanse-turin")}, want: refused},
		"the end of its pod":       {review: review{by: kubelet, old: on("hanse-turin")}},
		"that of another's":        {review: review{by: kubelet, old: on("worker-1")}, want: refused},
		"how long it tolerates":    {review: review{by: kubelet, old: tolerant, object: podWith(t, "{nodeName: hanse-turin, tolerations: [{key: a, tolerationSeconds: 60}]}")}},
		"another toleration":       {review: review{by: kubelet, old: tolerant, object: on("hanse-turin")}, want: otherwise},
		"another image":            {review: review{by: kubelet, old: tolerant, object: podWith(t, "{nodeName: hanse-turin, tolerations: [{key: a}], containers: [{name: c, image: evil}]}")}, want: otherwise},
		"another deadline":         {review: review{by: kubelet, old: tolerant, object: podWith(t, "{nodeName: hanse-turin, tolerations: [{key: a}], activeDeadlineSeconds: 1}")}, want: otherwise},
		"a label":                  {review: review{by: kubelet, old: tolerant, object: labelled}, want: otherwise},
		"that of another's pod":    {review: review{by: kubelet, old: on("worker-1"), object: on("worker-1")}, want: refused},
		"a user's own change":      {review: review{by: admin, old: tolerant, object: labelled}},
		"an eviction":              {review: review{by: kubelet, in: inMarked, of: "pods/eviction", object: eviction}},
		"one where nothing leaves": {review: review{by: kubelet, in: inShop, of: "pods/eviction", object: eviction}, want: refused},
		"one in a twin":            {review: review{by: kubelet, in: inTwin, of: "pods/eviction", object: eviction}, want: refused},
		"a real kubelet":           {review: review{by: "system:node:worker-1", of: "pods/status", old: on("worker-1"), object: on("worker-1")}},
	})
}

func TestHanseKubeletKeepsItsNodes(t *testing.T) {
	node := func(kind, provider string) *corev1.Node {
		made := withKind(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hanse-turin"}}, "", "v1", "Node")
		if kind != "" {
			made.Labels = map[string]string{v1alpha1.LabelType: kind}
		}
		made.Spec.ProviderID = provider
		return made
	}
	virtual, real := node(v1alpha1.TypeVirtualNode, "hanse://turin"), node("", "aws:///i-1")
	stripped := node("", "hanse://turin")
	const refused = "metadata.labels: hanse kubelet"
	expectDecisions(t, validatingPolicy(t, "hanse-kubelet-nodes"), map[string]decision{
		"a virtual node":           {review: review{by: kubelet, object: virtual}},
		"a real one":               {review: review{by: kubelet, object: real}, want: refused},
		"its state":                {review: review{by: kubelet, of: "nodes/status", old: virtual, object: virtual}},
		"the state of a real one":  {review: review{by: kubelet, of: "nodes/status", old: real, object: real}, want: refused},
		"its end":                  {review: review{by: kubelet, old: virtual}},
		"the end of a real one":    {review: review{by: kubelet, old: real}, want: refused},
		"a label that comes back":  {review: review{by: kubelet, old: stripped, object: virtual}},
		"a label that goes":        {review: review{by: kubelet, old: virtual, object: stripped}, want: refused},
		"a real one made virtual":  {review: review{by: kubelet, old: real, object: virtual}, want: refused},
		"an administrator may all": {review: review{by: admin, old: real, object: virtual}},
	})
}

func TestTheManagerChangesNothingOfUsersPodsButWhereTheyMayGo(t *testing.T) {
	before := podWith(t, `
schedulingGates: [{name: mine}, {name: hanse.dev/no-cluster-fits}]
tolerations: [{key: mine, operator: Exists}]
containers: [{name: c, image: i}]`)
	before.Labels = map[string]string{"app": "web"}
	changed := func(edit func(*corev1.Pod)) review {
		after := before.DeepCopy()
		edit(after)
		return review{by: manager, in: inMarked, old: before, object: after}
	}
	tolerates := func(key string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
	}
	ofTheUser := changed(func(p *corev1.Pod) { p.Labels = nil })
	ofTheUser.by = admin
	inATwin := changed(func(p *corev1.Pod) { p.Labels = nil })
	inATwin.in = inTwin
	expectDecisions(t, validatingPolicy(t, "hanse-own-pods"), map[string]decision{
		"it releases a pod": {review: changed(func(p *corev1.Pod) {
			p.Spec.SchedulingGates = p.Spec.SchedulingGates[:1]
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
			tolerates(v1alpha1.TaintFull)(p)
			tolerates(v1alpha1.TaintVirtualNode)(p)
		})},
		"not from another's gate": {review: changed(func(p *corev1.Pod) { p.Spec.SchedulingGates = p.Spec.SchedulingGates[1:] }), want: "spec.schedulingGates"},
		"not with other taints":   {review: changed(tolerates("node-role.kubernetes.io/control-plane")), want: "spec.tolerations"},
		"not with every taint":    {review: changed(tolerates("")), want: "spec.tolerations"},
		"not less tolerant":       {review: changed(func(p *corev1.Pod) { p.Spec.Tolerations = nil }), want: "spec.tolerations"},
		"not with another image":  {review: changed(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" }), want: "spec: "},
		"not with finalizers":     {review: changed(func(p *corev1.Pod) { p.Finalizers = []string{"a/b"} }), want: "spec: "},
		"not bound elsewhere":     {review: changed(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }), want: "spec: "},
		"users do what they like": {review: ofTheUser},
		"twins have other guards": {review: inATwin},
	})
}

func TestTheManagerWritesNoEndpointsButThoseOfPeers(t *testing.T) {
	of := func(change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		made := withKind(&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop-turin", Name: "hanse-web-1", Labels: map[string]string{discoveryv1.LabelManagedBy: v1alpha1.EndpointSliceManager},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "hanse.dev/v1alpha1", Kind: "ShadowEndpointSlice", Name: "web-1", UID: "u"}},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"100.64.1.5"}}},
		}, "discovery.k8s.io", "v1", "EndpointSlice")
		change(made)
		return made
	}
	by := func(old, object runtime.Object) review {
		return review{by: manager, in: inTwin, old: old, object: object}
	}
	makes := func(object runtime.Object) review { return review{by: manager, in: inTwin, object: object} }
	kubernetes := of(func(s *discoveryv1.EndpointSlice) {
		s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	})
	elsewhere := makes(of(asItIs))
	elsewhere.in = nil
	byOthers := by(of(asItIs), kubernetes)
	byOthers.by = admin
	const only, names = "Hanse's manager writes only", "endpoints: what peers tell"
	expectDecisions(t, validatingPolicy(t, "hanse-own-endpoints"), map[string]decision{
		"one that a peer asks for":  {review: makes(of(asItIs))},
		"a change":                  {review: by(of(asItIs), of(asItIs))},
		"an end":                    {review: review{by: manager, in: inTwin, old: of(asItIs)}},
		"of nothing":                {review: makes(of(func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }))},
		"in another namespace":      {review: elsewhere, want: only},
		"one that nobody asked for": {review: makes(of(func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil })), want: only},
		"one of Kubernetes":         {review: by(kubernetes, kubernetes), want: only},
		"one of Kubernetes, taken":  {review: by(kubernetes, of(asItIs)), want: only},
		"one of Kubernetes, ended":  {review: review{by: manager, in: inTwin, old: kubernetes}, want: only},
		"on a node":                 {review: makes(of(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = ptr.To("worker-1") })), want: names},
		"a pod": {review: makes(of(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].TargetRef = &corev1.ObjectReference{Name: "web"}
		})), want: names},
		"others do as they like": {review: byOthers},
	})
}
