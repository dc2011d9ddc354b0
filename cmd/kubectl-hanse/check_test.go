// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

func newChecker(t *testing.T, objects ...client.Object) *checker {
	t.Helper()
	served := &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1", APIResources: []metav1.APIResource{
		{Kind: "MutatingAdmissionPolicy"}, {Kind: "ValidatingAdmissionPolicy"},
	}}
	return &checker{
		client: newWorld(t, objects...).client, system: v1alpha1.SystemNamespace, ours: "v0.1.0",
		now:   func() time.Time { return now },
		reach: func(context.Context, string) error { return nil },
		discovery: &fakediscovery.FakeDiscovery{
			Fake:               &clienttesting.Fake{Resources: []*metav1.APIResourceList{served}},
			FakedServerVersion: &version.Info{GitVersion: "v1.37.1"},
		},
	}
}

// seen is a snapshot of a cluster that has the objects.
func seen(t *testing.T, parts []part, objects ...client.Object) *snapshot {
	t.Helper()
	return take(soon(t), newWorld(t, objects...).client, scope{system: v1alpha1.SystemNamespace}, now, parts...)
}

// installation is all that a healthy one consists of.
func installation(t *testing.T) []client.Object {
	t.Helper()
	manifest, err := newChecker(t).manifest()
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	objects := system()[1:]
	for _, object := range append(manifest.Definitions, manifest.Objects...) {
		typed, err := scheme.New(object.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			t.Fatal(err)
		}
		switch o := typed.(type) {
		case *appsv1.Deployment:
			o.Status.Replicas, o.Status.AvailableReplicas, o.Status.UpdatedReplicas = *o.Spec.Replicas, *o.Spec.Replicas, *o.Spec.Replicas
		case *apiextensionsv1.CustomResourceDefinition:
			o.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: "True"}}
		}
		objects = append(objects, typed.(client.Object))
	}
	return objects
}

func stateOf(findings []finding, name string) state {
	for _, f := range findings {
		if f.Name == name {
			return f.State
		}
	}
	return ""
}

func TestAHealthyClusterPassesEveryCheck(t *testing.T) {
	check := newChecker(t, installation(t)...)
	findings, err := check.run(soon(t), &checkFlags{})
	if err != nil {
		t.Fatal(err)
	}
	if err := verdict(findings); err != nil || len(findings) < 10 {
		t.Errorf("%d findings, %v: %+v", len(findings), err, findings)
	}
}

func TestWhatIsMissingFails(t *testing.T) {
	for name, test := range map[string]struct {
		without func(client.Object) bool
		fails   string
	}{
		"a kind": {func(o client.Object) bool { return o.GetName() == "peers.hanse.dev" }, "kinds"},
		"a policy": {func(o client.Object) bool {
			return strings.Contains(o.GetObjectKind().GroupVersionKind().Kind, "MutatingAdmissionPolicy")
		}, "policies and roles"},
		"a role":         {func(o client.Object) bool { return o.GetName() == v1alpha1.ClusterRolePeerTenant }, "policies and roles"},
		"a Deployment":   {func(o client.Object) bool { _, ok := o.(*appsv1.Deployment); return ok }, "Deployments"},
		"everything":     {func(client.Object) bool { return true }, "Hanse"},
		"nothing at all": {func(client.Object) bool { return false }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for _, object := range installation(t) {
				if !test.without(object) {
					objects = append(objects, object)
				}
			}
			findings, err := newChecker(t, objects...).run(soon(t), &checkFlags{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				if failed := f.State == stateFailed; failed != (f.Name == test.fails) {
					t.Errorf("%+v", f)
				}
			}
			if failed := verdict(findings) != nil; failed != (test.fails != "") {
				t.Errorf("verdict %v", verdict(findings))
			}
		})
	}
}

func TestDeploymentsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		replicas, available, updated, all int32
		state                             corev1.ContainerState // of the container of its newest pod
		want                              state
		says                              string
	}{
		"all run":              {2, 2, 2, 2, corev1.ContainerState{}, stateOK, ""},
		"one is missing":       {2, 1, 2, 2, corev1.ContainerState{}, stateWarning, ""},
		"one is old":           {2, 2, 1, 2, corev1.ContainerState{}, stateWarning, ""},
		"a new one starts":     {1, 1, 1, 2, waiting("ContainerCreating"), stateWarning, ""},
		"a new one never runs": {1, 1, 1, 2, waiting("CrashLoopBackOff"), stateFailed, "pod new: CrashLoopBackOff"},
		"one has no image":     {2, 1, 2, 2, waiting("ImagePullBackOff"), stateFailed, "ImagePullBackOff"},
		"none runs":            {2, 0, 2, 2, corev1.ContainerState{}, stateFailed, ""},
		"none is wanted":       {0, 0, 0, 0, corev1.ContainerState{}, stateFailed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			labels := map[string]string{install.PartOfLabel: install.PartOf}
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "hanse-manager", Labels: labels}}
			d.Spec = appsv1.DeploymentSpec{Replicas: ptr.To(test.replicas), Selector: &metav1.LabelSelector{MatchLabels: labels}}
			d.Status.AvailableReplicas, d.Status.UpdatedReplicas, d.Status.Replicas = test.available, test.updated, test.all
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "new", Labels: labels}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: test.state}}
			s := seen(t, []part{partDeployments, partOwnPods}, d, pod)
			if got := s.checkDeployments(subject{}); got[0].State != test.want || !strings.Contains(got[0].Found, test.says) {
				t.Errorf("%+v, want %s", got, test.want)
			}
		})
	}
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func TestAClusterThatCannotRunHanseFails(t *testing.T) {
	old := newChecker(t)
	old.discovery.(*fakediscovery.FakeDiscovery).FakedServerVersion.GitVersion = "v1.30.0"
	if got := stateOf(old.cluster(), "Kubernetes version"); got != stateFailed {
		t.Errorf("an old version is %s", got)
	}
	bare := newChecker(t)
	bare.discovery.(*fakediscovery.FakeDiscovery).Resources[0].APIResources = nil
	for _, name := range []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"} {
		if got := stateOf(bare.cluster(), name); got != stateFailed {
			t.Errorf("%s that is not served is %s", name, got)
		}
	}
}

func TestRightsAreAskedForBeforeTheInstallation(t *testing.T) {
	for name, test := range map[string]struct {
		may  func(*authorizationv1.ResourceAttributes) bool
		want state
	}{
		"an administrator":         {func(*authorizationv1.ResourceAttributes) bool { return true }, stateOK},
		"somebody else":            {func(*authorizationv1.ResourceAttributes) bool { return false }, stateFailed},
		"who may not make kinds":   {func(a *authorizationv1.ResourceAttributes) bool { return a.Resource != "customresourcedefinitions" }, stateFailed},
		"who may not give rights":  {func(a *authorizationv1.ResourceAttributes) bool { return a.Verb != "escalate" }, stateFailed},
		"who may do nothing else":  {func(a *authorizationv1.ResourceAttributes) bool { return a.Resource != "secrets" && a.Verb != "get" }, stateOK},
		"who may not make pods go": {func(a *authorizationv1.ResourceAttributes) bool { return a.Resource != "deployments" }, stateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			check := newChecker(t)
			check.client = interceptor.NewClient(check.client.(client.WithWatch), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					review := o.(*authorizationv1.SelfSubjectAccessReview)
					review.Status.Allowed = test.may(review.Spec.ResourceAttributes)
					return nil
				},
			})
			findings, err := check.run(soon(t), &checkFlags{pre: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := stateOf(findings, "your rights"); got != test.want {
				t.Errorf("%s, want %s: %+v", got, test.want, findings)
			}
		})
	}
}

func TestPeersAreChecked(t *testing.T) {
	in := func(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(d))) }
	both := []v1alpha1.PeerRole{v1alpha1.RoleProvider, v1alpha1.RoleConsumer}
	for name, test := range map[string]struct {
		change func(*v1alpha1.Peer)
		of     string
		want   state
	}{
		"not looked at":        {func(p *v1alpha1.Peer) { p.Status.Conditions = nil }, "hamburg", stateFailed},
		"only found":           {func(p *v1alpha1.Peer) { p.Spec.Roles = nil }, "hamburg", stateSkipped},
		"ready":                {func(*v1alpha1.Peer) {}, "hamburg: Ready", stateOK},
		"unreachable":          {func(p *v1alpha1.Peer) { setCondition(p, "Ready", "False", v1alpha1.ReasonUnreachable, "") }, "hamburg: Ready", stateFailed},
		"invited":              {func(p *v1alpha1.Peer) { setCondition(p, "Ready", "False", v1alpha1.ReasonInvited, "") }, "hamburg: Ready", stateWarning},
		"shortened":            {func(p *v1alpha1.Peer) { setCondition(p, "Session", "False", v1alpha1.ReasonSessionShortened, "") }, "hamburg: Session", stateWarning},
		"not asked":            {func(p *v1alpha1.Peer) { setCondition(p, "Reachable", "Unknown", v1alpha1.ReasonNotConsumed, "") }, "hamburg: Reachable", stateSkipped},
		"without a network":    {func(p *v1alpha1.Peer) { setCondition(p, "Connected", "False", v1alpha1.ReasonNoNetworkFabric, "") }, "hamburg: Connected", stateSkipped},
		"of another version":   {func(p *v1alpha1.Peer) { setCondition(p, "Compatible", "False", v1alpha1.ReasonIncompatibleVersion, "") }, "hamburg: Compatible", stateFailed},
		"a long session":       {func(p *v1alpha1.Peer) { p.Status.Session = &v1alpha1.SessionStatus{Expires: in(29 * 24 * time.Hour)} }, "hamburg: session", stateOK},
		"a session that ends":  {func(p *v1alpha1.Peer) { p.Status.Session = &v1alpha1.SessionStatus{Expires: in(time.Hour)} }, "hamburg: session", stateWarning},
		"a session that ended": {func(p *v1alpha1.Peer) { p.Status.Session = &v1alpha1.SessionStatus{Expires: in(-time.Hour)} }, "hamburg: session", stateFailed},
		"an invitation":        {func(p *v1alpha1.Peer) { p.Status.Invitation = &v1alpha1.InvitationStatus{Expires: in(time.Hour)} }, "hamburg: invitation", stateWarning},
		"an expired one":       {func(p *v1alpha1.Peer) { p.Status.Invitation = &v1alpha1.InvitationStatus{Expires: in(-time.Hour)} }, "hamburg: invitation", stateFailed},
		"a used one": {func(p *v1alpha1.Peer) {
			p.Status.Invitation = &v1alpha1.InvitationStatus{Expires: in(-time.Hour)}
			setCondition(p, "Joined", "True", v1alpha1.ReasonJoined, "")
		}, "hamburg: invitation", ""},
		"open":      {func(*v1alpha1.Peer) {}, "hamburg: access", ""},
		"cordoned":  {func(p *v1alpha1.Peer) { p.Spec.Access = v1alpha1.AccessCordoned }, "hamburg: access", stateWarning},
		"suspended": {func(p *v1alpha1.Peer) { p.Spec.Access = v1alpha1.AccessSuspended }, "hamburg: access", stateWarning},
	} {
		t.Run(name, func(t *testing.T) {
			peer := newPeer("hamburg", both...)
			setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			test.change(peer)
			findings := (&snapshot{now: now}).checkPeer(peer)
			if got := stateOf(findings, test.of); got != test.want {
				t.Errorf("%q, want %q: %+v", got, test.want, findings)
			}
		})
	}
}

func TestOnePeerIsCheckedAlone(t *testing.T) {
	hamburg, bremen := newPeer("hamburg", v1alpha1.RoleProvider), newPeer("bremen", v1alpha1.RoleProvider)
	setCondition(hamburg, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	check := newChecker(t, hamburg, bremen)
	findings, err := check.run(soon(t), &checkFlags{peer: "hamburg"})
	if err != nil {
		t.Fatal(err)
	}
	if stateOf(findings, "hamburg: Ready") != stateOK || stateOf(findings, "Node hanse-hamburg") != stateWarning || len(findings) != 2 {
		t.Errorf("findings: %+v", findings)
	}
	if _, err := check.run(soon(t), &checkFlags{peer: "nobody"}); err == nil {
		t.Error("no error for a peer that there is not")
	}
}

func TestTombstonesAreTold(t *testing.T) {
	stone := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "hanse-peer-hamburg", Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeTombstone},
		Annotations: map[string]string{v1alpha1.AnnotationExpires: "2026-03-31T12:00:00Z"},
	}}
	findings := checkTombstone(stone)
	if stateOf(findings, "namespace hanse-peer-hamburg") != stateWarning {
		t.Errorf("findings: %+v", findings)
	}
}

func TestServicesAreChecked(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hanse-hamburg", Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node.Name},
	}
	service := func(app string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": app}},
		}
	}
	for name, c := range map[string]struct {
		app       string
		connected metav1.ConditionStatus
		want      state
	}{
		"pods that no network leads to": {"web", metav1.ConditionFalse, stateWarning},
		"with a network":                {"web", metav1.ConditionTrue, stateOK},
		"no pods that are away":         {"api", metav1.ConditionFalse, stateOK},
	} {
		t.Run(name, func(t *testing.T) {
			peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg"}}
			setCondition(peer, "Connected", c.connected, v1alpha1.ReasonNoNetworkFabric, "")
			s := seen(t, []part{partPeers, partNodes, partServices}, node, peer, service(c.app))
			s.podsAway = []corev1.Pod{*pod}
			findings := s.checkServices(subject{name: "Services"})
			if got := stateOf(findings, "Services"); got != c.want {
				t.Errorf("got %q: %v", got, findings)
			}
		})
	}
}

func TestNodesAreChecked(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus, cidr string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}},
			Spec:       corev1.NodeSpec{PodCIDR: cidr, Taints: taints},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	refusing, refusesNoMore := node("hanse-d", "True", "10.0.4.0/24"), node("hanse-e", "True", "10.0.5.0/24")
	for refuses, n := range map[corev1.ConditionStatus]*corev1.Node{"True": refusing, "False": refusesNoMore} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.NodeRefusesPods, Status: refuses, Message: "Why"})
	}
	s := seen(t, []part{partNodes, partDaemonSets}, refusing, refusesNoMore, node("hanse-a", "True", "10.0.1.0/24"), node("hanse-b", "Unknown", "10.0.2.0/24"),
		node("hanse-c", "True", "10.0.3.0/24", corev1.Taint{Key: v1alpha1.TaintWithdrawn, Effect: corev1.TaintEffectNoSchedule}))
	findings := slices.Concat(each(s.nodes.Items, s.checkNode), s.checkDaemonSets(subject{name: "DaemonSets"}), s.checkRanges(subject{name: "ranges"}))
	for name, want := range map[string]state{
		"Node hanse-a": stateOK, "Node hanse-b": stateFailed, "Node hanse-c": stateWarning, "Node hanse-d": stateWarning,
		"Node hanse-e": stateOK, "DaemonSets": stateOK, "ranges": stateOK,
	} {
		if got := stateOf(findings, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := seen(t, []part{partNodes}, node("hanse-a", "True", "10.0.1.0/24"), node("hanse-b", "True", "")).checkRanges(subject{}); got[0].State != stateFailed {
		t.Errorf("a node without a range: %+v", got)
	}
	if got := seen(t, []part{partNodes}, node("hanse-a", "True", "")).checkRanges(subject{}); got[0].State != stateSkipped {
		t.Errorf("no node has a range: %+v", got)
	}
}

func TestDaemonSetsThatComeToVirtualNodesAreFound(t *testing.T) {
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	avoiding := func(operator corev1.NodeSelectorOperator, values ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: v1alpha1.LabelType, Operator: operator, Values: values},
			}}},
		}}}
	}
	for name, test := range map[string]struct {
		spec    corev1.PodSpec
		allowed bool
		want    bool
	}{
		"tolerates nothing":         {},
		"tolerates everything":      {spec: corev1.PodSpec{Tolerations: everything}, want: true},
		"tolerates other effects":   {spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}}},
		"tolerates virtual nodes":   {spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}}, want: true},
		"tolerates, and avoids":     {spec: corev1.PodSpec{Tolerations: everything, Affinity: avoiding(corev1.NodeSelectorOpNotIn, v1alpha1.TypeVirtualNode)}},
		"tolerates, and avoids any": {spec: corev1.PodSpec{Tolerations: everything, Affinity: avoiding(corev1.NodeSelectorOpDoesNotExist)}},
		"tolerates, and wants":      {spec: corev1.PodSpec{Tolerations: everything, Affinity: avoiding(corev1.NodeSelectorOpIn, v1alpha1.TypeVirtualNode)}, want: true},
		"is allowed to":             {spec: corev1.PodSpec{Tolerations: everything}, allowed: true},
		"chooses virtual nodes":     {spec: corev1.PodSpec{Tolerations: everything, NodeSelector: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}}},
	} {
		t.Run(name, func(t *testing.T) {
			set := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: test.spec}}}
			if test.allowed {
				set.Annotations = map[string]string{v1alpha1.AnnotationAllowOnVirtualNodes: "true"}
			}
			if got := comesToVirtualNodes(set); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestCheckWaitsUntilNothingFails(t *testing.T) {
	peer := newPeer("hamburg", v1alpha1.RoleConsumer)
	setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "no answer")
	check := newChecker(t, peer)
	looks := 0
	check.now = func() time.Time {
		looks++
		if looks == 1 {
			setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			if err := check.client.Update(t.Context(), peer); err != nil {
				t.Fatal(err)
			}
		}
		return now
	}
	told := []string(nil)
	findings, err := check.repeat(soon(t), &checkFlags{peer: "hamburg", wait: true}, &progress{report: func(_ string, args ...any) {
		told = append(told, args[0].(string))
	}})
	if err != nil || verdict(findings) != nil || looks != 2 {
		t.Errorf("%d looks, %v, %v", looks, err, findings)
	}
	if len(told) != 1 || !strings.Contains(told[0], "no answer") {
		t.Errorf("the user is told %q", told)
	}
}
