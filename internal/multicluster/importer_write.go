// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/internal/clusterset"
	"github.com/hanse-dev/hanse/internal/local"
)

// bringAbout has there be the ServiceImport and what belongs to it, and returns how soon to look again.
func (i *importer) bringAbout(ctx context.Context, seen *scene) (time.Duration, error) {
	switch {
	case seen.outcome.Taken != "":
		return 0, nil
	case seen.held():
		return i.endpoints(ctx, seen, seen.imported.Spec.Type == mcsv1beta1.Headless)
	case !seen.usable || len(seen.exports) == 0:
		return 0, i.end(ctx, seen)
	}
	merged := clusterset.Merge(seen.exports)
	if seen.export != nil {
		seen.outcome.Conflicts = merged.Conflicts
	}
	if err := i.keepImport(ctx, seen, &merged); err != nil || seen.imported == nil {
		return 0, err
	}
	if err := i.keepService(ctx, seen, merged.Service(seen.key)); err != nil {
		return 0, err
	}
	again, err := i.endpoints(ctx, seen, merged.Type == mcsv1beta1.Headless)
	return again, errors.Join(err, i.reportImport(ctx, seen, &merged))
}

// end deletes the ServiceImport, and with it what it owns.
func (i *importer) end(ctx context.Context, seen *scene) error {
	if seen.imported == nil || !seen.imported.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := local.IgnoreStale(i.Client.Delete(ctx, seen.imported, client.Preconditions{UID: &seen.imported.UID})); err != nil {
		return fmt.Errorf("delete ServiceImport: %w", err)
	}
	return nil
}

// keepImport writes the ServiceImport. Afterwards there is none in the scene if it has to be looked at again.
func (i *importer) keepImport(ctx context.Context, seen *scene, merged *clusterset.Merged) error {
	want := merged.Import(seen.key, seen.service)
	if seen.imported == nil {
		err := i.Client.Create(ctx, want)
		if err == nil {
			seen.imported = want
		}
		return writing("ServiceImport", err)
	}
	if !seen.imported.DeletionTimestamp.IsZero() {
		seen.imported = nil // when it is gone there will be another
		return nil
	}
	now := seen.imported
	if maps.Equal(now.Labels, want.Labels) && maps.Equal(now.Annotations, want.Annotations) && equality.Semantic.DeepEqual(now.Spec, want.Spec) {
		return nil
	}
	changed := now.DeepCopy()
	changed.Labels, changed.Annotations, changed.Spec = want.Labels, want.Annotations, want.Spec
	err := i.Client.Update(ctx, changed)
	if err == nil {
		seen.imported = changed
	}
	return writing("ServiceImport", err)
}

// keepService writes the Service that stands for the ServiceImport, or deletes the one that there was. Its addresses, which come with it,
// ask for another look.
func (i *importer) keepService(ctx context.Context, seen *scene, want *corev1.Service) error {
	now := seen.service
	switch {
	case want == nil && now != nil:
		return writing("Service", i.Client.Delete(ctx, now, client.Preconditions{UID: &now.UID}))
	case want == nil:
		return nil
	}
	own(want, seen.imported)
	if now == nil {
		return writing("Service", i.Client.Create(ctx, want))
	}
	changed := now.DeepCopy()
	changed.Labels, changed.OwnerReferences = want.Labels, want.OwnerReferences
	changed.Spec.Ports, changed.Spec.Selector = want.Spec.Ports, nil
	changed.Spec.SessionAffinity, changed.Spec.SessionAffinityConfig = want.Spec.SessionAffinity, want.Spec.SessionAffinityConfig
	if equality.Semantic.DeepEqual(now, changed) {
		return nil
	}
	return writing("Service", i.Client.Update(ctx, changed))
}

// own makes the ServiceImport the owner of the object, which goes with it.
func own(object metav1.Object, by *mcsv1beta1.ServiceImport) {
	owner := metav1.NewControllerRef(by, mcsv1beta1.SchemeGroupVersion.WithKind(mcsv1beta1.ServiceImportKindName))
	owner.BlockOwnerDeletion = nil // which would need a right on finalizers
	object.SetOwnerReferences([]metav1.OwnerReference{*owner})
}

// endpoints writes the EndpointSlices of all clusters, and returns how soon to look again.
func (i *importer) endpoints(ctx context.Context, seen *scene, headless bool) (time.Duration, error) {
	want := map[string]*discoveryv1.EndpointSlice{}
	for _, export := range seen.exports {
		maps.Copy(want, export.EndpointSlices(seen.key, headless))
	}
	for name, slice := range seen.slices {
		connected, silent := seen.silent[slice.Labels[mcsv1beta1.LabelSourceCluster]]
		if want[name] == nil && silent {
			if want[name] = slice; !connected {
				want[name] = clusterset.Unready(slice)
			}
		}
	}
	var failed []error
	var again time.Duration
	paced := map[string]time.Duration{}
	for _, name := range slices.Sorted(maps.Keys(merge(want, seen.slices))) {
		now, wanted := seen.slices[name], want[name]
		if wanted != nil {
			own(wanted, seen.imported)
		}
		if same(now, wanted) {
			continue
		}
		cluster := sourceOf(now, wanted)
		if _, asked := paced[cluster]; !asked {
			paced[cluster] = i.pace(seen, cluster)
		}
		if paced[cluster] > 0 {
			again = max(again, paced[cluster])
			continue
		}
		failed = append(failed, i.writeSlice(ctx, now, wanted))
	}
	return again, errors.Join(failed...)
}

func merge[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func sourceOf(either ...*discoveryv1.EndpointSlice) string {
	for _, slice := range either {
		if slice != nil {
			return slice.Labels[mcsv1beta1.LabelSourceCluster]
		}
	}
	return ""
}

func same(now, want *discoveryv1.EndpointSlice) bool {
	return now != nil && want != nil && maps.Equal(now.Labels, want.Labels) &&
		equality.Semantic.DeepEqual(now.OwnerReferences, want.OwnerReferences) &&
		equality.Semantic.DeepEqual(now.Ports, want.Ports) && equality.Semantic.DeepEqual(now.Endpoints, want.Endpoints)
}

func (i *importer) writeSlice(ctx context.Context, now, want *discoveryv1.EndpointSlice) error {
	switch {
	case want == nil:
		return writing("EndpointSlice", i.Client.Delete(ctx, now, client.Preconditions{UID: &now.UID}))
	case now == nil:
		return writing("EndpointSlice", i.Client.Create(ctx, want))
	default:
		want.ResourceVersion = now.ResourceVersion
		return writing("EndpointSlice", i.Client.Update(ctx, want))
	}
}

func writing(kind string, err error) error {
	if err = local.IgnoreStale(client.IgnoreAlreadyExists(err)); err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}

// reportImport says in the status of the ServiceImport who exports the Service.
func (i *importer) reportImport(ctx context.Context, seen *scene, merged *clusterset.Merged) error {
	after := seen.imported.DeepCopy()
	after.Status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
	after.Status.Clusters = nil
	for _, cluster := range merged.Clusters {
		after.Status.Clusters = append(after.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: cluster})
	}
	ready := metav1.Condition{
		Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionTrue,
		Reason: string(mcsv1beta1.ServiceImportReasonReady), Message: "The Service can be used", ObservedGeneration: after.Generation,
	}
	if after.Spec.Type == mcsv1beta1.ClusterSetIP && len(after.Spec.IPs) == 0 {
		ready.Status, ready.Reason = metav1.ConditionFalse, string(mcsv1beta1.ServiceImportReasonPending)
		ready.Message = "The Service has no address yet"
	}
	meta.SetStatusCondition(&after.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(after.Status, seen.imported.Status) {
		return nil
	}
	return writing("the status of ServiceImport", i.Client.Status().Patch(ctx, after, client.MergeFrom(seen.imported)))
}

// report says on the ServiceExport how it stands.
func (i *importer) report(ctx context.Context, seen *scene) error {
	if seen.export == nil || !seen.export.DeletionTimestamp.IsZero() || seen.held() {
		return nil
	}
	after := seen.export.DeepCopy()
	for _, condition := range seen.outcome.Conditions() {
		condition.ObservedGeneration = after.Generation
		meta.SetStatusCondition(&after.Status.Conditions, condition)
	}
	if equality.Semantic.DeepEqual(after.Status, seen.export.Status) {
		return nil
	}
	return writing("the status of ServiceExport", i.Client.Status().Patch(ctx, after, client.MergeFrom(seen.export)))
}
