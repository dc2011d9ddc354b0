package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/internal/install"
)

const (
	reinstall = "run `kubectl hanse install` again, with the same flags as before: it repairs what differs"

	kubeletDeployment = "hanse-kubelet"
	certificateFlag   = "--tls-cert-file"
	authorityFlag     = "--kubelet-certificate-authority"
)

// cluster checks what Hanse needs of any cluster.
func (c *checker) cluster() []finding {
	version, err := install.KubernetesVersion(c.discovery)
	findings := subject{topicKubernetes, "Kubernetes version"}.supported(err, "upgrade Kubernetes to "+install.MinimumKubernetes+" or newer",
		version+", and "+install.MinimumKubernetes+" is the oldest that will do")
	if err != nil {
		return findings
	}
	for _, kind := range install.PolicyKinds() {
		findings = append(findings, subject{topicPolicies, kind}.supported(install.CheckServed(c.discovery, kind),
			"turn it on with the API server's --runtime-config and --feature-gates", "served as v1")...)
	}
	return findings
}

// supported is the finding about something that the cluster has to support.
func (s subject) supported(err error, fix, found string) []finding {
	switch {
	case errors.Is(err, install.ErrUnsupported):
		return s.failed(err.Error(), fix)
	case err != nil:
		return s.unknown(err)
	default:
		return s.ok("%s", found)
	}
}

// rights checks whether the user may make what the chart consists of.
func (c *checker) rights(ctx context.Context, about subject) []finding {
	needed, err := c.needed()
	if err != nil {
		return about.unknown(err)
	}
	var missing []string
	for _, right := range needed {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
		}
		if err := c.client.Create(ctx, review); err != nil {
			return about.unknown(fmt.Errorf("ask whether you may %s %s: %w", right.Verb, right.Resource, err))
		}
		if !review.Status.Allowed {
			missing = append(missing, right.Verb+" "+right.Resource)
		}
	}
	if len(missing) > 0 {
		return about.failed("you may not "+strings.Join(missing, ", "), "install as an administrator of the cluster (ClusterRole cluster-admin)")
	}
	return about.ok("they suffice to install Hanse")
}

// needed are the rights that an installation takes.
func (c *checker) needed() ([]authorizationv1.ResourceAttributes, error) {
	manifest, err := c.manifest()
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	for _, object := range slices.Concat(manifest.Definitions, manifest.Objects) {
		if kind := object.GroupVersionKind(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	// A role may give only what its maker has, or whoever may escalate.
	needed := []authorizationv1.ResourceAttributes{
		{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"},
		{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles"},
	}
	for _, kind := range kinds {
		mapping, err := c.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			continue // that it is not served is another check's finding
		}
		if err != nil {
			return nil, fmt.Errorf("find the resource of kind %s: %w", kind.Kind, err)
		}
		for _, verb := range []string{"create", "patch", "delete"} {
			right := authorizationv1.ResourceAttributes{Verb: verb, Group: kind.Group, Resource: mapping.Resource.Resource}
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				right.Namespace = c.namespace
			}
			needed = append(needed, right)
		}
	}
	return needed, nil
}

// manifest is what this client would install.
func (c *checker) manifest() (install.Manifest, error) {
	return install.Render(install.Options{Namespace: c.namespace, Version: c.ours})
}

// installed returns a finding if there is no Hanse to look at.
func (c *checker) installed(ctx context.Context, about subject) []finding {
	found, err := read(ctx, c.client, "", c.namespace, &corev1.Namespace{})
	switch {
	case err != nil:
		return about.unknown(err)
	case !found:
		return about.failed("there is no namespace "+c.namespace, "run `kubectl hanse install`, or say with --namespace where it is")
	default:
		return nil
	}
}

// made checks that some of what the chart makes is there.
func (c *checker) made(ctx context.Context, some func(install.Manifest) []*unstructured.Unstructured) func(subject) []finding {
	return func(about subject) []finding {
		manifest, err := c.manifest()
		if err != nil {
			return about.unknown(err)
		}
		missing, err := install.Missing(ctx, c.client, some(manifest))
		switch {
		case err != nil:
			return about.unknown(err)
		case len(missing) > 0:
			return about.failed("missing or not established: "+list(missing, 10), reinstall)
		default:
			return about.ok("all %d are there", len(some(manifest)))
		}
	}
}

// checkDeployments checks that Hanse's own pods run.
func (s *snapshot) checkDeployments(about subject) []finding {
	if len(s.deployments.Items) == 0 {
		return about.failed("there are none in namespace "+s.scope.system, reinstall)
	}
	return each(s.deployments.Items, checkDeployment)
}

func checkDeployment(d *appsv1.Deployment) []finding {
	about, want := subject{topicDeployments, "Deployment " + d.Name}, ptr.Deref(d.Spec.Replicas, 1)
	found := fmt.Sprintf("%d of %d replicas are available", d.Status.AvailableReplicas, want)
	switch {
	case want == 0:
		return about.failed("it is scaled to 0", fmt.Sprintf("kubectl scale deployment %s -n %s --replicas=1", d.Name, d.Namespace))
	case d.Status.AvailableReplicas == 0:
		return about.failed(found, fmt.Sprintf("see `kubectl describe pods -n %s`", d.Namespace))
	case d.Status.AvailableReplicas < want || d.Status.UpdatedReplicas < want || d.Status.ObservedGeneration < d.Generation:
		return about.warning(found+", and some may be of an older version", "wait, and check again")
	default:
		return about.ok("%s", found)
	}
}

// certificate checks that the API server takes the serving certificate of the kubelet API: else logs and exec fail for all
// pods on virtual nodes, and nothing else does.
func (c *checker) certificate(ctx context.Context, about subject, s *snapshot) []finding {
	kubelet := find(s.deployments.Items, func(d *appsv1.Deployment) bool { return d.Name == kubeletDeployment })
	if kubelet == nil {
		return about.skipped("see Deployments")
	}
	mounted := flagOf(&kubelet.Spec.Template.Spec, certificateFlag)
	found := "made by hanse-kubelet itself, which does unless the API server verifies it"
	if mounted != "" {
		found = "mounted, at " + mounted
	}
	const fix = "mount a certificate of the address POD_IP that the authority of the API server's " + authorityFlag +
		" has signed, and name it in kubelet.extraArgs: " + certificateFlag + ", --tls-private-key-file"
	node, err := find(s.nodes.Items, func(n *corev1.Node) bool { return isVirtualNode(n) && isNodeReady(n) }), error(nil)
	if node != nil {
		err = c.reach(ctx, node.Name)
	}
	switch {
	case node == nil && mounted == "" && s.verifiesKubelets():
		return about.failed(found+", and it does ("+authorityFlag+")", fix)
	case node == nil:
		return about.ok("%s. There is no virtual node yet to try it with", found)
	case err == nil:
		return about.ok("%s, and the API server takes it", found)
	case isDistrust(err):
		return about.failed(fmt.Sprintf("%s; the API server does not take it, so kubectl logs and exec fail: %s", found, err), fix)
	case apierrors.IsForbidden(err):
		return about.ok("%s. Your rights do not suffice to try whether the API server takes it", found)
	default:
		return about.warning(fmt.Sprintf("%s; the API server does not reach the kubelet API of %s: %s", found, node.Name, err),
			"see whether hanse-kubelet runs, and whether the API server reaches its pod")
	}
}

// verifiesKubelets reports whether an API server that runs as a pod here was told to verify kubelets. Others are not seen.
func (s *snapshot) verifiesKubelets() bool {
	return slices.ContainsFunc(s.apiServers.Items, func(p corev1.Pod) bool { return flagOf(&p.Spec, authorityFlag) != "" })
}

// isDistrust reports whether the API server has reached the kubelet API and refused its certificate. It says so in text
// alone.
func isDistrust(err error) bool {
	return strings.Contains(err.Error(), "x509:") || strings.Contains(err.Error(), "failed to verify certificate")
}

// through asks the kubelet API of a node through the API server. Whatever the kubelet API itself answers, it was reached.
func through(api rest.Interface) func(ctx context.Context, node string) error {
	return func(ctx context.Context, node string) error {
		err := api.Get().AbsPath("/api/v1/nodes", node, "proxy", "healthz").Do(ctx).Error()
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return nil
		}
		if cause, found := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); found {
			return fmt.Errorf("%w: %s", err, cause.Message) // what went wrong between the two is in the text of the answer
		}
		return err
	}
}
