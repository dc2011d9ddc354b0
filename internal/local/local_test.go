// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func newClient(t *testing.T, peer *v1alpha1.Peer) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(peer).WithStatusSubresource(&v1alpha1.Peer{}).Build()
}

func TestEachOwnerWritesItsOwnPartOfTheStatus(t *testing.T) {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg", UID: "u-1"}}
	c := newClient(t, peer)
	apply := func(owner client.FieldOwner, status v1alpha1.PeerStatus) {
		t.Helper()
		if err := ApplyStatus(t.Context(), c, owner, peer, &status); err != nil {
			t.Fatal(err)
		}
	}
	apply("a", v1alpha1.PeerStatus{Version: "v1", DiscoveredServers: []string{"https://a"}})
	apply("b", v1alpha1.PeerStatus{Mappings: []v1alpha1.RangeMapping{{Own: "10.0.0.0/16", Seen: "10.0.0.0/16"}}})
	apply("a", v1alpha1.PeerStatus{Version: "v2"})

	got := &v1alpha1.Peer{}
	if err := Uncached(c, c).Get(t.Context(), client.ObjectKeyFromObject(peer), got); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.PeerStatus{Version: "v2", Mappings: []v1alpha1.RangeMapping{{Own: "10.0.0.0/16", Seen: "10.0.0.0/16"}}}
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Error(diff)
	}
}

func TestTheStatusOfAnObjectThatIsGone(t *testing.T) {
	c := newClient(t, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bremen"}})
	gone := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg", UID: "u-1"}}
	if err := ApplyStatus(t.Context(), c, "a", gone, &v1alpha1.PeerStatus{}); !apierrors.IsConflict(err) {
		t.Errorf("got %v", err)
	}
}

func TestUncachedReadsTheLivingAndNotTheCache(t *testing.T) {
	cached := newClient(t, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
	live := newClient(t, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	both := Uncached(cached, live)
	if err := both.Get(t.Context(), client.ObjectKey{Name: "new"}, &v1alpha1.Peer{}); err != nil {
		t.Error(err)
	}
	list := &v1alpha1.PeerList{}
	if err := both.List(t.Context(), list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "new" {
		t.Errorf("got %v, %v", list.Items, err)
	}
}

func TestErrorsThatTheNextEventMakesGood(t *testing.T) {
	peers := schema.GroupResource{Resource: "peers"}
	refused := apierrors.NewForbidden(peers, "bremen", nil)
	for name, test := range map[string]struct{ err, want error }{
		"none":              {nil, nil},
		"it has changed":    {apierrors.NewConflict(peers, "bremen", nil), nil},
		"it is gone":        {fmt.Errorf("write: %w", apierrors.NewNotFound(peers, "bremen")), nil},
		"it may not be":     {refused, refused},
		"another has it":    {apierrors.NewAlreadyExists(peers, "bremen"), apierrors.NewAlreadyExists(peers, "bremen")},
		"nobody has spoken": {context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		if got := IgnoreStale(test.err); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// late is a mapper that has a definition from the second question on.
type late struct {
	meta.RESTMapper
	asked int
}

func (l *late) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if l.asked++; l.asked == 1 {
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return &meta.RESTMapping{}, nil
}

func TestDefinitionsAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mapper, began := &late{}, time.Now()
		if err := AwaitDefinitions(t.Context(), mapper, v1alpha1.GroupVersion.WithKind("Peer"), v1alpha1.GroupVersion.WithKind("Offer")); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != DefinitionDelay || mapper.asked != 3 {
			t.Errorf("waited %s and asked %d times", waited, mapper.asked)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := AwaitDefinitions(ended, &late{}, v1alpha1.GroupVersion.WithKind("Peer")); !errors.Is(err, context.Canceled) {
			t.Errorf("after its end: %v", err)
		}
	})
}
