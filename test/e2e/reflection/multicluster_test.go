// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	profile "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// What the KEP of multi-cluster Services (1645) asks for, between a home and its provider: each subtest in its words.
func TestMultiClusterServices(t *testing.T) {
	ctx := framework.Begin(t)
	s := newClusterSet(ctx, t)
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		c.CreateService(t, s.ns, s.name, map[string]string{"tier": "shop"})
		c.CreateService(t, s.ns, "unexported", map[string]string{"tier": "shop"})
		exports(t, c, s.ns, s.name)
	}
	both := sortedPair(s.idLubeck, s.idHamburg)
	all := []string{"of-lubeck", "of-hamburg", "away"}

	t.Run("a Service that is exported from a cluster is imported into all clusters of the set", func(t *testing.T) {
		for _, c := range []*framework.Cluster{lubeck, hamburg} {
			found := imports(t, c, s.ns, s.name, both...)
			if found.Spec.Type != mcsv1beta1.ClusterSetIP || len(found.Spec.IPs) != 1 || len(found.Spec.Ports) != 1 || found.Spec.Ports[0].Port != 80 {
				t.Errorf("%s has %+v", c.Name, found.Spec)
			}
			exportSays(t, c, s.ns, s.name, exportCondition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid, ""))
			exportSays(t, c, s.ns, s.name, exportCondition(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts, ""))
			exportSays(t, c, s.ns, s.name, exportCondition(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported, "Exported to"))
			if err := c.CheckGone(ctx, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "unexported"}}); err != nil {
				t.Errorf("what is not exported is imported: %v", err)
			}
		}
	})
	if t.Failed() {
		return
	}
	ip := map[*framework.Cluster]string{}
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		ip[c] = imports(t, c, s.ns, s.name, both...).Spec.IPs[0]
	}
	ready := func(addresses ...string) (all []string) {
		for _, a := range addresses {
			all = append(all, a+" ready=true")
		}
		return all
	}
	t.Run("EndpointSlices tell the source cluster of each endpoint", func(t *testing.T) {
		s.expectSource(t, lubeck, s.idLubeck, ready(s.lubeck.Address, s.away.Address)...)
		s.expectSource(t, lubeck, s.idHamburg, ready(s.ofHamburg)...)
		s.expectSource(t, hamburg, s.idHamburg, ready(s.hamburg.Address)...)
		s.expectSource(t, hamburg, s.idLubeck, ready(s.ofLubeck, s.awayOwn)...)
	})
	t.Run("the clusterset IP leads to the backends of all clusters", func(t *testing.T) {
		hears(t, s.lubeck, ip[lubeck], all...)
		hears(t, s.hamburg, ip[hamburg], all...)
	})
	t.Run("its DNS name means the clusterset IP", func(t *testing.T) {
		resolves(t, s.lubeck, s.host, ip[lubeck])
		resolves(t, s.hamburg, s.host, ip[hamburg])
		hears(t, s.hamburg, s.host, all...)
		resolves(t, s.away, s.host, lubeck.TranslateToPeer(ctx, t, hamburg, ip[lubeck]))
		framework.Eventually(t, "the pod that is away uses the name of its home", func(ctx context.Context) error {
			_, err := s.away.Request(ctx, s.host)
			return err
		})
	})
	t.Run("a headless Service has the records of its endpoints, and SRV records", s.headless)
	t.Run("conflicts are resolved by the oldest export and reported on all", s.conflict)
	t.Run("an export needs a Service that can be exported", s.invalid)
	t.Run("namespace sameness is agreed upon", s.sameness)
	t.Run("what a peer must not say is refused", s.hostile)
	t.Run("when a cluster cannot be reached its endpoints are not ready", func(t *testing.T) {
		framework.CutOff(t)
		t.Logf("not ready %.1f s after the cut", s.expectSource(t, lubeck, s.idHamburg, s.ofHamburg+" ready=false").Seconds())
		hears(t, s.lubeck, ip[lubeck], "of-lubeck")
		framework.MustTestbed(t, "heal", "lubeck", "hamburg")
		t.Logf("ready again %.1f s after it heals", s.expectSource(t, lubeck, s.idHamburg, ready(s.ofHamburg)...).Seconds())
		framework.AwaitConnected(t, lubeck, hamburg)
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
	hamburg.MustCreate(t, service)
	export := exports(t, hamburg, s.ns, "db")
	if found := imports(t, lubeck, s.ns, "db", s.idHamburg); found.Spec.Type != mcsv1beta1.Headless || len(found.Spec.IPs) > 0 {
		t.Errorf("it is %+v", found.Spec)
	}
	host := "db." + s.ns + ".svc.clusterset.local"
	resolves(t, s.lubeck, host, s.ofHamburg)
	resolves(t, s.hamburg, host, s.hamburg.Address)
	s.lubeck.ExpectReaches(t, s.hamburg, s.ofHamburg)
	target := strings.ReplaceAll(s.ofHamburg, ".", "-") + "." + s.idHamburg + "." + host
	framework.Eventually(t, "its SRV record names the endpoint", func(ctx context.Context) error {
		out, err := s.lubeck.Run(ctx, "nslookup -type=srv _sql._tcp."+host+".")
		if err == nil && (!strings.Contains(out, "8080") || !strings.Contains(out, target)) {
			err = fmt.Errorf("it is told %q, which has no %s", out, target)
		}
		return err
	})
	resolves(t, s.lubeck, target, s.ofHamburg)
	if err := hamburg.Delete(ctx, export); err != nil {
		t.Error(err)
	}
	importGoes(t, lubeck, s.ns, "db")
}

func (s clusterSet) conflict(t *testing.T) {
	key := types.NamespacedName{Namespace: s.ns, Name: s.name}
	younger := s.younger(t, key)
	service := &corev1.Service{}
	change := func(port int32) {
		t.Helper()
		if err := younger.Get(t.Context(), key, service); err != nil {
			t.Fatal(err)
		}
		service.Spec.Ports[0].Port = port
		if err := younger.Update(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	change(81)
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		exportSays(t, c, s.ns, s.name, exportCondition(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonPortConflict, "81/TCP"))
		if found := imports(t, c, s.ns, s.name, sortedPair(s.idLubeck, s.idHamburg)...); found.Spec.Ports[0].Port != 80 {
			t.Errorf("the ports at %s are %v, though the oldest export has 80", c.Name, found.Spec.Ports)
		}
	}
	change(80)
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		exportSays(t, c, s.ns, s.name, exportCondition(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts, ""))
	}
}

// younger returns the cluster whose export does not decide: the later one, or, of the same second, that with the greater id.
func (s clusterSet) younger(t *testing.T, key types.NamespacedName) *framework.Cluster {
	t.Helper()
	here, there := &mcsv1beta1.ServiceExport{}, &mcsv1beta1.ServiceExport{}
	if err := errors.Join(lubeck.Get(t.Context(), key, here), hamburg.Get(t.Context(), key, there)); err != nil {
		t.Fatal(err)
	}
	if order := here.CreationTimestamp.Compare(there.CreationTimestamp.Time); order > 0 || order == 0 && s.idLubeck > s.idHamburg {
		return lubeck
	}
	return hamburg
}

func sortedPair(a, b string) []string {
	both := []string{a, b}
	slices.Sort(both)
	return both
}

func (s clusterSet) invalid(t *testing.T) {
	exports(t, lubeck, s.ns, "nothing")
	exportSays(t, lubeck, s.ns, "nothing", exportCondition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoService, ""))
	lubeck.MustCreate(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "outside"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
	})
	exports(t, lubeck, s.ns, "outside")
	exportSays(t, lubeck, s.ns, "outside", exportCondition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonInvalidServiceType, ""))
}

// sameness: a namespace that neither shares, and one that only the exporting cluster does.
func (s clusterSet) sameness(t *testing.T) {
	ctx := t.Context()
	other := hamburg.CreateNamespace(t)
	sameNamespace(t, lubeck, other)
	hamburg.CreateService(t, other, "stock", map[string]string{"tier": "shop"})
	exports(t, hamburg, other, "stock")
	exportSays(t, hamburg, other, "stock", exportCondition(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotInClusterSet, "spec.clusterSet.namespaces"))
	share(ctx, t, hamburg, lubeck, s.ns, other)
	exportSays(t, hamburg, other, "stock", exportCondition(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, v1alpha1.ReasonExportRefused, "lubeck"))
	for c, peer := range map[*framework.Cluster]string{lubeck: "hamburg", hamburg: "lubeck"} {
		framework.Eventually(t, "the status of the peer at "+c.Name+" says so", func(ctx context.Context) error {
			text, err := c.Hanse(ctx, "status", peer)
			if err == nil && !strings.Contains(text, other+"/stock (") {
				err = fmt.Errorf("it says %s", text)
			}
			return err
		})
	}
	if err := lubeck.CheckGone(ctx, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "stock"}}); err != nil {
		t.Error(err)
	}
	share(ctx, t, lubeck, hamburg, s.ns, other)
	imports(t, lubeck, other, "stock", s.idHamburg)
	share(ctx, t, lubeck, hamburg, s.ns)
	importGoes(t, lubeck, other, "stock")
	share(ctx, t, hamburg, lubeck, s.ns)
}

// hostile: lubeck as hamburg's consumer says what it must not.
func (s clusterSet) hostile(t *testing.T) {
	lubeck.PauseHanse(t, "manager") // it takes back what is said in its name
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
		message(v1alpha1.ExportedByConsumer, s.ns, s.hamburg.Address), // a pod of hamburg's own
		message(v1alpha1.ExportedByConsumer, "kube-system", s.ofLubeck),
		message(v1alpha1.ExportedByConsumer, "elsewhere", s.ofLubeck),
	} {
		if err := create(e); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, e.Name+" is refused", func(ctx context.Context) error {
			if err := hamburg.Get(ctx, client.ObjectKeyFromObject(e), e); err != nil {
				return err
			}
			if !meta.IsStatusConditionFalse(e.Status.Conditions, v1alpha1.ConditionAccepted) {
				return fmt.Errorf("it says %+v", e.Status)
			}
			return hamburg.CheckGone(ctx, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: e.Spec.Namespace, Name: "evil"}})
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
	for i, c := range []*framework.Cluster{hamburg, lubeck} {
		if err := c.Delete(t.Context(), &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: s.name}}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			imports(t, lubeck, s.ns, s.name, s.idLubeck)
			imports(t, hamburg, s.ns, s.name, s.idLubeck)
			s.expectSource(t, lubeck, s.idHamburg)
			s.expectSource(t, hamburg, s.idHamburg)
		}
	}
	importGoes(t, lubeck, s.ns, s.name)
	importGoes(t, hamburg, s.ns, s.name)
}

func (s clusterSet) profiles(t *testing.T) {
	peers := &v1alpha1.PeerList{}
	if err := lubeck.List(t.Context(), peers); err != nil {
		t.Fatal(err)
	}
	for _, peer := range peers.Items {
		framework.Eventually(t, "lubeck has a ClusterProfile of "+peer.Name, func(ctx context.Context) error {
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
	vineta := &v1alpha1.Peer{ObjectMeta: framework.ObjectMeta("vineta")}
	lubeck.MustCreate(t, vineta)
	of := &profile.ClusterProfile{ObjectMeta: framework.NamespacedMeta(v1alpha1.SystemNamespace, vineta.Name)}
	framework.Eventually(t, "another Peer has a ClusterProfile", func(ctx context.Context) error { return lubeck.Get(ctx, client.ObjectKeyFromObject(of), of) })
	lubeck.DeleteAndWait(t, vineta)
	framework.Eventually(t, "it is gone with the Peer", func(ctx context.Context) error { return lubeck.CheckGone(ctx, of) })
}
