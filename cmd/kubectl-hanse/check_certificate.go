package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	kubeletDeployment = "hanse-kubelet"
	certificateFlag   = "--tls-cert-file"
	authorityFlag     = "--kubelet-certificate-authority"
)

// certificate checks that the API server takes the serving certificate of the kubelet API: else logs and exec fail for all
// pods on virtual nodes, and nothing else does.
func (c *checker) certificate(ctx context.Context) finding {
	const name = "certificate of the kubelet API"
	deployment := &appsv1.Deployment{}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: kubeletDeployment}, deployment)
	if apierrors.IsNotFound(err) {
		return topicCertificate.skipped(name, "see Deployments")
	}
	if err != nil {
		return topicCertificate.unknown(name, err)
	}
	mounted := flagOf(&deployment.Spec.Template.Spec, certificateFlag)
	found := "made by hanse-kubelet itself, which does unless the API server verifies it"
	if mounted != "" {
		found = "mounted, at " + mounted
	}
	const fix = "mount a certificate of the address POD_IP that the authority of the API server's " + authorityFlag +
		" has signed, and name it in kubelet.extraArgs: " + certificateFlag + ", --tls-private-key-file"
	node, err := c.tryNode(ctx)
	switch {
	case node == "" && mounted == "" && c.verifiesKubelets(ctx):
		return topicCertificate.failed(name, found+", and it does ("+authorityFlag+")", fix)
	case node == "":
		return topicCertificate.ok(name, "%s. There is no virtual node yet to try it with", found)
	case err == nil:
		return topicCertificate.ok(name, "%s, and the API server takes it", found)
	case isDistrust(err):
		return topicCertificate.failed(name, fmt.Sprintf("%s; the API server does not take it, so kubectl logs and exec fail: %s", found, err), fix)
	case apierrors.IsForbidden(err):
		return topicCertificate.ok(name, "%s. Your rights do not suffice to try whether the API server takes it", found)
	default:
		return topicCertificate.warning(name, fmt.Sprintf("%s; the API server does not reach the kubelet API of %s: %s", found, node, err),
			"see whether hanse-kubelet runs, and whether the API server reaches its pod")
	}
}

// tryNode has the API server connect to the kubelet API of a virtual node that is ready. Without one there is no name.
func (c *checker) tryNode(ctx context.Context) (string, error) {
	nodes := &corev1.NodeList{}
	if err := c.client.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}); err != nil {
		return "", err
	}
	i := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return isNodeReady(&n) })
	if i < 0 {
		return "", nil
	}
	return nodes.Items[i].Name, c.reach(ctx, nodes.Items[i].Name)
}

// verifiesKubelets reports whether an API server that runs as a pod here was told to verify kubelets. Others are not seen.
func (c *checker) verifiesKubelets(ctx context.Context) bool {
	pods := &corev1.PodList{}
	err := c.client.List(ctx, pods, client.InNamespace("kube-system"), client.MatchingLabels{"component": "kube-apiserver"})
	return err == nil && slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return flagOf(&p.Spec, authorityFlag) != "" })
}

// flagOf is the value of a flag of one of the pod's containers.
func flagOf(pod *corev1.PodSpec, flag string) string {
	for i := range pod.Containers {
		words := slices.Concat(pod.Containers[i].Command, pod.Containers[i].Args)
		for j, word := range words {
			if value, found := strings.CutPrefix(word, flag+"="); found {
				return value
			}
			if word == flag && j+1 < len(words) {
				return words[j+1]
			}
		}
	}
	return ""
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
