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
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

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
