package policymaker

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A Gatherer returns what a question would be asked with now: about the peer of that name or cluster id, or, if the
// question is Placement, about the namespace of that name.
type Gatherer func(ctx context.Context, question policy.Question, name string) (policy.Facts, error)

// Gather has policies that somebody tries asked with what the package that asks the question in earnest knows. Without
// it they are asked with what API objects say.
func (m *Maker) Gather(question policy.Question, from Gatherer) {
	d, known := m.desks[question]
	if !known {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gather = from
}

func (m *Maker) gather(ctx context.Context, d *desk, name string) (policy.Facts, error) {
	d.mu.Lock()
	from := d.gather
	d.mu.Unlock()
	if from != nil {
		return from(ctx, d.question, name)
	}
	return m.read(ctx, d.question, name)
}

// read is the Gatherer that knows API objects only: of an offer that was corrected it sees what has become of it.
func (m *Maker) read(ctx context.Context, question policy.Question, name string) (policy.Facts, error) {
	peers, ads := &v1alpha1.PeerList{}, &v1alpha1.AdvertisementList{}
	if err := m.client.List(ctx, peers); err != nil {
		return policy.Facts{}, fmt.Errorf("list peers: %w", err)
	}
	if err := m.client.List(ctx, ads); err != nil {
		return policy.Facts{}, fmt.Errorf("list advertisements: %w", err)
	}
	facts := policy.Facts{Time: m.clock.Now()}
	table := exchange.NewTable(offersToUs(ads.Items, peers.Items), facts.Time).WithLinks(peers.Items)
	var err error
	switch question {
	case policy.Incoming:
		facts.Table = tableOf(table)
		err = readOffer(question, name, peers, ads, &facts)
	case policy.Outgoing:
		err = readOffer(question, name, peers, ads, &facts)
	case policy.Placement:
		facts.Table = tableOf(table)
		err = m.readNamespace(ctx, name, &facts)
	default:
		err = fmt.Errorf("a question about %s needs a pod: give %s", question, keyInput)
	}
	return facts, err
}

// offersToUs leaves out what we offer to others, which lies beside.
func offersToUs(ads []v1alpha1.Advertisement, peers []v1alpha1.Peer) []v1alpha1.Advertisement {
	clusters := map[string]string{} // tenant namespace → cluster id of its peer
	for i := range peers {
		clusters[v1alpha1.TenantNamespace(peers[i].Name)] = peers[i].Spec.ClusterID
	}
	return slices.DeleteFunc(slices.Clone(ads), func(ad v1alpha1.Advertisement) bool { return clusters[ad.Namespace] != ad.Spec.ClusterID })
}

// tableOf is the table of what is in use, for policies.
func tableOf(table exchange.Table) *policy.Value {
	var rows []policy.TableRow
	for i := range table.Rows {
		if row := &table.Rows[i]; row.Accepted {
			rows = append(rows, policy.TableRow{Peer: row.Peer, Open: row.Open, Offer: &row.Offer, RoundTrip: row.RoundTrip})
		}
	}
	return policy.NewTable(rows)
}

func (m *Maker) readNamespace(ctx context.Context, name string, facts *policy.Facts) error {
	facts.Namespace = &corev1.Namespace{}
	if err := m.client.Get(ctx, client.ObjectKey{Name: name}, facts.Namespace); err != nil {
		return fmt.Errorf("read namespace %s: %w", name, err)
	}
	offloading := &v1alpha1.NamespaceOffloading{}
	key := client.ObjectKey{Namespace: name, Name: v1alpha1.NamespaceOffloadingName}
	if err := m.client.Get(ctx, key, offloading); err != nil {
		return fmt.Errorf("read NamespaceOffloading %s: %w", key, err)
	}
	facts.Wish = offloading.Spec.Placement
	return nil
}

// readOffer finds the peer, and what it offers us or, if the question is not Incoming, what we offer it.
func readOffer(question policy.Question, name string, peers *v1alpha1.PeerList, ads *v1alpha1.AdvertisementList, facts *policy.Facts) error {
	at := slices.IndexFunc(peers.Items, func(p v1alpha1.Peer) bool { return p.Name == name || p.Spec.ClusterID == name })
	if at < 0 {
		return fmt.Errorf("there is no Peer with the name or cluster id %s", name)
	}
	facts.Peer = &peers.Items[at]
	for i := range ads.Items {
		ad := &ads.Items[i]
		theirs := ad.Spec.ClusterID == facts.Peer.Spec.ClusterID
		if ad.Namespace == v1alpha1.TenantNamespace(facts.Peer.Name) && theirs == (question == policy.Incoming) {
			facts.Advertisement = &ad.Spec
			return nil
		}
	}
	if question == policy.Incoming {
		return fmt.Errorf("no advertisement of Peer %s is kept here", facts.Peer.Name)
	}
	return fmt.Errorf("there is no advertisement for Peer %s", facts.Peer.Name)
}
