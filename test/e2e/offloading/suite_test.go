// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// The library whose users expect a virtual node to behave in a certain way has a suite that says how.
func TestVirtualKubeletSuite(t *testing.T) {
	ctx := framework.Begin(t)
	for _, image := range []string{"foo", "bar", "baz"} {
		framework.MustTestbed(t, "load", filepath.Join(framework.Root, "bin", "suite", image+".tar"), "lubeck", "hamburg")
	}
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	t.Cleanup(func() { isApartAgain(t, lubeck) })
	lubeck.ApplyManifest(t, fmt.Sprintf(suiteManifest, ns))
	framework.Eventually(t, "its pods pull nothing", func(ctx context.Context) error {
		probe := framework.NewShellPod(ns, "probe", "")
		probe.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		err := lubeck.Create(ctx, probe, client.DryRunAll)
		if policy := probe.Spec.Containers[0].ImagePullPolicy; err == nil && policy != corev1.PullIfNotPresent {
			err = fmt.Errorf("the policy is %s", policy)
		}
		return err
	})
	node := lubeck.AwaitVirtualNode(t, hamburg, "is Ready", framework.IsNodeReady)
	framework.Eventually(t, "a network is said to connect the clusters", func(ctx context.Context) error {
		peer, err := lubeck.GetPeer(ctx, hamburg.Name)
		if err == nil {
			err = lubeck.Status().Patch(ctx, peer, client.RawPatch(types.MergePatchType, []byte("{}")))
		}
		if err == nil && !peer.Connected() {
			err = errors.New("the policy does not say so yet")
		}
		return err
	})

	cmd := exec.CommandContext(ctx, filepath.Join(framework.Root, "bin", "suite", "suite.test"), "-test.v", "-test.run", "TestVirtualKubelet")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+lubeck.Kubeconfig, "SUITE_NAMESPACE="+ns, "SUITE_NODE="+node.Name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, framework.Tail(string(out), 12000))
	}
	if passed := strings.Count(string(out), "    --- PASS: "); passed != suiteTests {
		t.Errorf("%d tests have passed, want %d:\n%s", passed, suiteTests, framework.Tail(string(out), 12000))
	}
}

// isApartAgain takes back that a network connects the clusters, as soon as the policy that said so has no effect any more: pods of the
// next story would wait for tokens.
func isApartAgain(t *testing.T, c *framework.Cluster) {
	t.Helper()
	framework.EventuallyInCleanup(t, "no network is said to connect the clusters", func(ctx context.Context) error {
		peer, err := c.GetPeer(ctx, hamburg.Name)
		if err != nil || !peer.Connected() {
			return err
		}
		before := peer.DeepCopy()
		meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoNetworkFabric,
		})
		return cmp.Or(c.Status().Patch(ctx, peer, client.MergeFrom(before)), errors.New("the policy still says so"))
	})
}

// suiteTests is how many tests the suite has.
const suiteTests = 9

// suiteManifest says that the suite's pods, which name no policy for pulling, pull nothing: there is no registry. And that a
// network connects the clusters: the suite waits until its pods have addresses, and remote ones have none without a network.
const suiteManifest = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: suite-never-pulls}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        lists.range(object.spec.containers.size()).map(i, JSONPatch{
          op: "replace", path: "/spec/containers/" + string(i) + "/imagePullPolicy", value: "IfNotPresent"})
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: suite-never-pulls}
spec: {policyName: suite-never-pulls}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: suite-is-connected}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [hanse.dev], apiVersions: [v1alpha1], resources: [peers/status], operations: [UPDATE]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        lists.range(object.?status.?conditions.orValue([]).size()).filter(i, object.status.conditions[i].type == "Connected").map(i,
          JSONPatch{op: "replace", path: "/status/conditions/" + string(i) + "/status", value: "True"})
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: suite-is-connected}
spec: {policyName: suite-is-connected}
`
