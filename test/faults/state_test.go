// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A state is what there is when all is healed and quiet.
type state struct {
	home    []homePod
	records []record
	remotes []remotePod
	twins   []twin
	runs    []run
	// namespaces are those of home that are offloaded.
	namespaces []string
	moves      []podMove
	// unmet says which objects of the load are not as they should be, in words.
	unmet []string
}

type homePod struct {
	uid, name string
	provider  string // "" for a pod that runs at home
	phase     corev1.PodPhase
	ready     bool
	leaving   bool
}

// record is a ShadowPod.
type record struct{ provider, name, home string }

// remotePod is a pod that a provider runs for a home pod.
type remotePod struct{ provider, name, home string }

// twin is a namespace of a provider that stands for one of home.
type twin struct{ provider, name, home string }

// podMove is a PodMove. Its phase is Succeeded or Failed when it is over.
type podMove struct {
	name, reason string
	phase        v1alpha1.MovePhase
}

// counts are how much there is for each home pod.
type counts struct {
	homes map[string]homePod // by UID
	// records and remotes are those at one provider: the key is what of returns.
	records, remotes map[string]int
	live             map[string]int // containers that run, by UID
}

func of(provider, home string) string { return provider + "/" + home }

func count(s state) counts {
	c := counts{homes: map[string]homePod{}, records: map[string]int{}, remotes: map[string]int{}, live: map[string]int{}}
	for _, p := range s.home {
		c.homes[p.uid] = p
	}
	for _, r := range s.records {
		c.records[of(r.provider, r.home)]++
	}
	for _, r := range s.remotes {
		c.remotes[of(r.provider, r.home)]++
	}
	for _, r := range s.runs {
		if r.lives {
			c.live[r.home]++
		}
	}
	return c
}

// checkState finds what is lost and what is left over.
func checkState(s state) []violation {
	var found []violation
	for _, text := range s.unmet {
		found = append(found, violation{ruleLost, text})
	}
	for _, m := range s.moves {
		if !m.phase.IsOver() {
			found = append(found, violation{ruleLost, fmt.Sprintf("PodMove %s is not over, but %s: %s", m.name, m.phase, m.reason)})
		}
	}
	c := count(s)
	for _, p := range s.home {
		if why := c.missing(p); why != "" {
			found = append(found, violation{ruleLost, fmt.Sprintf("home pod %s on %q %s", p.name, p.provider, why)})
		}
	}
	for _, r := range s.records {
		if p, ok := c.homes[r.home]; !ok || p.provider != r.provider {
			found = append(found, violation{ruleOrphan, fmt.Sprintf("%s: ShadowPod %s of home pod %s, which is not bound to it", r.provider, r.name, r.home)})
		}
	}
	for _, r := range s.remotes {
		if c.records[of(r.provider, r.home)] == 0 {
			found = append(found, violation{ruleOrphan, fmt.Sprintf("%s: pod %s without a ShadowPod", r.provider, r.name)})
		}
	}
	return append(append(found, checkLeftRunning(c)...), checkTwins(s)...)
}

// missing says what a home pod lacks, if anything.
func (c *counts) missing(p homePod) string {
	key := of(p.provider, p.uid)
	switch {
	case p.leaving:
		return "is being deleted and stays"
	case final(p.phase):
		return ""
	case !p.ready:
		return fmt.Sprintf("is %s and not Ready", p.phase)
	case c.live[p.uid] != 1:
		return fmt.Sprintf("has %d containers that run, want 1", c.live[p.uid])
	case p.provider != "" && (c.records[key] != 1 || c.remotes[key] != 1):
		return fmt.Sprintf("has %d records and %d pods there, want 1 and 1", c.records[key], c.remotes[key])
	}
	return ""
}

// checkEmpty finds what is left when the users have deleted everything.
func checkEmpty(s state) []violation {
	var found []violation
	left := func(format string, args ...any) {
		found = append(found, violation{ruleOrphan, fmt.Sprintf(format, args...)})
	}
	for _, p := range s.home {
		left("home pod %s is still there", p.name)
	}
	for _, r := range s.records {
		left("%s: ShadowPod %s is still there", r.provider, r.name)
	}
	for _, r := range s.remotes {
		left("%s: pod %s is still there", r.provider, r.name)
	}
	for _, m := range s.moves {
		left("PodMove %s is still there", m.name)
	}
	for _, t := range s.twins {
		left("%s: namespace %s is still there", t.provider, t.name)
	}
	for _, r := range s.runs {
		if r.lives {
			left("container %s of home pod %s still runs", r.instance, r.home)
		}
	}
	return found
}

// checkLeftRunning finds containers that run for nobody.
func checkLeftRunning(c counts) []violation {
	var found []violation
	for _, uid := range sortedKeys(c.live) {
		if p, ok := c.homes[uid]; !ok || final(p.phase) {
			found = append(found, violation{ruleOrphan, fmt.Sprintf("%d containers run for home pod %s, which is %q", c.live[uid], uid, p.phase)})
		}
	}
	return found
}

func checkTwins(s state) []violation {
	var found []violation
	offloaded := map[string]bool{}
	for _, ns := range s.namespaces {
		offloaded[ns] = true
	}
	for _, t := range s.twins {
		if !offloaded[t.home] {
			found = append(found, violation{ruleOrphan, fmt.Sprintf("%s: namespace %s of home namespace %s, which is not offloaded", t.provider, t.name, t.home)})
		}
	}
	return found
}
