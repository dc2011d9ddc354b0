package e2e

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
)

// stall is a pod with the Secret word in its environment, and the claim pvc-data at /data. It prints what was in there before.
const stall = `
metadata: {labels: {app: stall}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, persistentVolumeClaim: {claimName: pvc-data}}]
  containers:
  - name: main
    image: ` + busybox + `
    imagePullPolicy: IfNotPresent
    command: [/bin/sh, -c, "cat /data/word 2>&1; echo $word | tee /data/word; ` + forever + `"]
    envFrom: [{secretRef: {name: word}}]
    volumeMounts: [{name: data, mountPath: /data}]
    resources: {requests: {cpu: 1m, memory: 8Mi}}
`

// Ten consumers of one provider have namespaces, Secrets, Services and claims of the same names. Each has its own, and none sees or
// changes another's. They are credentials without clusters: what a cluster would do with them is the same requests.
func TestTenConsumersOneProvider(t *testing.T) {
	ctx := shared(t, "storage")
	guests, twins := make([]*guest, 10), make([]string, 10)
	for i := range guests {
		guests[i] = hamburg.welcome(t, fmt.Sprintf("visby-of-ten-%d", i))
		twins[i] = guests[i].twin(t, "shop")
		for _, object := range guests[i].wares(t, twins[i]) {
			if err := guests[i].Create(ctx, object); err != nil {
				t.Fatalf("%s: %v", guests[i].id, err)
			}
		}
	}
	t.Cleanup(func() { hamburg.disperse(t, guests) })
	volumes := map[string]string{}
	for i, g := range guests {
		g.expectOwnWares(ctx, t, twins[i])
		volume := hamburg.claimIn(t, twins[i], "pvc-data").Spec.VolumeName
		if other, taken := volumes[volume]; taken {
			t.Errorf("%s and %s share volume %s", other, g.id, volume)
		}
		volumes[volume] = g.id
		for j, theirs := range twins {
			if j != i {
				g.expectNothingOf(ctx, t, theirs)
			}
		}
	}
	// What one of them does to its own concerns no other.
	if err := guests[0].Delete(ctx, &corev1.Secret{ObjectMeta: inNamespace(twins[0], "word")}); err != nil {
		t.Fatal(err)
	}
	for i := range guests[1:] {
		if err := hamburg.Get(ctx, client.ObjectKey{Namespace: twins[i+1], Name: "word"}, &corev1.Secret{}); err != nil {
			t.Error(err)
		}
	}
}

// wares are what each consumer has, under the same names.
func (g *guest) wares(t *testing.T, twin string) []client.Object {
	t.Helper()
	copied := func(o client.Object) client.Object {
		o.SetNamespace(twin)
		o.SetLabels(map[string]string{v1alpha1.LabelReflected: "true"})
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationOriginUID: "u-" + o.GetName(), v1alpha1.AnnotationOriginVersion: "1"})
		return o
	}
	claim := &v1alpha1.ShadowClaim{ObjectMeta: inNamespace(twin, "pvc-data"), Spec: v1alpha1.ShadowClaimSpec{
		HomeUID: "uid-of-data", Storage: resource.MustParse("1Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}}
	return []client.Object{
		copied(&corev1.Secret{ObjectMeta: named("word"), StringData: map[string]string{"word": g.id}}),
		copied(&corev1.Service{ObjectMeta: named("shop"), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "stall"}, Ports: []corev1.ServicePort{{Port: 80}},
		}}),
		claim, shadow(t, twin, "stall", stall),
	}
}

// expectOwnWares waits until the pod of the guest runs with what is the guest's, and is the only one behind the guest's Service.
func (g *guest) expectOwnWares(ctx context.Context, t *testing.T, twin string) {
	t.Helper()
	g.awaitRunning(t, twin, "stall")
	g.expectOwnWord(t, twin)
	remote, err := hamburg.pod(ctx, twin, "stall")
	if err != nil {
		t.Fatal(err)
	}
	hamburg.expectEndpoints(t, twin, "shop", remote.Status.PodIP+" ready=true")
}

// expectOwnWord checks that the pod of the guest has the guest's Secret, and an empty volume.
func (g *guest) expectOwnWord(t *testing.T, twin string) {
	t.Helper()
	reader, err := kubernetes.NewForConfig(g.config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod of "+g.id+" says its own word", func(ctx context.Context) error {
		log, err := reader.CoreV1().Pods(twin).GetLogs("stall", &corev1.PodLogOptions{}).DoRaw(ctx)
		want := "cat: can't open '/data/word': No such file or directory\n" + g.id + "\nstarted\n"
		if err == nil && string(log) != want {
			err = fmt.Errorf("it says %q, want %q", log, want)
		}
		return err
	})
}

// expectNothingOf tries to see, change and take what lies in the twin of another.
func (g *guest) expectNothingOf(ctx context.Context, t *testing.T, theirs string) {
	t.Helper()
	for what, err := range map[string]error{
		"list Secrets":      g.List(ctx, &corev1.SecretList{}, client.InNamespace(theirs)),
		"list Services":     g.List(ctx, &corev1.ServiceList{}, client.InNamespace(theirs)),
		"list ShadowClaims": g.List(ctx, &v1alpha1.ShadowClaimList{}, client.InNamespace(theirs)),
		"delete a Secret":   g.Delete(ctx, &corev1.Secret{ObjectMeta: inNamespace(theirs, "word")}),
		"delete a claim":    g.Delete(ctx, &v1alpha1.ShadowClaim{ObjectMeta: inNamespace(theirs, "pvc-data")}),
		"make a Service":    g.Create(ctx, &corev1.Service{ObjectMeta: inNamespace(theirs, "mine")}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s, to %s in %s: %v", g.id, what, theirs, err)
		}
	}
}

func (c *cluster) claimIn(t *testing.T, ns, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, claim); err != nil {
		t.Fatal(err)
	}
	return claim
}
