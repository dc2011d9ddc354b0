// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// A HomeService names a Service at the home of a peer.
type HomeService struct{ Namespace, Name string }

// Copies are the Services of a peer's home of which there is a copy in this cluster, each with the namespace that has the copy. Pods of
// the peer that run here ask for them by the names of home, and this cluster's own name servers know them by those of the copies.
type Copies map[HomeService]string

// errNoCopy means that this cluster's name servers do not know what a pod asks for, and home may.
var errNoCopy = errors.New("the name is not one of a Service that has a copy here")

// clusterDomain is what all names of a cluster end with, and underServices those of all Services, behind that of the namespace.
const (
	clusterDomain = ".cluster.local."
	underServices = ".svc" + clusterDomain
)

// CopiesOf returns the copies of Services that the peer has here.
func CopiesOf(p *Peer) Copies {
	copies := Copies{}
	for _, s := range p.Services {
		copies[s.Home] = s.Twin
	}
	return copies
}

// Query translates a question for a Service that has a copy here, or for endpoints of it, into one for the copy. Any other is not for
// this cluster's name servers, and nor is a message that asks nothing.
func (c Copies) Query(query []byte) (sent []byte, ok bool) {
	m, err := unpackQuery(query)
	if err != nil {
		return nil, false
	}
	t, err := c.translation(m.Questions[0])
	if err != nil {
		return nil, false
	}
	m.Questions[0].Name = t.sent
	sent, err = pack(&m)
	return sent, err == nil
}

// Answer translates what this cluster's name servers answered to the translated query of a pod, as the pod asked it: names of the copy
// become those of home. Without an answer, such as for a name that only home knows, it returns an error.
func (c Copies) Answer(query, answer []byte) ([]byte, error) {
	asked, err := unpackQuery(query)
	if err != nil {
		return nil, err
	}
	t, err := c.translation(asked.Questions[0])
	if err != nil {
		return nil, err
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return nil, fmt.Errorf("read a DNS answer: %w", err)
	}
	if !m.Response || m.RCode != dnsmessage.RCodeSuccess {
		return nil, errNoCopy
	}
	for i := range m.Questions {
		t.back(&m.Questions[i].Name)
	}
	for _, section := range [][]dnsmessage.Resource{m.Answers, m.Authorities, m.Additionals} {
		for i := range section {
			t.record(&section[i])
		}
	}
	m.AuthenticData = false // nobody has signed what is written here
	return pack(&m)
}

// Denial returns the answer that there is no such name, if the question is one that the search path of a pod makes of the name of a
// copy, such as web.shop.shop.svc.cluster.local of web.shop. Resolvers ask for it before they ask for the name itself, and while home
// does not answer they would get no further.
func (c Copies) Denial(query []byte) (answer []byte, ok bool) {
	m, err := unpackQuery(query)
	if err != nil || !c.searched(strings.ToLower(m.Questions[0].Name.String())) {
		return nil, false
	}
	m.Header = dnsmessage.Header{
		ID: m.ID, Response: true, RCode: dnsmessage.RCodeNameError, RecursionDesired: m.RecursionDesired, RecursionAvailable: true,
	}
	m.Additionals = nil
	answer, err = pack(&m)
	return answer, err == nil
}

// searched says whether the name is that of a copy with a search path behind it.
func (c Copies) searched(name string) bool {
	rest, ok := strings.CutSuffix(name, clusterDomain)
	if !ok {
		return false
	}
	shorter := []string{rest}
	if rest, ok = strings.CutSuffix(rest, ".svc"); ok {
		shorter = append(shorter, rest)
		if at := strings.LastIndexByte(rest, '.'); at >= 0 {
			shorter = append(shorter, rest[:at])
		}
	}
	for _, front := range shorter {
		for _, end := range []string{".", clusterDomain, underServices} {
			if front+end != name && c.knows(front+end) {
				return true
			}
		}
	}
	return false
}

// knows says whether the name is that of a copy.
func (c Copies) knows(name string) bool {
	rest, ok := strings.CutSuffix(name, underServices)
	labels := strings.Split(rest, ".")
	if !ok || len(labels) < 2 {
		return false
	}
	_, known := c[HomeService{Namespace: labels[len(labels)-1], Name: labels[len(labels)-2]}]
	return known
}

// A renaming is that of one question.
type renaming struct {
	asked, sent dnsmessage.Name
	home, here  string // what the names at home and here end with, in small letters
}

// translation returns the renaming for the question, and errNoCopy where it is for no copy.
func (c Copies) translation(q dnsmessage.Question) (renaming, error) {
	types := []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV}
	name := q.Name.String()
	rest, ok := cutSuffixFold(name, underServices)
	if !ok || q.Class != dnsmessage.ClassINET || !slices.Contains(types, q.Type) {
		return renaming{}, errNoCopy
	}
	labels := strings.Split(strings.ToLower(rest), ".")
	if len(labels) < 2 {
		return renaming{}, errNoCopy
	}
	namespace := labels[len(labels)-1]
	twin, ok := c[HomeService{Namespace: namespace, Name: labels[len(labels)-2]}]
	if !ok {
		return renaming{}, errNoCopy
	}
	t := renaming{asked: q.Name, home: "." + namespace + underServices, here: "." + twin + underServices}
	var err error
	t.sent, err = dnsmessage.NewName(name[:len(name)-len(t.home)] + t.here)
	return t, err
}

// record gives the record names of home.
func (t renaming) record(r *dnsmessage.Resource) {
	t.back(&r.Header.Name)
	switch body := r.Body.(type) {
	case *dnsmessage.SRVResource:
		t.back(&body.Target)
	case *dnsmessage.CNAMEResource:
		t.back(&body.CNAME)
	}
}

// back gives what has a name of the twin that of home. A name that was asked for is given back as the pod has written it.
func (t renaming) back(name *dnsmessage.Name) {
	if strings.EqualFold(name.String(), t.sent.String()) {
		*name = t.asked
		return
	}
	if rest, ok := cutSuffixFold(name.String(), t.here); ok {
		if renamed, err := dnsmessage.NewName(rest + t.home); err == nil {
			*name = renamed
		}
	}
}

// cutSuffixFold is strings.CutSuffix, whatever the case of letters.
func cutSuffixFold(text, suffix string) (string, bool) {
	at := len(text) - len(suffix)
	if at < 0 || !strings.EqualFold(text[at:], suffix) {
		return text, false
	}
	return text[:at], true
}
