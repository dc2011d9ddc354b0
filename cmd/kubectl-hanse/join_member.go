// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

// memberFlags are those of a join that has to do with a broker.
type memberFlags struct {
	broker        bool
	acceptMembers []string
	askMembers    []string
	member        string
	through       string
}

func (f *memberFlags) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&f.broker, "broker", false, "the other cluster is a broker: its members and this cluster are to know of each other")
	flags.StringSliceVar(&f.acceptMembers, "accept-members", nil,
		"with --broker, ids of members that may run pods in this cluster as soon as they ask for that, as patterns with *; by default none may")
	flags.StringSliceVar(&f.askMembers, "ask-members", nil,
		"with --broker, ids of members that are asked for offers in auctions of Applications, as patterns with *, and become providers if they win; by default none are")
	flags.StringVar(&f.member, "member", "", "cluster `id` of a member of a broker: ask it for an invitation, and use that. The verb members shows them")
	flags.StringVar(&f.through, "through", "", "with --member, the broker to ask through, by the name that it has here; needed if the member is known through several")
	for _, other := range []string{"agentless", "mutual", "server"} {
		command.MarkFlagsMutuallyExclusive("member", other)
	}
	command.MarkFlagsMutuallyExclusive("broker", "agentless")
	command.MarkFlagsMutuallyExclusive("broker", "member")
}

var memberPattern = regexp.MustCompile(`^[-a-z0-9*]{1,30}$`)

// validate reports flags that make no sense.
func (f *memberFlags) validate() error {
	for flag, patterns := range map[string][]string{"accept-members": f.acceptMembers, "ask-members": f.askMembers} {
		for _, pattern := range patterns {
			if !memberPattern.MatchString(pattern) {
				return fmt.Errorf("--%s: %q is neither the id of a cluster nor a pattern of ids, such as team-*", flag, pattern)
			}
		}
	}
	switch {
	case len(f.acceptMembers) > 0 && !f.broker:
		return errors.New("--accept-members is for --broker: members ask through a broker")
	case len(f.askMembers) > 0 && !f.broker:
		return errors.New("--ask-members is for --broker: members are asked through a broker")
	case f.through != "" && f.member == "":
		return errors.New("--through is for --member: say which member is to be asked")
	default:
		return nil
	}
}

// makeBroker makes the provider a broker of ours, if it is to be one.
func (f *memberFlags) makeBroker(peer *v1alpha1.Peer) {
	if !f.broker {
		return
	}
	addRole(peer, v1alpha1.RoleBroker)
	if len(f.acceptMembers) > 0 {
		peer.Spec.AcceptMembers = f.acceptMembers
	}
	if len(f.askMembers) > 0 {
		peer.Spec.AskMembers = f.askMembers
	}
}

// introduced reports whether the members of the provider know this cluster, if it is a broker. The error says why not, and what is to be done.
func (j *joining) introduced(peer *v1alpha1.Peer) (bool, error) {
	is, why := standing(peer.Status.Conditions, v1alpha1.ConditionIntroduced)
	if !j.broker || is {
		return true, nil
	}
	j.told.tell(why)
	return false, fmt.Errorf("pods can run there, but its members do not know this cluster: %s. Its administrator has to make that cluster a broker "+
		"(`kubectl hanse install --set broker.enabled=true`), and this one a member (`kubectl hanse invite %s --member`). Then all comes by itself",
		printable(why), nameThere(j.invitation.Namespace))
}

// A handOver is the way to become a consumer of a member, by an invitation that comes through a broker.
type handOver struct {
	member *v1alpha1.Member
	name   string // what it is to be called here
	broker string
}

func runJoinMember(command *cobra.Command, global *globalFlags, flags *joinFlags) error {
	return global.withHanse(command, flags.timeout, func(ctx context.Context, c *connection, system string) error {
		return doJoinMember(ctx, command, c.client, flags, system)
	})
}

// doJoinMember writes the Peer and waits until it has its effect. Doing it again goes on where it was.
func doJoinMember(ctx context.Context, command *cobra.Command, c client.Client, flags *joinFlags, system string) error {
	seen := take(ctx, c, scope{system: system}, time.Time{}, partInfo, partPeers, partMembers)
	if err := seen.err(partInfo, partPeers, partMembers); err != nil {
		return err
	}
	h, err := seen.planHandOver(flags)
	if err != nil {
		return err
	}
	peer := blankPeer(h.name)
	if flags.dry() {
		h.put(peer)
		return printObjects(command.OutOrStdout(), peer)
	}
	err = write(ctx, c, peer, func() error {
		if err := h.allowed(peer); err != nil {
			return err
		}
		h.put(peer)
		return nil
	})
	if err != nil {
		return err
	}
	if !flags.wait {
		return say(command, "%s is asked for an invitation through %s: see `kubectl hanse status %s`.\n", h.member.Name, h.broker, h.name)
	}
	if err := h.await(ctx, c, &progress{report: reporter(command)}); err != nil {
		return err
	}
	return say(command, "%s can run pods in %s. Both are peers, and need broker %s no longer.\n", seen.clusterID, h.name, h.broker)
}

// planHandOver finds the member that the user means, the broker to ask through, and a name.
func (s *snapshot) planHandOver(flags *joinFlags) (*handOver, error) {
	known := find(s.members.Items, func(m *v1alpha1.Member) bool { return m.Name == flags.member })
	if known == nil {
		return nil, fmt.Errorf("no member %s is known here: `kubectl hanse members` shows those that are", flags.member)
	}
	current := meta.FindStatusCondition(known.Status.Conditions, v1alpha1.ConditionCurrent)
	if current == nil || current.Status != metav1.ConditionTrue {
		return nil, fmt.Errorf("member %s is not Current%s. Ask its administrator whether Hanse runs there; it is known again as soon as it is heard",
			known.Name, because(current))
	}
	broker, err := s.brokerOf(known, flags.through)
	if err != nil {
		return nil, err
	}
	name, err := s.nameOf(known.Name, flags.as)
	return &handOver{known, name, broker}, err
}

// brokerOf is the broker through which the member is to be asked.
func (s *snapshot) brokerOf(known *v1alpha1.Member, wanted string) (string, error) {
	names := namesOf(known.Status.Brokers, func(b *v1alpha1.MemberBroker) string { return b.Name })
	switch {
	case wanted != "" && !slices.Contains(names, wanted):
		return "", fmt.Errorf("--through: member %s is not known through %s, but through %s", known.Name, wanted, orElse(strings.Join(names, ", "), "no broker"))
	case wanted == "" && len(names) == 0:
		return "", fmt.Errorf("member %s is known through no broker any more", known.Name)
	case wanted == "" && len(names) > 1:
		return "", fmt.Errorf("member %s is known through several brokers (%s): say with --through which of them is to be used", known.Name, strings.Join(names, ", "))
	}
	name := orElse(wanted, strings.Join(names, ""))
	broker := s.peer(name)
	if broker == nil || !broker.HasRole(v1alpha1.RoleBroker) {
		return "", fmt.Errorf("there is no Peer %s of role Broker here, through which member %s was known", name, known.Name)
	}
	if introduced := meta.FindStatusCondition(broker.Status.Conditions, v1alpha1.ConditionIntroduced); introduced != nil && introduced.Status == metav1.ConditionFalse {
		return "", fmt.Errorf("nobody can be asked through broker %s now%s", name, because(introduced))
	}
	return name, nil
}

// allowed reports whether the Peer, which may be a new one, can stand for the member. Of an earlier attempt it can.
func (h *handOver) allowed(peer *v1alpha1.Peer) error {
	if err := standsFor(peer, h.member.Name); err != nil {
		return err
	}
	switch {
	case peer.Spec.PublicKey != "" && peer.Spec.PublicKey != h.member.Spec.PublicKey:
		return fmt.Errorf("the key by which member %s is known is not the one that it had when you became peers. Either somebody else speaks for "+
			"it, or the cluster was made anew: ask its administrator", h.member.Name)
	case peer.HasRole(v1alpha1.RoleProvider) && peer.Spec.Introducer == "":
		return fmt.Errorf("it is a provider already, and no invitation need be asked for: see `kubectl hanse status %s`", peer.Name)
	default:
		return nil
	}
}

// put makes the Peer ask for an invitation of the member.
func (h *handOver) put(peer *v1alpha1.Peer) {
	peer.Spec.ClusterID, peer.Spec.PublicKey, peer.Spec.Introducer = h.member.Name, h.member.Spec.PublicKey, h.broker
	addRole(peer, v1alpha1.RoleProvider)
}

// vain are the reasons of condition Introduced with which no invitation comes unless somebody does something.
var vain = []string{v1alpha1.ReasonNotAccepted, v1alpha1.ReasonKeyMismatch, v1alpha1.ReasonMalformed}

// errNoInvitation ends a join for which the member gives no invitation.
var errNoInvitation = errors.New("there is no invitation")

// await waits until the invitation has come and pods can run at the member.
func (h *handOver) await(ctx context.Context, c client.Client, told *progress) error {
	return install.Until(ctx, h.name+" to be ready", func(ctx context.Context) (bool, error) {
		peer, err := readPeer(ctx, c, h.name)
		if err != nil {
			return false, err
		}
		introduced := currentCondition(peer, v1alpha1.ConditionIntroduced)
		switch {
		case meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionSession):
			if isReady(peer, told) || isProvider(peer) {
				return true, nil
			}
			return false, fmt.Errorf("it is not%s (`kubectl hanse status %s` shows more)", whyNotReady(peer), h.name)
		case introduced != nil && slices.Contains(vain, introduced.Reason):
			return false, install.Final(fmt.Errorf("%w%s. That is for the administrator of %s to change. Peer %s stays here, and asks again every "+
				"minute; to stop that: kubectl hanse unpeer %s", errNoInvitation, because(introduced), h.member.Name, h.name, h.name))
		case introduced != nil:
			told.tell(introduced.Message)
		}
		return false, fmt.Errorf("it is not%s (`kubectl hanse status %s` and `kubectl hanse status %s` show more)", because(introduced), h.name, h.broker)
	})
}
