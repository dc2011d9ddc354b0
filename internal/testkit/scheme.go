// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"encoding/json"
	"fmt"
	"path"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/charts"
)

// Scheme returns a scheme of the kinds of Kubernetes that Hanse uses, of Hanse's own, and of those that Hanse keeps for
// others. It is shared: do not add to it. It has no other kinds, because the fake client maps all kinds of its scheme to
// resources again with each write: with the whole scheme of client-go that takes half the time of a test.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, batchv1.AddToScheme,
		coordinationv1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme, flowcontrolv1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme,
		v1alpha1.AddToScheme, mcsv1beta1.Install, inventory.AddToScheme, snapshotv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
})

// typeConverters tell the fake client how server-side apply merges: Kubernetes' own kinds by client-go's schemas, ours by
// those of our CRDs. Without the latter, two writers of conditions would delete each other's.
var typeConverters = sync.OnceValue(func() []managedfields.TypeConverter {
	schemas, err := crdSchemas()
	if err != nil {
		panic(fmt.Sprintf("read the CRDs: %v", err))
	}
	ours, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		panic(fmt.Sprintf("read the schemas of the CRDs: %v", err))
	}
	return []managedfields.TypeConverter{
		ours, applyconfigurations.NewTypeConverter(clientgoscheme.Scheme), managedfields.NewDeducedTypeConverter(),
	}
})

// crdSchemas returns the OpenAPI schema of each of our kinds, by its name.
func crdSchemas() (map[string]*spec.Schema, error) {
	const folder = "hanse/crds"
	files, err := charts.Hanse.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	schemas := map[string]*spec.Schema{}
	for _, file := range files {
		data, err := charts.Hanse.ReadFile(path.Join(folder, file.Name()))
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		for i := range crd.Spec.Versions {
			schema, err := schemaOf(crd, &crd.Spec.Versions[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file.Name(), err)
			}
			schemas[crd.Spec.Versions[i].Name+"."+crd.Spec.Names.Kind] = schema
		}
	}
	return schemas, nil
}

// schemaOf reads the schema of a version as OpenAPI, and names the kind in it, by which the converter finds it.
func schemaOf(crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion) (*spec.Schema, error) {
	data, err := json.Marshal(version.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	schema := &spec.Schema{}
	if err := json.Unmarshal(data, schema); err != nil {
		return nil, err
	}
	// The converter takes a schema without properties for a reference that it lacks.
	metadata := spec.MapProperty(nil)
	metadata.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	schema.Properties["metadata"] = *metadata
	schema.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{
		"group": crd.Spec.Group, "version": version.Name, "kind": crd.Spec.Names.Kind,
	}})
	return schema, nil
}
