// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func newMembersCommand(global *globalFlags) *cobra.Command {
	output := "table"
	command := &cobra.Command{
		Use:   "members",
		Short: "Show the clusters that are known through brokers, and what they have to spare",
		Long: "Shows the other members of this cluster's brokers, with what each has said itself, and signed. A member that is no peer yet\n" +
			"becomes one by `kubectl hanse join --member NAME`.",
		Example: `  kubectl hanse members
  kubectl hanse members -o json | jq '.members[] | select(.current and .peer == null) | .name'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				return showMembers(ctx, command.OutOrStdout(), c.client, output, clock.RealClock{}.Now())
			})
		},
	}
	command.Flags().VarP(oneOf(&output, "table", "wide", "json", "yaml"), "output", "o", "table, wide, json or yaml")
	return command
}

func showMembers(ctx context.Context, to io.Writer, c client.Client, output string, now time.Time) error {
	seen := take(ctx, c, scope{}, now, partPeers, partMembers)
	if err := seen.err(partPeers, partMembers); err != nil {
		return err
	}
	view := seen.membersView()
	return show(to, view, output, func(d *document) { view.print(d, now, output == "wide") })
}

// membersView is what `members` shows. Its JSON is for scripts: fields are added, never renamed.
type membersView struct {
	Members []memberView `json:"members"`
	Brokers []brokerView `json:"brokers"`
}

// memberView is a member of our brokers.
type memberView struct {
	Name      string                  `json:"name"`
	Peer      string                  `json:"peer,omitempty"` // what it is called here, if it is a peer
	Current   bool                    `json:"current"`
	Message   string                  `json:"message,omitempty"`
	PublicKey string                  `json:"publicKey"`
	Brokers   []v1alpha1.MemberBroker `json:"brokers"`
	Offer     v1alpha1.MemberOffer    `json:"offer"`
	Said      *metav1.Time            `json:"said,omitempty"`
	Expires   *metav1.Time            `json:"expires,omitempty"`
}

// brokerView is a broker of ours. Message is why its members do not know this cluster, if so.
type brokerView struct {
	Name       string `json:"name"`
	Introduced bool   `json:"introduced"`
	Message    string `json:"message,omitempty"`
}

func (s *snapshot) membersView() membersView {
	view := membersView{Members: []memberView{}, Brokers: []brokerView{}}
	for i := range s.members.Items {
		view.Members = append(view.Members, s.viewMember(&s.members.Items[i]))
	}
	for i := range s.peers.Items {
		if peer := &s.peers.Items[i]; peer.HasRole(v1alpha1.RoleBroker) {
			is, why := standing(peer.Status.Conditions, v1alpha1.ConditionIntroduced)
			view.Brokers = append(view.Brokers, brokerView{peer.Name, is, why})
		}
	}
	return view
}

func (s *snapshot) viewMember(m *v1alpha1.Member) memberView {
	view := memberView{
		Name: m.Name, PublicKey: m.Spec.PublicKey, Brokers: append([]v1alpha1.MemberBroker{}, m.Status.Brokers...),
		Offer: ptr.Deref(m.Status.Offer, v1alpha1.MemberOffer{}), Said: m.Status.Said, Expires: m.Status.Expires,
	}
	view.Current, view.Message = standing(m.Status.Conditions, v1alpha1.ConditionCurrent)
	if peer := find(s.peers.Items, func(p *v1alpha1.Peer) bool { return p.Spec.ClusterID == m.Name && !p.Agentless() }); peer != nil {
		view.Peer = peer.Name
	}
	return view
}

// standing is whether a condition is True, and if not why.
func standing(conditions []metav1.Condition, kind string) (bool, string) {
	found := meta.FindStatusCondition(conditions, kind)
	switch {
	case found == nil:
		return false, "Hanse has not looked at it yet"
	case found.Status == metav1.ConditionTrue:
		return true, ""
	default:
		return false, found.Message
	}
}

func (v *membersView) print(d *document, now time.Time, wide bool) {
	header := []string{"MEMBER", "CURRENT", "BROKERS", "CPU", "MEMORY", "CPU/H", "SAID", "PEER"}
	if wide {
		header = append(header, "PRICES", "LABELS", "MARKS", "KEY")
	}
	rows, notes := [][]string{header}, []string{}
	for i := range v.Members {
		m := &v.Members[i]
		rows = append(rows, m.cells(now, wide))
		if !m.Current {
			notes = append(notes, m.Name+": "+m.Message)
		}
	}
	if len(v.Members) > 0 {
		d.table(rows...)
	} else {
		d.printf("%s\n", v.whyNone())
	}
	for _, b := range v.Brokers {
		if !b.Introduced {
			notes = append(notes, "broker "+b.Name+": "+b.Message)
		}
	}
	d.notes(notes)
}

// whyNone says what to do where no member is known.
func (v *membersView) whyNone() string {
	if len(v.Brokers) == 0 {
		return "No members are known, because this cluster has no broker. Have a broker invite it (`kubectl hanse invite NAME --member` there),\n" +
			"and join with `kubectl hanse join TOKEN --broker`"
	}
	return "No members are known: brokers of this cluster have not told of any other one yet"
}

func (m *memberView) cells(now time.Time, wide bool) []string {
	current, said := "no", none
	if m.Current {
		current = "yes"
	}
	if m.Said != nil {
		said = sinceText(*m.Said, now) + " ago"
	}
	brokers := namesOf(m.Brokers, func(b *v1alpha1.MemberBroker) string { return b.Name })
	cells := []string{
		m.Name, current, list(brokers, fewInCell), amount(m.Offer.Availability, corev1.ResourceCPU), amount(m.Offer.Availability, corev1.ResourceMemory),
		cpuPrice(&m.Offer), said, orElse(m.Peer, none),
	}
	if wide {
		cells = append(cells, prices(m.Offer.Prices), list(pairs(m.Offer.Labels), fewInCell), list(marksOf(m.Brokers), fewInCell), m.PublicKey)
	}
	return cells
}

// marksOf are the words of each broker that has any.
func marksOf(brokers []v1alpha1.MemberBroker) []string {
	var all []string
	for i := range brokers {
		if of := brokers[i].Marks; of != nil {
			all = append(all, fmt.Sprintf("%s: %d/%d offers %d/%d acknowledged %d/%d invitations",
				brokers[i].Name, of.Offers, of.Quotes, of.Acknowledged, of.Requests, of.Invitations, of.HandOvers))
		}
	}
	return all
}

// cpuPrice is what a core costs for an hour.
func cpuPrice(of *v1alpha1.MemberOffer) string {
	if _, there := of.Availability[corev1.ResourceCPU]; !there {
		return none
	}
	asked := ptr.Deref(of.Prices, v1alpha1.Prices{})
	price, there := asked.PerHour[corev1.ResourceCPU]
	if !there {
		return "free"
	}
	return priceText(&v1alpha1.Price{Amount: price, Currency: asked.Currency})
}
