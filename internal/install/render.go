// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/charts"
)

// Options are what an administrator chooses at installation.
type Options struct {
	// Namespace is where Hanse runs.
	Namespace string
	// Version is the version of Hanse to install: by default also the tag of its image.
	Version string
	// Values override those of the chart.
	Values map[string]any
	// KubernetesVersion is the version of the cluster, such as v1.37.1; by default the oldest that will do.
	KubernetesVersion string
}

// Manifest is everything that an installation consists of, in the order in which it is to be made.
type Manifest struct {
	// Namespace is where Hanse runs.
	Namespace string
	// ClusterID is the id that the cluster is to have, or "" for the one that it has or makes.
	ClusterID string
	// Definitions are the CustomResourceDefinitions, which must be established before the rest.
	Definitions []*unstructured.Unstructured
	// Objects is the rest, the namespace first.
	Objects []*unstructured.Unstructured
}

// Image is the image that its Deployments run.
func (m Manifest) Image() string {
	for _, object := range m.Objects {
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		for _, container := range containers {
			fields, _ := container.(map[string]any)
			image, _ := fields["image"].(string)
			return image
		}
	}
	return ""
}

// Guards are the policies and roles, which Hanse relies on and never makes itself.
func (m Manifest) Guards() []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(m.Objects), func(o *unstructured.Unstructured) bool {
		return !strings.Contains(o.GetKind(), "AdmissionPolicy") && !strings.Contains(o.GetKind(), "Role")
	})
}

// Render makes the manifest of the embedded chart.
func Render(o Options) (Manifest, error) {
	c, err := load()
	if err != nil {
		return Manifest{}, err
	}
	c.Metadata.AppVersion = o.Version
	files, err := execute(c, o)
	if err != nil {
		return Manifest{}, err
	}
	for _, crd := range c.CRDObjects() {
		files[crd.Filename] = string(crd.File.Data)
	}
	_, texts, err := releaseutil.SortManifests(files, nil, nil)
	if err != nil {
		return Manifest{}, fmt.Errorf("split the chart's files: %w", err)
	}
	record, err := recordOf(o)
	if err != nil {
		return Manifest{}, err
	}
	m := Manifest{Namespace: o.Namespace, Objects: []*unstructured.Unstructured{namespace(o.Namespace), record}}
	m.ClusterID, _ = o.Values["clusterID"].(string)
	for _, text := range texts {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text.Content), &object.Object); err != nil {
			return Manifest{}, fmt.Errorf("decode %s: %w", text.Name, err)
		}
		switch object.GetKind() {
		case "": // a comment alone
		case definitionKind.Kind:
			m.Definitions = append(m.Definitions, object)
		default:
			m.Objects = append(m.Objects, object)
		}
	}
	rank := func(o *unstructured.Unstructured) int { return slices.Index(chartKinds, o.GroupVersionKind()) }
	slices.SortStableFunc(m.Objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return m, nil
}

// load reads the chart out of this program.
func load() (*chart.Chart, error) {
	const root = "hanse"
	var files []*archive.BufferedFile
	err := fs.WalkDir(charts.Hanse, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(charts.Hanse, name)
		if err != nil {
			return err
		}
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(name, root+"/"), Data: data})
		return nil
	})
	c, loadErr := loader.LoadFiles(files)
	if err := errors.Join(err, loadErr); err != nil {
		return nil, fmt.Errorf("load the embedded chart: %w", err)
	}
	return c, nil
}

// execute runs the templates, and returns what they made by their names.
func execute(c *chart.Chart, o Options) (map[string]string, error) {
	kubernetes, err := common.ParseKubeVersion(cmp.Or(o.KubernetesVersion, "v"+MinimumKubernetes+".0"))
	if err != nil {
		return nil, fmt.Errorf("read the version of Kubernetes %q: %w", o.KubernetesVersion, err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *kubernetes
	release := common.ReleaseOptions{Name: "hanse", Namespace: o.Namespace, IsInstall: true, Revision: 1}
	values, err := util.ToRenderValues(c, o.Values, release, capabilities)
	if err != nil {
		return nil, fmt.Errorf("check values: %w", err)
	}
	rendered, err := engine.Render(c, values)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	maps.DeleteFunc(rendered, func(name, _ string) bool { return path.Ext(name) != ".yaml" })
	return rendered, nil
}

func namespace(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(namespaceKind)
	object.SetName(name)
	object.SetLabels(map[string]string{
		"app.kubernetes.io/name": "hanse", PartOfLabel: PartOf, "pod-security.kubernetes.io/enforce": "restricted",
	})
	return object
}
