// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableName is the name of every nftables table of ours.
const tableName = "hanse"

// A table is what an nftables table must contain.
type table struct {
	family nftables.TableFamily
	sets   []*set
	chains []*chain
}

// A chain is called by other chains, or by the kernel itself if it has a kind.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	policy   nftables.ChainPolicy
	rules    []expression
}

func (c *chain) add(rules ...expression) { c.rules = append(c.rules, rules...) }

// branch adds a chain for the packets of one family, so that those of the other one pass its rules at the cost of one.
func (t *table) branch(c *chain, f family) *chain {
	branch := &chain{name: c.name + f.suffix}
	c.add(rule(f.packet(), jump(branch.name)))
	t.chains = append(t.chains, branch)
	return branch
}

// apply makes the kernel's table equal to this one, in one transaction: by elements of sets alone where these are all that
// differs, and else by replacing it. It writes nothing if nothing differs.
func (t table) apply() error {
	conn, err := nftables.New(nftables.WithSockOptions(roomy))
	if err != nil {
		return err
	}
	wanted, err := t.shape()
	if err != nil {
		return err
	}
	have, err := read(conn, t.family)
	if err != nil {
		return fmt.Errorf("read table %s: %w", tableName, err)
	}
	if slices.Equal(have, wanted) {
		err = t.change(conn)
	} else {
		err = t.replace(conn)
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		return fmt.Errorf("write table %s: %w", tableName, err)
	}
	return nil
}

// roomy lets a transaction of many elements fit the buffers of the socket.
func roomy(conn *netlink.Conn) error {
	const room = 32 << 20
	return errors.Join(conn.SetWriteBuffer(room), conn.SetReadBuffer(room))
}

func (t table) definition() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: t.family}
}

func (t table) change(conn *nftables.Conn) error {
	for i, s := range t.sets {
		definition := s.definition(t.definition(), uint32(i+1))
		elements, err := conn.GetSetElements(definition)
		if err != nil {
			return fmt.Errorf("read set %s: %w", s.name, err)
		}
		old := s.decode(elements)
		if err := inParts(s.encode(missing(old, s.elements)), definition, conn.SetDeleteElements); err != nil {
			return err
		}
		if err := inParts(s.encode(missing(s.elements, old)), definition, conn.SetAddElements); err != nil {
			return err
		}
	}
	return nil
}

// replace deletes the table and makes it anew. It is added first because only what exists can be deleted.
func (t table) replace(conn *nftables.Conn) error {
	conn.AddTable(t.definition())
	conn.DelTable(t.definition())
	conn.AddTable(t.definition())
	for _, c := range t.chains { // elements and rules jump to them
		conn.AddChain(c.definition(t.definition()))
	}
	for i, s := range t.sets {
		definition := s.definition(t.definition(), uint32(i+1))
		if err := conn.AddSet(definition, nil); err != nil {
			return err
		}
		if err := inParts(s.encode(missing(s.elements, nil)), definition, conn.SetAddElements); err != nil {
			return err
		}
	}
	for _, c := range t.chains {
		if err := t.addRules(conn, c); err != nil {
			return err
		}
	}
	return nil
}

func (t table) addRules(conn *nftables.Conn, c *chain) error {
	for _, r := range c.rules {
		mark, err := fingerprint(t.family, r)
		if err != nil {
			return err
		}
		conn.AddRule(&nftables.Rule{
			Table: t.definition(), Chain: c.definition(t.definition()), Exprs: r,
			UserData: userdata.AppendString(nil, userdata.TypeComment, mark),
		})
	}
	return nil
}

// inParts calls with so many elements at once as fit one message.
func inParts(all []nftables.SetElement, s *nftables.Set, call func(*nftables.Set, []nftables.SetElement) error) error {
	const fit = 256
	for part := range slices.Chunk(all, fit) {
		if err := call(s, part); err != nil {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
	}
	return nil
}

func (c *chain) definition(t *nftables.Table) *nftables.Chain {
	d := &nftables.Chain{Name: c.name, Table: t}
	if c.kind != "" {
		d.Type, d.Hooknum, d.Priority, d.Policy = c.kind, c.hook, &c.priority, &c.policy
	}
	return d
}

// fingerprint tells rules apart. Each rule in the kernel carries its own as a comment, because the kernel does not give
// rules back as they were written.
func fingerprint(f nftables.TableFamily, r expression) (string, error) {
	hash := sha256.New()
	for _, e := range r {
		bytes, err := expr.Marshal(byte(f), e)
		if err != nil {
			return "", fmt.Errorf("marshal %T: %w", e, err)
		}
		hash.Write(bytes)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// shape describes all but elements, sorted but for the rules of a chain.
func (t table) shape() ([]string, error) {
	lines := map[string]struct{}{}
	for _, s := range t.sets {
		lines["set "+shape(s.definition(t.definition(), 0))] = struct{}{}
	}
	for _, c := range t.chains {
		var marks []string
		for _, r := range c.rules {
			mark, err := fingerprint(t.family, r)
			if err != nil {
				return nil, err
			}
			marks = append(marks, mark)
		}
		lines[chainShape(c.definition(t.definition()), marks)] = struct{}{}
	}
	return slices.Sorted(maps.Keys(lines)), nil
}

func chainShape(c *nftables.Chain, marks []string) string {
	line := "chain " + c.Name
	if c.Hooknum != nil && c.Priority != nil && c.Policy != nil {
		line += fmt.Sprintf(" %s %d %d %d", c.Type, *c.Hooknum, *c.Priority, *c.Policy)
	}
	return line + " " + strings.Join(marks, " ")
}

// read returns the shape of the table that the kernel has, or nothing if there is none.
func read(conn *nftables.Conn, f nftables.TableFamily) ([]string, error) {
	if exists, err := tableExists(conn, f); err != nil || !exists {
		return nil, err
	}
	sets, err := conn.GetSets(&nftables.Table{Name: tableName, Family: f})
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	chains, err := conn.ListChainsOfTableFamily(f)
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	marks, err := readMarks(f)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	var lines []string
	for _, s := range sets {
		lines = append(lines, "set "+shape(s))
	}
	for _, c := range chains {
		if c.Table.Name == tableName {
			lines = append(lines, chainShape(c, marks[c.Name]))
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// readMarks returns the fingerprints of our rules by chain. The library reads rules only if it knows all their expressions.
func readMarks(f nftables.TableFamily) (map[string][]string, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	name, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_RULE_TABLE, Data: []byte(tableName + "\x00")}})
	if err != nil {
		return nil, err
	}
	messages, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{byte(f), unix.NFNETLINK_V0, 0, 0}, name...),
	})
	if err != nil {
		return nil, err
	}
	marks := map[string][]string{} // chain → fingerprints
	for _, m := range messages {
		chain, mark, err := readMark(m.Data)
		if err != nil {
			return nil, err
		}
		marks[chain] = append(marks[chain], mark)
	}
	return marks, nil
}

func readMark(message []byte) (chain, mark string, err error) {
	const header = 4
	if len(message) < header {
		return "", "", errors.New("a rule without a header")
	}
	attributes, err := netlink.NewAttributeDecoder(message[header:])
	if err != nil {
		return "", "", err
	}
	for attributes.Next() {
		switch attributes.Type() {
		case unix.NFTA_RULE_CHAIN:
			chain = attributes.String()
		case unix.NFTA_RULE_USERDATA:
			mark, _ = userdata.GetString(attributes.Bytes(), userdata.TypeComment)
		}
	}
	return chain, mark, attributes.Err()
}

// removeTable deletes our table of that family, if there is one.
func removeTable(f nftables.TableFamily) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	if exists, err := tableExists(conn, f); err != nil || !exists {
		return err
	}
	conn.DelTable(table{family: f}.definition())
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("delete table %s: %w", tableName, err)
	}
	return nil
}

func tableExists(conn *nftables.Conn, f nftables.TableFamily) (bool, error) {
	tables, err := conn.ListTablesOfFamily(f)
	if err != nil {
		return false, fmt.Errorf("list tables: %w", err)
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName }), nil
}
