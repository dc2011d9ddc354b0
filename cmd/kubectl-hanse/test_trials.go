// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/netprobe"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// A result says how a trial went.
type result string

const (
	resultWorks    result = "works"
	resultFails    result = "does not"
	resultUntested result = "not tested"
)

// What trials are about, as the table calls it.
const (
	whatTCP         = "pod to pod (TCP)"
	whatUDP         = "pod to pod (UDP)"
	whatPacket      = "packets of 1,400 bytes"
	whatLarge       = "packets of 8,000 bytes"
	whatClusterIP   = "Service by cluster IP"
	whatServiceName = "Service by name"
	whatDNS         = "DNS: kubernetes.default"
	whatAPI         = "API server at kubernetes.default"
	whatHost        = "from the network of a node"
	whatNode        = "from node "
	whatOtherPeer   = "to a pod at another peer"
)

// A networkRow is one line of the table.
type networkRow struct {
	From   string `json:"from"`
	To     string `json:"to"`
	What   string `json:"what"`
	Result result `json:"result"`
	Found  string `json:"found,omitempty"`
	Cause  string `json:"cause,omitempty"` // the likely one, of what does not work
}

// A trial is a question that one pod is to ask, and what must come back.
type trial struct {
	row      networkRow
	at       *spot
	question netprobe.Question
	wants    string // the name of the pod that must answer; "" where any answer will do
}

// networkFacts are what is known of a peer besides.
type networkFacts struct {
	peer       *v1alpha1.Peer
	connection *v1alpha1.Connection // nil if there is none
	endpoints  bool                 // whether the Service in front of the pod at the peer has any
	noAPI      bool                 // whether the API server of this cluster has no address of a family that the pod at the peer has
}

func (s *stage) factsOf(ctx context.Context, peer string) networkFacts {
	seen := take(ctx, s.client, scope{system: s.system}, time.Time{}, partPeers, partConnections)
	f := networkFacts{peer: seen.peer(peer), connection: seen.connection(peer)}
	if away := s.away[peer]; away.pod != nil {
		slices := &discoveryv1.EndpointSliceList{}
		_ = s.client.List(ctx, slices, client.InNamespace(away.pod.Namespace)) // then there are none, which is only a hint
		f.endpoints = find(slices.Items, func(e *discoveryv1.EndpointSlice) bool { return len(e.Endpoints) > 0 }) != nil
		api := &corev1.Service{}
		_, _ = read(ctx, s.client, metav1.NamespaceDefault, "kubernetes", api) // then it has none, which is only a hint
		f.noAPI = len(api.Spec.ClusterIPs) > 0 && len(away.addresses()) > 0 && likeOneOf(away.addresses(), api.Spec.ClusterIPs, "") == ""
	}
	return f
}

// trials are what is to be tried out between home and one peer.
func (s *stage) trials(f networkFacts) []trial {
	home, away := s.home[spotHome], s.away[f.peer.Name]
	trials := between(home, away, func(text string) string { return text })
	if host := s.home[spotHost]; host != nil {
		trials = append(trials, newTrial(host, away, whatHost, greetAt(address(host, away))))
	}
	if s.full {
		trials = append(trials, s.fullTrials(f, away)...)
	}
	trials = append(trials, between(away, home, func(text string) string { return seenByPeer(f.connection, text) })...)
	return append(trials,
		newTrial(away, home, whatDNS, netprobe.Question{Kind: netprobe.Resolve, Target: "kubernetes.default"}),
		newTrial(away, home, whatAPI, netprobe.Question{Kind: netprobe.API, Target: "kubernetes.default:443", CA: s.ca}))
}

// fullTrials are those of --full.
func (s *stage) fullTrials(f networkFacts, away *spot) []trial {
	var trials []trial
	for _, name := range slices.Sorted(maps.Keys(s.home)) {
		if name != spotHome && name != spotHost && name != spotNear {
			trials = append(trials, newTrial(s.home[name], away, whatNode+name, greetAt(address(s.home[name], away))))
		}
	}
	for _, other := range s.peers {
		if other != away.peer {
			trials = append(trials, newTrial(away, s.away[other], whatOtherPeer, greetAt(seenByPeer(f.connection, address(away, s.away[other])))))
		}
	}
	return trials
}

// between are the trials that are the same in both directions. Addresses are written as the pod that asks must call them.
func between(from, to *spot, seen func(string) string) []trial {
	own := address(from, to)
	pod := seen(own)
	packet := func(size int) netprobe.Question {
		return netprobe.Question{Kind: netprobe.Packet, Target: at(pod), Size: size}
	}
	clusterIP, name := "", ""
	if to.service != nil {
		clusterIP, name = seen(likeOneOf([]string{own}, to.service.Spec.ClusterIPs, to.service.Spec.ClusterIP)), to.service.Name+"."+to.service.Namespace+".svc"
	}
	return []trial{
		newTrial(from, to, whatTCP, greetAt(pod)),
		newTrial(from, to, whatUDP, packet(100)),
		newTrial(from, to, whatPacket, packet(1400)),
		newTrial(from, to, whatLarge, packet(8000)),
		newTrial(from, to, whatClusterIP, greetAt(clusterIP)),
		newTrial(from, to, whatServiceName, greetAt(name)),
	}
}

func newTrial(from, to *spot, what string, q netprobe.Question) trial {
	t := trial{row: networkRow{From: from.place, To: to.place, What: what, Result: resultUntested}, at: from, question: q}
	if q.Kind == netprobe.Greet && to.pod != nil {
		t.wants = to.pod.Name
	}
	switch {
	case from.trouble != "":
		t.row.Found = "the pod at " + from.place + " does not run: " + from.trouble
	case to.trouble != "":
		t.row.Found = "the pod at " + to.place + " does not run: " + to.trouble
	case q.Target == "" && to.peer != "":
		t.row.Found = "the pod at " + to.place + " shows no address here"
	case q.Target == "":
		t.row.Found = from.place + " does not see this cluster in any range"
	}
	return t
}

func greetAt(host string) netprobe.Question {
	return netprobe.Question{Kind: netprobe.Greet, Target: at(host)}
}

// at adds the port of the test to a host, if there is one.
func at(host string) string {
	if host == "" {
		return ""
	}
	return net.JoinHostPort(host, probePort)
}

// address is that of a spot's pod as this cluster sees it, of a family that the pod of the other spot has too if there is one. It is ""
// if it shows none.
func address(from, to *spot) string {
	if to.pod == nil {
		return ""
	}
	return likeOneOf(from.addresses(), to.addresses(), to.pod.Status.PodIP)
}

// addresses are all that the spot's pod shows.
func (s *spot) addresses() []string {
	var all []string
	if s.pod != nil {
		for _, ip := range s.pod.Status.PodIPs {
			all = append(all, ip.IP)
		}
	}
	return all
}

// likeOneOf returns the first of the addresses that is of the family of one of the others, or else the last argument.
func likeOneOf(others, addresses []string, otherwise string) string {
	for _, text := range addresses {
		if slices.ContainsFunc(others, func(other string) bool { return strings.Contains(other, ":") == strings.Contains(text, ":") }) {
			return text
		}
	}
	return otherwise
}

// seenByPeer is how the peer calls one of our addresses, "" if it has no name for it.
func seenByPeer(connection *v1alpha1.Connection, text string) string {
	own, err := netip.ParseAddr(text)
	if connection == nil || err != nil {
		return ""
	}
	seen, found := overlay.Seen(overlay.Mappings(connection.Spec.Ours), own)
	if !found {
		return ""
	}
	return seen.String()
}

// try has each pod ask all that it is to ask, and returns the rows in their order.
func (s *stage) try(ctx context.Context, trials []trial) []networkRow {
	questions, asked := map[*spot][]netprobe.Question{}, map[*spot][]int{}
	rows := make([]networkRow, len(trials))
	for i, t := range trials {
		rows[i] = t.row
		if t.row.Found == "" {
			questions[t.at], asked[t.at] = append(questions[t.at], t.question), append(asked[t.at], i)
		}
	}
	for from, its := range questions {
		answers, err := s.ask(ctx, from, its)
		for n, i := range asked[from] {
			if err != nil {
				rows[i].Found = err.Error()
				continue
			}
			rows[i].Result, rows[i].Found = trials[i].judge(answers[n])
		}
	}
	return rows
}

// judge says what an answer means.
func (t *trial) judge(a netprobe.Answer) (result, string) {
	switch {
	case a.Error != "":
		return resultFails, a.Error
	case t.wants != "" && a.Name != t.wants:
		return resultFails, fmt.Sprintf("somebody else answers: %q", a.Name)
	case t.question.Kind == netprobe.Resolve && len(a.Addresses) == 0:
		return resultFails, "there is no such name"
	case a.Fits > 0:
		return resultWorks, fmt.Sprintf("sent in parts: the sender is told that %d bytes fit", a.Fits)
	default:
		return resultWorks, ""
	}
}

// printNetwork prints the table, or the rows as JSON.
func printNetwork(to io.Writer, rows []networkRow, output string) error {
	return show(to, rows, output, func(d *document) {
		table := [][]string{{"FROM", "TO", "WHAT", "RESULT", "FOUND"}}
		var causes []string
		blamed := map[string][]string{} // cause → what it keeps from working
		for _, r := range rows {
			table = append(table, []string{r.From, r.To, r.What, string(r.Result), orElse(shortened(r.Found), none)})
			if r.Cause == "" {
				continue
			}
			if blamed[r.Cause] == nil {
				causes = append(causes, r.Cause)
			}
			blamed[r.Cause] = append(blamed[r.Cause], r.What+" from "+r.From+" to "+r.To)
		}
		d.table(table...)
		if len(causes) > 0 {
			d.printf("\nLikely causes:\n")
			for _, cause := range causes {
				d.notes([]string{list(blamed[cause], 3) + ":", "  " + cause})
			}
		}
	})
}

// shortened keeps what a peer says from filling the screen.
func shortened(text string) string {
	const most = 160
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
