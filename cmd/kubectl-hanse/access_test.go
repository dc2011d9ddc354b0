// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func verbNamed(t *testing.T, name string) peerVerb {
	t.Helper()
	for _, v := range peerVerbs {
		if v.verb == name {
			return v
		}
	}
	t.Fatalf("there is no verb %s", name)
	return peerVerb{}
}

// guest is a pod that the peer has here, with its namespace.
func guest(peer string) []client.Object {
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-" + peer, Labels: map[string]string{
			v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer,
		}}},
		&v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-" + peer, Name: "web"}},
	}
}

func TestAccessVerbs(t *testing.T) {
	for name, test := range map[string]struct {
		verb       string
		role       v1alpha1.PeerRole
		from, want v1alpha1.PeerAccess
		says       string // "" if it is fine
	}{
		"cordon":                    {verb: "cordon", want: v1alpha1.AccessCordoned},
		"cordon after drain":        {verb: "cordon", from: v1alpha1.AccessDraining, want: v1alpha1.AccessCordoned},
		"drain":                     {verb: "drain", want: v1alpha1.AccessDraining},
		"uncordon":                  {verb: "uncordon", from: v1alpha1.AccessCordoned, want: v1alpha1.AccessOpen},
		"uncordon twice":            {verb: "uncordon", want: v1alpha1.AccessOpen},
		"suspend":                   {verb: "suspend", from: v1alpha1.AccessCordoned, want: v1alpha1.AccessSuspended},
		"resume":                    {verb: "resume", from: v1alpha1.AccessSuspended, want: v1alpha1.AccessOpen},
		"cordon of a suspended":     {verb: "cordon", from: v1alpha1.AccessSuspended, says: "kubectl hanse resume lubeck"},
		"uncordon of a suspended":   {verb: "uncordon", from: v1alpha1.AccessSuspended, says: "kubectl hanse resume lubeck"},
		"resume of a cordoned":      {verb: "resume", from: v1alpha1.AccessCordoned, says: "kubectl hanse uncordon"},
		"cordon of a mere provider": {verb: "cordon", role: v1alpha1.RoleProvider, says: "kubectl cordon hanse-lubeck"},
	} {
		t.Run(name, func(t *testing.T) {
			peer := newPeer("lubeck", v1alpha1.RoleConsumer)
			if test.role != "" {
				peer.Spec.Roles = []v1alpha1.PeerRole{test.role}
			}
			peer.Spec.Access = test.from
			w := newWorld(t, peer)
			command, _, _ := listener()
			flags := &writeFlags{waitFlags: waitFlags{wait: true}}
			err := verbNamed(t, test.verb).run(soon(t), command, w.client, flags, "lubeck")
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
			want := test.want
			if test.says != "" {
				want = test.from
			}
			if got := w.peer(t, "lubeck").Spec.Access; got != want {
				t.Errorf("access %q, want %q", got, want)
			}
		})
	}
}

func TestDrainWaitsUntilNoPodIsLeft(t *testing.T) {
	testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(t, append(guest("lubeck"), newPeer("lubeck", v1alpha1.RoleConsumer))...)
		command, out, told := listener()
		flags := &writeFlags{waitFlags: waitFlags{wait: true}}
		err := verbNamed(t, "drain").run(ctx, command, w.client, flags, "lubeck")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "shop-lubeck/web") {
			t.Errorf("error %v, want one that names the pod", err)
		}
		if !strings.Contains(told.String(), "Still here: shop-lubeck/web") || out.Len() > 0 {
			t.Errorf("the user is told %q, %q", told, out)
		}

		flags.wait = false
		if err := verbNamed(t, "drain").run(soon(t), command, w.client, flags, "lubeck"); err != nil {
			t.Error(err)
		}
		flags.wait = true
		if err := w.client.Delete(t.Context(), guest("lubeck")[1]); err != nil {
			t.Fatal(err)
		}
		if err := verbNamed(t, "drain").run(soon(t), command, w.client, flags, "lubeck"); err != nil {
			t.Error(err)
		}
	})
}

func TestAccessDryRunWritesNothing(t *testing.T) {
	w := newWorld(t, newPeer("lubeck", v1alpha1.RoleConsumer))
	command, out, _ := listener()
	flags := &writeFlags{dryRunFlags: dryRunFlags{dryRun: "client"}}
	if err := verbNamed(t, "suspend").run(soon(t), command, w.client, flags, "lubeck"); err != nil {
		t.Fatal(err)
	}
	want := "---\napiVersion: hanse.dev/v1alpha1\nkind: Peer\nmetadata:\n  name: lubeck\nspec:\n  access: Suspended\n  clusterID: lubeck\n  roles:\n  - Consumer\n"
	if out.String() != want {
		t.Errorf("printed %q", out)
	}
	if got := w.peer(t, "lubeck").Spec.Access; got != "" {
		t.Errorf("access is %q", got)
	}
}

func TestAPeerThatIsNotThereIsSaidSo(t *testing.T) {
	command, _, _ := listener()
	err := verbNamed(t, "cordon").run(soon(t), command, newWorld(t).client, &writeFlags{}, "lubeck")
	if err == nil || !strings.Contains(err.Error(), "kubectl hanse status") {
		t.Errorf("error %v", err)
	}
}
