// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/clusterset"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// here is our tenant namespace of turin, and there what is ours at turin.
const (
	here  = "hanse-peer-turin"
	there = "hanse-peer-lubeck"
)

// world is lubeck with its peer turin, which is Away. Of the two turin is the consumer, or the provider, or both.
type world struct {
	*testkit.World
	peers    *peerstest.World
	turin    *peerstest.Peer
	importer *importer
	exporter *exporter
}

func newWorld(t *testing.T, peer *v1alpha1.Peer, objects ...client.Object) *world {
	t.Helper()
	connected := &v1alpha1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: v1alpha1.ConnectionName}}
	connected.Spec.Theirs = []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.64.0.0/16"}}
	connected.Spec.Ours = []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.70.0.0/16"}}
	testkit.SetCondition(&peer.Status.Conditions, v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonReady)
	testkit.SetCondition(&connected.Status.Conditions, v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w := &world{World: testkit.NewWorld(t, append(objects, peer, connected, testkit.TenantNamespace("turin"), testkit.Namespace("shop", nil))...)}
	w.peers = peerstest.New(t, testkit.Scheme(), peers.Config{})
	w.turin = w.peers.Add("turin", there, w.Away.Client)
	if peer.HasRole(v1alpha1.RoleProvider) {
		w.peers.Link(peer).Mappings()
	}
	config := Config{Client: w.Home.Client, Live: w.Home.Client, Links: w.peers.Links, Namespace: "hanse-system", ClusterID: "lubeck-id", Network: true}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	w.importer, w.exporter = &importer{config}, &exporter{config}
	return w
}

// turin is a peer that shares namespace shop.
func turin(roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
	peer := testkit.Peer("turin", roles...)
	peer.Spec.ClusterSet = &v1alpha1.PeerClusterSet{Namespaces: []string{"sh*"}}
	return peer
}

// look has both controllers look until nothing changes any more.
func (w *world) look() {
	w.Helper()
	for range 4 {
		w.Reconcile(w.exporter, "", "turin")
		w.Reconcile(w.importer, "shop", "web")
	}
}

// lookUntil has them look until the condition holds: what is written at turin comes back over a watch.
func (w *world) lookUntil(condition func() bool) {
	w.Helper()
	for range 1000 {
		if condition() {
			return
		}
		w.look()
	}
	w.Fatal("it does not come to that")
}

// expectServices checks what the Peer says of the Services that go between the clusters.
func (w *world) expectServices(want *v1alpha1.PeerServices) {
	w.Helper()
	peer := &v1alpha1.Peer{}
	w.Home.Get(peer, "", "turin")
	if diff := cmp.Diff(want, peer.Status.Services); diff != "" {
		w.Errorf("services (-want +got):\n%s", diff)
	}
}

func (w *world) expectConditions(want ...string) {
	w.Helper()
	export := &mcsv1beta1.ServiceExport{}
	w.Home.Get(export, "shop", "web")
	var got []string
	for _, c := range export.Status.Conditions {
		got = append(got, c.Type+"="+string(c.Status)+" "+c.Reason)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("conditions (-want +got):\n%s\n%v", diff, export.Status.Conditions)
	}
}

// endpoints are those behind the ServiceImport: their cluster, address, and whether they are ready.
func (w *world) endpoints() []string {
	w.Helper()
	list := &discoveryv1.EndpointSliceList{}
	if err := w.Home.Server.List(w.Context(), list, client.InNamespace("shop"), client.HasLabels{mcsv1beta1.LabelSourceCluster}); err != nil {
		w.Fatal(err)
	}
	var all []string
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			text := slice.Labels[mcsv1beta1.LabelSourceCluster] + " " + e.Addresses[0]
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				text += " not ready"
			}
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return all
}

func (w *world) expectEndpoints(want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.endpoints()); diff != "" {
		w.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

func webService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func webSlice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.7"}, NodeName: new("n1")}},
	}
}

func webExport() *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", CreationTimestamp: metav1.NewTime(testkit.Noon.Add(-time.Hour)),
	}}
}

// told is what turin exports.
func told(by v1alpha1.ExportedBy, namespace string) *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ExportedServiceName(by, "shop", "web", 0)},
		Spec: v1alpha1.ExportedServiceSpec{
			By: by, Namespace: "shop", Name: "web", Type: "ClusterSetIP", AddressType: "IPv4", ExportedAt: metav1.NewTime(testkit.Noon),
			Ports: []v1alpha1.ExportedPort{{Port: 80}}, EndpointPorts: []v1alpha1.ShadowEndpointPort{{Port: new(int32(9090))}},
			Endpoints: []v1alpha1.ExportedEndpoint{{Address: "100.64.1.5"}},
		},
	}
}

func TestExportsGoBothWaysToAConsumer(t *testing.T) {
	w := newWorld(t, turin(v1alpha1.RoleConsumer), webService(), webSlice(), webExport(), told(v1alpha1.ExportedByConsumer, here))
	w.look()
	w.expectEndpoints("lubeck-id 10.244.0.7", "turin-id 100.64.1.5")
	w.expectConditions("Conflict=False NoConflicts", "Ready=True Exported", "Valid=True Valid")
	ours := &v1alpha1.ExportedService{}
	w.Home.Get(ours, here, "provider.shop.web.0")
	if e := ours.Spec.Endpoints; len(e) != 1 || e[0].Address != "100.70.0.7" {
		t.Errorf("turin is told of %v", e)
	}
	connection := &v1alpha1.Connection{}
	w.Home.Get(connection, here, v1alpha1.ConnectionName)
	want := []v1alpha1.ServicePath{{Namespace: "shop", Ports: []v1alpha1.OpeningPort{{Protocol: "TCP", Port: 8080}}}}
	if diff := cmp.Diff(want, connection.Spec.Exported); diff != "" || len(connection.Spec.Imported) != 1 || connection.Spec.Imported[0].Ports[0].Port != 9090 {
		t.Errorf("open are %v and (-want +got):\n%s", connection.Spec.Imported, diff)
	}
	w.expectServices(&v1alpha1.PeerServices{Exported: 1, Imported: 1})
	w.Home.Writes()
	w.look()
	w.Home.ExpectWrites()
	v1alpha1.Answer(&ours.Status.Conditions, v1alpha1.ReasonExportRefused, "no such namespace", 1)
	w.Home.Put(ours)
	w.look()
	refused := []v1alpha1.RefusedService{{Namespace: "shop", Name: "web", Message: "no such namespace"}}
	w.expectServices(&v1alpha1.PeerServices{Imported: 1, RefusedThere: refused})
	unshared := &v1alpha1.Peer{}
	w.Home.Get(unshared, "", "turin")
	unshared.Spec.ClusterSet = nil
	w.Home.Put(unshared)
	w.look()
	w.expectServices(nil)
}

func TestExportsGoBothWaysToAProvider(t *testing.T) {
	w := newWorld(t, turin(v1alpha1.RoleProvider), webService(), webSlice(), webExport())
	if err := w.turin.Client.Create(t.Context(), told(v1alpha1.ExportedByProvider, there)); err != nil {
		t.Fatal(err)
	}
	w.look()
	w.expectEndpoints("lubeck-id 10.244.0.7", "turin-id 100.64.1.5")
	ours := &v1alpha1.ExportedService{}
	w.Away.Get(ours, there, "consumer.shop.web.0")
	link, _ := w.importer.Links.Get("turin")
	w.lookUntil(func() bool { return len(link.Follow(exported, there).List()) == 2 })
	w.look()
	w.expectServices(&v1alpha1.PeerServices{Exported: 1, Imported: 1})
	w.Home.Remove(webExport())
	w.look()
	w.expectEndpoints("turin-id 100.64.1.5")
	if w.Away.Find(ours, there, "consumer.shop.web.0") {
		t.Error("turin is still told of what is not exported")
	}
}

// After a restart it is not known yet what a provider tells.
func TestASilentProviderTakesNothingAway(t *testing.T) {
	w := newWorld(t, turin(v1alpha1.RoleProvider))
	if err := w.turin.Client.Create(t.Context(), told(v1alpha1.ExportedByProvider, there)); err != nil {
		t.Fatal(err)
	}
	w.look()
	again := peerstest.New(t, testkit.Scheme(), peers.Config{})
	again.Add("turin", there, w.Away.Client).Silence()
	again.Link(turin(v1alpha1.RoleProvider))
	w.importer.Links, w.exporter.Links = again.Links, again.Links
	w.look()
	w.expectEndpoints("turin-id 100.64.1.5")
	peer := &v1alpha1.Peer{}
	w.Home.Get(peer, "", "turin")
	testkit.SetCondition(&peer.Status.Conditions, v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonTunnelDown)
	w.Home.Put(peer)
	w.look()
	w.expectEndpoints("turin-id 100.64.1.5 not ready")
}

func TestEndpointsBehindATunnelThatIsDownAreNotReady(t *testing.T) {
	w := newWorld(t, turin(v1alpha1.RoleConsumer), told(v1alpha1.ExportedByConsumer, here))
	w.look()
	connection := &v1alpha1.Connection{}
	w.Home.Get(connection, here, v1alpha1.ConnectionName)
	testkit.SetCondition(&connection.Status.Conditions, v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonTunnelDown)
	w.Home.Put(connection)
	w.look()
	w.expectEndpoints("turin-id 100.64.1.5 not ready")
}

func TestWhatIsNotTakenIsAnswered(t *testing.T) {
	unshared := turin(v1alpha1.RoleConsumer)
	unshared.Spec.ClusterSet.Namespaces = []string{"stock"}
	foreign := told(v1alpha1.ExportedByConsumer, here)
	foreign.Spec.Endpoints[0].Address = "10.244.0.7"
	for name, test := range map[string]struct {
		peer    *v1alpha1.Peer
		message *v1alpha1.ExportedService
		beside  client.Object
		want    string
	}{
		"a namespace that is not shared": {unshared, told(v1alpha1.ExportedByConsumer, here), testkit.Namespace("stock", nil), "spec.clusterSet.namespaces"},
		"an address of ours":             {turin(v1alpha1.RoleConsumer), foreign, testkit.Namespace("stock", nil), "spec.endpoints[0]"},
		"a ServiceImport of another": {
			turin(v1alpha1.RoleConsumer), told(v1alpha1.ExportedByConsumer, here),
			&mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, "not of Hanse",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.peer, test.message, test.beside)
			w.look()
			w.expectEndpoints()
			answered := &v1alpha1.ExportedService{}
			w.Home.Get(answered, here, test.message.Name)
			c := meta.FindStatusCondition(answered.Status.Conditions, v1alpha1.ConditionAccepted)
			if c == nil || c.Reason != v1alpha1.ReasonExportRefused || !strings.Contains(c.Message, test.want) {
				t.Errorf("it is answered %+v", answered.Status)
			}
		})
	}
}

func TestAPodOfThePeerHereIsAnEndpoint(t *testing.T) {
	message := told(v1alpha1.ExportedByConsumer, here)
	message.Spec.Endpoints[0].Address = "10.244.0.9"
	twin := testkit.Namespace("shop-turin", map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: "turin", v1alpha1.LabelManaged: "true",
	})
	guest := testkit.Pod("shop-turin", "web", "n1")
	guest.Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.9"}}
	w := newWorld(t, turin(v1alpha1.RoleConsumer), message, twin, guest)
	w.look()
	w.expectEndpoints("turin-id 10.244.0.9")
	w.Home.Remove(guest)
	w.look()
	if w.Home.Find(&mcsv1beta1.ServiceImport{}, "shop", "web") {
		t.Error("its address may be another pod's by now")
	}
}

func TestTheExportTellsWhatIsWrong(t *testing.T) {
	external := webService()
	external.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	unshared := turin(v1alpha1.RoleConsumer)
	unshared.Spec.ClusterSet = nil
	conflicting := told(v1alpha1.ExportedByConsumer, here)
	conflicting.Spec.Ports[0].Port = 81
	for name, test := range map[string]struct {
		peer   *v1alpha1.Peer
		beside client.Object
		want   []string
	}{
		"no Service":      {turin(v1alpha1.RoleConsumer), webSlice(), []string{"Conflict=False NoConflicts", "Ready=False Failed", "Valid=False NoService"}},
		"ExternalName":    {turin(v1alpha1.RoleConsumer), external, []string{"Conflict=False NoConflicts", "Ready=False Failed", "Valid=False InvalidServiceType"}},
		"shared by none":  {unshared, webService(), []string{"Conflict=False NoConflicts", "Ready=False NotInClusterSet", "Valid=True Valid"}},
		"different ports": {turin(v1alpha1.RoleConsumer), webService(), []string{"Conflict=True PortConflict", "Ready=True Exported", "Valid=True Valid"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.peer, webExport(), test.beside)
			if strings.HasPrefix(name, "different") {
				w.Home.Put(conflicting)
			}
			w.look()
			w.expectConditions(test.want...)
		})
	}
}

func TestEndpointsThatAreTooManyAreSaid(t *testing.T) {
	objects := []client.Object{webService(), webExport()}
	for i := range 51 { // each of which is an object of its own
		slice := webSlice()
		slice.Name = fmt.Sprintf("web-%d", i)
		objects = append(objects, slice)
	}
	w := newWorld(t, turin(v1alpha1.RoleConsumer), objects...)
	once := func() {
		w.Reconcile(w.exporter, "", "turin")
		w.Reconcile(w.importer, "shop", "web")
	}
	once()
	w.expectConditions("Conflict=False NoConflicts", "Ready=False TooManyEndpoints", "Valid=True Valid")
	told := &v1alpha1.ExportedServiceList{}
	if err := w.Home.Server.List(t.Context(), told); err != nil || len(told.Items) != 50 {
		t.Errorf("turin is told by %d objects (%v)", len(told.Items), err)
	}
	w.Home.Remove(objects[2])
	once()
	w.expectConditions("Conflict=False NoConflicts", "Ready=True Exported", "Valid=True Valid")
}

func TestTheImportHasTheAddressOfItsService(t *testing.T) {
	w := newWorld(t, turin(v1alpha1.RoleConsumer), webService(), webSlice(), webExport())
	w.look()
	service, found := &corev1.Service{}, &mcsv1beta1.ServiceImport{}
	w.Home.Get(service, "shop", clusterset.ServiceName(clusterset.Key{Namespace: "shop", Name: "web"}))
	service.Spec.ClusterIP, service.Spec.ClusterIPs = "10.96.0.9", []string{"10.96.0.9"}
	w.Home.Put(service)
	w.look()
	w.Home.Get(found, "shop", "web")
	if diff := cmp.Diff([]string{"10.96.0.9"}, found.Spec.IPs); diff != "" || !meta.IsStatusConditionTrue(found.Status.Conditions, "Ready") {
		t.Errorf("%+v (-want +got):\n%s", found.Status, diff)
	}
	if !metav1.IsControlledBy(service, found) {
		t.Error("the Service does not go with the import")
	}
	w.Home.Remove(webExport())
	w.look()
	if w.Home.Find(found, "shop", "web") {
		t.Error("the import stays without an export")
	}
}

func TestAClusterProfileForEachPeer(t *testing.T) {
	offer := testkit.Advertisement("turin")
	offer.Annotations = map[string]string{v1alpha1.AnnotationAccepted: "true"}
	offer.Spec.KubernetesVersion, offer.Spec.Labels = "v1.37.1", map[string]v1alpha1.Text{"topology.kubernetes.io/region": "piedmont"}
	peer := turin(v1alpha1.RoleProvider)
	testkit.SetCondition(&peer.Status.Conditions, v1alpha1.ConditionReachable, metav1.ConditionTrue, v1alpha1.ReasonReady)
	w := newWorld(t, peer, offer)
	controller := &profiles{w.importer.Config}
	w.Reconcile(controller, "", "turin")
	found := &inventory.ClusterProfile{}
	w.Home.Get(found, "hanse-system", "turin")
	want := []inventory.Property{{Name: v1alpha1.LabelClusterID, Value: "turin-id"}, {Name: "topology.kubernetes.io/region", Value: "piedmont"}}
	if diff := cmp.Diff(want, found.Status.Properties); diff != "" || found.Status.Version.Kubernetes != "v1.37.1" {
		t.Errorf("%+v (-want +got):\n%s", found.Status.Version, diff)
	}
	testkit.ExpectCondition(t, found.Status.Conditions, "ControlPlaneHealthy", metav1.ConditionTrue, v1alpha1.ReasonReady)
	testkit.ExpectCondition(t, found.Status.Conditions, "Joined", metav1.ConditionUnknown, v1alpha1.ReasonPending)
	w.Home.Writes()
	w.Reconcile(controller, "", "turin")
	w.Home.ExpectWrites()
	if owners := found.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Peer" || owners[0].UID != peer.UID {
		t.Errorf("it belongs to %v", owners)
	}
}
