// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/clusterset"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/peers"
)

// pathOwner owns the paths of Connections, whose other fields are of peering.
const pathOwner = client.FieldOwner("hanse-multicluster")

// exporter tells one peer of what is exported here. A request names the Peer.
type exporter struct{ Config }

// Reconcile brings in line what the peer is told, and what is open between the two clusters.
func (e *exporter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer, err := local.Find(ctx, e.Client, request.NamespacedName, &v1alpha1.Peer{}, client.UnsafeDisableDeepCopy)
	if err != nil || peer == nil {
		return reconcile.Result{}, err
	}
	p, err := e.partner(ctx, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	if p == nil {
		return reconcile.Result{}, e.withdraw(ctx, peer)
	}
	wanted, err := e.wanted(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	again, err := e.report(ctx, p)
	err = errors.Join(err, e.open(ctx, p, wanted), e.tell(ctx, p, wanted))
	var busy *peers.BusyError
	if errors.As(err, &busy) {
		return reconcile.Result{RequeueAfter: busy.After}, nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// report says in the status of the Peer which Services go between the clusters. It is about what is told by now: of each change an event
// asks for another look. It returns how long that has to wait because the peer changes its mind too often.
func (e *exporter) report(ctx context.Context, p *partner) (time.Duration, error) {
	if !p.known() {
		return 0, nil
	}
	asProvider, err := e.here(ctx, p, v1alpha1.ExportedByProvider)
	if err != nil {
		return 0, err
	}
	ofConsumer, err := e.here(ctx, p, v1alpha1.ExportedByConsumer)
	if err != nil {
		return 0, err
	}
	asConsumer, ofProvider := p.there(v1alpha1.ExportedByConsumer), p.there(v1alpha1.ExportedByProvider)
	services := clusterset.ServicesOf(
		slices.AppendSeq(slices.Collect(maps.Values(asProvider)), maps.Values(asConsumer)),
		slices.AppendSeq(slices.Collect(maps.Values(ofConsumer)), maps.Values(ofProvider)))
	if equality.Semantic.DeepEqual(services, p.peer.Status.Services) {
		return 0, nil
	}
	if later := e.Links.Pace(p.peer.Name, p.peer.UID); later > 0 {
		return later, nil
	}
	return 0, e.writeServices(ctx, p.peer, services)
}

// writeServices makes them those of the status. That the Peer is gone meanwhile is no error.
func (e *exporter) writeServices(ctx context.Context, peer *v1alpha1.Peer, services *v1alpha1.PeerServices) error {
	status := struct {
		Services *v1alpha1.PeerServices `json:"services,omitempty"`
	}{services}
	return local.IgnoreStale(local.ApplyStatus(ctx, e.Client, pathOwner, peer, &status))
}

// withdraw takes back what a peer was told that shares nothing any more. What lies there goes with the tenant namespace.
func (e *exporter) withdraw(ctx context.Context, peer *v1alpha1.Peer) error {
	if !peer.DeletionTimestamp.IsZero() {
		return nil // it goes with the tenant namespace
	}
	if peer.Status.Services != nil {
		if err := e.writeServices(ctx, peer, nil); err != nil {
			return err
		}
	}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: v1alpha1.ConnectionName}
	connection, err := local.Find(ctx, e.Client, key, &v1alpha1.Connection{}, client.UnsafeDisableDeepCopy)
	if err != nil || connection == nil {
		return err
	}
	p := &partner{peer: peer, connection: connection}
	return errors.Join(e.open(ctx, p, nil), e.tellHere(ctx, p, nil))
}

// wanted returns what the peer is to be told, by name, as many as it takes. Without a connection that is nothing, because nobody knows then
// how it sees an address.
func (e *exporter) wanted(ctx context.Context, p *partner) (map[string]*v1alpha1.ExportedServiceSpec, error) {
	wanted := map[string]*v1alpha1.ExportedServiceSpec{}
	if p.connection.Name == "" {
		return wanted, nil
	}
	exports := &mcsv1beta1.ServiceExportList{}
	if err := e.Client.List(ctx, exports, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ServiceExports: %w", err)
	}
	slices.SortFunc(exports.Items, func(a, b mcsv1beta1.ServiceExport) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	view, err := e.view(ctx, p)
	if err != nil {
		return nil, err
	}
	for i := range exports.Items {
		export := &exports.Items[i]
		if !p.peer.Shares(export.Namespace, e.Namespace) || !export.DeletionTimestamp.IsZero() {
			continue
		}
		own, _, err := e.own(ctx, export)
		if err != nil {
			return nil, err
		}
		if own == nil {
			continue
		}
		by := p.telling()
		key := clusterset.Key{Namespace: export.Namespace, Name: export.Name}
		parts, _ := own.Told(key, by, view)
		if len(wanted)+len(parts) > v1alpha1.MaxExportedServices {
			break // the status of each that is left says that it waits
		}
		for n := range parts {
			wanted[v1alpha1.ExportedServiceName(by, key.Namespace, key.Name, n)] = &parts[n]
		}
	}
	return wanted, nil
}

// own returns what the ServiceExport comes to, and nil with its outcome if that is nothing.
func (c *Config) own(ctx context.Context, export *mcsv1beta1.ServiceExport) (*clusterset.Export, clusterset.Outcome, error) {
	namespace, err := c.usable(ctx, export.Namespace)
	if err != nil || !namespace {
		return nil, clusterset.Outcome{System: true}, err
	}
	key := client.ObjectKeyFromObject(export)
	service, err := local.Find(ctx, c.Client, key, &corev1.Service{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, clusterset.Outcome{}, err
	}
	if reason, message := clusterset.Invalid(service); reason != "" {
		return nil, clusterset.Outcome{Invalid: reason, Message: message}, nil
	}
	parts := &discoveryv1.EndpointSliceList{}
	if err := c.Client.List(ctx, parts, client.InNamespace(key.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: key.Name}); err != nil {
		return nil, clusterset.Outcome{}, fmt.Errorf("list EndpointSlices: %w", err)
	}
	return clusterset.Own(c.ClusterID, export, service, parts.Items), clusterset.Outcome{}, nil
}

// usable says whether the namespace is one of a user's, so that there can be multi-cluster Services in it.
func (c *Config) usable(ctx context.Context, name string) (bool, error) {
	if v1alpha1.IsSystemNamespace(name, c.Namespace) {
		return false, nil
	}
	found, err := local.Find(ctx, c.Client, client.ObjectKey{Name: name}, &corev1.Namespace{}, client.UnsafeDisableDeepCopy)
	return found != nil && found.DeletionTimestamp.IsZero() && found.Labels[v1alpha1.LabelManaged] != "true", err
}

// view returns how the peer sees this cluster.
func (c *Config) view(ctx context.Context, p *partner) (clusterset.View, error) {
	nodes := &corev1.NodeList{}
	labels := client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	if err := c.Client.List(ctx, nodes, labels, client.UnsafeDisableDeepCopy); err != nil {
		return clusterset.View{}, fmt.Errorf("list virtual nodes: %w", err)
	}
	away := map[string]bool{}
	for i := range nodes.Items {
		away[nodes.Items[i].Name] = true
	}
	ours, theirs := overlay.Mappings(p.connection.Spec.Ours), overlay.Mappings(p.connection.Spec.Theirs)
	return clusterset.View{
		Peer: v1alpha1.VirtualNodeName(p.peer.Name), Away: func(node string) bool { return away[node] },
		Seen:  func(own netip.Addr) (netip.Addr, bool) { return overlay.Seen(ours, own) },
		There: func(seen netip.Addr) (netip.Addr, bool) { return overlay.Own(theirs, seen) },
	}, nil
}

// tell has exactly the wanted ExportedServices be where the peer finds them.
func (e *exporter) tell(ctx context.Context, p *partner, wanted map[string]*v1alpha1.ExportedServiceSpec) error {
	here, there := wanted, map[string]*v1alpha1.ExportedServiceSpec(nil)
	if p.telling() == v1alpha1.ExportedByConsumer {
		here, there = nil, wanted
	}
	return errors.Join(e.tellHere(ctx, p, here), e.tellThere(ctx, p, there))
}

func (e *exporter) tellHere(ctx context.Context, p *partner, wanted map[string]*v1alpha1.ExportedServiceSpec) error {
	found, err := e.here(ctx, p, v1alpha1.ExportedByProvider)
	if err != nil {
		return err
	}
	return bringAbout(ctx, e.Client, v1alpha1.TenantNamespace(p.peer.Name), found, wanted)
}

// tellThere does nothing while the peer does not answer: when it does again, a change of the link asks for another look.
func (e *exporter) tellThere(ctx context.Context, p *partner, wanted map[string]*v1alpha1.ExportedServiceSpec) error {
	if p.over == nil || !p.over.HasSynced() || p.over.Err() != nil || p.link.Err() != nil {
		return nil //nolint:nilerr // others tell that the peer does not answer
	}
	return bringAbout(ctx, p.link.Client(), p.link.TenantNamespace(), p.there(v1alpha1.ExportedByConsumer), wanted)
}

// bringAbout writes what is wanted and differs from what was found, and deletes what is not wanted.
func bringAbout(
	ctx context.Context, to client.Client, namespace string,
	found map[string]*v1alpha1.ExportedService, wanted map[string]*v1alpha1.ExportedServiceSpec,
) error {
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if wanted[name] == nil {
			failed = append(failed, client.IgnoreNotFound(to.Delete(ctx, found[name].DeepCopy())))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		known := found[name]
		switch {
		case known == nil:
			made := &v1alpha1.ExportedService{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: *wanted[name]}
			failed = append(failed, local.IgnoreStale(client.IgnoreAlreadyExists(to.Create(ctx, made))))
		case !equality.Semantic.DeepEqual(known.Spec, *wanted[name]):
			changed := known.DeepCopy()
			changed.Spec = *wanted[name]
			failed = append(failed, local.IgnoreStale(to.Update(ctx, changed)))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("tell of exported Services: %w", err)
	}
	return nil
}

// open has our gateway let pass what exports need, in both directions.
func (e *exporter) open(ctx context.Context, p *partner, wanted map[string]*v1alpha1.ExportedServiceSpec) error {
	if p.connection.Name == "" || !p.connection.DeletionTimestamp.IsZero() {
		return nil
	}
	taken, err := e.taken(ctx, p)
	if err != nil {
		return err
	}
	var paths struct {
		Exported []v1alpha1.ServicePath `json:"exported,omitempty"`
		Imported []v1alpha1.ServicePath `json:"imported,omitempty"`
	}
	paths.Exported = clusterset.Paths(slices.Collect(maps.Values(wanted)))
	paths.Imported = clusterset.Paths(taken)
	now := p.connection.Spec
	if equality.Semantic.DeepEqual(now.Exported, paths.Exported) && equality.Semantic.DeepEqual(now.Imported, paths.Imported) {
		return nil
	}
	key := &v1alpha1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: p.connection.Namespace, Name: p.connection.Name}}
	return local.ApplySpec(ctx, e.Client, pathOwner, key, &paths)
}

// taken returns what the peer exports and is imported here.
func (e *exporter) taken(ctx context.Context, p *partner) ([]*v1alpha1.ExportedServiceSpec, error) {
	if p.peer.Spec.ClusterSet == nil {
		return nil, nil
	}
	here, err := e.here(ctx, p, v1alpha1.ExportedByConsumer)
	if err != nil {
		return nil, err
	}
	var taken []*v1alpha1.ExportedServiceSpec
	senders := map[string]*clusterset.Sender{} // namespace → of it
	for _, objects := range []map[string]*v1alpha1.ExportedService{here, p.there(v1alpha1.ExportedByProvider)} {
		for _, object := range objects {
			spec := &object.Spec
			if senders[spec.Namespace] == nil {
				senders[spec.Namespace] = e.sender(p, spec.Namespace)
			}
			why, err := e.refusal(ctx, senders[spec.Namespace], spec)
			if err != nil {
				return nil, err
			}
			if why == "" {
				taken = append(taken, spec)
			}
		}
	}
	return taken, nil
}
