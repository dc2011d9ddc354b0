// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/remoteevents"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const (
	twinName = "shop-lubeck-abc123"
	tenant   = "hanse-peer-lubeck"
	system   = "hanse-system"
	volume   = "pvc-uid-data"
)

// world is a home cluster and its peer turin, which is Away.
type world struct {
	*testkit.World
	told        []remoteevents.Report
	peers       *peerstest.World
	turin       *peerstest.Peer
	provisioner *provisioner
	keeper      *keeper
	snapshotter *snapshotter
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	turin := testkit.Peer("turin", v1alpha1.RoleProvider)
	w := &world{World: testkit.NewWorld(t, append(objects, turin, testkit.VirtualNode("turin", nil),
		class("hanse", v1alpha1.VolumesDriver), class("local", "example.com/local"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})...)}
	w.peers = peerstest.New(t, testkit.Scheme(), peers.Config{})
	w.turin = w.peers.Add("turin", tenant, w.Away.Client)
	mapping := testkit.Mapping("turin", "shop", twinName)
	mapping.Namespace = tenant
	if err := w.turin.Client.Create(w.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	w.peers.Link(turin)
	config := Config{Client: w.Home.Client, Live: w.Home.Client, Links: w.peers.Links, Events: w.Events, Tell: func(r remoteevents.Report) { w.told = append(w.told, r) }, Clock: w.Clock, Namespace: system}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	w.provisioner, w.keeper, w.snapshotter = &provisioner{config}, &keeper{config}, &snapshotter{config}
	link, _ := w.peers.Links.Get("turin")
	link.Mappings()
	link.FollowTwin(shadows, "shop")
	return w
}

func class(name, provisioner string) *storagev1.StorageClass {
	made := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	if name == "local" {
		made.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	return made
}

// claim is one of class hanse whose first pod goes to the node.
func claim(node string) *corev1.PersistentVolumeClaim {
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "uid-data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("hanse"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: storage("1Gi")},
		},
	}
	if node != "" {
		made.Annotations = map[string]string{reflection.AnnotationSelectedNode: node}
	}
	return made
}

func storage(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(amount)}
}

func (w *world) provision() { w.Helper(); w.Reconcile(w.provisioner, "shop", "data") }

func (w *world) keep() reconcile.Result { w.Helper(); return w.Reconcile(w.keeper, "", volume) }

// answer has the peer say what it makes of the ShadowClaim.
func (w *world) answer(status metav1.ConditionStatus, capacity string) {
	w.Helper()
	shadow := w.shadow()
	shadow.Status.Conditions = nil
	testkit.SetCondition(&shadow.Status.Conditions, v1alpha1.ConditionReady, status, v1alpha1.ReasonVolumeMade)
	if capacity != "" {
		shadow.Status.Capacity = new(resource.MustParse(capacity))
	}
	if err := w.turin.Client.Status().Update(w.Context(), shadow); err != nil {
		w.Fatal(err)
	}
}

func (w *world) shadow() *v1alpha1.ShadowClaim { w.Helper(); return w.shadowOf(volume) }

func (w *world) shadowOf(name string) *v1alpha1.ShadowClaim {
	w.Helper()
	shadow := &v1alpha1.ShadowClaim{}
	if err := w.turin.Client.Get(w.Context(), client.ObjectKey{Namespace: twinName, Name: name}, shadow); err != nil {
		w.Fatal(err)
	}
	return shadow
}

func (w *world) hasShadow() bool { return w.hasShadowOf(volume) }

func (w *world) hasShadowOf(name string) bool {
	err := w.turin.Client.Get(w.Context(), client.ObjectKey{Namespace: twinName, Name: name}, &v1alpha1.ShadowClaim{})
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return err == nil
}

func (w *world) hasVolume(name string) bool {
	return w.Home.Find(&corev1.PersistentVolume{}, "", name)
}

func TestAVolumeAtAPeerStandsAtHomeWhenThePeerKeepsIt(t *testing.T) {
	w := newWorld(t, claim("hanse-turin"))
	w.provision()
	if asked := w.shadow().Spec; asked.HomeUID != "uid-data" || asked.Storage.String() != "1Gi" {
		t.Errorf("the peer is asked for %v", asked)
	}
	w.provision()
	if w.hasVolume(volume) {
		t.Error("there is a volume that the peer has not promised")
	}
	w.answer(metav1.ConditionTrue, "")
	w.provision()
	made := testkit.Get[corev1.PersistentVolume](w.Home, "", volume)
	at, away := reflection.HandleOf(made)
	if want := (reflection.Handle{Peer: "turin", Namespace: "shop", Claim: volume}); !away || at != want {
		t.Errorf("it lies at %v, %t", at, away)
	}
	if made.Spec.ClaimRef.UID != "uid-data" {
		t.Errorf("it is for %v", made.Spec.ClaimRef)
	}
}

func TestAnotherNodeIsSelectedWhereThePeerRefuses(t *testing.T) {
	w := newWorld(t, claim("hanse-turin"))
	w.provision()
	w.answer(metav1.ConditionFalse, "")
	w.provision()
	if w.hasShadow() || w.hasVolume(volume) {
		t.Error("something of it is left")
	}
	if got := testkit.Get[corev1.PersistentVolumeClaim](w.Home, "shop", "data").Annotations; len(got) > 0 {
		t.Errorf("annotations %v", got)
	}
}

func TestOnlyClaimsOfOurClassesWithANodeAreLookedAt(t *testing.T) {
	other := claim("hanse-turin")
	other.Spec.StorageClassName = new("local")
	bound := claim("hanse-turin")
	bound.Spec.VolumeName = "pv"
	for name, c := range map[string]*corev1.PersistentVolumeClaim{"without a node": claim(""), "of another class": other, "bound": bound} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c)
			w.provision()
			if w.hasShadow() {
				t.Error("the peer was asked")
			}
		})
	}
}

func TestAVolumeOnANodeOfThisClusterIsOfTheDefaultClass(t *testing.T) {
	w := newWorld(t, claim("worker"))
	w.provision()
	standIn := testkit.Get[corev1.PersistentVolumeClaim](w.Home, system, volume)
	if *standIn.Spec.StorageClassName != "local" || standIn.Annotations[reflection.AnnotationSelectedNode] != "worker" {
		t.Errorf("ordered %v with %v", standIn.Spec, standIn.Annotations)
	}
	standIn.UID, standIn.Spec.VolumeName, standIn.Status.Phase = "uid-stand-in", "pvc-local", corev1.ClaimBound
	w.Home.Put(standIn)
	local := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-local"}}
	local.Spec.ClaimRef = &corev1.ObjectReference{Namespace: system, Name: volume, UID: "uid-stand-in"}
	local.Spec.StorageClassName = "local"
	w.Home.Put(local)
	w.provision()
	given := testkit.Get[corev1.PersistentVolume](w.Home, "", "pvc-local")
	if given.Spec.ClaimRef.UID != types.UID("uid-data") || given.Spec.StorageClassName != "hanse" {
		t.Errorf("given as %v of class %s", given.Spec.ClaimRef, given.Spec.StorageClassName)
	}
	if w.Home.Find(&corev1.PersistentVolumeClaim{}, system, volume) {
		t.Error("the stand-in is left")
	}
	w.provision()
	if w.Home.Find(&corev1.PersistentVolumeClaim{}, system, volume) {
		t.Error("a second one was ordered before Kubernetes bound the claim")
	}
}

func TestAStandInGoesWithItsClaim(t *testing.T) {
	standIn := claim("")
	standIn.Namespace, standIn.Name, standIn.UID = system, volume, "uid-stand-in"
	standIn.Annotations = map[string]string{v1alpha1.AnnotationStandsInFor: "shop/data"}
	w := newWorld(t, standIn)
	w.provision()
	if w.Home.Find(&corev1.PersistentVolumeClaim{}, system, volume) {
		t.Error("it is left")
	}
}

// keptWorld has a volume at the peer, in that phase, with that policy.
func keptWorld(t *testing.T, phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) *world {
	t.Helper()
	bound := claim("hanse-turin")
	bound.Spec.VolumeName, bound.Status.Phase, bound.Status.Capacity = volume, corev1.ClaimBound, storage("1Gi")
	pv := reflection.Volume(bound, class("hanse", v1alpha1.VolumesDriver), "turin")
	pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = policy, phase
	w := newWorld(t, bound, pv)
	shadow, err := reflection.ShadowClaim(bound, class("hanse", v1alpha1.VolumesDriver), twinName)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.turin.Client.Create(t.Context(), shadow); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWhatBecomesOfTheDataOfAReleasedVolume(t *testing.T) {
	for name, test := range map[string]struct {
		phase  corev1.PersistentVolumePhase
		policy corev1.PersistentVolumeReclaimPolicy
		kept   bool
	}{
		"it goes with policy Delete":  {corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete, false},
		"it stays with policy Retain": {corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain, true},
		"it stays while it is bound":  {corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := keptWorld(t, test.phase, test.policy)
			w.keep()
			if w.hasShadow() != test.kept || w.hasVolume(volume) != test.kept {
				t.Errorf("at the peer: %t, here: %t", w.hasShadow(), w.hasVolume(volume))
			}
		})
	}
}

// Where there is no such Peer any more, nobody keeps anything for us, and nobody would ever take the volume away.
func TestWhatBecomesOfAVolumeWhosePeerIsNoneAnyMore(t *testing.T) {
	for name, test := range map[string]struct {
		phase  corev1.PersistentVolumePhase
		policy corev1.PersistentVolumeReclaimPolicy
		kept   bool
	}{
		"it goes with its claim":      {corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete, false},
		"it stays with policy Retain": {corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain, true},
		"it stays while it is bound":  {corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := keptWorld(t, test.phase, test.policy)
			w.Home.Remove(testkit.Peer("turin", v1alpha1.RoleProvider))
			again := w.keep()
			if w.hasVolume(volume) != test.kept || (again.RequeueAfter > 0) != test.kept {
				t.Errorf("here: %t, looked at again after %s", w.hasVolume(volume), again.RequeueAfter)
			}
		})
	}
}

func TestMoreRoomIsToldWhenThePeerHasMadeIt(t *testing.T) {
	w := keptWorld(t, corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete)
	more := testkit.Get[corev1.PersistentVolumeClaim](w.Home, "shop", "data")
	more.Spec.Resources.Requests = storage("2Gi")
	w.Home.Put(more)
	room := func() string {
		got := testkit.Get[corev1.PersistentVolumeClaim](w.Home, "shop", "data").Status.Capacity[corev1.ResourceStorage]
		return got.String()
	}
	w.keep()
	if got := w.shadow().Spec.Storage; got.String() != "2Gi" || room() != "1Gi" {
		t.Errorf("asked for %s, told %s", got.String(), room())
	}
	w.answer(metav1.ConditionTrue, "500Gi") // what it claims counts up to what was asked for
	w.keep()
	w.keep()
	if room() != "2Gi" {
		t.Errorf("told %s", room())
	}
}

func TestWhatHappensToAClaimAtAPeerIsToldOfTheClaimHere(t *testing.T) {
	happened := v1alpha1.RemoteEvent{
		Type: "Warning", Reason: "ProvisioningFailed", Message: "no room", Source: v1alpha1.SourceKubernetes, Count: 1,
		First: metav1.NewTime(testkit.Noon), Last: metav1.NewTime(testkit.Noon),
	}
	tell := func(w *world, uid types.UID) {
		shadow := w.shadow()
		shadow.Spec.HomeUID = uid
		if err := w.turin.Client.Update(w.Context(), shadow); err != nil {
			t.Fatal(err)
		}
		shadow.Status.Events = []v1alpha1.RemoteEvent{happened, {Reason: "Invented"}}
		if err := w.turin.Client.Status().Update(w.Context(), shadow); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		world func() *world
		look  func(*world)
		uid   types.UID
		told  int
	}{
		"while it waits":          {func() *world { w := newWorld(t, claim("hanse-turin")); w.provision(); return w }, (*world).provision, "uid-data", 1},
		"when it has its volume":  {func() *world { return keptWorld(t, corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete) }, func(w *world) { w.keep() }, "uid-data", 1},
		"not of an earlier claim": {func() *world { w := newWorld(t, claim("hanse-turin")); w.provision(); return w }, (*world).provision, "uid-old", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := test.world()
			tell(w, test.uid)
			w.told = nil
			test.look(w)
			if len(w.told) != test.told {
				t.Fatalf("told %v", w.told)
			}
			if test.told > 0 && (w.told[0].Peer != "turin" || w.told[0].Home.GetName() != "data" || len(w.told[0].Events) != 1) {
				t.Errorf("told %v", w.told)
			}
		})
	}
}
