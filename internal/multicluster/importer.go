// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/clusterset"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
)

// importer keeps what there is of one name in all clusters. A request names the Service.
type importer struct{ Config }

// A scene is what is known of the name.
type scene struct {
	key      clusterset.Key
	usable   bool // the namespace is there, and a user's
	export   *mcsv1beta1.ServiceExport
	outcome  clusterset.Outcome
	own      *clusterset.Export // what this cluster exports, if it does
	exports  []*clusterset.Export
	sources  map[string]string // cluster → the peer, where its news comes over a link
	answers  []reply
	silent   map[string]bool // clusters of which it is not known what they export → whether the tunnel to them works
	imported *mcsv1beta1.ServiceImport
	service  *corev1.Service // that stands for it
	slices   map[string]*discoveryv1.EndpointSlice
}

// A reply is what a message is answered.
type reply struct {
	to     client.Client
	object *v1alpha1.ExportedService
	why    string
}

// Reconcile brings the ServiceImport of a name in line with what is exported, and says how that stands.
func (i *importer) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	seen, err := i.observe(ctx, clusterset.Key{Namespace: request.Namespace, Name: request.Name})
	if err != nil {
		return reconcile.Result{}, err
	}
	again, err := i.bringAbout(ctx, seen)
	err = errors.Join(err, i.report(ctx, seen), i.reply(ctx, seen))
	var busy *peers.BusyError
	if errors.As(err, &busy) {
		return reconcile.Result{RequeueAfter: busy.After}, nil
	}
	if seen.outcome.Taken != "" {
		again = lastRetry // nobody tells when that goes
	}
	return reconcile.Result{RequeueAfter: again}, err
}

func (i *importer) observe(ctx context.Context, key clusterset.Key) (*scene, error) {
	at := client.ObjectKey{Namespace: key.Namespace, Name: key.Name}
	seen := &scene{key: key, sources: map[string]string{}, silent: map[string]bool{}, slices: map[string]*discoveryv1.EndpointSlice{}}
	var err error
	if seen.usable, err = i.usable(ctx, key.Namespace); err != nil {
		return nil, err
	}
	if seen.export, err = local.Find(ctx, i.Client, at, &mcsv1beta1.ServiceExport{}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return seen, errors.Join(i.observeFound(ctx, seen), i.observeOwn(ctx, seen), i.observePeers(ctx, seen))
}

// observeFound reads what there is of the import.
func (i *importer) observeFound(ctx context.Context, seen *scene) error {
	at := client.ObjectKey{Namespace: seen.key.Namespace, Name: seen.key.Name}
	var failed, err error
	seen.imported, failed = local.Find(ctx, i.Client, at, &mcsv1beta1.ServiceImport{})
	at.Name = clusterset.ServiceName(seen.key)
	seen.service, err = local.Find(ctx, i.Client, at, &corev1.Service{})
	if failed = errors.Join(failed, err); failed != nil {
		return failed
	}
	list := &discoveryv1.EndpointSliceList{}
	labels := client.MatchingLabels{v1alpha1.LabelClusterSet: "true", mcsv1beta1.LabelServiceName: seen.key.Name}
	if err := i.Client.List(ctx, list, client.InNamespace(seen.key.Namespace), labels); err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	for n := range list.Items {
		seen.slices[list.Items[n].Name] = &list.Items[n]
	}
	switch {
	case seen.imported != nil && !clusterset.IsOurs(seen.imported):
		seen.outcome.Taken = fmt.Sprintf("ServiceImport %q", seen.key.Name)
	case seen.service != nil && !clusterset.IsOurs(seen.service):
		seen.outcome.Taken = fmt.Sprintf("Service %q", seen.service.Name)
	}
	return nil
}

// observeOwn adds what this cluster exports.
func (i *importer) observeOwn(ctx context.Context, seen *scene) error {
	if seen.export == nil || !seen.export.DeletionTimestamp.IsZero() {
		return nil
	}
	own, outcome, err := i.own(ctx, seen.export)
	if err != nil {
		return err
	}
	outcome.Taken, outcome.Peers = seen.outcome.Taken, map[string]clusterset.Standing{}
	seen.outcome = outcome
	if seen.own = own; own != nil {
		seen.exports = append(seen.exports, own)
	}
	return nil
}

// observePeers adds what peers export, what they are answered, and how the export of this cluster stands with them.
func (i *importer) observePeers(ctx context.Context, seen *scene) error {
	partners, err := i.partners(ctx)
	if err != nil {
		return err
	}
	for n := range partners {
		p := &partners[n]
		if !p.known() && p.peer.Shares(seen.key.Namespace, i.Namespace) {
			seen.silent[p.peer.Spec.ClusterID] = p.connected()
		}
		if err := i.observePeer(ctx, p, seen); err != nil {
			return err
		}
	}
	return nil
}

func (i *importer) observePeer(ctx context.Context, p *partner, seen *scene) error {
	shares := p.peer.Shares(seen.key.Namespace, i.Namespace)
	if shares && seen.outcome.Peers != nil {
		if err := i.observeStanding(ctx, p, seen); err != nil {
			return err
		}
	}
	objects, err := i.received(ctx, p, seen.key)
	if err != nil || len(objects) == 0 {
		return err
	}
	sender := i.sender(p, seen.key.Namespace)
	to := i.Client
	if objects[0].Spec.By == v1alpha1.ExportedByProvider {
		to = p.link.Client()
		seen.sources[p.peer.Spec.ClusterID] = p.peer.Name
	}
	var parts []*v1alpha1.ExportedServiceSpec
	for _, object := range objects {
		why, err := i.judge(ctx, seen, sender, object)
		if err != nil {
			return err
		}
		seen.answers = append(seen.answers, reply{to, object, why})
		if why == "" {
			parts = append(parts, &object.Spec)
		}
	}
	if len(parts) > 0 {
		seen.exports = append(seen.exports, sender.Received(parts))
	}
	return nil
}

// observeStanding adds how the export of this cluster stands at the peer.
func (i *importer) observeStanding(ctx context.Context, p *partner, seen *scene) error {
	standing, err := i.standing(ctx, p, seen.key)
	if err != nil {
		return err
	}
	seen.outcome.Peers[p.peer.Name] = standing
	if seen.own == nil || !standing.Told {
		return nil
	}
	view, err := i.view(ctx, p)
	if err != nil {
		return err
	}
	_, tooMany := seen.own.Told(seen.key, p.telling(), view)
	seen.outcome.TooMany = seen.outcome.TooMany || tooMany
	return nil
}

// judge says why a message of a peer is not taken.
func (i *importer) judge(ctx context.Context, seen *scene, sender *clusterset.Sender, object *v1alpha1.ExportedService) (string, error) {
	why, err := i.refusal(ctx, sender, &object.Spec)
	switch {
	case err != nil || why != "":
		return why, err
	case sender.Cluster == i.ClusterID:
		return "the peer has the id of this cluster", nil
	case !seen.usable:
		return fmt.Sprintf("there is no namespace %q here", seen.key.Namespace), nil
	case seen.outcome.Taken != "":
		return fmt.Sprintf("there is a %s here that is not of Hanse", seen.outcome.Taken), nil
	default:
		return "", nil
	}
}

// held says whether the import has the word of a cluster that is not heard of yet, such as after a restart: then nothing of it is changed but
// endpoints.
func (s *scene) held() bool {
	return s.imported != nil && slices.ContainsFunc(s.imported.Status.Clusters, func(c mcsv1beta1.ClusterStatus) bool {
		_, silent := s.silent[c.Cluster]
		return silent
	})
}

// reply answers peers.
func (i *importer) reply(ctx context.Context, seen *scene) error {
	var failed []error
	for _, a := range seen.answers {
		failed = append(failed, answer(ctx, a.to, a.object, a.why))
	}
	return errors.Join(failed...)
}

// pace returns for how long news of the cluster must wait, because its peer changes its mind too often.
func (i *importer) pace(seen *scene, cluster string) time.Duration {
	if peer, linked := seen.sources[cluster]; linked {
		return i.Links.Pace(peer, seen.imported.UID)
	}
	return 0
}
