// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
)

// Writes have ended when nobody has written anything for still, looked at every pace.
const (
	pace  = time.Second
	still = 4

	// waitTimeout is how long they may go on.
	waitTimeout = 5 * time.Minute
)

// openLogs starts to count the writes of both clusters.
func (w *world) openLogs() (map[string]*audit.Log, error) {
	logs := map[string]*audit.Log{}
	for _, c := range []*lab.Cluster{w.Consumer, w.Provider} {
		log, err := audit.Open(c.AuditLog())
		if err != nil {
			return nil, err
		}
		logs[c.Name] = log
	}
	return logs, nil
}

// writes returns the writes since openLogs, once they have ended: those that follow after everything is Ready count too.
func (w *world) writes(ctx context.Context, s side, logs map[string]*audit.Log) (map[string][]audit.Request, error) {
	total := map[string][]audit.Request{}
	unchanged := 0
	err := lab.Until(ctx, "writes have ended", pace, waitTimeout, func(context.Context) error {
		fresh := 0
		for name, log := range logs {
			requests, err := log.Next()
			if err != nil {
				return err
			}
			writes := slices.DeleteFunc(requests, func(r audit.Request) bool { return !r.IsWrite() })
			total[name] = append(total[name], writes...)
			for _, write := range writes {
				if s.about(write, w.remote(s)) {
					fresh++
				}
			}
		}
		if fresh > 0 {
			unchanged = 0
			return fmt.Errorf("%d writes within %s", fresh, pace)
		}
		if unchanged++; unchanged < still {
			return fmt.Errorf("quiet for %d of %d s", unchanged, still)
		}
		return nil
	})
	return total, err
}

// about tells whether a write is about the pods of a side, at either end, where they are in the namespace remote: others, such
// as heartbeats of nodes, never end.
func (s side) about(write audit.Request, remote string) bool {
	return write.Namespace == s.namespace || write.Namespace == remote
}
