package agentless

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// market is a home cluster with one peer without Hanse, whose capacity is in memory too.
type market struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	home    client.Client
	remote  client.Client
	writes  int
	refused map[string]bool // kind of list → we may not
	down    error
	*Offerer
}

func newMarket(t *testing.T, there ...client.Object) *market {
	t.Helper()
	m := &market{t: t, clock: clocktesting.NewFakeClock(start), refused: map[string]bool{}}
	unnamed := peer()
	unnamed.Spec.ClusterID = ""
	m.home = fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(unnamed).
		WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.Advertisement{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				m.writes++
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				m.writes++
				return c.Update(ctx, o, opts...)
			},
		}).Build()
	m.remote = fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(there...).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				options := client.ListOptions{}
				options.ApplyOptions(opts)
				gvk, err := c.GroupVersionKindFor(list)
				if err != nil {
					return err
				}
				if m.refused[gvk.Kind] || options.Namespace == "" && m.refused["everywhere"] {
					return apierrors.NewForbidden(schema.GroupResource{Resource: gvk.Kind}, "", nil)
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
	config := Config{
		ClusterID: homeID, Interval: 10 * time.Minute, TimeToLive: 30 * time.Minute, Workers: 1,
	}
	connect := func(context.Context, *v1alpha1.Peer) (client.Reader, error) { return m.remote, m.down }
	m.Offerer = NewOfferer(config, m.home, connect, m.clock)
	return m
}

func (m *market) reconcile() reconcile.Result {
	m.t.Helper()
	result, err := m.Reconcile(m.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: peerName}})
	if err != nil {
		m.t.Fatal(err)
	}
	return result
}

// ad returns the advertisement, or nil.
func (m *market) ad() *v1alpha1.Advertisement {
	m.t.Helper()
	ad, err := m.held(m.t.Context(), m.peer())
	if err != nil {
		m.t.Fatal(err)
	}
	return ad
}

func (m *market) peer() *v1alpha1.Peer {
	m.t.Helper()
	found := &v1alpha1.Peer{}
	if err := m.home.Get(m.t.Context(), client.ObjectKey{Name: peerName}, found); err != nil {
		m.t.Fatal(err)
	}
	return found
}

func (m *market) expectAdvertised(status metav1.ConditionStatus, reason, says string) {
	m.t.Helper()
	got := meta.FindStatusCondition(m.ad().Status.Conditions, v1alpha1.ConditionAccepted)
	if got == nil || got.Status != status || got.Reason != reason || !strings.Contains(got.Message, says) {
		m.t.Errorf("Advertised is %+v, want %s for %s that says %q", got, status, reason, says)
	}
}

func amounts(list corev1.ResourceList) map[corev1.ResourceName]string {
	texts := map[corev1.ResourceName]string{}
	for name, amount := range list {
		texts[name] = amount.String()
	}
	return texts
}

func amountsOf(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: corev1.NodeStatus{
			Allocatable: amountsOf("cpu", "8", "memory", "16Gi", "pods", "100", "ephemeral-storage", "50Gi"),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:    corev1.NodeSystemInfo{Architecture: "amd64", KubeletVersion: "v1.36.3"},
		},
	}
}

// podOf is a pod that asks for a core. A node name may be empty.
func podOf(namespace, name, on string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: amountsOf("cpu", "1", "memory", "1Gi")},
		}}},
	}
}

func ours() map[string]string { return map[string]string{v1alpha1.LabelAgentless: peerID} }

func quota(hard, used corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Used: used},
	}
}

func TestNodesMakeAnOffer(t *testing.T) {
	m := newMarket(t, node(),
		podOf(there, "mine", "n1", ours()),
		podOf("else", "theirs", "n1", map[string]string{v1alpha1.LabelPeer: peerName}))
	m.reconcile()
	if got := m.peer().Spec.ClusterID; got != peerID {
		t.Errorf("the peer is called %q", got)
	}
	ad := m.ad()
	want := map[corev1.ResourceName]string{"cpu": "7", "memory": "15Gi", "pods": "99", "ephemeral-storage": "50Gi"}
	if diff := cmp.Diff(want, amounts(ad.Spec.Availability)); diff != "" {
		t.Error(diff)
	}
	if !meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted) ||
		ad.Status.Acknowledgement.State != v1alpha1.AcknowledgementAccepted || ad.Labels[v1alpha1.LabelPeer] != peerName {
		t.Errorf("nobody will use it: %+v %+v", ad.ObjectMeta, ad.Status)
	}
	if ad.Spec.Architectures[0] != "amd64" || ad.Spec.KubernetesVersion != "v1.36.3" || ad.Spec.Prices != nil {
		t.Errorf("it says %+v", ad.Spec)
	}
	m.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "this cluster itself")

	m.writes = 0
	if m.reconcile(); m.writes > 0 {
		t.Error("nothing has changed, and something is written")
	}
	m.clock.Step(10 * time.Minute)
	m.reconcile()
	if again := m.ad(); again.Spec.Sequence != 2 || !again.Spec.TimeToLive.Time.Equal(start.Add(40*time.Minute)) {
		t.Errorf("the offer was not said again: %+v", again.Spec)
	}
}

func TestQuotasMakeAnOfferWhereNodesAreHidden(t *testing.T) {
	q := quota(amountsOf("requests.cpu", "4", "limits.cpu", "8", "memory", "8Gi", "services", "3"),
		amountsOf("requests.cpu", "3", "memory", "2Gi"))
	m := newMarket(t, q, podOf(there, "mine", "", ours()), podOf(there, "theirs", "", nil))
	m.refused["everywhere"] = true
	m.reconcile()
	want := map[corev1.ResourceName]string{"cpu": "2", "memory": "7Gi", "pods": "110", "ephemeral-storage": "0"}
	if diff := cmp.Diff(want, amounts(m.ad().Spec.Availability)); diff != "" {
		t.Error(diff)
	}
}

func TestQuotasBoundWhatNodesHave(t *testing.T) {
	m := newMarket(t, node(), quota(amountsOf("cpu", "3"), amountsOf("cpu", "1")))
	m.reconcile()
	if got := amounts(m.ad().Spec.Availability); got["cpu"] != "2" || got["memory"] != "16Gi" {
		t.Errorf("offered %v", got)
	}
}

func TestWhichRightIsMissingIsSaid(t *testing.T) {
	for name, test := range map[string]struct {
		refused []string
		there   []client.Object
		says    string
	}{
		"everything is hidden": {[]string{"everywhere", "ResourceQuotaList"}, nil, "resourcequotas in namespace guests"},
		"there is no quota":    {[]string{"everywhere"}, nil, "make such a quota"},
		"a quota of objects": {
			[]string{"NodeList"}, []client.Object{quota(amountsOf("pods", "3"), nil)}, "requests.cpu and requests.memory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(t, test.there...)
			for _, kind := range test.refused {
				m.refused[kind] = true
			}
			m.reconcile()
			if len(m.ad().Spec.Availability) > 0 {
				t.Error("there is an offer all the same")
			}
			m.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonAgentless, test.says)
		})
	}
}

func TestAnOfferEndsWithASilentPeer(t *testing.T) {
	m := newMarket(t, node())
	m.reconcile()
	m.down = errors.New("no answer")
	m.clock.Step(10 * time.Minute)
	m.reconcile()
	m.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
	m.clock.Step(30 * time.Minute)
	m.reconcile()
	m.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonExpired, "not answered")
	if meta.IsStatusConditionTrue(m.ad().Status.Conditions, v1alpha1.ConditionAccepted) {
		t.Error("the offer is still in use")
	}
	m.down = nil
	m.reconcile()
	m.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
}

func TestAPeerThatWasNeverReadOffersNothing(t *testing.T) {
	m := newMarket(t)
	m.down = errors.New("no answer")
	if got := m.reconcile().RequeueAfter; got != lookSoon {
		t.Errorf("it is looked at again after %s", got)
	}
	m.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonNoAdvertisement, "could not be read")
}

func TestAnAdministratorRefusesAnOffer(t *testing.T) {
	m := newMarket(t, node())
	m.reconcile()
	ad := m.ad()
	ad.Annotations[v1alpha1.AnnotationDecision] = v1alpha1.DecisionRefuse
	if err := m.home.Update(t.Context(), ad); err != nil {
		t.Fatal(err)
	}
	m.reconcile()
	m.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonRefusedByAdministrator, "refuses")
}

func TestAnIDThatSomebodyChoseIsNotUsed(t *testing.T) {
	m := newMarket(t, node())
	p := m.peer()
	p.Spec.ClusterID = "rostock"
	if err := m.home.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	m.reconcile()
	m.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonClusterIDMismatch, "make the Peer anew")
	if len(m.ad().Spec.Availability) > 0 {
		t.Error("there is an offer all the same")
	}
}

func TestTheOfferGoesWithThePeer(t *testing.T) {
	m := newMarket(t, node())
	m.reconcile()
	p := m.peer()
	p.Finalizers = []string{v1alpha1.FinalizerPeer}
	if err := m.home.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := m.home.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	m.reconcile()
	if m.ad() != nil {
		t.Error("the offer has stayed")
	}
}
