// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// stall is a pod with the Secret word in its environment, and the claim pvc-data at /data. It prints what was in there before.
const stall = `
metadata: {labels: {app: stall}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, persistentVolumeClaim: {claimName: pvc-data}}]
  containers:
  - name: main
    image: ` + framework.BusyboxImage + `
    imagePullPolicy: IfNotPresent
    command: [/bin/sh, -c, "cat /data/word 2>&1; echo $word | tee /data/word; ` + framework.RunForever + `"]
    envFrom: [{secretRef: {name: word}}]
    volumeMounts: [{name: data, mountPath: /data}]
    resources: {requests: {cpu: 1m, memory: 8Mi}}
`

// Ten consumers of one provider have namespaces, Secrets, Services and claims of the same names. Each has its own, and none sees or
// changes another's. They are credentials without clusters: what a cluster would do with them is the same requests.
func TestTenConsumersOneProvider(t *testing.T) {
	ctx := framework.Begin(t)
	guests, twins := make([]*framework.Guest, 10), make([]string, 10)
	for i := range guests {
		guests[i] = hamburg.PeerWithGuest(t, fmt.Sprintf("visby-of-ten-%d", i))
		twins[i] = guests[i].CreateTwin(t, "shop")
		for _, object := range wares(t, guests[i], twins[i]) {
			if err := guests[i].Create(ctx, object); err != nil {
				t.Fatalf("%s: %v", guests[i].ID, err)
			}
		}
	}
	t.Cleanup(func() { hamburg.ForgetGuests(t, guests) })
	volumes := map[string]string{}
	for i, g := range guests {
		expectOwnWares(ctx, t, g, twins[i])
		volume := claimIn(t, hamburg, twins[i], "pvc-data").Spec.VolumeName
		if other, taken := volumes[volume]; taken {
			t.Errorf("%s and %s share volume %s", other, g.ID, volume)
		}
		volumes[volume] = g.ID
		for j, theirs := range twins {
			if j != i {
				expectNothingOf(ctx, t, g, theirs)
			}
		}
	}
	// What one of them does to its own concerns no other.
	if err := guests[0].Delete(ctx, &corev1.Secret{ObjectMeta: framework.NamespacedMeta(twins[0], "word")}); err != nil {
		t.Fatal(err)
	}
	for i := range guests[1:] {
		if err := hamburg.Get(ctx, client.ObjectKey{Namespace: twins[i+1], Name: "word"}, &corev1.Secret{}); err != nil {
			t.Error(err)
		}
	}
}

// wares are what each consumer has, under the same names.
func wares(t *testing.T, g *framework.Guest, twin string) []client.Object {
	t.Helper()
	copied := func(o client.Object) client.Object {
		o.SetNamespace(twin)
		o.SetLabels(map[string]string{v1alpha1.LabelReflected: "true"})
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationOriginUID: "u-" + o.GetName(), v1alpha1.AnnotationOriginVersion: "1"})
		return o
	}
	claim := &v1alpha1.ShadowClaim{ObjectMeta: framework.NamespacedMeta(twin, "pvc-data"), Spec: v1alpha1.ShadowClaimSpec{
		HomeUID: "uid-of-data", Storage: resource.MustParse("1Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}}
	return []client.Object{
		copied(&corev1.Secret{ObjectMeta: framework.ObjectMeta("word"), StringData: map[string]string{"word": g.ID}}),
		copied(&corev1.Service{ObjectMeta: framework.ObjectMeta("shop"), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "stall"}, Ports: []corev1.ServicePort{{Port: 80}},
		}}),
		claim, framework.NewShadowPod(t, twin, "stall", stall),
	}
}

// expectOwnWares waits until the pod of the guest runs with what is the guest's, and is the only one behind the guest's Service.
func expectOwnWares(ctx context.Context, t *testing.T, g *framework.Guest, twin string) {
	t.Helper()
	g.AwaitRunning(t, twin, "stall")
	expectOwnWord(t, g, twin)
	remote, err := hamburg.GetPod(ctx, twin, "stall")
	if err != nil {
		t.Fatal(err)
	}
	hamburg.AwaitEndpoints(t, twin, "shop", remote.Status.PodIP+" ready=true")
}

// expectOwnWord checks that the pod of the guest has the guest's Secret, and an empty volume.
func expectOwnWord(t *testing.T, g *framework.Guest, twin string) {
	t.Helper()
	reader, err := kubernetes.NewForConfig(g.Config)
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the pod of "+g.ID+" says its own word", func(ctx context.Context) error {
		log, err := reader.CoreV1().Pods(twin).GetLogs("stall", &corev1.PodLogOptions{}).DoRaw(ctx)
		want := "cat: can't open '/data/word': No such file or directory\n" + g.ID + "\nstarted\n"
		if err == nil && string(log) != want {
			err = fmt.Errorf("it says %q, want %q", log, want)
		}
		return err
	})
}

// expectNothingOf tries to see, change and take what lies in the twin of another.
func expectNothingOf(ctx context.Context, t *testing.T, g *framework.Guest, theirs string) {
	t.Helper()
	for what, err := range map[string]error{
		"list Secrets":      g.List(ctx, &corev1.SecretList{}, client.InNamespace(theirs)),
		"list Services":     g.List(ctx, &corev1.ServiceList{}, client.InNamespace(theirs)),
		"list ShadowClaims": g.List(ctx, &v1alpha1.ShadowClaimList{}, client.InNamespace(theirs)),
		"delete a Secret":   g.Delete(ctx, &corev1.Secret{ObjectMeta: framework.NamespacedMeta(theirs, "word")}),
		"delete a claim":    g.Delete(ctx, &v1alpha1.ShadowClaim{ObjectMeta: framework.NamespacedMeta(theirs, "pvc-data")}),
		"make a Service":    g.Create(ctx, &corev1.Service{ObjectMeta: framework.NamespacedMeta(theirs, "mine")}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s, to %s in %s: %v", g.ID, what, theirs, err)
		}
	}
}

func claimIn(t *testing.T, c *framework.Cluster, ns, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, claim); err != nil {
		t.Fatal(err)
	}
	return claim
}
