// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"strings"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
)

// A ledger follows the audit logs of both clusters.
type ledger struct {
	logs    map[string]*audit.Log    // cluster → its log
	watches map[string]audit.Watches // cluster → the watches that are open there
}

// openLedger begins at the ends of the logs.
func openLedger(clusters ...*lab.Cluster) (*ledger, error) {
	l := &ledger{logs: map[string]*audit.Log{}, watches: map[string]audit.Watches{}}
	for _, c := range clusters {
		log, err := audit.Open(c.AuditLog())
		if err != nil {
			return nil, err
		}
		l.logs[c.Name], l.watches[c.Name] = log, audit.Watches{}
	}
	return l, nil
}

// next returns what Hanse asked for since the last call, by cluster.
func (l *ledger) next() (map[string][]audit.Request, error) {
	all := map[string][]audit.Request{}
	for cluster, log := range l.logs {
		requests, err := log.Next()
		if err != nil {
			return nil, err
		}
		l.watches[cluster].Follow(requests)
		for _, r := range requests {
			if strings.HasPrefix(r.Agent, "hanse") {
				all[cluster] = append(all[cluster], r)
			}
		}
	}
	return all, nil
}

// open counts the watches that Hanse has open, by cluster and program.
func (l *ledger) open() (map[string]int, error) {
	if _, err := l.next(); err != nil {
		return nil, err
	}
	open := map[string]int{}
	for cluster, watches := range l.watches {
		for _, agent := range []string{kubelet, manager} {
			open[cluster+": "+agent] = watches.Of(agent)
		}
	}
	return open, nil
}

// Hanse's programs, as they call themselves to API servers.
const (
	kubelet = "hanse-kubelet"
	manager = "hanse-manager"
)
