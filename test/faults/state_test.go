package faults

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// checkState finds what is lost and what is left over.
func checkState(s state) []violation {
	var found []violation
	lost := func(format string, args ...any) {
		found = append(found, violation{ruleLost, fmt.Sprintf(format, args...)})
	}
	orphan := func(format string, args ...any) {
		found = append(found, violation{ruleOrphan, fmt.Sprintf(format, args...)})
	}

	for _, text := range s.unmet {
		lost("%s", text)
	}
	homes, records, remotes, live := map[string]homePod{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, r := range s.records {
		records[r.provider+"/"+r.home]++
	}
	for _, r := range s.remotes {
		remotes[r.provider+"/"+r.home]++
	}
	for _, r := range s.runs {
		if r.lives {
			live[r.home]++
		}
	}
	for _, p := range s.home {
		homes[p.uid] = p
		key := p.provider + "/" + p.uid
		switch {
		case p.leaving:
			lost("home pod %s is being deleted and stays", p.name)
		case final(p.phase):
		case !p.ready:
			lost("home pod %s on %q is %s and not Ready", p.name, p.provider, p.phase)
		case live[p.uid] != 1:
			lost("%d containers run for home pod %s on %q, want 1", live[p.uid], p.name, p.provider)
		case p.provider != "" && (records[key] != 1 || remotes[key] != 1):
			lost("%s has %d records and %d pods for home pod %s, want 1 and 1", p.provider, records[key], remotes[key], p.name)
		}
	}
	for _, r := range s.records {
		if p, ok := homes[r.home]; !ok || p.provider != r.provider {
			orphan("%s: ShadowPod %s of home pod %s, which is not bound to it", r.provider, r.name, r.home)
		}
	}
	for _, r := range s.remotes {
		if records[r.provider+"/"+r.home] == 0 {
			orphan("%s: pod %s without a ShadowPod", r.provider, r.name)
		}
	}
	return append(append(found, checkLeftRunning(homes, live)...), checkTwins(s)...)
}

// checkLeftRunning finds containers that run for nobody.
func checkLeftRunning(homes map[string]homePod, live map[string]int) []violation {
	var found []violation
	for _, uid := range sortedKeys(live) {
		if p, ok := homes[uid]; !ok || final(p.phase) {
			found = append(found, violation{ruleOrphan, fmt.Sprintf("%d containers run for home pod %s, which is %q", live[uid], uid, p.phase)})
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
