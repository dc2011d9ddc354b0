// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var (
	noon = time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC)
	web  = Key{Namespace: "shop", Name: "web"}
)

func port(name string, number int32) mcsv1beta1.ServicePort {
	return mcsv1beta1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number}
}

func export(cluster string, age time.Duration, ports ...mcsv1beta1.ServicePort) *Export {
	return &Export{Cluster: cluster, At: noon.Add(-age), Type: mcsv1beta1.ClusterSetIP, Ports: ports}
}

func TestTheOldestExportDecides(t *testing.T) {
	headless, sticky := export("bremen", time.Minute, port("", 80)), export("bremen", time.Minute, port("", 80))
	headless.Type = mcsv1beta1.Headless
	sticky.SessionAffinity, sticky.AffinitySeconds = corev1.ServiceAffinityClientIP, new(int32(60))
	labelled := export("bremen", time.Minute, port("", 80))
	labelled.Labels = map[string]string{"tier": "front"}
	old := func(ports ...mcsv1beta1.ServicePort) *Export { return export("lubeck", time.Hour, ports...) }
	for name, test := range map[string]struct {
		exports []*Export
		ports   []string
		reasons []string
	}{
		"one":                             {[]*Export{old(port("", 80))}, []string{"80/TCP"}, nil},
		"two that say the same":           {[]*Export{export("bremen", 0, port("", 80)), old(port("", 80))}, []string{"80/TCP"}, nil},
		"another number without a name":   {[]*Export{export("bremen", 0, port("", 81)), old(port("", 80))}, []string{"80/TCP"}, []string{"PortConflict"}},
		"one more port":                   {[]*Export{export("bremen", 0, port("http", 80), port("admin", 90)), old(port("http", 80))}, []string{"http 80/TCP", "admin 90/TCP"}, []string{"PortConflict"}},
		"the same name for another":       {[]*Export{export("bremen", 0, port("http", 81)), old(port("http", 80))}, []string{"http 80/TCP"}, []string{"PortConflict"}},
		"the same port by another name":   {[]*Export{export("bremen", 0, port("web", 80)), old(port("http", 80))}, []string{"http 80/TCP"}, []string{"PortConflict"}},
		"one of which just one has names": {[]*Export{export("bremen", 0, port("http", 81)), old(port("", 80))}, []string{"80/TCP"}, []string{"PortConflict"}},
		"one that is headless":            {[]*Export{headless, old(port("", 80))}, []string{"80/TCP"}, []string{"TypeConflict"}},
		"one with session affinity":       {[]*Export{sticky, old(port("", 80))}, []string{"80/TCP"}, []string{"SessionAffinityConflict", "SessionAffinityConfigConflict"}},
		"one with labels":                 {[]*Export{labelled, old(port("", 80))}, []string{"80/TCP"}, []string{"LabelsConflict"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := Merge(test.exports)
			var ports, reasons []string
			for _, p := range m.Ports {
				ports = append(ports, portsText([]mcsv1beta1.ServicePort{p}))
			}
			for _, c := range m.Conflicts {
				reasons = append(reasons, string(c.Reason))
				if !strings.Contains(c.Message, "lubeck") || !strings.Contains(c.Message, "bremen") {
					t.Errorf("%q does not name both", c.Message)
				}
			}
			if diff := cmp.Diff(test.ports, ports) + cmp.Diff(test.reasons, reasons); diff != "" || m.Cluster != "lubeck" {
				t.Errorf("%s decides (-want +got):\n%s", m.Cluster, diff)
			}
		})
	}
}

func TestExportsOfTheSameMomentAreSortedByCluster(t *testing.T) {
	if m := Merge([]*Export{export("lubeck", 0, port("", 80)), export("bremen", 0, port("", 81))}); m.Cluster != "bremen" {
		t.Errorf("%s decides", m.Cluster)
	}
}

func sender() *Sender {
	return &Sender{
		Name: "turin", Cluster: "turin-id", Shares: true, Connected: true, Seen: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")},
		Guests: map[netip.Addr]bool{netip.MustParseAddr("10.244.1.9"): true},
	}
}

func told(change func(*v1alpha1.ExportedServiceSpec)) *v1alpha1.ExportedServiceSpec {
	spec := &v1alpha1.ExportedServiceSpec{
		By: v1alpha1.ExportedByProvider, Namespace: "shop", Name: "web", Type: "ClusterSetIP", AddressType: "IPv4", ExportedAt: metav1.NewTime(noon),
		Ports: []v1alpha1.ExportedPort{{Name: "http", Protocol: "TCP", Port: 80}}, EndpointPorts: []v1alpha1.ShadowEndpointPort{{Name: "http", Port: new(int32(8080))}},
		Endpoints: []v1alpha1.ExportedEndpoint{{Address: "100.64.1.5"}, {Address: "10.244.1.9", Hostname: "db-0", Zone: "a"}},
	}
	if change != nil {
		change(spec)
	}
	return spec
}

func TestWhatAPeerSaysIsChecked(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.ExportedServiceSpec)
		want   string
	}{
		"all is well":                  {},
		"an address of ours":           {func(s *v1alpha1.ExportedServiceSpec) { s.Endpoints[0].Address = "10.244.1.8" }, "spec.endpoints[0]"},
		"of the Internet":              {func(s *v1alpha1.ExportedServiceSpec) { s.Endpoints[1].Address = "192.0.2.1" }, "spec.endpoints[1]"},
		"one that is none":             {func(s *v1alpha1.ExportedServiceSpec) { s.Endpoints[0].Address = "web" }, "spec.endpoints[0]"},
		"of another family":            {func(s *v1alpha1.ExportedServiceSpec) { s.AddressType = "IPv6" }, "spec.endpoints[0]"},
		"of no family":                 {func(s *v1alpha1.ExportedServiceSpec) { s.AddressType = "FQDN" }, "spec.addressType"},
		"too many endpoints":           {func(s *v1alpha1.ExportedServiceSpec) { s.Endpoints = make([]v1alpha1.ExportedEndpoint, 101) }, "spec.endpoints"},
		"a hostname that is none":      {func(s *v1alpha1.ExportedServiceSpec) { s.Endpoints[0].Hostname = "a b" }, "hostname"},
		"a zone that is none":          {func(s *v1alpha1.ExportedServiceSpec) { s.Endpoints[0].Zone = "a b" }, "zone"},
		"a name that is none":          {func(s *v1alpha1.ExportedServiceSpec) { s.Name = "9" }, "spec: namespace and name"},
		"another type":                 {func(s *v1alpha1.ExportedServiceSpec) { s.Type = "LoadBalancer" }, "spec.type"},
		"another affinity":             {func(s *v1alpha1.ExportedServiceSpec) { s.SessionAffinity = "Always" }, "spec.sessionAffinity"},
		"an affinity for ever":         {func(s *v1alpha1.ExportedServiceSpec) { s.AffinitySeconds = new(int32(1 << 30)) }, "spec.affinitySeconds"},
		"a port that is none":          {func(s *v1alpha1.ExportedServiceSpec) { s.Ports[0].Port = 0 }, "spec.ports[0]"},
		"a protocol that is none":      {func(s *v1alpha1.ExportedServiceSpec) { s.Ports[0].Protocol = "IP" }, "spec.ports[0]"},
		"two ports of a name":          {func(s *v1alpha1.ExportedServiceSpec) { s.Ports = append(s.Ports, s.Ports[0]) }, "spec.ports[1]"},
		"an endpoint's port of none":   {func(s *v1alpha1.ExportedServiceSpec) { s.EndpointPorts[0].Port = new(int32(70000)) }, "spec.endpointPorts[0]"},
		"too many ports":               {func(s *v1alpha1.ExportedServiceSpec) { s.Ports = make([]v1alpha1.ExportedPort, 33) }, "at most 32 ports"},
		"what is spoken there is none": {func(s *v1alpha1.ExportedServiceSpec) { s.Ports[0].AppProtocol = "a b" }, "spec.ports[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := sender().Refusal(told(test.change))
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	s := sender()
	s.Shares = false
	if got := s.Refusal(told(nil)); !strings.Contains(got, "spec.clusterSet.namespaces") {
		t.Errorf("a namespace that is not shared: %q", got)
	}
}

func TestWhatIsReceivedBecomesEndpointSlices(t *testing.T) {
	received := sender().Received([]*v1alpha1.ExportedServiceSpec{told(nil)})
	m := Merge([]*Export{received})
	found := received.EndpointSlices(web, false)
	name := ServiceName(web) + "-turin-id-ipv4-0"
	slice := found[name]
	if len(found) != 1 || slice == nil {
		t.Fatalf("%v, want %s", found, name)
	}
	want := map[string]string{
		v1alpha1.LabelClusterSet: "true", mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: "turin-id",
		discoveryv1.LabelManagedBy: v1alpha1.ClusterSetManager, discoveryv1.LabelServiceName: ServiceName(web),
	}
	if diff := cmp.Diff(want, slice.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if service := m.Service(web); service == nil || service.Spec.Ports[0].Name != *slice.Ports[0].Name || service.Spec.Selector != nil {
		t.Errorf("the Service %+v does not lead to the slice", service)
	}
	s := sender()
	s.Connected = false
	for _, e := range s.Received([]*v1alpha1.ExportedServiceSpec{told(nil)}).EndpointSlices(web, true)[name].Endpoints {
		if *e.Conditions.Ready || *e.Conditions.Serving {
			t.Errorf("%v is ready without a tunnel", e.Addresses)
		}
	}
}

// A node where pods of ours run at the peer, another peer's, and one of our own.
func TestAPeerIsToldWhatItCanReach(t *testing.T) {
	own := Own("lubeck", &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)}},
		&corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		[]discoveryv1.EndpointSlice{{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.0.7"}, NodeName: new("n1")},
			{Addresses: []string{"100.64.3.3"}, NodeName: new("hanse-turin")},
			{Addresses: []string{"100.65.3.3"}, NodeName: new("hanse-milan")},
			{Addresses: []string{"192.0.2.7"}, NodeName: new("n1")},
		}}})
	move := func(from, to string) func(netip.Addr) (netip.Addr, bool) {
		return func(a netip.Addr) (netip.Addr, bool) {
			rest, ok := strings.CutPrefix(a.String(), from)
			if !ok {
				return netip.Addr{}, false
			}
			return netip.MustParseAddr(to + rest), true
		}
	}
	view := View{
		Peer: "hanse-turin", Away: func(node string) bool { return strings.HasPrefix(node, "hanse-") },
		Seen: move("10.244.", "100.70."), There: move("100.64.", "10.244."),
	}
	parts, tooMany := own.Told(web, v1alpha1.ExportedByConsumer, view)
	var addresses []string
	for _, e := range parts[0].Endpoints {
		addresses = append(addresses, e.Address)
	}
	if diff := cmp.Diff([]string{"100.70.0.7", "10.244.3.3"}, addresses); diff != "" || len(parts) != 1 || tooMany {
		t.Errorf("%d parts (-want +got):\n%s", len(parts), diff)
	}
}

func TestManyEndpointsAreToldInParts(t *testing.T) {
	all := make([]discoveryv1.Endpoint, 250)
	for i := range all {
		all[i].Addresses = []string{fmt.Sprintf("10.0.%d.%d", i/200, i%200)}
	}
	same := func(a netip.Addr) (netip.Addr, bool) { return a, true }
	own := &Export{Type: mcsv1beta1.ClusterSetIP, Slices: []Slice{{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: all}}}
	view := View{Peer: "hanse-turin", Away: func(string) bool { return false }, Seen: same, There: same}
	parts, _ := own.Told(web, v1alpha1.ExportedByProvider, view)
	if len(parts) != 3 || len(parts[2].Endpoints) != 50 || parts[2].Part != "2" {
		t.Errorf("%d parts", len(parts))
	}
	own.Slices = nil
	if parts, _ = own.Told(web, v1alpha1.ExportedByProvider, view); len(parts) != 1 || len(parts[0].Endpoints) != 0 {
		t.Errorf("a Service without endpoints is told in %d parts", len(parts))
	}
}

func TestTheExportSaysHowItStands(t *testing.T) {
	for name, test := range map[string]struct {
		outcome Outcome
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"told":             {Outcome{Peers: map[string]Standing{"turin": {Told: true}}}, metav1.ConditionTrue, "Exported", "turin"},
		"waiting":          {Outcome{Peers: map[string]Standing{"turin": {}}}, metav1.ConditionFalse, "Pending", "turin"},
		"refused":          {Outcome{Peers: map[string]Standing{"turin": {Told: true, Refused: "no"}, "milan": {Told: true}}}, metav1.ConditionFalse, v1alpha1.ReasonExportRefused, "turin: no"},
		"shared by nobody": {Outcome{}, metav1.ConditionFalse, v1alpha1.ReasonNotInClusterSet, "spec.clusterSet.namespaces"},
		"of the system":    {Outcome{System: true}, metav1.ConditionFalse, v1alpha1.ReasonNotInClusterSet, "system"},
		"taken":            {Outcome{Taken: `ServiceImport "web"`}, metav1.ConditionFalse, "Failed", `ServiceImport "web"`},
		"invalid":          {Outcome{Invalid: mcsv1beta1.ServiceExportReasonNoService}, metav1.ConditionFalse, "Failed", "Valid"},
		"too many":         {Outcome{TooMany: true, Peers: map[string]Standing{"turin": {Told: true}}}, metav1.ConditionFalse, v1alpha1.ReasonTooManyEndpoints, "at most 5000"},
	} {
		t.Run(name, func(t *testing.T) {
			ready := test.outcome.Conditions()[1]
			if ready.Status != test.status || ready.Reason != test.reason || !strings.Contains(ready.Message, test.message) {
				t.Errorf("%+v", ready)
			}
		})
	}
}

func TestWhichServicesGoBetweenTwoClusters(t *testing.T) {
	message := func(service, part, refused string) *v1alpha1.ExportedService {
		m := &v1alpha1.ExportedService{Spec: v1alpha1.ExportedServiceSpec{Namespace: "shop", Name: service, Part: part}}
		m.Name = service + "." + part
		v1alpha1.Answer(&m.Status.Conditions, v1alpha1.ReasonExportRefused, refused, 1)
		return m
	}
	var many []*v1alpha1.ExportedService
	for i := range maxListed + 5 {
		many = append(many, message(fmt.Sprintf("s%02d", i), "0", "no"))
	}
	got := ServicesOf([]*v1alpha1.ExportedService{
		message("web", "0", ""), message("web", "1", ""), message("db", "1", "second"), message("db", "0", "first"), message("cache", "0", ""),
	}, many)
	if len(got.RefusedHere) != maxListed || got.RefusedHere[0].Name != "s00" || got.Imported != 0 {
		t.Errorf("of many that are refused: %+v", got)
	}
	got.RefusedHere = nil
	want := &v1alpha1.PeerServices{Exported: 2, RefusedThere: []v1alpha1.RefusedService{{Namespace: "shop", Name: "db", Message: "first"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReservedLabelsStayAtHome(t *testing.T) {
	got := metadataOf(map[string]string{"tier": "front", "hanse.dev/type": "twin", "kubernetes.io/x": "y", "a.k8s.io/x": "y", "bad key": "x"}, isLabel)
	if diff := cmp.Diff(map[string]string{"tier": "front"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPathsAreOfPortsAndNamespaces(t *testing.T) {
	second := told(func(s *v1alpha1.ExportedServiceSpec) {
		s.Name, s.EndpointPorts = "db", []v1alpha1.ShadowEndpointPort{{Protocol: "UDP", Port: new(int32(53))}, {Name: "all"}}
	})
	want := []v1alpha1.ServicePath{{Namespace: "shop", Ports: []v1alpha1.OpeningPort{{Protocol: "TCP"}, {Protocol: "TCP", Port: 8080}, {Protocol: "UDP", Port: 53}}}}
	if diff := cmp.Diff(want, Paths([]*v1alpha1.ExportedServiceSpec{told(nil), second, told(nil)})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever a peer sends, what is taken of it can be stored, and leads nowhere but to the peer.
func FuzzReceived(f *testing.F) {
	seed, err := json.Marshal(told(nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, s := &v1alpha1.ExportedServiceSpec{}, sender()
		if json.Unmarshal(data, spec) != nil || s.Refusal(spec) != "" {
			return
		}
		for _, slice := range s.Received([]*v1alpha1.ExportedServiceSpec{spec}).EndpointSlices(Key{spec.Namespace, spec.Name}, false) {
			for _, e := range slice.Endpoints {
				address, err := netip.ParseAddr(e.Addresses[0])
				if err != nil || !s.Guests[address] && !s.Seen[0].Contains(address) || e.NodeName != nil || e.TargetRef != nil {
					t.Errorf("%+v", e)
				}
			}
		}
	})
}
