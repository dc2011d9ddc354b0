// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func homeClaim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", UID: "u-1", Annotations: map[string]string{AnnotationSelectedNode: "worker"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if change != nil {
		change(claim)
	}
	return claim
}

func classCalled(name, provisioner string, change func(*storagev1.StorageClass)) storagev1.StorageClass {
	class := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	if change != nil {
		change(&class)
	}
	return class
}

func asDefault(class *storagev1.StorageClass) {
	class.Annotations = map[string]string{annotationDefaultClass: "true"}
}

func offered(value string) func(*storagev1.StorageClass) {
	return func(class *storagev1.StorageClass) {
		class.Labels = map[string]string{v1alpha1.LabelOfferToPeers: value}
	}
}

func TestClassesThatAreOffered(t *testing.T) {
	plain, fast := classCalled("plain", "a", asDefault), classCalled("fast", "b", offered("true"))
	closed := classCalled("plain", "a", func(class *storagev1.StorageClass) { asDefault(class); offered("false")(class) })
	for name, test := range map[string]struct {
		classes []storagev1.StorageClass
		want    []string
	}{
		"none where there are none":                  {nil, nil},
		"the default":                                {[]storagev1.StorageClass{classCalled("other", "c", nil), plain}, []string{"plain"}},
		"the default before others":                  {[]storagev1.StorageClass{fast, plain}, []string{"plain", "fast"}},
		"not the default if an administrator is not": {[]storagev1.StorageClass{fast, closed}, []string{"fast"}},
		"never one of ours":                          {[]storagev1.StorageClass{classCalled("hanse", v1alpha1.VolumesDriver, offered("true"))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, OfferedClasses(test.classes)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAPeerIsAskedForWhatTheClaimSays(t *testing.T) {
	class := classCalled("hanse", v1alpha1.VolumesDriver, func(c *storagev1.StorageClass) {
		c.Parameters = map[string]string{RemoteClass: "ssd"}
	})
	got, err := ShadowClaim(homeClaim(nil), &class, "shop-lubeck")
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.ShadowClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-lubeck", Name: "pvc-u-1"},
		Spec: v1alpha1.ShadowClaimSpec{
			HomeUID: "u-1", Storage: resource.MustParse("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode: corev1.PersistentVolumeFilesystem, StorageClass: "ssd",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"a selector": func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} },
		"its author's will": func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{v1alpha1.LabelSkipReflection: "true"}
		},
	} {
		if _, err := ShadowClaim(homeClaim(change), &class, "twin"); !isRefusal(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func isRefusal(err error) bool {
	_, is := errors.AsType[Refusal](err)
	return is
}

func TestClaimOfAPeerIsMadeOfWhatItMayChoose(t *testing.T) {
	shadow := func(class, room string) *v1alpha1.ShadowClaim {
		return &v1alpha1.ShadowClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "twin", Name: "pvc-u-1", UID: "u-2", Annotations: map[string]string{AnnotationSelectedNode: "worker-7"},
			},
			Spec: v1alpha1.ShadowClaimSpec{
				StorageClass: class, Storage: resource.MustParse(room), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			},
		}
	}
	for name, test := range map[string]struct {
		shadow  *v1alpha1.ShadowClaim
		offered []string
		want    string // the class, or none if it is refused
	}{
		"the first class unless it says":        {shadow("", "1Gi"), []string{"plain", "fast"}, "plain"},
		"the class that it asks for":            {shadow("fast", "1Gi"), []string{"plain", "fast"}, "fast"},
		"not one that is not offered":           {shadow("secret", "1Gi"), []string{"plain"}, ""},
		"nothing where nothing is offered":      {shadow("", "1Gi"), nil, ""},
		"nothing for no room":                   {shadow("", "0"), []string{"plain"}, ""},
		"nothing for less than that, of course": {shadow("", "-1Gi"), []string{"plain"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Claim(test.shadow, test.offered)
			if test.want == "" {
				if !isRefusal(err) {
					t.Errorf("made %v, %v", got, err)
				}
				return
			}
			if err != nil || *got.Spec.StorageClassName != test.want || len(got.Annotations) > 0 ||
				got.Spec.VolumeName != "" || got.OwnerReferences[0].UID != "u-2" {
				t.Errorf("made %v, %v", got, err)
			}
		})
	}
}

func TestWhereAVolumeLies(t *testing.T) {
	class := classCalled("hanse", v1alpha1.VolumesDriver, nil)
	volume := Volume(homeClaim(nil), &class, "turin")
	if at, away := HandleOf(volume); !away || at != (Handle{"turin", "shop", "pvc-u-1"}) {
		t.Errorf("%v, %t", at, away)
	}
	for _, handle := range []string{"", "turin", "turin/shop", "turin/shop/", "/shop/x", "turin/shop/x/y"} {
		volume.Spec.CSI.VolumeHandle = handle
		if at, away := HandleOf(volume); away {
			t.Errorf("%q lies at %v", handle, at)
		}
	}
	volume.Spec.CSI.Driver, volume.Spec.CSI.VolumeHandle = "other.example.com", "turin/shop/x"
	if _, away := HandleOf(volume); away {
		t.Error("a volume of another driver lies at a peer")
	}
}

func TestStandInIsOfAClassOfThisCluster(t *testing.T) {
	plain, ours := classCalled("plain", "a", asDefault), classCalled("hanse", v1alpha1.VolumesDriver, nil)
	fast := classCalled("hanse", v1alpha1.VolumesDriver, func(c *storagev1.StorageClass) {
		c.Parameters = map[string]string{LocalClass: "fast"}
	})
	got, err := StandIn(homeClaim(nil), &ours, []storagev1.StorageClass{plain, ours}, "hanse-system")
	if err != nil {
		t.Fatal(err)
	}
	if *got.Spec.StorageClassName != "plain" || got.Annotations[AnnotationSelectedNode] != "worker" || StandsInFor(got).String() != "shop/data" {
		t.Errorf("%v", got)
	}
	for name, classes := range map[string][]storagev1.StorageClass{"no such class": {plain}, "one of ours": {classCalled("fast", v1alpha1.VolumesDriver, nil)}} {
		if _, err := StandIn(homeClaim(nil), &fast, classes, "hanse-system"); !isRefusal(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := StandIn(homeClaim(nil), &ours, nil, "hanse-system"); !isRefusal(err) {
		t.Errorf("no default class: %v", err)
	}
}

func TestWhatThereIsToDoForMoreRoom(t *testing.T) {
	for name, test := range map[string]struct {
		asked, volume, told, shadow, peer string
		want                              Growth
	}{
		"nothing where all is well":             {"1Gi", "1Gi", "1Gi", "1Gi", "1Gi", Growth{}},
		"ask the peer":                          {"2Gi", "1Gi", "1Gi", "1Gi", "1Gi", Growth{Peer: true}},
		"wait for the peer":                     {"2Gi", "1Gi", "1Gi", "2Gi", "1Gi", Growth{}},
		"tell the volume":                       {"2Gi", "1Gi", "1Gi", "2Gi", "2Gi", Growth{Volume: true}},
		"tell the claim":                        {"2Gi", "2Gi", "1Gi", "2Gi", "2Gi", Growth{Claim: true}},
		"nothing for more than was asked for":   {"1Gi", "1Gi", "1Gi", "1Gi", "9Gi", Growth{}},
		"nothing for a peer that says nothing":  {"1Gi", "1Gi", "1Gi", "1Gi", "", Growth{}},
		"nothing for a claim that became small": {"1Gi", "2Gi", "2Gi", "2Gi", "2Gi", Growth{}},
	} {
		t.Run(name, func(t *testing.T) {
			room := func(text string) corev1.ResourceList {
				return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
			}
			claim := homeClaim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Resources.Requests, c.Status.Capacity, c.Status.Phase = room(test.asked), room(test.told), corev1.ClaimBound
			})
			shadow := &v1alpha1.ShadowClaim{Spec: v1alpha1.ShadowClaimSpec{Storage: resource.MustParse(test.shadow)}}
			if test.peer != "" {
				shadow.Status.Capacity = new(resource.MustParse(test.peer))
			}
			got := Grow(claim, &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: room(test.volume)}}, shadow)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
