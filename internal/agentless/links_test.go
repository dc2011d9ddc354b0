package agentless

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

func TestALinkIsTheSameUntilSomethingChanges(t *testing.T) {
	w := newWorld(t)
	links := NewLinks()
	of := func(namespaces ...string) *Link {
		t.Helper()
		p := peer()
		p.Spec.Namespaces = namespaces
		link, err := links.Of(t.Context(), w.api, p)
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	first := of("a", "b")
	if of("a", "b") != first {
		t.Error("nothing has changed, and there is another link")
	}
	second := of("b")
	if second == first || first.ctx.Err() == nil {
		t.Error("the namespaces have changed, and the link goes on")
	}
	unnamed := peer()
	unnamed.Spec.ClusterID = ""
	if _, err := links.Of(t.Context(), w.api, unnamed); !errors.Is(err, errNoHome) {
		t.Errorf("a peer without an id gives %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := links.Run(ctx); err != nil || second.ctx.Err() == nil {
		t.Errorf("the links have ended (%v), and the link has not", err)
	}
	if _, err := links.Of(t.Context(), w.api, peer()); !errors.Is(err, errEnded) {
		t.Errorf("after the end there is %v", err)
	}
}

func TestALinkTendsWhatChanges(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	w.run(w.replicaSet(), "web-0-aaaaa", corev1.PodFailed, nil)
	w.run(w.replicaSet(), "web-0-bbbbb", corev1.PodRunning, nil)

	links := NewLinks()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = links.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	if _, err := links.Of(t.Context(), w.api, peer()); err != nil {
		t.Fatal(err)
	}
	w.sync()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return w.replicaSet().Annotations[annotationRecord] != "", nil
	})
	if err != nil {
		t.Fatalf("nobody has kept the record: %v", err)
	}
}
