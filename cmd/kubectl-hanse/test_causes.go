// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// judged adds the likely cause to each row that does not work. What is not tested has one too where the network is known to be
// down, since the pod may lack an address, or a peer, for that.
func judged(f networkFacts, rows []networkRow) []networkRow {
	works := map[string]bool{} // direction and what → it works
	for _, r := range rows {
		works[r.From+r.What] = r.Result == resultWorks
	}
	for i, r := range rows {
		if r.Result == resultWorks {
			continue
		}
		rows[i].Cause = f.down()
		if rows[i].Cause == "" && r.Result == resultFails {
			rows[i].Cause = f.cause(r, func(from, what string) bool { return works[from+what] })
		}
	}
	return rows
}

// down says why nothing can pass, "" if it should.
func (f networkFacts) down() string {
	connected := meta.FindStatusCondition(f.peer.Status.Conditions, v1alpha1.ConditionConnected)
	if connected == nil {
		return fmt.Sprintf("Peer %s does not say whether it is Connected: is Hanse's manager running?", f.peer.Name)
	}
	if connected.Status != metav1.ConditionTrue {
		return fmt.Sprintf("Peer %s is not Connected%s", f.peer.Name, because(connected))
	}
	if f.connection == nil {
		return fmt.Sprintf("there is no Connection for Peer %s: its conditions say why", f.peer.Name)
	}
	for _, kind := range []string{v1alpha1.ConditionConnected, v1alpha1.ConditionReady} {
		if c := meta.FindStatusCondition(f.connection.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			return fmt.Sprintf("the Connection of Peer %s is not %s%s", f.peer.Name, kind, because(c))
		}
	}
	return ""
}

// cause says what is likely where the tunnel is up. What works besides tells most.
func (f networkFacts) cause(r networkRow, works func(from, what string) bool) string {
	switch podToPod := works(r.From, whatTCP); r.What {
	case whatTCP, whatUDP:
		return f.causeOfSilence(r, works)
	case whatPacket, whatLarge:
		if !works(r.From, whatUDP) {
			return "packets of any size are lost: see " + whatUDP
		}
		return fmt.Sprintf("a firewall on the path drops large packets, or the messages that tell their size (ICMP). The tunnel takes %d bytes",
			f.connection.Status.MTU)
	case whatClusterIP, whatServiceName:
		return f.causeOfService(r, podToPod, works)
	case whatDNS:
		if !podToPod {
			return "nothing reaches home: see " + whatTCP
		}
		return "the gateway at the peer gets no answer from this cluster's DNS: does it run, and does a NetworkPolicy keep others from it? (port 53)"
	case whatAPI:
		if !works(r.From, whatDNS) {
			return "its name is not found: see " + whatDNS
		}
		if f.noAPI {
			return "it has an address of this cluster's main family alone, IPv4 or IPv6, which pods at the peer have not"
		}
		return "the API server's nodes refuse what comes from the gateway, or its certificate lacks the name kubernetes.default"
	case whatOtherPeer:
		return "both peers must be Connected, and know each other's pods by this cluster (relayed ranges): kubectl hanse status"
	default:
		if !podToPod {
			return "no pod reaches the peer: see " + whatTCP
		}
		return "the fabric on that node: does its pod of the DaemonSet hanse-fabric run?"
	}
}

// causeOfSilence is about pods that do not answer each other.
func (f networkFacts) causeOfSilence(r networkRow, works func(from, what string) bool) string {
	switch {
	case r.What == whatUDP && works(r.From, whatTCP), r.What == whatTCP && works(r.From, whatUDP):
		return "a NetworkPolicy or a firewall lets only one of TCP and UDP pass"
	case works(r.To, whatTCP):
		return fmt.Sprintf("only the other direction works: a NetworkPolicy at %s forbids it, or it is closed there", r.To)
	default:
		return "the tunnel is up, so look at the nodes: is hanse-fabric ready on each, and does a firewall between them drop VXLAN (UDP 4786)?"
	}
}

func (f networkFacts) causeOfService(r networkRow, podToPod bool, works func(from, what string) bool) string {
	switch {
	case !podToPod:
		return "no pod is reached: see " + whatTCP
	case r.From == ourHome && !f.endpoints:
		return "the Service has no endpoint: the pod at the peer is not Ready, or shows no address"
	case r.What == whatServiceName && works(r.From, whatClusterIP):
		return "the name is not found: see the logs of the cluster's DNS"
	default:
		return "kube-proxy on the node does not serve the Service: see its logs"
	}
}
