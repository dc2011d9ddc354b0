// SPDX-License-Identifier: Apache-2.0

package peers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/test/hostile"
)

// errs are the kinds of errors by which the links tell of an attack. Of all others that are not mild they tell that the peer
// sends too much.
var errs = map[string]error{
	"a certificate of another": peers.ErrCredentialsInvalid, "headers without end": peers.ErrUnreachable,
	"answers that do not come": peers.ErrUnreachable, "answers that drip": peers.ErrUnreachable,
	"redirects": peers.ErrMalformed, "another content type": peers.ErrMalformed, "no JSON": peers.ErrMalformed,
	"waits of a day": peers.ErrUnreachable, "unauthorized": peers.ErrUnauthorized, "forbidden": peers.ErrForbidden,
	"errors": peers.ErrUnreachable, "watches that end at once": peers.ErrUnreachable,
}

const (
	// homes is how many of our namespaces have a twin at each peer.
	homes = 10
	// watchesOfUse is how many watches that takes at each peer: one for each twin, one for mappings and one for the offer.
	watchesOfUse = homes + 2
	// mostMemory is what an attack may cost beyond what there was before: what may be held, and as much again for what is being
	// decoded; and what may be received, which stands in the buffers of up to six readers, one behind the other, while it arrives.
	mostMemory = 2*heldBytes + 6*receivedBytes

	heldBytes, receivedBytes = 16 << 20, 8 << 20
	heldObjects              = 500
)

// An attacked is our cluster with two providers. One attacks.
type attacked struct {
	t             *testing.T
	secrets       client.Client
	links         *peers.Links
	honest, enemy *provider
}

// A provider is a peer with TLS and all.
type provider struct {
	*hostile.Server
	has  *hostile.Provider
	peer *v1alpha1.Peer
	link *peers.Link
}

var offers = &peers.Subject{Example: &unstructured.Unstructured{Object: map[string]any{
	"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Advertisement",
}}}

func newAttacked(t *testing.T) *attacked {
	t.Helper()
	scheme := kuberuntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	budget := peers.DefaultBudget
	budget.HeldBytes, budget.HeldObjects, budget.ReceivedBytes = heldBytes, heldObjects, receivedBytes
	a := &attacked{t: t, secrets: fake.NewClientBuilder().WithScheme(scheme).Build()}
	a.links = peers.NewLinks(peers.Config{Local: a.secrets, Scheme: scheme, Budget: budget, Timeout: 2 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.links.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	a.follow(ctx)
	a.honest, a.enemy = a.connect("honest"), a.connect("hostile")
	return a
}

// follow has the twins of our namespaces followed, as controllers do, and no others.
func (a *attacked) follow(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	a.t.Cleanup(queue.ShutDown)
	ours := map[string]bool{}
	for i := range homes {
		ours[home(i)] = true
	}
	follow := peers.Changes(a.links, peers.Mappings, func(_ context.Context, change peers.Change, _ peers.Queue[string]) {
		if ours[change.Name] {
			change.Link.FollowTwin(records, change.Name)
		}
		for name := range ours {
			if change.Name == "" {
				change.Link.FollowTwin(records, name)
			}
		}
	})
	if err := follow.Start(ctx, queue); err != nil {
		a.t.Fatal(err)
	}
}

func home(i int) string { return fmt.Sprintf("home-%d", i) }

// connect starts a provider with a twin of each of our namespaces, and waits until all that is followed there is known.
func (a *attacked) connect(name string) *provider {
	a.t.Helper()
	p := &provider{has: hostile.NewProvider(), peer: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	var err error
	if p.Server, err = hostile.Start(a.t.Context(), "127.0.0.1", p.has); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(p.Close)
	for i := range homes {
		a.put(p, "namespacemappings", mappingOf(i))
		a.put(p, "shadowpods", recordOf(i, "first"))
	}
	data, err := peers.Credentials{Servers: []string{p.URL()}, CA: p.CA(), Namespace: tenantThere, Token: "t"}.SecretData()
	if err != nil {
		a.t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(name), Name: v1alpha1.LinkSecret}, Data: data}
	if err := a.secrets.Create(a.t.Context(), secret); err != nil {
		a.t.Fatal(err)
	}
	if p.link, err = a.links.Ensure(a.t.Context(), p.peer); err != nil {
		a.t.Fatal(err)
	}
	p.link.Mappings()
	offer := p.link.FollowOne(offers, tenantThere, name)
	a.eventually("all is known of "+name, func() bool {
		return offer.HasSynced() && a.links.State(name) == peers.Up && p.knows("first") == homes
	})
	return p
}

func (a *attacked) put(p *provider, resource string, object client.Object) {
	a.t.Helper()
	if err := p.has.Put(resource, object); err != nil {
		a.t.Fatal(err)
	}
}

func mappingOf(i int) *v1alpha1.NamespaceMapping {
	mapping := &v1alpha1.NamespaceMapping{ObjectMeta: metav1.ObjectMeta{Namespace: tenantThere, Name: home(i)}}
	mapping.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceMapping"}
	mapping.Status.Twin = "twin-of-" + home(i)
	return mapping
}

func recordOf(i int, name string) *v1alpha1.ShadowPod {
	record := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "twin-of-" + home(i), Name: name, UID: "1"}}
	record.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ShadowPod"}
	return record
}

// knows says in how many twins the record of that name is known.
func (p *provider) knows(name string) (count int) {
	for _, mirror := range p.link.FollowedTwins(records) {
		if _, found := mirror.Named(name); found {
			count++
		}
	}
	return count
}

// tells says whether something that is followed at the peer fails with an error of the kind.
func (p *provider) tells(kind error) bool {
	for _, mirror := range p.link.FollowedTwins(records) {
		if errors.Is(mirror.Err(), kind) {
			return true
		}
	}
	return errors.Is(p.link.Err(), kind)
}

// eventually waits for as long as the slowest machine needs.
func (a *attacked) eventually(what string, holds func() bool) {
	a.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			a.t.Fatalf("not so: %s (links: %v; hostile: %v; over budget: %v)", what, a.honest.link.Err(), a.enemy.link.Err(), a.links.OverBudget("hostile"))
		}
	}
}

// inUse returns how many bytes are in use: what the garbage collector found alive, the least of three looks, because what is
// allocated while it looks counts as alive.
func inUse() int {
	least := math.MaxInt
	for range 3 {
		runtime.GC()
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(live)
		least = min(least, int(live[0].Value.Uint64()+live[1].Value.Uint64()))
	}
	return least
}

// mostInUse returns how many bytes are in use at most until stop is called.
func mostInUse() (stop func() int) {
	done, most := make(chan struct{}), make(chan int)
	go func() {
		seen := inUse()
		for {
			select {
			case <-done:
				most <- seen
				return
			case <-time.After(250 * time.Millisecond): // each look stops all others for a moment
				seen = max(seen, inUse())
			}
		}
	}()
	return func() int { close(done); return <-most }
}

func attacks(t *testing.T) []hostile.Attack {
	t.Helper()
	all, err := hostile.Attacks(hostile.Scene{Record: recordOf(0, "first"), Mapping: mappingOf(0)})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Each attack is begun beside an honest provider: what that one tells arrives, memory and watches stay bounded, and the links
// say of the hostile one what is wrong with it.
func TestHostileProviderHurtsOnlyItself(t *testing.T) {
	for _, attack := range attacks(t) {
		t.Run(attack.Name, func(t *testing.T) {
			a := newAttacked(t)
			quiet, stop := inUse(), mostInUse()
			a.enemy.Begin(attack)
			a.enemy.HangUp()
			for round := range 3 {
				name := fmt.Sprintf("round-%d", round)
				for i := range homes {
					a.put(a.honest, "shadowpods", recordOf(i, name))
				}
				a.eventually("what the honest one tells arrives", func() bool { return a.honest.knows(name) == homes })
				time.Sleep(100 * time.Millisecond) // for the attack to go on
			}
			a.expectTold(attack)
			most := stop() - quiet
			t.Logf("the attack took %d MiB, %d requests, %d watches", most>>20, a.enemy.Requests(), a.enemy.MostWatches())
			if most > mostMemory {
				t.Errorf("that is more than %d MiB", mostMemory>>20)
			}
			if watches := a.enemy.MostWatches(); watches > 3*watchesOfUse { // one may begin before the end of another is seen
				t.Errorf("%d watches were open, and %d are of use", watches, watchesOfUse)
			}
			if a.links.OverBudget("honest") != nil || a.links.State("honest") != peers.Up {
				t.Errorf("the honest one suffers: state %d, %v", a.links.State("honest"), a.links.OverBudget("honest"))
			}
		})
	}
}

// expectTold expects the links to tell what is wrong with the hostile provider.
func (a *attacked) expectTold(attack hostile.Attack) {
	a.t.Helper()
	want, known := errs[attack.Name]
	switch {
	case known:
		a.eventually(fmt.Sprintf("the links say that there is %q", want), func() bool { return a.enemy.tells(want) })
	case !attack.Mild:
		a.eventually("the provider sends too much and is cut off", func() bool {
			return errors.Is(a.links.OverBudget("hostile"), peers.ErrOverBudget) && a.links.State("hostile") == peers.Cut
		})
	}
}
