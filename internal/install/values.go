// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// valuesRecord is the ConfigMap in Hanse's namespace that keeps the values of the chart by which Hanse was installed.
	valuesRecord = "hanse-values"
	valuesKey    = "values.yaml"
	// managerDeployment is where there is a Hanse, whoever has installed it.
	managerDeployment = "hanse-manager"
)

var (
	// ErrNoRecord says that Hanse runs, and that it is not known by which values.
	ErrNoRecord = errors.New("the values by which Hanse was installed are not known")
	// ErrOtherID says that the cluster has another id than the one that was asked for.
	ErrOtherID = errors.New("the id of a cluster can never change")
)

// recordOf is the object that keeps the values.
func recordOf(o Options) (*unstructured.Unstructured, error) {
	text, err := yaml.Marshal(o.Values)
	if err != nil {
		return nil, fmt.Errorf("encode values: %w", err)
	}
	record := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{valuesKey: string(text)}}}
	record.SetGroupVersionKind(configMapKind)
	record.SetNamespace(o.Namespace)
	record.SetName(valuesRecord)
	record.SetLabels(map[string]string{"app.kubernetes.io/name": "hanse", PartOfLabel: PartOf})
	return record, nil
}

// Values returns the values of the chart by which Hanse was installed in the namespace: none if it is not installed, and
// ErrNoRecord if it was, but not by Apply.
func (c Cluster) Values(ctx context.Context, namespace string) (map[string]any, error) {
	record, key := &corev1.ConfigMap{}, client.ObjectKey{Namespace: namespace, Name: valuesRecord}
	err := c.Client.Get(ctx, key, record)
	if apierrors.IsNotFound(err) {
		return nil, c.checkNew(ctx, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	values := map[string]any{}
	text, err := yaml.YAMLToJSON([]byte(record.Data[valuesKey]))
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &values)
	}
	if err != nil {
		return nil, fmt.Errorf("decode %s of ConfigMap %s: %w", valuesKey, key, err)
	}
	return values, nil
}

// checkNew returns ErrNoRecord if there is a Hanse in the namespace.
func (c Cluster) checkNew(ctx context.Context, namespace string) error {
	manager, key := &appsv1.Deployment{}, client.ObjectKey{Namespace: namespace, Name: managerDeployment}
	err := c.Client.Get(ctx, key, manager)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read Deployment %s: %w", key, err)
	}
	by := "by Helm or by an older client"
	if release := manager.Annotations["meta.helm.sh/release-name"]; release != "" {
		by = "by Helm, as release " + release
	}
	return fmt.Errorf("%w: it was installed in namespace %s %s. Upgrade it the same way, or say --reset-values with all values that "+
		"it is to have, the image among them", ErrNoRecord, namespace, by)
}

// checkID refuses another id than the one by which peers know the cluster, as its manager would on every start.
func (c Cluster) checkID(ctx context.Context, m Manifest) error {
	info, key := &corev1.ConfigMap{}, client.ObjectKey{Namespace: m.Namespace, Name: v1alpha1.ClusterInfo}
	if err := c.Client.Get(ctx, key, info); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	id := info.Data[v1alpha1.ClusterInfoID]
	if id == "" || m.ClusterID == "" || m.ClusterID == id {
		return nil
	}
	return fmt.Errorf("%w: this one is %s, and not %s, and its peers know it by that. Leave out --cluster-id, or say --cluster-id %[2]s",
		ErrOtherID, id, m.ClusterID)
}
