// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// A View is how pods of a peer that run here see names: as their home does, with the addresses that things have here.
type View struct {
	Theirs []Mapping // ranges of the peer, and in which we see them
	Ours   []Mapping // our ranges, and in which the peer sees them
}

// errNoQuery means that a message does not ask one plain question.
var errNoQuery = errors.New("the message is not a query with one question")

// Query translates what a pod here asks, for the name servers of its home: a question for the name of an address (PTR) is
// about that address as home knows it. Anything else stays as it is, to the byte.
func (v View) Query(query []byte) ([]byte, error) {
	m, err := unpackQuery(query)
	if err != nil {
		return nil, err
	}
	name, ok := v.reverse(m.Questions[0])
	if !ok {
		return query, nil
	}
	m.Questions[0].Name = name
	return pack(&m)
}

// Answer translates what the name servers of home answered to the query of a pod here, as the pod asked it: addresses (A,
// AAAA) become those that things have here, and a question that was translated becomes again what the pod asked. Anything
// else stays as it is, to the byte if nothing at all has to change. Whether it is the answer to that query, by its
// identifier and the rest of the question, is for the pod to judge.
func (v View) Answer(query, answer []byte) ([]byte, error) {
	asked, err := unpackQuery(query)
	if err != nil {
		return nil, err
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return nil, fmt.Errorf("read a DNS answer: %w", err)
	}
	changed := false
	if sent, ok := v.reverse(asked.Questions[0]); ok {
		changed = rename(&m, sent.String(), asked.Questions[0].Name)
	}
	for _, section := range [][]dnsmessage.Resource{m.Answers, m.Authorities, m.Additionals} {
		for i := range section {
			changed = v.translate(&section[i]) || changed
		}
	}
	if !changed {
		return answer, nil
	}
	m.AuthenticData = false // nobody has signed what is written here
	return pack(&m)
}

func unpackQuery(query []byte) (dnsmessage.Message, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return m, fmt.Errorf("read a DNS query: %w", err)
	}
	if m.Response || m.OpCode != 0 || len(m.Questions) != 1 {
		return m, errNoQuery
	}
	return m, nil
}

func pack(m *dnsmessage.Message) ([]byte, error) {
	packed, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("write a DNS message: %w", err)
	}
	return packed, nil
}

// rename gives another name to what has the one, and reports whether anything has.
func rename(m *dnsmessage.Message, from string, to dnsmessage.Name) bool {
	renamed := false
	for i := range m.Questions {
		if strings.EqualFold(m.Questions[i].Name.String(), from) {
			m.Questions[i].Name, renamed = to, true
		}
	}
	for i := range m.Answers {
		if strings.EqualFold(m.Answers[i].Header.Name.String(), from) {
			m.Answers[i].Header.Name, renamed = to, true
		}
	}
	return renamed
}

// translate changes the address in the record to the one here, and reports whether there is another.
func (v View) translate(r *dnsmessage.Resource) bool {
	switch body := r.Body.(type) {
	case *dnsmessage.AResource:
		here, ok := v.here(netip.AddrFrom4(body.A))
		if ok {
			body.A = here.As4()
		}
		return ok
	case *dnsmessage.AAAAResource:
		here, ok := v.here(netip.AddrFrom16(body.AAAA))
		if ok {
			body.AAAA = here.As16()
		}
		return ok
	}
	return false
}

// here returns the address that a thing has here of which home says that it has this one.
func (v View) here(home netip.Addr) (netip.Addr, bool) {
	here, ok := Seen(v.Theirs, home)
	if !ok {
		here, ok = Own(v.Ours, home)
	}
	return here, ok && here != home
}

// home returns the address that a thing has at home of which pods here know this one.
func (v View) home(here netip.Addr) (netip.Addr, bool) {
	home, ok := Own(v.Theirs, here)
	if !ok {
		home, ok = Seen(v.Ours, here)
	}
	return home, ok && home != here
}

// reverse returns the name that home has for what the question asks, and false if that is the same.
func (v View) reverse(q dnsmessage.Question) (dnsmessage.Name, bool) {
	if q.Type != dnsmessage.TypePTR {
		return q.Name, false
	}
	address, ok := addressOf(q.Name.String())
	if !ok {
		return q.Name, false
	}
	home, ok := v.home(address)
	if !ok {
		return q.Name, false
	}
	name, err := dnsmessage.NewName(nameOf(home))
	return name, err == nil
}

const (
	reverse4 = ".in-addr.arpa."
	reverse6 = ".ip6.arpa."
)

// addressOf returns the address that a name such as 7.1.244.10.in-addr.arpa. stands for.
func addressOf(name string) (netip.Addr, bool) {
	name = strings.ToLower(name)
	if labels, ok := strings.CutSuffix(name, reverse4); ok {
		return join(strings.Split(labels, "."), make([]byte, 4), 10)
	}
	if labels, ok := strings.CutSuffix(name, reverse6); ok {
		return join(strings.Split(labels, "."), make([]byte, 16), 16)
	}
	return netip.Addr{}, false
}

// join fills an address from its labels, the last part first. They are its bytes in base 10, or its half bytes in base 16.
func join(labels []string, bytes []byte, base int) (netip.Addr, bool) {
	bits := 8
	if base == 16 {
		bits = 4
	}
	if len(labels)*bits != len(bytes)*8 {
		return netip.Addr{}, false
	}
	for i, label := range labels {
		part, err := strconv.ParseUint(label, base, bits)
		if err != nil || strconv.FormatUint(part, base) != label {
			return netip.Addr{}, false
		}
		at := (len(labels) - 1 - i) * bits
		bytes[at/8] |= byte(part) << (8 - bits) >> (at % 8) //nolint:gosec // it was parsed as so many bits
	}
	return netip.AddrFromSlice(bytes)
}

// nameOf returns the name under which the name of an address is kept.
func nameOf(a netip.Addr) string {
	var name strings.Builder
	bytes := a.AsSlice()
	for i := len(bytes) - 1; i >= 0; i-- {
		if a.Is4() {
			fmt.Fprintf(&name, "%d.", bytes[i])
		} else {
			fmt.Fprintf(&name, "%x.%x.", bytes[i]&0xf, bytes[i]>>4)
		}
	}
	if a.Is4() {
		return name.String() + reverse4[1:]
	}
	return name.String() + reverse6[1:]
}
