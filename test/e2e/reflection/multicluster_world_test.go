// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/clusterset"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// share has the cluster's Peer share exactly the namespaces.
func share(ctx context.Context, t *testing.T, c *framework.Cluster, peer *framework.Cluster, namespaces ...string) {
	t.Helper()
	p, err := c.GetPeer(ctx, peer.Name)
	if err != nil {
		t.Fatal(err)
	}
	before := p.DeepCopy()
	p.Spec.ClusterSet = &v1alpha1.PeerClusterSet{Namespaces: namespaces}
	if err := c.Patch(ctx, p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// sameNamespace makes the namespace in the cluster, as another one has it.
func sameNamespace(t *testing.T, c *framework.Cluster, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: framework.ObjectMeta(name)}
	c.MustCreate(t, ns)
	t.Cleanup(func() { _ = c.Delete(context.Background(), ns) })
}

func exports(t *testing.T, c *framework.Cluster, ns, name string) *mcsv1beta1.ServiceExport {
	t.Helper()
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	c.MustCreate(t, export)
	return export
}

// exportSays waits until the ServiceExport has the condition with that status and reason, and a message with the text.
func exportSays(t *testing.T, c *framework.Cluster, ns, name string, want metav1.Condition) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("ServiceExport %s at %s says %s=%s, %s", name, c.Name, want.Type, want.Status, want.Reason), func(ctx context.Context) error {
		export := &mcsv1beta1.ServiceExport{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, export); err != nil {
			return err
		}
		got := meta.FindStatusCondition(export.Status.Conditions, want.Type)
		if got == nil || got.Status != want.Status || got.Reason != want.Reason || !strings.Contains(got.Message, want.Message) {
			return fmt.Errorf("it says %+v", export.Status.Conditions)
		}
		return nil
	})
}

func exportCondition[T ~string](kind mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus, reason T, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: status, Reason: string(reason), Message: message}
}

// imports waits until the ServiceImport is of exactly these clusters and can be used, and returns it.
func imports(t *testing.T, c *framework.Cluster, ns, name string, of ...string) *mcsv1beta1.ServiceImport {
	t.Helper()
	found := &mcsv1beta1.ServiceImport{}
	framework.Eventually(t, fmt.Sprintf("ServiceImport %s at %s is of %v", name, c.Name, of), func(ctx context.Context) error {
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, found); err != nil {
			return err
		}
		var clusters []string
		for _, one := range found.Status.Clusters {
			clusters = append(clusters, one.Cluster)
		}
		if !slices.Equal(clusters, of) || !meta.IsStatusConditionTrue(found.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)) {
			return fmt.Errorf("it is %+v", found.Status)
		}
		return nil
	})
	return found
}

func importGoes(t *testing.T, c *framework.Cluster, ns, name string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("ServiceImport %s and what belongs to it is gone at %s", name, c.Name), func(ctx context.Context) error {
		if err := c.CheckGone(ctx, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
			return err
		}
		service := clusterset.ServiceName(clusterset.Key{Namespace: ns, Name: name})
		if err := c.CheckGone(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: service}}); err != nil {
			return err
		}
		left, err := sources(ctx, c, ns, name)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("EndpointSlices are left: %v", left)
		}
		return err
	})
}

// sources are the endpoints of the multi-cluster Service: cluster → its addresses, with whether they are ready.
func sources(ctx context.Context, c *framework.Cluster, ns, name string) (map[string][]string, error) {
	list := &discoveryv1.EndpointSliceList{}
	if err := c.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{mcsv1beta1.LabelServiceName: name}); err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			from := slice.Labels[mcsv1beta1.LabelSourceCluster]
			found[from] = append(found[from], fmt.Sprintf("%s ready=%t", e.Addresses[0], ptr.Deref(e.Conditions.Ready, true)))
		}
	}
	for _, endpoints := range found {
		slices.Sort(endpoints)
	}
	return found, nil
}

// expectSource waits until the Service has exactly these endpoints of one cluster, and returns how long that took.
func (s clusterSet) expectSource(t *testing.T, c *framework.Cluster, of string, want ...string) time.Duration {
	t.Helper()
	began := time.Now()
	slices.Sort(want)
	framework.Eventually(t, fmt.Sprintf("%s at %s has the endpoints %v of %s", s.name, c.Name, want, of), func(ctx context.Context) error {
		got, err := sources(ctx, c, s.ns, s.name)
		if err == nil && !slices.Equal(got[of], want) {
			err = fmt.Errorf("they are %v", got)
		}
		return err
	})
	return time.Since(began)
}

// hears waits until all of these pods have answered the party at the host.
func hears(t *testing.T, p *framework.NetworkPod, host string, pods ...string) {
	t.Helper()
	answered := map[string]bool{}
	framework.Eventually(t, fmt.Sprintf("%s is answered by %v at %s", p.Pod, pods, host), func(ctx context.Context) error {
		name, err := p.Request(ctx, host)
		if err != nil {
			return err
		}
		answered[name] = true
		for _, pod := range pods {
			if !answered[pod] {
				return fmt.Errorf("only %v have answered", answered)
			}
		}
		if len(answered) > len(pods) {
			t.Errorf("%v have answered", answered)
		}
		return nil
	})
}

// resolves waits until the name means these addresses for the party.
func resolves(t *testing.T, p *framework.NetworkPod, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	framework.Eventually(t, fmt.Sprintf("%s means %v for %s", name, want, p.Pod), func(ctx context.Context) error {
		out, err := p.Run(ctx, "nslookup "+name+".")
		if err != nil {
			return err
		}
		_, answer, _ := strings.Cut(out, "Name:")
		var got []string
		for line := range strings.Lines(answer) {
			if fields := strings.Fields(line); len(fields) > 0 {
				if address, err := netip.ParseAddr(fields[len(fields)-1]); err == nil {
					got = append(got, address.String())
				}
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("it is told %q", out)
		}
		return nil
	})
}

// A clusterSet is lubeck and hamburg with a namespace in common: pods at both, and one of lubeck's at hamburg.
type clusterSet struct {
	ns, name, host        string
	lubeck, hamburg, away *framework.NetworkPod
	idLubeck, idHamburg   string
	ofLubeck, ofHamburg   string // the pods' addresses as the other cluster sees them
	awayOwn               string // that of the pod that is away, at hamburg
}

func newClusterSet(ctx context.Context, t *testing.T) clusterSet {
	t.Helper()
	s := clusterSet{ns: lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote), name: "web"}
	sameNamespace(t, hamburg, s.ns)
	t.Cleanup(func() {
		share(context.Background(), t, lubeck, hamburg)
		share(context.Background(), t, hamburg, lubeck)
	})
	share(ctx, t, lubeck, hamburg, s.ns)
	share(ctx, t, hamburg, lubeck, s.ns)
	parties := lubeck.StartNetworkPods(t, s.ns, map[string]*framework.Cluster{"away": hamburg})
	s.away = parties["away"]
	s.lubeck = lubeck.StartNetworkPod(t, s.ns, "of-lubeck", nil, framework.OnNode(lubeck.WorkerNames(t)[0]))
	s.hamburg = hamburg.StartNetworkPod(t, s.ns, "of-hamburg", nil)
	home, err := lubeck.GetPod(ctx, s.ns, "away")
	if err != nil {
		t.Fatal(err)
	}
	s.awayOwn = hamburg.MustGetRemotePod(t, home).Status.PodIP
	s.idLubeck, s.idHamburg = hamburg.MustGetConnection(ctx, t, lubeck).Spec.ClusterID, lubeck.MustGetConnection(ctx, t, hamburg).Spec.ClusterID
	s.ofLubeck, s.ofHamburg = lubeck.TranslateToPeer(ctx, t, hamburg, s.lubeck.Address), lubeck.TranslateFromPeer(ctx, t, hamburg, s.hamburg.Address)
	s.host = s.name + "." + s.ns + ".svc.clusterset.local"
	return s
}
