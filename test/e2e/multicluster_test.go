package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
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
	profile "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/clusterset"
)

// installMulticluster installs the definitions of multi-cluster Services and of ClusterProfiles, from the modules that have them.
func installMulticluster(ctx context.Context, clusters ...*cluster) error {
	var files []string
	for module, folder := range map[string]string{"sigs.k8s.io/mcs-api": "config/crd", "sigs.k8s.io/cluster-inventory-api": "config/crd/bases"} {
		list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
		list.Dir = root
		out, err := list.Output()
		if err != nil {
			return fmt.Errorf("find module %s: %w", module, err)
		}
		found, err := filepath.Glob(filepath.Join(trimmed(out), folder, "*_[sc]*.yaml"))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("module %s has no definitions: %w", module, os.ErrNotExist)
		}
		for _, file := range found {
			files = append(files, "-f", file)
		}
	}
	for _, c := range clusters {
		if _, err := c.Kubectl(ctx, append([]string{"apply", "--server-side"}, files...)...); err != nil {
			return err
		}
	}
	return nil
}

// share has the cluster's Peer share exactly the namespaces.
func (c *cluster) share(ctx context.Context, t *testing.T, peer *cluster, namespaces ...string) {
	t.Helper()
	p, err := c.peer(ctx, peer.Name)
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
func (c *cluster) sameNamespace(t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: named(name)}
	c.create(t, ns)
	t.Cleanup(func() { _ = c.Delete(context.Background(), ns) })
}

func (c *cluster) exports(t *testing.T, ns, name string) *mcsv1beta1.ServiceExport {
	t.Helper()
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	c.create(t, export)
	return export
}

// exportSays waits until the ServiceExport has the condition with that status and reason, and a message with the text.
func (c *cluster) exportSays(t *testing.T, ns, name string, want metav1.Condition) {
	t.Helper()
	eventually(t, fmt.Sprintf("ServiceExport %s at %s says %s=%s, %s", name, c.Name, want.Type, want.Status, want.Reason), func(ctx context.Context) error {
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

func says[T ~string](kind mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus, reason T, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: status, Reason: string(reason), Message: message}
}

// imports waits until the ServiceImport is of exactly these clusters and can be used, and returns it.
func (c *cluster) imports(t *testing.T, ns, name string, of ...string) *mcsv1beta1.ServiceImport {
	t.Helper()
	found := &mcsv1beta1.ServiceImport{}
	eventually(t, fmt.Sprintf("ServiceImport %s at %s is of %v", name, c.Name, of), func(ctx context.Context) error {
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

func (c *cluster) importGoes(t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, fmt.Sprintf("ServiceImport %s and what belongs to it is gone at %s", name, c.Name), func(ctx context.Context) error {
		if err := c.isGone(ctx, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
			return err
		}
		service := clusterset.ServiceName(clusterset.Key{Namespace: ns, Name: name})
		if err := c.isGone(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: service}}); err != nil {
			return err
		}
		left, err := c.sources(ctx, ns, name)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("EndpointSlices are left: %v", left)
		}
		return err
	})
}

// sources are the endpoints of the multi-cluster Service: cluster → its addresses, with whether they are ready.
func (c *cluster) sources(ctx context.Context, ns, name string) (map[string][]string, error) {
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
func (c *cluster) expectSource(t *testing.T, ns, name, of string, want ...string) time.Duration {
	t.Helper()
	began := time.Now()
	slices.Sort(want)
	eventually(t, fmt.Sprintf("%s at %s has the endpoints %v of %s", name, c.Name, want, of), func(ctx context.Context) error {
		got, err := c.sources(ctx, ns, name)
		if err == nil && !slices.Equal(got[of], want) {
			err = fmt.Errorf("they are %v", got)
		}
		return err
	})
	return time.Since(began)
}

// hears waits until all of these pods have answered the party at the host.
func (p *party) hears(t *testing.T, host string, pods ...string) {
	t.Helper()
	answered := map[string]bool{}
	eventually(t, fmt.Sprintf("%s is answered by %v at %s", p.pod, pods, host), func(ctx context.Context) error {
		name, err := p.ask(ctx, host)
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
func (p *party) resolves(t *testing.T, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, fmt.Sprintf("%s means %v for %s", name, want, p.pod), func(ctx context.Context) error {
		out, err := p.run(ctx, "nslookup "+name+".")
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
	lubeck, hamburg, away *party
	idLubeck, idHamburg   string
	ofLubeck, ofHamburg   string // the pods' addresses as the other cluster sees them
	awayOwn               string // that of the pod that is away, at hamburg
}

func newClusterSet(ctx context.Context, t *testing.T) clusterSet {
	t.Helper()
	s := clusterSet{ns: lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote), name: "web"}
	hamburg.sameNamespace(t, s.ns)
	t.Cleanup(func() {
		lubeck.share(context.Background(), t, hamburg)
		hamburg.share(context.Background(), t, lubeck)
	})
	lubeck.share(ctx, t, hamburg, s.ns)
	hamburg.share(ctx, t, lubeck, s.ns)
	parties := lubeck.parties(t, s.ns, map[string]*cluster{"away": hamburg})
	s.away = parties["away"]
	s.lubeck = lubeck.party(t, s.ns, "of-lubeck", nil, atHome(lubeck.workers(t)[0]))
	s.hamburg = hamburg.party(t, s.ns, "of-hamburg", nil)
	home, err := lubeck.pod(ctx, s.ns, "away")
	if err != nil {
		t.Fatal(err)
	}
	s.awayOwn = hamburg.mustRemotePod(t, home).Status.PodIP
	s.idLubeck, s.idHamburg = hamburg.mustConnection(ctx, t, lubeck).Spec.ClusterID, lubeck.mustConnection(ctx, t, hamburg).Spec.ClusterID
	s.ofLubeck, s.ofHamburg = lubeck.seenBy(ctx, t, hamburg, s.lubeck.address), lubeck.seenHere(ctx, t, hamburg, s.hamburg.address)
	s.host = s.name + "." + s.ns + ".svc.clusterset.local"
	return s
}

// What the KEP of multi-cluster Services (1645) asks for, between a home and its provider: each subtest in its words.
func TestMultiClusterServices(t *testing.T) {
	ctx := network(t, "multicluster")
	s := newClusterSet(ctx, t)
	for _, c := range []*cluster{lubeck, hamburg} {
		c.service(t, s.ns, s.name, map[string]string{"tier": "shop"})
		c.service(t, s.ns, "unexported", map[string]string{"tier": "shop"})
		c.exports(t, s.ns, s.name)
	}
	both := sortedPair(s.idLubeck, s.idHamburg)
	all := []string{"of-lubeck", "of-hamburg", "away"}

	t.Run("a Service that is exported from a cluster is imported into all clusters of the set", func(t *testing.T) {
		for _, c := range []*cluster{lubeck, hamburg} {
			found := c.imports(t, s.ns, s.name, both...)
			if found.Spec.Type != mcsv1beta1.ClusterSetIP || len(found.Spec.IPs) != 1 || len(found.Spec.Ports) != 1 || found.Spec.Ports[0].Port != 80 {
				t.Errorf("%s has %+v", c.Name, found.Spec)
			}
			c.exportSays(t, s.ns, s.name, says(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid, ""))
			c.exportSays(t, s.ns, s.name, says(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts, ""))
			c.exportSays(t, s.ns, s.name, says(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported, "Exported to"))
			if err := c.isGone(ctx, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "unexported"}}); err != nil {
				t.Errorf("what is not exported is imported: %v", err)
			}
		}
	})
	if t.Failed() {
		return
	}
	ip := map[*cluster]string{}
	for _, c := range []*cluster{lubeck, hamburg} {
		ip[c] = c.imports(t, s.ns, s.name, both...).Spec.IPs[0]
	}
	ready := func(addresses ...string) (all []string) {
		for _, a := range addresses {
			all = append(all, a+" ready=true")
		}
		return all
	}
	t.Run("EndpointSlices tell the source cluster of each endpoint", func(t *testing.T) {
		lubeck.expectSource(t, s.ns, s.name, s.idLubeck, ready(s.lubeck.address, s.away.address)...)
		lubeck.expectSource(t, s.ns, s.name, s.idHamburg, ready(s.ofHamburg)...)
		hamburg.expectSource(t, s.ns, s.name, s.idHamburg, ready(s.hamburg.address)...)
		hamburg.expectSource(t, s.ns, s.name, s.idLubeck, ready(s.ofLubeck, s.awayOwn)...)
	})
	t.Run("the clusterset IP leads to the backends of all clusters", func(t *testing.T) {
		s.lubeck.hears(t, ip[lubeck], all...)
		s.hamburg.hears(t, ip[hamburg], all...)
	})
	t.Run("its DNS name means the clusterset IP", func(t *testing.T) {
		s.lubeck.resolves(t, s.host, ip[lubeck])
		s.hamburg.resolves(t, s.host, ip[hamburg])
		s.hamburg.hears(t, s.host, all...)
		s.away.resolves(t, s.host, lubeck.seenBy(ctx, t, hamburg, ip[lubeck]))
		eventually(t, "the pod that is away uses the name of its home", func(ctx context.Context) error {
			_, err := s.away.ask(ctx, s.host)
			return err
		})
	})
	t.Run("a headless Service has the records of its endpoints, and SRV records", s.headless)
	t.Run("conflicts are resolved by the oldest export and reported on all", s.conflict)
	t.Run("an export needs a Service that can be exported", s.invalid)
	t.Run("namespace sameness is agreed upon", s.sameness)
	t.Run("what a peer must not say is refused", s.hostile)
	t.Run("when a cluster cannot be reached its endpoints are not ready", func(t *testing.T) {
		cutOff(t)
		t.Logf("not ready %.1f s after the cut", lubeck.expectSource(t, s.ns, s.name, s.idHamburg, s.ofHamburg+" ready=false").Seconds())
		s.lubeck.hears(t, ip[lubeck], "of-lubeck")
		mustTestbed(t, "heal", "lubeck", "hamburg")
		t.Logf("ready again %.1f s after it heals", lubeck.expectSource(t, s.ns, s.name, s.idHamburg, ready(s.ofHamburg)...).Seconds())
		awaitConnected(t, lubeck, hamburg)
	})
	t.Run("unexporting removes the endpoints of the cluster, and the last one the import", s.unexport)
	t.Run("each peer has a ClusterProfile", s.profiles)
}

func (s clusterSet) headless(t *testing.T) {
	ctx := t.Context()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "db"},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "of-hamburg"},
			Ports: []corev1.ServicePort{{Name: "sql", Port: 8080}},
		},
	}
	hamburg.create(t, service)
	export := hamburg.exports(t, s.ns, "db")
	if found := lubeck.imports(t, s.ns, "db", s.idHamburg); found.Spec.Type != mcsv1beta1.Headless || len(found.Spec.IPs) > 0 {
		t.Errorf("it is %+v", found.Spec)
	}
	host := "db." + s.ns + ".svc.clusterset.local"
	s.lubeck.resolves(t, host, s.ofHamburg)
	s.hamburg.resolves(t, host, s.hamburg.address)
	s.lubeck.expectReaches(t, s.hamburg, s.ofHamburg)
	target := strings.ReplaceAll(s.ofHamburg, ".", "-") + "." + s.idHamburg + "." + host
	eventually(t, "its SRV record names the endpoint", func(ctx context.Context) error {
		out, err := s.lubeck.run(ctx, "nslookup -type=srv _sql._tcp."+host+".")
		if err == nil && (!strings.Contains(out, "8080") || !strings.Contains(out, target)) {
			err = fmt.Errorf("it is told %q, which has no %s", out, target)
		}
		return err
	})
	s.lubeck.resolves(t, target, s.ofHamburg)
	if err := hamburg.Delete(ctx, export); err != nil {
		t.Error(err)
	}
	lubeck.importGoes(t, s.ns, "db")
}

func (s clusterSet) conflict(t *testing.T) {
	service := &corev1.Service{}
	change := func(port int32) {
		t.Helper()
		if err := hamburg.Get(t.Context(), types.NamespacedName{Namespace: s.ns, Name: s.name}, service); err != nil {
			t.Fatal(err)
		}
		service.Spec.Ports[0].Port = port
		if err := hamburg.Update(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	change(81)
	for _, c := range []*cluster{lubeck, hamburg} {
		c.exportSays(t, s.ns, s.name, says(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonPortConflict, "81/TCP"))
		if found := c.imports(t, s.ns, s.name, sortedPair(s.idLubeck, s.idHamburg)...); found.Spec.Ports[0].Port != 80 {
			t.Errorf("the ports at %s are %v, though the oldest export has 80", c.Name, found.Spec.Ports)
		}
	}
	change(80)
	for _, c := range []*cluster{lubeck, hamburg} {
		c.exportSays(t, s.ns, s.name, says(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts, ""))
	}
}

func sortedPair(a, b string) []string {
	both := []string{a, b}
	slices.Sort(both)
	return both
}

func (s clusterSet) invalid(t *testing.T) {
	lubeck.exports(t, s.ns, "nothing")
	lubeck.exportSays(t, s.ns, "nothing", says(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoService, ""))
	lubeck.create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "outside"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
	})
	lubeck.exports(t, s.ns, "outside")
	lubeck.exportSays(t, s.ns, "outside", says(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonInvalidServiceType, ""))
}

// sameness: a namespace that neither shares, and one that only the exporting cluster does.
func (s clusterSet) sameness(t *testing.T) {
	ctx := t.Context()
	other := hamburg.namespace(t)
	lubeck.sameNamespace(t, other)
	hamburg.service(t, other, "stock", map[string]string{"tier": "shop"})
	hamburg.exports(t, other, "stock")
	hamburg.exportSays(t, other, "stock", says(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotInClusterSet, "spec.clusterSet.namespaces"))
	hamburg.share(ctx, t, lubeck, s.ns, other)
	hamburg.exportSays(t, other, "stock", says(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, v1alpha1.ReasonExportRefused, "lubeck"))
	if err := lubeck.isGone(ctx, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "stock"}}); err != nil {
		t.Error(err)
	}
	lubeck.share(ctx, t, hamburg, s.ns, other)
	lubeck.imports(t, other, "stock", s.idHamburg)
	lubeck.share(ctx, t, hamburg, s.ns)
	lubeck.importGoes(t, other, "stock")
	hamburg.share(ctx, t, lubeck, s.ns)
}

// hostile: lubeck as hamburg's consumer says what it must not.
func (s clusterSet) hostile(t *testing.T) {
	tenant := v1alpha1.TenantNamespace("lubeck")
	as := "--as=system:serviceaccount:" + tenant + ":" + v1alpha1.PeerServiceAccount
	message := func(by v1alpha1.ExportedBy, namespace, address string) *v1alpha1.ExportedService {
		return &v1alpha1.ExportedService{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExportedService"},
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.ExportedServiceName(by, namespace, "evil", 0)},
			Spec: v1alpha1.ExportedServiceSpec{
				By: by, Namespace: namespace, Name: "evil", Part: "0", Type: "ClusterSetIP", AddressType: "IPv4", ExportedAt: metav1.NewTime(time.Unix(0, 0)),
				Ports: []v1alpha1.ExportedPort{{Port: 80}}, Endpoints: []v1alpha1.ExportedEndpoint{{Address: address}},
			},
		}
	}
	create := func(e *v1alpha1.ExportedService) error {
		file := filepath.Join(t.TempDir(), "message.yaml")
		data, err := yaml.Marshal(e)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
		_, err = hamburg.Kubectl(t.Context(), "create", as, "-f", file)
		return err
	}
	for _, e := range []*v1alpha1.ExportedService{
		message(v1alpha1.ExportedByConsumer, s.ns, s.hamburg.address), // a pod of hamburg's own
		message(v1alpha1.ExportedByConsumer, "kube-system", s.ofLubeck),
		message(v1alpha1.ExportedByConsumer, "elsewhere", s.ofLubeck),
	} {
		if err := create(e); err != nil {
			t.Fatal(err)
		}
		eventually(t, e.Name+" is refused", func(ctx context.Context) error {
			if err := hamburg.Get(ctx, client.ObjectKeyFromObject(e), e); err != nil {
				return err
			}
			if !meta.IsStatusConditionFalse(e.Status.Conditions, v1alpha1.ConditionAccepted) {
				return fmt.Errorf("it says %+v", e.Status)
			}
			return hamburg.isGone(ctx, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: e.Spec.Namespace, Name: "evil"}})
		})
	}
	if err := create(message(v1alpha1.ExportedByProvider, s.ns, s.ofLubeck)); err == nil || !strings.Contains(err.Error(), "spec.by") {
		t.Errorf("a consumer writes what the provider exports: %v", err)
	}
	own := v1alpha1.ExportedServiceName(v1alpha1.ExportedByProvider, s.ns, s.name, 0)
	if _, err := hamburg.Kubectl(t.Context(), "delete", as, "-n", tenant, "exportedservice", own); err == nil || !strings.Contains(err.Error(), "spec.by") {
		t.Errorf("a consumer deletes what the provider exports: %v", err)
	}
}

func (s clusterSet) unexport(t *testing.T) {
	for i, c := range []*cluster{hamburg, lubeck} {
		if err := c.Delete(t.Context(), &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: s.name}}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			lubeck.imports(t, s.ns, s.name, s.idLubeck)
			hamburg.imports(t, s.ns, s.name, s.idLubeck)
			lubeck.expectSource(t, s.ns, s.name, s.idHamburg)
			hamburg.expectSource(t, s.ns, s.name, s.idHamburg)
		}
	}
	lubeck.importGoes(t, s.ns, s.name)
	hamburg.importGoes(t, s.ns, s.name)
}

func (s clusterSet) profiles(t *testing.T) {
	peers := &v1alpha1.PeerList{}
	if err := lubeck.List(t.Context(), peers); err != nil {
		t.Fatal(err)
	}
	for _, peer := range peers.Items {
		eventually(t, "lubeck has a ClusterProfile of "+peer.Name, func(ctx context.Context) error {
			found := &profile.ClusterProfile{}
			if err := lubeck.Get(ctx, types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: peer.Name}, found); err != nil {
				return err
			}
			if found.Spec.ClusterManager.Name != "hanse" || found.Status.Version.Kubernetes == "" ||
				!meta.IsStatusConditionTrue(found.Status.Conditions, profile.ClusterConditionControlPlaneHealthy) ||
				!meta.IsStatusConditionTrue(found.Status.Conditions, "Joined") ||
				!slices.ContainsFunc(found.Status.Properties, func(p profile.Property) bool { return p.Value == peer.Spec.ClusterID }) {
				return fmt.Errorf("it is %+v", found.Status)
			}
			return nil
		})
	}
	// One of a Peer that goes, as any that was never there: the controller looks at what is there.
	stale := &profile.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: "vineta", Labels: map[string]string{profile.LabelClusterManagerKey: "hanse"},
		},
		Spec: profile.ClusterProfileSpec{ClusterManager: profile.ClusterManager{Name: "hanse"}},
	}
	lubeck.create(t, stale)
	eventually(t, "the ClusterProfile of no Peer is gone", func(ctx context.Context) error { return lubeck.isGone(ctx, stale) })
}
