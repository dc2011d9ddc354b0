package namespaces

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// twinName is the name that a peer is asked for: none where the peer makes one.
func twinName(offloading *v1alpha1.NamespaceOffloading) string {
	naming := offloading.Spec.Twin
	if naming == nil {
		return ""
	}
	switch naming.Naming {
	case v1alpha1.TwinSameName:
		return offloading.Namespace
	case v1alpha1.TwinChosen:
		return naming.Name
	default:
		return ""
	}
}

// misnamed reports whether the mapping asks for another name than the user wants now.
func misnamed(offloading *v1alpha1.NamespaceOffloading, mapping *v1alpha1.NamespaceMapping) bool {
	return mapping.Spec.Twin != twinName(offloading)
}

// misnames is misnamed where names are asked for at all. Where there is no Hanse, the administrator has chosen one.
func (c connection) misnames(offloading *v1alpha1.NamespaceOffloading, mapping *v1alpha1.NamespaceMapping) bool {
	return c.asks() && misnamed(offloading, mapping)
}

// rename takes back a request for a twin of another name, so that the next look asks for the one that is wanted now. Like
// release it ends every pod in the twin, so it waits for them, and nothing cached is believed.
func (m *mapper) rename(ctx context.Context, remote Remote, mapping *v1alpha1.NamespaceMapping, peer string) error {
	seen, decision, err := m.need(ctx, m.live, mapping.Name, peer)
	if err != nil || decision != needed || !misnamed(seen.offloading, mapping) {
		return err
	}
	if mapping.Status.Twin != "" { // else there is nothing that a pod could run in
		inUse, err := m.hasPods(ctx, mapping.Name, v1alpha1.VirtualNodeName(peer))
		if err != nil || inUse {
			return err // each pod that goes asks again
		}
	}
	// The peer may have made the twin since we looked, and a pod may be in it.
	err = remote.Client().Delete(ctx, mapping,
		client.Preconditions{UID: &mapping.UID, ResourceVersion: &mapping.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete namespace mapping %s, whose twin is to get another name: %w", mapping.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Gave up a twin namespace for one of another name", "HomeNamespace", mapping.Name)
	return nil
}
