package kubelet

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// finderLink is a link to a peer where pods are called otherwise.
type finderLink struct {
	*fakeLink
	pods map[string]types.NamespacedName // ShadowPod → its pod
}

func (l finderLink) RemotePod(shadow *v1alpha1.ShadowPod) (types.NamespacedName, bool) {
	pod, found := l.pods[shadow.Name]
	return pod, found
}

func TestRemotePodsAreFoundWhereTheLinkSaysThatTheyAre(t *testing.T) {
	shadow := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: twinName, Name: "web-0"}}
	itself := types.NamespacedName{Namespace: twinName, Name: "web-0"}
	other := types.NamespacedName{Namespace: "guests", Name: "web-0-1a2b-x"}
	for name, test := range map[string]struct {
		link  link
		want  types.NamespacedName
		found bool
	}{
		"a peer with Hanse":                          {&fakeLink{}, itself, true},
		"a peer without it":                          {finderLink{pods: map[string]types.NamespacedName{"web-0": other}}, other, true},
		"a peer without it, between the pod's lives": {finderLink{}, types.NamespacedName{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, found := (&site{link: test.link}).remote(twinName, shadow)
			if got != test.want || found != test.found {
				t.Errorf("got %v, %t", got, found)
			}
		})
	}
}
