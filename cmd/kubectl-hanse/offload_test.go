// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// flagged is what some flags of offload mean.
func flagged(args ...string) (v1alpha1.NamespaceOffloadingSpec, error) {
	flags, set := &offloadFlags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.bind(set)
	if err := set.Parse(args); err != nil {
		return v1alpha1.NamespaceOffloadingSpec{}, err
	}
	return flags.spec()
}

func TestSelectorsAreTranslated(t *testing.T) {
	got, err := flagged("--cluster-selector", "region in (south,west),tier!=test,gpu,!spot,zone=a")
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{
		{Key: "gpu", Operator: metav1.LabelSelectorOpExists},
		{Key: "region", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"south", "west"}},
		{Key: "spot", Operator: metav1.LabelSelectorOpDoesNotExist},
		{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []v1alpha1.LabelValue{"test"}},
		{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"a"}},
	}}
	if diff := cmp.Diff(want, got.ClusterSelector); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
}

func TestOffloadingWaitsUntilItHolds(t *testing.T) {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	spec := v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}
	probes := 0
	s := newWorld(t, shop)
	s.manager = decide
	c := interceptor.NewClient(s.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if pod, isPod := o.(*corev1.Pod); isPod {
				probes++
				if probes > 1 { // the policy acts from the second pod on
					sendAway(pod)
				}
			}
			return c.Create(ctx, o, options...)
		},
	})
	if err := offloadAndWait(soon(t), c, spec); err != nil {
		t.Fatal(err)
	}
	if probes != 2 {
		t.Errorf("%d pods were tried, want 2", probes)
	}
	pods := &corev1.PodList{}
	if err := s.client.List(t.Context(), pods); err != nil || len(pods.Items) > 0 {
		t.Errorf("%d pods were made, %v", len(pods.Items), err)
	}
}

// A Service cannot reach pods that leave, where no network leads to them.
func TestOffloadingSaysWhatServicesMiss(t *testing.T) {
	const remote = v1alpha1.StrategyRemote
	for name, test := range map[string]struct {
		strategy  v1alpha1.OffloadingStrategy
		connected metav1.ConditionStatus
		selector  map[string]string
		roles     []v1alpha1.PeerRole
		told      bool
	}{
		"no network leads there":           {remote, metav1.ConditionFalse, map[string]string{"app": "web"}, []v1alpha1.PeerRole{v1alpha1.RoleProvider}, true},
		"a network does":                   {remote, metav1.ConditionTrue, map[string]string{"app": "web"}, []v1alpha1.PeerRole{v1alpha1.RoleProvider}, false},
		"its pods stay at home":            {v1alpha1.StrategyLocal, metav1.ConditionFalse, map[string]string{"app": "web"}, []v1alpha1.PeerRole{v1alpha1.RoleProvider}, false},
		"it selects no pods":               {remote, metav1.ConditionFalse, nil, []v1alpha1.PeerRole{v1alpha1.RoleProvider}, false},
		"the peer runs no pods for us":     {remote, metav1.ConditionFalse, map[string]string{"app": "web"}, []v1alpha1.PeerRole{v1alpha1.RoleConsumer}, false},
		"nobody has looked at the network": {remote, "", map[string]string{"app": "web"}, []v1alpha1.PeerRole{v1alpha1.RoleProvider}, true},
	} {
		t.Run(name, func(t *testing.T) {
			peer := newPeer("turin", test.roles...)
			if test.connected != "" {
				setCondition(peer, v1alpha1.ConditionConnected, test.connected, v1alpha1.ReasonNoNetworkFabric, "")
			}
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front"}, Spec: corev1.ServiceSpec{Selector: test.selector}}
			elsewhere := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "vault"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
			s := newWorld(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, peer, service, elsewhere)
			s.manager = decide
			c := interceptor.NewClient(s.client, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if pod, isPod := o.(*corev1.Pod); isPod {
						sendAway(pod)
						if test.strategy == v1alpha1.StrategyLocal {
							pod.Spec.Tolerations = nil
							pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Operator = corev1.NodeSelectorOpNotIn
						}
					}
					return c.Create(ctx, o, options...)
				},
			})
			command, _, told := listener()
			wanted := offloadingOf("shop")
			wanted.Spec.Strategy = test.strategy
			if err := runOffload(soon(t), command, (&connection{client: c}).cluster(command), wanted, true); err != nil {
				t.Fatal(err)
			}
			said := strings.Contains(told.String(), "turin") && strings.Contains(told.String(), "front")
			if said != test.told || strings.Contains(told.String(), "vault") {
				t.Errorf("it says %q", told)
			}
		})
	}
}

// offloadAndWait offloads namespace shop as the verb does.
func offloadAndWait(ctx context.Context, c client.WithWatch, spec v1alpha1.NamespaceOffloadingSpec) error {
	command, _, _ := listener()
	wanted := offloadingOf("shop")
	wanted.Spec = spec
	return runOffload(ctx, command, (&connection{client: c}).cluster(command), wanted, true)
}

// sendAway is what the policy does under strategy Remote.
func sendAway(pod *corev1.Pod) {
	away := corev1.NodeSelectorRequirement{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.TypeVirtualNode}}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{away}}},
		},
	}}
}

func TestOffloadingWaitsUntilPlacementIsDecided(t *testing.T) {
	testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
		s := newWorld(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		c := interceptor.NewClient(s.client, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if pod, isPod := o.(*corev1.Pod); isPod {
					sendAway(pod)
				}
				return c.Create(ctx, o, options...)
			},
		})
		spec := v1alpha1.NamespaceOffloadingSpec{
			Strategy: v1alpha1.StrategyRemote, Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}},
		}
		if err := offloadAndWait(ctx, c, spec); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody has decided, and the error is %v", err)
		}
		s.manager = decide
		spec.Placement.Prefer = v1alpha1.PreferLatency
		if err := offloadAndWait(soon(t), c, spec); err != nil {
			t.Error(err)
		}
	})
}

// decide is what the manager does: it says what admission adds to new pods.
func decide(ctx context.Context, c client.Client, written client.Object) error {
	offloading, isOffloading := written.(*v1alpha1.NamespaceOffloading)
	if !isOffloading {
		return nil
	}
	placement, err := offload.NewPlacement(offloading)
	if err != nil {
		return err
	}
	decided := v1alpha1.PlacementStatus{Nodes: []v1alpha1.NodePlacement{{Name: "hanse-turin"}}}
	decided.Admission = placement.Admission(nil, decided)
	offloading.Status.Placement = &v1alpha1.NamespacePlacementStatus{PlacementStatus: decided}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionPlaced} {
		meta.SetStatusCondition(&offloading.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, ObservedGeneration: offloading.Generation,
		})
	}
	return c.Update(ctx, offloading)
}

func TestOffloadingDoesNotWaitWhereNoPodMayBeMade(t *testing.T) {
	s := newWorld(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	s.manager = decide
	c := interceptor.NewClient(s.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, isPod := o.(*corev1.Pod); isPod {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
			}
			return c.Create(ctx, o, options...)
		},
	})
	if err := offloadAndWait(soon(t), c, v1alpha1.NamespaceOffloadingSpec{}); err != nil {
		t.Error(err)
	}
}

func TestOffloadingOfNoNamespaceSaysSo(t *testing.T) {
	err := offloadAndWait(soon(t), newWorld(t).client, v1alpha1.NamespaceOffloadingSpec{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("error %v, want not found", err)
	}
}

func TestPlacementFlagsAreTranslated(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want *v1alpha1.Placement
		says string
	}{
		"none": {},
		"all": {
			args: []string{"--prefer", "price", "--max-price", "0.05 EUR", "--max-latency", "50ms", "--min-bandwidth", "100M", "--exclude", "a,b", "--strict"},
			want: &v1alpha1.Placement{
				Prefer:     v1alpha1.PreferPrice,
				MaxPrice:   &v1alpha1.Price{Amount: resource.MustParse("0.05"), Currency: "EUR"},
				MaxLatency: &metav1.Duration{Duration: 50 * time.Millisecond}, MinBandwidth: ptr.To(resource.MustParse("100M")),
				Exclude: []string{"a", "b"}, Strict: true,
			},
		},
		"latency":                      {args: []string{"--prefer", "Latency"}, want: &v1alpha1.Placement{Prefer: v1alpha1.PreferLatency}},
		"spread":                       {args: []string{"--prefer", "spread"}, want: &v1alpha1.Placement{Prefer: v1alpha1.PreferSpread}},
		"nothing at all may be paid":   {args: []string{"--max-price", "0 EUR"}, want: &v1alpha1.Placement{MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("0"), Currency: "EUR"}}},
		"a preference that is none":    {args: []string{"--prefer", "beauty"}, says: "[Price Latency Spread]"},
		"a price without currency":     {args: []string{"--max-price", "0.05"}, says: "no amount with a currency"},
		"a price that is no number":    {args: []string{"--max-price", "NaN EUR"}, says: `"NaN EUR" is no amount`},
		"a peer that cannot be":        {args: []string{"--exclude", "a,B"}, says: `"B" is no name of a peer`},
		"a bandwidth that is none":     {args: []string{"--min-bandwidth", "wide"}, says: "quantities must match"},
		"a round trip that is no time": {args: []string{"--max-latency", "far"}, says: "invalid duration"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := flagged(test.args...)
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Fatalf("error %v, want one that says %q", err, test.says)
			}
			var said *v1alpha1.Placement
			if got.Placement != nil && test.says == "" {
				said = &got.Placement.Placement
			}
			if diff := cmp.Diff(test.want, said); diff != "" {
				t.Errorf("placement (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatFlagsSayAboutPodsInTrouble(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want v1alpha1.NamespaceOffloadingSpec
		says string
	}{
		"nothing": {want: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote, OnDisconnect: v1alpha1.DisconnectionWait, OnChange: v1alpha1.ChangeKeep}},
		"all": {
			args: []string{
				"--on-disconnect=replace", "--replace-after=2m", "--placement-timeout=1m", "--scale-up-timeout=20m", "--on-change=Evict", "--same-name",
			},
			want: v1alpha1.NamespaceOffloadingSpec{
				Strategy: v1alpha1.StrategyLocalAndRemote, OnDisconnect: v1alpha1.DisconnectionReplace, OnChange: v1alpha1.ChangeEvict,
				ReplaceAfter: &metav1.Duration{Duration: 2 * time.Minute}, PlacementTimeout: &metav1.Duration{Duration: time.Minute},
				ScaleUpTimeout: &metav1.Duration{Duration: 20 * time.Minute}, Twin: &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName},
			},
		},
		"a name": {args: []string{"--twin-name=store"}, want: v1alpha1.NamespaceOffloadingSpec{
			Strategy: v1alpha1.StrategyLocalAndRemote, OnDisconnect: v1alpha1.DisconnectionWait, OnChange: v1alpha1.ChangeKeep,
			Twin: &v1alpha1.TwinNaming{Naming: v1alpha1.TwinChosen, Name: "store"},
		}},
		"a disconnection that is none":  {args: []string{"--on-disconnect=panic"}, says: "[Wait Replace]"},
		"a change that is none":         {args: []string{"--on-change=panic"}, says: "[Keep Evict]"},
		"a time for what does not come": {args: []string{"--replace-after=2m"}, says: "for --on-disconnect replace"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := flagged(test.args...)
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("error %v, want one that says %q", err, test.says)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%v, spec (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestOffloadingThatIsOnlyPrinted(t *testing.T) {
	got, err := run(t, "offload", "shop", "--strategy", "Remote", "--prefer", "price", "--on-change", "evict", "--dry-run=client", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := `---
apiVersion: hanse.dev/v1alpha1
kind: NamespaceOffloading
metadata:
  name: offloading
  namespace: shop
spec:
  onChange: Evict
  onDisconnect: Wait
  placement:
    prefer: Price
  strategy: Remote
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

func TestOffloadingAgainKeepsWhatNoFlagSays(t *testing.T) {
	before := offloadingOf("shop")
	before.Annotations = map[string]string{v1alpha1.AnnotationKeptOffloading: "true"}
	before.Spec = v1alpha1.NamespaceOffloadingSpec{
		Strategy:  v1alpha1.StrategyLocal,
		Overrides: []v1alpha1.ClusterOverride{{Patch: []v1alpha1.PatchOperation{{Op: "remove", Path: "/spec/containers/0/args"}}}},
		Placement: &v1alpha1.NamespacePlacement{
			Placement: v1alpha1.Placement{Strict: true}, Classes: []v1alpha1.PlacementClass{{Name: "front"}},
		},
	}
	w := newWorld(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, before)
	command, _, told := listener()
	wanted := offloadingOf("shop")
	wanted.Spec = v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}
	if err := runOffload(soon(t), command, w.cluster(command), wanted, false); err != nil {
		t.Fatal(err)
	}
	got := offloadingOf("shop")
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote, Overrides: before.Spec.Overrides,
		Placement: &v1alpha1.NamespacePlacement{Classes: before.Spec.Placement.Classes},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if len(got.Annotations) > 0 || !strings.Contains(told.String(), "is yours") {
		t.Errorf("annotations %v, and the user is told %q", got.Annotations, told)
	}
}
